package intern

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// copyOf returns a store with the same rows.
func copyOf(s *memkv.Store) *memkv.Store { return s.Copy(memkv.Options{Merger: dict.Merger{}}) }

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
	in, err := Open(t.Context(), h.store, Options{
		Alone: true, FilterBytes: []int64{1 << 30, 300 << 10}[h.rng.IntN(2)], CacheBytes: 4096, FilterFile: h.file,
		Settings: dict.Settings{ShardBits: 8, LeaseSize: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := in.(*Drawer)
	k := d.strings
	k.fillAfter = 1 << 30
	if k.saveEvery = time.Hour; h.rng.IntN(3) == 0 {
		k.saveEvery = 0
	}
	if h.rng.IntN(4) == 0 {
		k.fillAfter = 0
		h.rebuilt++
	}
	restored := func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.restored } // filling in the background may give up
	if restored() {
		h.restored++
	}
	for range 1 + h.rng.IntN(12) {
		h.batch(t, d)
		if h.rng.IntN(5) == 0 {
			h.olderStore = copyOf(h.store)
		}
	}
	if restored() && h.rng.IntN(2) == 0 {
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
	if err := d.Prepare(t.Context(), nil, 200); err != nil {
		t.Fatal(err)
	}
	if k := d.strings; k.save != nil && h.rng.IntN(2) == 0 { // small slices
		if _, err := k.save.step(1 + h.rng.IntN(100_000)); err != nil {
			t.Fatal(err)
		}
	}
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
	if err := put(t.Context(), h.store, d, &b); err != nil {
		t.Fatal(err)
	}
	for i := range known.Len() {
		if id := known.ID(i); id != dict.None && id != b.ID(i) {
			t.Fatalf("a string with id %d got the id %d: a filter called it new", id, b.ID(i))
		}
	}
	d.Committed(&b)
}

// end ends the process and changes what it leaves.
func (h *fileHistory) end(t *testing.T, d *Drawer) {
	t.Helper()
	if h.rng.IntN(2) == 0 {
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	} else { // a crash
		d.leases.closeOnce.Do(func() { close(d.leases.closing) })
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
		if err := os.WriteFile(h.file, b, 0o600); err != nil {
			t.Fatal(err)
		}
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
	for seed := range uint64(8) {
		h := &fileHistory{rng: rand.New(rand.NewPCG(seed, 7)), store: memkv.Open(memkv.Options{Merger: dict.Merger{}}), file: filepath.Join(t.TempDir(), "filters")}
		for range 60 {
			h.round(t)
		}
		restored, refused, rebuilt, saves = restored+h.restored, refused+h.refused, rebuilt+h.rebuilt, saves+h.saves
	}
	t.Logf("filters restored in %d rounds, rebuilt in %d, ready at the end of %d; %d files damaged", restored, rebuilt, saves, refused)
	if restored < 50 || refused < 20 || saves < 50 {
		t.Error("too few to prove anything")
	}
}

// TestFilterFileIsUsed: after a clean stop, the filters are ready when the store is open, and tell most new
// strings. After a crash they are ready as soon as the strings since the last save are read.
func TestFilterFileIsUsed(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	store, file := memkv.Open(memkv.Options{Merger: dict.Merger{}}), filepath.Join(t.TempDir(), "filters")
	open := func() *Drawer {
		in, err := Open(t.Context(), store, Options{Alone: true, FilterFile: file})
		if err != nil {
			t.Fatal(err)
		}
		d, _ := in.(*Drawer)
		return d
	}
	fill := func(d *Drawer) {
		for range 20 {
			var b Batch
			for range 100 {
				s := draw(rng, 1<<30)
				b.Add(s.ns, []byte(s.s))
			}
			if err := d.Prepare(t.Context(), &b, 200); err != nil {
				t.Fatal(err)
			}
			if err := put(t.Context(), store, d, &b); err != nil {
				t.Fatal(err)
			}
			d.Committed(&b)
		}
	}
	d := open()
	fill(d)
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d = open()
	if !d.strings.restored || len(d.strings.lacking) > 0 {
		t.Fatalf("after a clean stop: restored %v, %d leases are lacking", d.strings.restored, len(d.strings.lacking))
	}
	fill(d)
	d.leases.background.Wait()
	if !d.strings.ready.Load() {
		t.Fatal("the filters are not ready")
	}
	wrong := 0
	for range 1000 {
		if !d.strings.isNew(dict.DID, false, 0, cacheKey{rng.Uint64(), rng.Uint64()}) {
			wrong++
		}
	}
	if wrong > 100 {
		t.Errorf("of 1000 new strings, %d are not called new", wrong)
	}
	d = open() // a crash: no Close
	if n := len(d.strings.lacking); !d.strings.restored || n == 0 || n > 4 {
		t.Errorf("after a crash: restored %v, %d leases are lacking", d.strings.restored, n)
	}
	fill(d)
	d.leases.background.Wait()
	if !d.strings.ready.Load() {
		t.Error("after a crash: the filters are not ready")
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", st.Mode(), err)
	}
}

// TestFilterFileOfACopy: a copy of a running store is opened elsewhere, and its file comes back beside the
// original, which has used more ids of a lease that both know.
func TestFilterFileOfACopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	original, dir := memkv.Open(memkv.Options{Merger: dict.Merger{}}), t.TempDir()
	open := func(store kv.Store, file string) *Drawer {
		in, err := Open(t.Context(), store, Options{Alone: true, FilterFile: filepath.Join(dir, file)})
		if err != nil {
			t.Fatal(err)
		}
		d, _ := in.(*Drawer)
		return d
	}
	add := func(d *Drawer, store kv.Store) *Batch {
		var b Batch
		for range 100 {
			s := draw(rng, 1<<30)
			b.Add(s.ns, []byte(s.s))
		}
		if err := d.Prepare(t.Context(), &b, 200); err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), store, d, &b); err != nil {
			t.Fatal(err)
		}
		d.Committed(&b)
		return &b
	}
	d := open(original, "first")
	add(d, original)
	copied := copyOf(original)
	late := add(d, original) // of a lease that the copy has, too
	elsewhere := open(copied, "second")
	elsewhere.strings.fillAfter = 0
	for range 2 {
		add(elsewhere, copied)
		elsewhere.leases.background.Wait()
	}
	if err := elsewhere.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := open(original, "second")
	if _, err := os.Stat(back.strings.path); err != nil {
		t.Fatal(err)
	}
	for i := range late.items {
		it := &late.items[i]
		back.leases.background.Wait()
		if back.strings.restored {
			back.strings.ready.Store(true)
		}
		if back.strings.isNew(it.ns, it.author != noAuthor, it.tid, late.settled(it)) {
			t.Fatalf("string %d of the original is called new, with the file of a copy", i)
		}
	}
	if back.strings.restored {
		t.Error("the file of a copy that went its own way is used")
	}
}

