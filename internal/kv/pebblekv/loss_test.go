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

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// logged returns the options of a store that syncs only when Sync is called.
func logged(fs vfs.FS) Options {
	return Options{Dir: "s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, SyncInterval: time.Hour, FS: fs}
}

// put commits record n. Its size gives logs several blocks but no large chunk: Pebble
// searches a torn chunk for a flipped bit, in time quadratic in its size.
func put(t *testing.T, s *Store, n int, rng *rand.Rand) {
	t.Helper()
	size := rng.IntN(300)
	if rng.IntN(8) == 0 {
		size = rng.IntN(3000)
	}
	value := bytes.Repeat([]byte{byte(rng.IntN(255)) + 1, 7}, size/2)
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		tx.Set(fmt.Appendf(nil, "k%06d", n), value)
		return nil
	})
	must(t, err)
}

// recordsOf returns the number of records in a store. It fails if one before the last is
// missing.
func recordsOf(s *Store) (n int, err error) {
	err = s.View(context.Background(), func(r kv.Reader) error {
		return r.Scan([]byte("k"), []byte("l"), false, func(key, _ []byte) (bool, error) {
			if string(key) != fmt.Sprintf("k%06d", n) {
				return false, fmt.Errorf("record %d is missing before %s", n, key)
			}
			n++
			return true, nil
		})
	})
	return n, err
}

// stepped calls step before everything that changes a file or a folder.
func stepped(fs vfs.FS, step func()) vfs.FS {
	return hooked(fs, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			step()
		}
		return nil
	})
}

// A crash at any step, which tears unsynced data, never looks like damage and loses nothing
// that was synced.
func TestCrashIsNeverDamage(t *testing.T) {
	const wanted = 300
	crashes, torn := 0, 0
	for seed := uint64(0); crashes < wanted && !t.Failed(); seed++ {
		n, m := crashAtSteps(t, seed)
		crashes, torn = crashes+n, torn+m
	}
	t.Logf("%d crashes; %d lost unsynced writes", crashes, torn)
	if torn < crashes/20 {
		t.Errorf("only %d of %d crashes lost writes, too few to prove anything", torn, crashes)
	}
}

// crashAtSteps writes a store, simulates crashes meanwhile, and opens what each leaves.
func crashAtSteps(t *testing.T, seed uint64) (crashes, torn int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var (
		mem       = harness.NewCrashFS()
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
			names, _ := o.FS.List("s")
			now, _ := mem.List("s")
			t.Errorf("seed %d, crash %d: Open: %v; the folder has %q, and had %q", seed, crashes, err, names, now)
			return
		}
		n, err := recordsOf(s)
		if err = errors.Join(err, s.Close()); err != nil || n < least {
			t.Errorf("seed %d, crash %d: %d records survived, %d were synced, %v", seed, crashes, n, least, err)
		}
		crashes++
		if n < int(committed.Load()) {
			torn++
		}
	}
	o := logged(stepped(mem, crash))
	s, err := Open(o)
	must(t, err)
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
		must(t, err)
		synced.Store(int64(n + 1))
	}
	must(t, s.Close())
	return crashes, torn
}

// killedStore returns what a SIGKILL leaves of a store with two unflushed logs. synced is
// the number of its synced records.
func killedStore(t *testing.T, rng *rand.Rand) (killed *harness.CrashFS, synced int) {
	t.Helper()
	mem := harness.NewCrashFS()
	wait := make(chan struct{})
	var waits atomic.Bool
	s, err := Open(logged(hooked(mem, func(op errorfs.Op) error {
		if waits.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			<-wait // logs stay unflushed
		}
		return nil
	})))
	must(t, err)
	n := 0
	some := func() {
		for range 20 + rng.IntN(40) {
			put(t, s, n, rng)
			n++
		}
	}
	some()
	must(t, s.db.Flush())
	waits.Store(true)
	some()
	_, err = s.db.AsyncFlush()
	must(t, err)
	some()
	must(t, s.Sync())
	synced = n
	some() // not synced, only in the system's buffers
	killed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	close(wait)
	must(t, s.Close())
	return killed, synced
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, err, f.Close())
	return b
}

func writeAll(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err, f.Sync(), f.Close())
}

// logMarks returns the marks of the two logs of a killed store.
func logMarks(t *testing.T, killed vfs.FS) []mark {
	t.Helper()
	marks, err := place{killed, "s"}.readMarks()
	marks = slices.DeleteFunc(marks, func(m mark) bool { _, isLog := logNumber(m.File); return !isLog })
	if err != nil || len(marks) != 2 {
		t.Fatalf("the guard has the logs %v, %v", marks, err)
	}
	return marks
}

// spoilLog damages the first size bytes of a log: how is flip, cut, empty, zeros or remove.
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
		must(t, fs.Remove(name))
		return
	}
	writeAll(t, fs, name, b)
}

