package intern

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// copyOf returns a store with the same rows.
func copyOf(s *memkv.Store) *memkv.Store { return s.Copy(memkv.Options{Merger: Merger{}}) }

// A fileHistory is a random history of a store and the file of its filters.
type fileHistory struct {
	rng   *rand.Rand
	store *memkv.Store
	file  string
	n     int // strings drawn so far

	olderStore *memkv.Store // as it was at some time; may be nil
	olderFile  []byte

	restored, refused, rebuilt, saves int
}

// round opens the store, creates strings, and ends in one of many ways. Whatever happens, every string
// keeps its id: the dictionary is compared with itself, read both ways.
func (h *fileHistory) round(t *testing.T) {
	t.Helper()
	d, _ := openAs(t, h.store, Options{
		Alone: true, FilterBytes: []int64{1 << 30, 1 << 30, 300 << 10, 300 << 10, 40 << 10}[h.rng.IntN(5)], CacheBytes: 4096, FilterFile: h.file,
		Settings: dict.Settings{ShardBits: 8, LeaseSize: 64},
	}).(*Drawer)
	k := d.strings
	k.fillAfter = 1 << 30
	if h.rng.IntN(2) == 0 {
		k.fillAfter = 0
		h.rebuilt++
	}
	if h.n > 0 && k.ready.Load() {
		h.restored++
	}
	for range 1 + h.rng.IntN(12) {
		h.batch(t, d)
		if h.rng.IntN(5) == 0 {
			h.olderStore = copyOf(h.store)
		}
	}
	if h.rng.IntN(8) > 0 {
		d.leases.background.Wait()
	}
	if k.ready.Load() {
		h.saves++
	}
	h.end(t, d)
}

// batch resolves some strings, half of them known. It fails if one that the store has gets another id.
func (h *fileHistory) batch(t *testing.T, d *Drawer) {
	t.Helper()
	var b, known Batch
	for range 60 {
		n := h.n
		if h.rng.IntN(2) == 0 {
			n = h.rng.IntN(h.n + 1)
		} else {
			h.n++
		}
		s := draw(rand.New(rand.NewPCG(uint64(n), 1)), 1<<30)
		b.Add(s.ns, []byte(s.s))
		known.Add(s.ns, []byte(s.s))
	}
	viewOf(t, h.store, func(r kv.Reader) error { return Lookup(r, &known) })
	must(t, put(t.Context(), h.store, d, &b))
	for i := range known.Len() {
		if id := known.ID(i); id != dict.None && id != b.ID(i) {
			t.Fatalf("a string with id %d got the id %d: a filter called it new", id, b.ID(i))
		}
	}
}

