package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/kvtest"
)

// logged are the options of a store that syncs only when it is told to.
func logged(fs vfs.FS) Options {
	return Options{Dir: "s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, Marker: marker, SyncInterval: time.Hour, FS: fs}
}

// put commits record n. The sizes are such that logs have several blocks, and no chunk
// is large: the engine searches a torn one for the bit that was flipped, in a time that
// grows with the square of its size.
func put(t *testing.T, s *Store, n int, rng *rand.Rand) {
	t.Helper()
	size := rng.IntN(300)
	if rng.IntN(8) == 0 {
		size = rng.IntN(3000)
	}
	value := bytes.Repeat([]byte{byte(rng.IntN(255)) + 1, 7}, size/2)
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		tx.Set(marker, []byte{1})
		tx.Set(fmt.Appendf(nil, "k%06d", n), value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// recordsOf returns how many records a store holds, all from the first on.
func recordsOf(s *Store) (n int, err error) {
	err = s.View(context.Background(), func(r kv.Reader) error {
		return r.Scan([]byte("k"), []byte("l"), false, func(key, _ []byte) (bool, error) {
			if string(key) != fmt.Sprintf("k%06d", n) {
				return false, fmt.Errorf("record %d is missing, and %s is there", n, key)
			}
			n++
			return true, nil
		})
	})
	return n, err
}

// stepFS calls step after everything that changes a file or a folder.
type stepFS struct {
	vfs.FS

	step func()
}

type stepFile struct {
	vfs.File

	step func()
}

func (s stepFS) file(f vfs.File, err error) (vfs.File, error) {
	s.step()
	if err != nil {
		return nil, err
	}
	return stepFile{f, s.step}, nil
}

func (s stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.Create(name, c))
}

func (s stepFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(s.FS.ReuseForWrite(from, to, c))
}

func (s stepFS) OpenDir(name string) (vfs.File, error) { return s.file(s.FS.OpenDir(name)) }

func (s stepFS) Rename(from, to string) error { defer s.step(); return s.FS.Rename(from, to) }

func (s stepFS) Remove(name string) error { defer s.step(); return s.FS.Remove(name) }

func (f stepFile) Write(p []byte) (int, error) { defer f.step(); return f.File.Write(p) }

func (f stepFile) Sync() error { defer f.step(); return f.File.Sync() }

func (f stepFile) SyncData() error { defer f.step(); return f.File.SyncData() }

// A crash at any step, which tears whatever was not synced, is never taken for damage,
// and leaves all that was synced.
func TestCrashIsNeverDamage(t *testing.T) {
	const wanted = 2000
	crashes, torn := 0, 0
	for seed := uint64(0); crashes < wanted && !t.Failed(); seed++ {
		n, m := crashAtSteps(t, seed)
		crashes, torn = crashes+n, torn+m
	}
	t.Logf("%d crashes, of which %d lost writes that were not synced", crashes, torn)
	if torn < crashes/20 {
		t.Errorf("only %d of %d crashes lost anything", torn, crashes)
	}
}

// crashAtSteps writes a store, and opens what crashes in between leave.
func crashAtSteps(t *testing.T, seed uint64) (crashes, torn int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var (
		mem       = vfs.NewCrashableMem()
		mu        sync.Mutex // guards dice, crashes and torn
		dice      = rand.New(rand.NewPCG(seed, 2))
		committed atomic.Int64
		synced    atomic.Int64
	)
	crash := func() {
		mu.Lock()
		defer mu.Unlock()
		if dice.IntN(12) > 0 || t.Failed() {
			return
		}
		least := int(synced.Load())
		o := logged(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: dice.IntN(101), RNG: dice}))
		s, err := Open(o)
		if err != nil {
			t.Errorf("seed %d, crash %d: it is refused: %v", seed, crashes, err)
			return
		}
		n, err := recordsOf(s)
		if err = errors.Join(err, s.Close()); err != nil || n < least {
			t.Errorf("seed %d, crash %d: %d records are left of %d that were synced, %v", seed, crashes, n, least, err)
		}
		crashes++
		if n < int(committed.Load()) {
			torn++
		}
	}
	o := logged(stepFS{mem, crash})
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 400 {
		put(t, s, n, rng)
		committed.Add(1)
		switch rng.IntN(60) {
		case 0, 1, 2:
			err = s.Sync()
		case 3, 4:
			err = s.db.Flush()
		case 5:
			if err = s.Close(); err == nil {
				synced.Store(int64(n + 1))
				s, err = Open(o)
			}
		default:
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		synced.Store(int64(n + 1))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return crashes, torn
}

// slowTables holds up tables being made, so that logs stay unflushed.
type slowTables struct {
	vfs.FS

	wait chan struct{}
}

func (s slowTables) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		<-s.wait
	}
	return s.FS.Create(name, c)
}