func listing(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("s")
	must(t, err)
	var all []string
	for _, name := range names {
		if name != "LOCK" {
			all = append(all, fmt.Sprintf("%s %x", name, bytes.Clone(readAll(t, fs, fs.PathJoin("s", name)))))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// copyMem copies a store as a SIGKILL leaves it.
func copyMem(fs *harness.CrashFS) *harness.CrashFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
}

// openDamaged opens a damaged store read-only and for writing. Either Open fails and changes
// nothing, or the store has every synced record.
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
				t.Errorf("read-only %v: opened with %d records of %d, %v, %v", readOnly, n, synced, err, lost)
			}
			continue
		}
		if !errors.As(err, &lost) || !errors.Is(err, kv.ErrDamaged) {
			t.Errorf("read-only %v: Open: %v", readOnly, err)
		}
		if listing(t, fs) != before {
			t.Errorf("read-only %v: Open failed, but changed the folder", readOnly)
		}
	}
	return lost
}

// Open detects damage to the synced part of a log, and changes nothing. With AcceptLoss, it
// opens the store without the lost writes.
func TestDamagedLog(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	refused := map[string]int{}
	for round := range 4 {
		killed, synced := killedStore(t, rng)
		for _, mark := range logMarks(t, killed) {
			for _, how := range []string{"flip", "cut", "empty", "zeros", "remove"} {
				fs := copyMem(killed)
				spoilLog(t, fs, fs.PathJoin("s", mark.File), how, int(mark.Bytes), rng)
				lost := openDamaged(t, fs, synced)
				if lost != nil {
					refused[how]++
					acceptAndCheck(t, fs, lost, mark)
				}
				if t.Failed() {
					t.Fatalf("round %d, %s of %s", round, how, mark.File)
				}
			}
		}
	}
	t.Logf("refused: %v", refused)
	for _, how := range []string{"flip", "cut", "empty", "zeros", "remove"} {
		if refused[how] != 8 {
			t.Errorf("%s: only %d of 8 were detected", how, refused[how])
		}
	}
}

// acceptAndCheck opens a store without its lost writes, and checks that it works.
func acceptAndCheck(t *testing.T, fs *harness.CrashFS, lost *LostWrites, mark mark) {
	t.Helper()
	if lost.Log != mark.File || lost.Bytes <= 0 || !strings.Contains(lost.Error(), mark.File) {
		t.Errorf("%s is damaged: %v", mark.File, lost)
	}
	o := logged(fs)
	o.AcceptLoss = lost.Log
	for range 2 { // the second time, there is nothing to accept
		s, err := Open(o)
		must(t, err)
		n, err := recordsOf(s)
		must(t, err)
		put(t, s, n, rand.New(rand.NewPCG(0, 0)))
		if again, err := recordsOf(s); err != nil || again != n+1 {
			t.Errorf("%d records, then %d, %v", n, again, err)
		}
		must(t, s.Close())
	}
	if _, err := fs.Stat(fs.PathJoin("s", lost.Log+lostSuffix)); err != nil && !strings.Contains(lost.What, "gone") {
		t.Errorf("the damaged log was not set aside: %v", err)
	}
}

// A crash while a loss is accepted loses nothing more: accepting it again gives the same store.
func TestCrashWhileAcceptingLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	killed, synced := killedStore(t, rng)
	first := logMarks(t, killed)[0].File
	b := readAll(t, killed, killed.PathJoin("s", first))
	b[len(b)/2] ^= 1
	writeAll(t, killed, killed.PathJoin("s", first), b)
	records := func(fs vfs.FS) int {
		o := logged(fs)
		o.AcceptLoss = first
		s, err := Open(o)
		must(t, err)
		n, err := recordsOf(s)
		must(t, err, s.Close())
		return n
	}
	want := records(copyMem(killed))
	if want == 0 || want >= synced {
		t.Fatalf("%d records of %d survived", want, synced)
	}
	mem, steps := copyMem(killed), 0
	o := logged(stepped(mem, func() {
		steps++
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if got := records(crashed); got != want {
			t.Errorf("crash before step %d: %d records survived, want %d", steps, got, want)
		}
		if kept := readAll(t, crashed, crashed.PathJoin("s", first+lostSuffix)); len(kept) != len(b) {
			t.Errorf("crash before step %d: %d bytes of the damaged log are kept, want %d", steps, len(kept), len(b))
		}
	}))
	o.AcceptLoss, o.Logger = first, slog.New(slog.DiscardHandler)
	if err := newStoreFS(o.FS, o).prove(o); err != nil || steps < 8 {
		t.Errorf("%d steps, %v", steps, err)
	}
}

// oldestLog returns the number of the oldest unflushed log, which Pebble wrote to its manifest.
func TestFlushedLogs(t *testing.T) {
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(6, 6))
	s, err := Open(logged(mem))
	must(t, err)
	for n := range 8 {
		put(t, s, n, rng)
		must(t, s.db.Flush())
		logs, err := s.fs.logsFrom(0)
		must(t, err)
		newest, _ := logNumber(logs[len(logs)-1])
		oldest, err := s.fs.oldestLog(manifestIn(t, mem, "s"))
		if err != nil || oldest != newest || oldest == 0 {
			t.Errorf("oldest unflushed log %d, want the newest of %v: %v", oldest, logs, err)
		}
	}
	must(t, s.Close())
	for _, edit := range [][]byte{nil, {1}, {1, 5, 'a'}, {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, {2}, {2, 0x80}, {3, 7}} {
		if n := flushedBelow(edit); n != 0 {
			t.Errorf("%x has log number %d", edit, n)
		}
	}
}