// TestFilterFileCannotBeWritten: a save that fails is logged, and changes nothing else.
func TestFilterFileCannotBeWritten(t *testing.T) {
	store, _ := filled(t, Options{})
	in, err := Open(t.Context(), store, Options{Alone: true, FilterFile: filepath.Join(t.TempDir(), "missing", "filters")})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := in.(*Drawer)
	d.strings.fillAfter, d.strings.saveEvery = 0, 0
	for range 3 {
		var b Batch
		b.Add(dict.DID, []byte(drawDID(rand.New(rand.NewPCG(1, 1)), 1<<30)))
		if err := d.Prepare(t.Context(), &b, 2); err != nil {
			t.Fatal(err)
		}
		d.leases.background.Wait()
		if err := put(t.Context(), store, d, &b); err != nil {
			t.Fatal(err)
		}
		d.Committed(&b)
	}
	if !d.strings.ready.Load() || d.strings.save != nil {
		t.Errorf("ready %v, save %v", d.strings.ready.Load(), d.strings.save)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// FuzzFilterFile: any file is read or refused, without a panic and with little memory.
func FuzzFilterFile(f *testing.F) {
	store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
	in, err := Open(f.Context(), store, Options{Alone: true, FilterFile: filepath.Join(f.TempDir(), "filters")})
	if err != nil {
		f.Fatal(err)
	}
	if err := in.Close(f.Context()); err != nil {
		f.Fatal(err)
	}
	d, _ := in.(*Drawer)
	good, err := os.ReadFile(d.strings.path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:len(good)-4])
	f.Add([]byte(filterMagic))
	for _, blocks := range []int{firstBlocks, firstBlocks / 2, firstBlocks / 4, 3} {
		k := newStringFilter(1<<20, d.strings.log)
		k.path, k.dids.parts = filepath.Join(f.TempDir(), "filters"), []filterPart{{blocks: make([][8]uint64, blocks)}}
		s, err := k.beginSave(nil, nil)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := s.step(1 << 30); err != nil {
			f.Fatal(err)
		}
		if err := s.finish(k.path); err != nil {
			f.Fatal(err)
		}
		file, err := os.ReadFile(k.path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file[:len(file)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		k := newStringFilter(1<<20, d.strings.log)
		_, err := k.readFilters(binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli)))
		if err == nil {
			for _, f := range append(slices.Collect(maps.Values(k.spans)), &k.dids, &k.others) {
				for i := range f.parts {
					if n := len(f.parts[i].blocks); n != firstBlocks<<i {
						t.Fatalf("part %d has %d blocks", i, n)
					}
				}
			}
		}
		if err == nil && k.size > int64(len(body)) {
			t.Errorf("%d bytes of filters from %d", k.size, len(body))
		}
	})
}