// end ends the process and changes what it leaves.
func (h *fileHistory) end(t *testing.T, d *Drawer) {
	t.Helper()
	if h.rng.IntN(3) > 0 {
		d.Close(t.Context())
	} else { // a crash
		d.leases.end()
		d.leases.background.Wait()
	}
	now, err := os.ReadFile(h.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	change := func(b []byte) {
		if b == nil {
			return
		}
		must(t, os.WriteFile(h.file, b, 0o600))
	}
	switch h.rng.IntN(10) {
	case 0, 1: // the newest writes are lost, but the file is not
		if h.olderStore != nil {
			h.store, h.olderStore = h.olderStore, nil
		}
	case 2, 3: // an older file
		change(h.olderFile)
	case 4: // damage
		if len(now) > 0 {
			b := bytes.Clone(now)
			if at := h.rng.IntN(len(b)); h.rng.IntN(3) == 0 {
				b[at] ^= 1 << h.rng.IntN(8)
			} else {
				clear(b[at:])
			}
			change(b[:len(b)-h.rng.IntN(2)*h.rng.IntN(len(b))])
			h.refused++
		}
	}
	if h.rng.IntN(3) == 0 {
		h.olderFile = now
	}
}

// TestFilterFile: whatever becomes of the file and the store between two starts, no filter calls a known
// string new.
func TestFilterFile(t *testing.T) {
	var restored, refused, rebuilt, saves int
	for seed := range uint64(5) {
		h := &fileHistory{rng: rand.New(rand.NewPCG(seed, 7)), store: memkv.Open(memkv.Options{Merger: Merger{}}), file: filepath.Join(t.TempDir(), "filters")}
		for range 60 {
			h.round(t)
		}
		restored, refused, rebuilt, saves = restored+h.restored, refused+h.refused, rebuilt+h.rebuilt, saves+h.saves
	}
	t.Logf("filters restored in %d rounds, rebuilt in %d, ready at the end of %d; %d files damaged", restored, rebuilt, saves, refused)
	if restored < 30 || refused < 15 || saves < 30 {
		t.Error("too few to prove anything")
	}
}

// TestFilterFileIsUsed: after a clean stop, the filters are ready when the store is open, and tell most new
// strings. After a crash the file is not used.
func TestFilterFileIsUsed(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	store, file := memkv.Open(memkv.Options{Merger: Merger{}}), filepath.Join(t.TempDir(), "filters")
	open := func() *Drawer {
		d, _ := openAs(t, store, Options{Alone: true, FilterFile: file}).(*Drawer)
		return d
	}
	fill := func(d *Drawer) {
		for range 20 {
			var b Batch
			for range 100 {
				s := draw(rng, 1<<30)
				b.Add(s.ns, []byte(s.s))
			}
			must(t, put(t.Context(), store, d, &b))
		}
	}
	d := open()
	fill(d)
	d.Close(t.Context())
	d = open()
	if !d.strings.ready.Load() {
		t.Fatal("after a clean stop, the filters are not ready")
	}
	fill(d)
	wrong := 0
	for range 1000 {
		if !d.strings.isNew(dict.DID, false, 0, cacheKey{rng.Uint64(), rng.Uint64()}) {
			wrong++
		}
	}
	if wrong > 100 {
		t.Errorf("of 1000 new strings, %d are not called new", wrong)
	}
	if d = open(); d.strings.ready.Load() { // a crash: no Close
		t.Error("after a crash, an old file is used")
	}
	d.strings.fillAfter = 0
	fill(d)
	d.leases.background.Wait()
	var unknown Batch
	unknown.Add(dict.DID, []byte("did:web:unknown.example.com"))
	err := store.Update(t.Context(), func(tx kv.Txn) error { _, err := d.Resolve(tx, &unknown); return err })
	if err != nil || !d.strings.ready.Load() {
		t.Fatal(err)
	}
	d.Close(t.Context()) // the Drawer was not told whether its last batch was committed
	if d = open(); d.strings.ready.Load() {
		t.Error("filters are used that may lack a string")
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", st.Mode(), err)
	}
}

// TestFilterFileCannotBeWritten: a save that fails is logged, and changes nothing else.
func TestFilterFileCannotBeWritten(t *testing.T) {
	store, _ := filled(t, Options{})
	d, _ := openAs(t, store, Options{Alone: true, FilterFile: filepath.Join(t.TempDir(), "missing", "filters")}).(*Drawer)
	d.strings.fillAfter = 0
	for range 3 {
		var b Batch
		b.Add(dict.DID, []byte(drawDID(rand.New(rand.NewPCG(1, 1)), 1<<30)))
		must(t, d.Prepare(t.Context(), &b, 2))
		d.leases.background.Wait()
		must(t, put(t.Context(), store, d, &b))
	}
	if !d.strings.ready.Load() {
		t.Error("the filters are not ready")
	}
	d.Close(t.Context())
}

// FuzzFilterFile: any file is read or refused, without a panic and with little memory.
func FuzzFilterFile(f *testing.F) {
	k := newStringFilter(1<<20, slog.New(slog.DiscardHandler))
	k.path = filepath.Join(f.TempDir(), "filters")
	k.add(dict.DID, false, 0, cacheKey{1, 2})
	must(f, k.saveAs(fileToken{}))
	good, err := os.ReadFile(k.path)
	must(f, err)
	f.Add(good[:len(good)-4])
	f.Add([]byte(filterMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		file, err := os.Create(filepath.Join(t.TempDir(), "filters"))
		must(t, err)
		t.Cleanup(func() { _ = file.Close() })
		_, err = file.Write(binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli)))
		if _, again := file.Seek(0, io.SeekStart); err != nil || again != nil {
			t.Fatal(err, again)
		}
		k := newStringFilter(1<<20, slog.New(slog.DiscardHandler))
		if err := k.readFile(file, make([]byte, len(fileToken{}))); err == nil && k.size > int64(len(body)) {
			t.Errorf("%d bytes of filters from %d", k.size, len(body))
		}
		if bytes.Equal(body, good[:len(good)-4]) && !k.dids.has(cacheKey{1, 2}.hash(&k.secrets)) {
			t.Error("the filter's key is missing")
		}
	})
}
