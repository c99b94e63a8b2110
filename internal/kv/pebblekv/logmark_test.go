package pebblekv

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// closedStore returns a store after a clean stop, and the number of its records.
func closedStore(t *testing.T, rng *rand.Rand) (closed *harness.CrashFS, synced int) {
	t.Helper()
	mem := harness.NewCrashFS()
	for range 2 { // the second Open must flush logs first
		s, err := Open(logged(mem))
		must(t, err)
		for range 30 {
			put(t, s, synced, rng)
			synced++
		}
		must(t, s.Close())
	}
	return mem, synced
}

// After a clean stop nothing depends on a log.
func TestDamagedLogAfterCleanStop(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	closed, synced := closedStore(t, rng)
	s := newStoreFS(closed, logged(closed))
	g, _, err := s.readGuard()
	if err != nil || len(g.Logs) > 0 {
		t.Fatalf("the guard has %v, %v", g.Logs, err)
	}
	logs, err := s.logsFrom(0)
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs: %v, %v", logs, err)
	}
	for _, how := range []string{"flip", "cut", "empty", "zeros"} {
		for range 10 {
			fs := copyMem(closed)
			for _, name := range logs {
				spoilLog(t, fs, fs.PathJoin("s", name), how, 1<<20, rng)
			}
			if lost := openDamaged(t, fs, synced); lost != nil {
				t.Errorf("%s: %v", how, lost)
			}
		}
	}
	fs := copyMem(closed)
	for _, name := range logs {
		spoilLog(t, fs, fs.PathJoin("s", name), "remove", 0, rng)
	}
	lost := openDamaged(t, fs, synced)
	if lost == nil || lost.Log != allLogs {
		t.Fatalf("without logs: %v", lost)
	}
	o := logged(fs)
	o.AcceptLoss = allLogs
	again, err := Open(o)
	must(t, err)
	n, err := recordsOf(again)
	if err = errors.Join(err, again.Close()); err != nil || n != synced {
		t.Errorf("%d records of %d survived, %v", n, synced, err)
	}
}

// readManifest returns the number of the oldest unflushed log, which Pebble wrote there.
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
		oldest, err := s.fs.readManifest(mem.PathJoin("s", s.fs.guard.Manifest), guard{})
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

// A sync writes the guard once; an Update never writes it. On a full disk, the sync succeeds
// without it; after any other error of the guard, the sync fails.
func TestCostOfLogMarks(t *testing.T) {
	var written atomic.Int64
	var fail atomic.Pointer[syscall.Errno]
	fs := hooked(vfs.NewMem(), func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, guardFile+".new") {
			written.Add(1)
			if err := fail.Load(); err != nil {
				return *err
			}
		}
		return nil
	})
	rng := rand.New(rand.NewPCG(8, 8))
	s, err := Open(logged(fs))
	must(t, err)
	n := 0
	some := func() {
		for range 50 {
			put(t, s, n, rng)
			n++
		}
	}
	some()
	must(t, s.Sync())
	for range 3 {
		written.Store(0)
		some()
		if w := written.Load(); w != 0 {
			t.Errorf("50 writes wrote the guard %d times", w)
		}
		for range 2 { // the second has nothing to sync
			must(t, s.Sync())
			if w := written.Load(); w != 1 {
				t.Errorf("a sync wrote the guard %d times", w)
			}
		}
	}
	full, broken := syscall.ENOSPC, syscall.EIO
	fail.Store(&full)
	some()
	if err := errors.Join(s.Sync(), s.Healthy()); err != nil {
		t.Errorf("no space for the guard: %v", err)
	}
	fail.Store(nil)
	if err := s.Sync(); err != nil || s.fs.unsaved {
		t.Errorf("with space again, unsaved is %v: %v", s.fs.unsaved, err)
	}
	fail.Store(&broken)
	some()
	if err := s.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the guard cannot be written: %v", err)
	}
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("closing: %v", err)
	}
	fail.Store(nil)
	if s, err = Open(logged(fs)); err != nil {
		t.Fatal(err)
	}
	got, err := recordsOf(s)
	if err = errors.Join(err, s.Close()); err != nil || got != n {
		t.Errorf("%d records of %d survived, %v", got, n, err)
	}
}

// On a nearly full disk, Close does not flush: the guarded logs hold the writes.
func TestCloseOnFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	fs := newSmallDisk(&free)
	s, err := Open(logged(fs))
	must(t, err)
	put(t, s, 0, rand.New(rand.NewPCG(9, 9)))
	free.Store(1)
	s.fs.look()
	must(t, s.Close())
	free.Store(1 << 40)
	g, _, err := newStoreFS(fs, logged(fs)).readGuard()
	if err != nil || len(g.Logs) != 1 || g.Logs[0].Bytes == 0 {
		t.Errorf("the guard has %v, %v", g.Logs, err)
	}
	if s, err = Open(logged(fs)); err != nil {
		t.Fatal(err)
	}
	n, err := recordsOf(s)
	if err = errors.Join(err, s.Close()); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

// After a write that stopped in the middle, later syncs do not move a log's mark: the bytes behind the
// torn ones say nothing.
func TestShortWriteMovesNoMark(t *testing.T) {
	fs := newStoreFS(vfs.NewMem(), Options{Dir: "/s"})
	file, err := fs.FS.Create("000001.log", vfs.WriteCategoryUnspecified)
	must(t, err)
	var free atomic.Int64
	free.Store(1)
	f := &walFile{File: errorfs.WrapFile(file, errorfs.InjectorFunc(full(&free))), fs: fs, written: logMark{Log: "000001.log"}}
	write := func(n int) {
		_, _ = f.Write(make([]byte, n))
		must(t, f.syncAndMark())
	}
	marked := func(want int64) {
		t.Helper()
		if len(fs.guard.Logs) != 1 || fs.guard.Logs[0].Bytes != want {
			t.Errorf("marks %+v, want %d bytes", fs.guard.Logs, want)
		}
	}
	write(10)
	marked(10)
	free.Store(0)
	write(10)
	marked(10)
	free.Store(1)
	write(10)
	marked(10)
}