// killedStore is what a SIGKILL leaves of a store with two logs that are not flushed:
// the first synced records are sure.
func killedStore(t *testing.T, rng *rand.Rand) (killed *vfs.MemFS, synced int) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	wait := make(chan struct{})
	s, err := Open(logged(slowTables{mem, wait}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	some := func() {
		for range 20 + rng.IntN(40) {
			put(t, s, n, rng)
			n++
		}
	}
	some()
	if _, err := s.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	some()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	synced = n
	some() // not synced, and still with the system
	killed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	close(wait)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return killed, synced
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

func writeAll(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// spoilLog damages a log in the way that is named, within its first size bytes.
func spoilLog(t *testing.T, fs vfs.FS, name, how string, size int, rng *rand.Rand) {
	t.Helper()
	b := readAll(t, fs, name)
	if size = min(size, len(b)); size == 0 && how != "remove" {
		return
	}
	switch how {
	case "flip":
		b[rng.IntN(size)] ^= 1 << rng.IntN(8)
	case "cut":
		b = b[:rng.IntN(size)]
	case "empty":
		b = nil
	case "zeros":
		at := rng.IntN(size)
		clear(b[at:min(at+4096, size)])
	case "remove":
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
		return
	}
	writeAll(t, fs, name, b)
}

func listing(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("s")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range names {
		if name != "LOCK" {
			all = append(all, fmt.Sprintf("%s %x", name, bytes.Clone(readAll(t, fs, fs.PathJoin("s", name)))))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// copyMem copies a store, as a SIGKILL leaves it.
func copyMem(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
}

// openDamaged opens a damaged store, as check and serve do. It is refused and left as
// it was, or holds what was synced.
func openDamaged(t *testing.T, fs vfs.FS, synced int) (lost *LostWrites) {
	t.Helper()
	before := listing(t, fs)
	for _, readOnly := range []bool{true, false} {
		o := logged(fs)
		o.ReadOnly, o.AcceptLoss = readOnly, "000000.log"
		s, err := Open(o)
		if err == nil {
			n, err := recordsOf(s)
			if err = errors.Join(err, s.Close()); err != nil || n < synced || lost != nil {
				t.Errorf("read-only %v: it opens with %d records of %d, %v, %v", readOnly, n, synced, err, lost)
			}
			continue
		}
		if !errors.As(err, &lost) || !errors.Is(err, kv.ErrDamaged) {
			t.Errorf("read-only %v: it is refused with %v", readOnly, err)
		}
		if listing(t, fs) != before {
			t.Errorf("read-only %v: it was refused, and changed", readOnly)
		}
	}
	return lost
}

// Damage to what was synced of a log is noticed before the store is used, and changes
// nothing; and a store may go on without what is lost, where an operator says so.
func TestDamagedLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	refused := map[string]int{}
	for round := range 8 {
		killed, synced := killedStore(t, rng)
		fs := newStoreFS(killed, logged(killed))
		g, _, err := fs.readGuard()
		if err != nil || len(g.Logs) != 2 {
			t.Fatalf("the guard has %v, %v", g.Logs, err)
		}
		for _, mark := range g.Logs {
			for _, how := range []string{"flip", "cut", "empty", "zeros", "remove"} {
				fs := copyMem(killed)
				spoilLog(t, fs, fs.PathJoin("s", mark.Log), how, int(mark.Bytes), rng)
				lost := openDamaged(t, fs, synced)
				if lost != nil {
					refused[how]++
					goOnWithout(t, fs, lost, mark)
				}
				if t.Failed() {
					t.Fatalf("round %d, %s of %s", round, how, mark.Log)
				}
			}
		}
	}
	t.Logf("refused: %v", refused)
	for _, how := range []string{"flip", "cut", "empty", "zeros", "remove"} {
		if refused[how] < 13 { // of 16; a flip may meet padding
			t.Errorf("%s: %d were refused", how, refused[how])
		}
	}
}

// goOnWithout has a store go on without the writes that it lost.
func goOnWithout(t *testing.T, fs *vfs.MemFS, lost *LostWrites, mark logMark) {
	t.Helper()
	if lost.Log != mark.Log || lost.Bytes <= 0 || !strings.Contains(lost.Error(), mark.Log) {
		t.Errorf("%s is damaged: %v", mark.Log, lost)
	}
	o := logged(fs)
	o.AcceptLoss = lost.Log
	for range 2 { // the second time there is nothing to accept
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		n, err := recordsOf(s)
		if err != nil {
			t.Error(err)
		}
		put(t, s, n, rand.New(rand.NewPCG(0, 0)))
		if again, err := recordsOf(s); err != nil || again != n+1 {
			t.Errorf("%d records, and then %d, %v", n, again, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fs.Stat(fs.PathJoin("s", lost.Log+lostSuffix)); err != nil && !strings.Contains(lost.What, "gone") {
		t.Errorf("the damaged log is not kept: %v", err)
	}
}

// A crash while a loss is being accepted leaves a store that is refused as before, or
// one that goes on; never one that has lost more.
func TestAcceptingLossIsCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	killed, synced := killedStore(t, rng)
	g, _, err := newStoreFS(killed, logged(killed)).readGuard()
	if err != nil || len(g.Logs) != 2 {
		t.Fatalf("the guard has %v, %v", g.Logs, err)
	}
	first := g.Logs[0]
	b := readAll(t, killed, killed.PathJoin("s", first.Log))
	b[len(b)/2] ^= 1
	writeAll(t, killed, killed.PathJoin("s", first.Log), b)
	records := func(fs vfs.FS) int {
		o := logged(fs)
		o.AcceptLoss = first.Log
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		n, err := recordsOf(s)
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := records(copyMem(killed))
	if want == 0 || want >= synced {
		t.Fatalf("%d records of %d are left", want, synced)
	}
	mem, steps := copyMem(killed), 0
	o := logged(stepFS{mem, func() {
		steps++
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if got := records(crashed); got != want {
			t.Errorf("after step %d %d records are left, not %d", steps, got, want)
		}
	}})
	s := &Store{fs: newStoreFS(o.FS, o), lock: &folderLock{}}
	o.AcceptLoss, o.Logger = first.Log, slog.New(slog.DiscardHandler)
	if err := s.prove(o); err != nil || steps < 8 {
		t.Errorf("%d steps, %v", steps, err)
	}
}
