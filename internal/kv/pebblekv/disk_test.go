package pebblekv

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// A store is not made among other files, and they stay as they are.
func TestForeignFolder(t *testing.T) {
	for name, foreign := range map[string]bool{"notes.txt": true, "sub/": true, ".ssh/": true, "skein.env": true, "lost+found/": false, "LOCK": false} {
		dir := t.TempDir()
		var err error
		if at := filepath.Join(dir, name); strings.HasSuffix(name, "/") {
			err = os.Mkdir(at, 0o700)
		} else {
			err = os.WriteFile(at, nil, 0o600)
		}
		must(t, err)
		s, err := Open(Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20})
		if foreign != errors.Is(err, ErrForeign) || !foreign && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			if left := names(t, dir); len(left) != 1 {
				t.Errorf("%s: the folder has %q", name, left)
			}
			continue
		}
		must(t, s.Close())
	}
}

// A floor of free space is never raised in silence.
func TestMinFree(t *testing.T) {
	least := leastFree(8 << 20)
	for floor, want := range map[uint64]uint64{0: least, least: least, 2 * least: 2 * least, 1: 0, least - 1: 0} {
		s, err := Open(Options{Dir: t.TempDir(), Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, MinFree: floor})
		if (want == 0) != errors.Is(err, ErrMinFree) || want > 0 && (err != nil || s.fs.reserve != want) {
			t.Errorf("%d: %v, %v", floor, s, err)
		}
		if err == nil {
			must(t, s.Close())
		}
	}
}

// A new store takes little space, and knows how much is free.
func TestSize(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 1 << 30}
	s, err := Open(o)
	must(t, err)
	if s.FreeBytes() == 0 {
		t.Error("the free bytes of the disk are unknown")
	}
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), nil); return nil }))
	taken := int64(0)
	for _, name := range names(t, dir) {
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			taken += sys.Blocks * 512
		}
	}
	if taken > 1<<20 {
		t.Errorf("an empty store takes %d bytes of disk", taken)
	}
	must(t, s.Close())
}

// smallDisk is a disk in memory with free bytes. Its writes fail with ENOSPC while free is 0.
type smallDisk struct {
	vfs.FS

	free *atomic.Int64
}

func newSmallDisk(free *atomic.Int64) smallDisk {
	return smallDisk{hooked(vfs.NewMem(), full(free)), free}
}

// full fails writes while free is 0.
func full(free *atomic.Int64) func(errorfs.Op) error {
	return func(op errorfs.Op) error {
		if free.Load() == 0 && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite) {
			return syscall.ENOSPC
		}
		return nil
	}
}

func (d smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(d.free.Load()), TotalBytes: 1 << 40}, nil
}

// With AwaitSpace, a write waits for space, and then succeeds without reopening the store.
// Reads succeed meanwhile. The end of the context, or Close, ends the wait.
func TestFullDiskIsAwaited(t *testing.T) {
	var free atomic.Int64
	free.Store(2 << 30)
	s, err := Open(Options{
		Dir: "/s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, FS: newSmallDisk(&free),
		SyncInterval: 10 * time.Millisecond, MinFree: 1 << 30, AwaitSpace: true, Fatal: func(err error) { t.Error(err) },
	})
	must(t, err)
	n := 0
	write := func(ctx context.Context) error {
		n++
		return s.Update(ctx, func(tx kv.Txn) error { tx.Set([]byte("a"), []byte{byte(n)}); return nil })
	}
	awaitFull := func() {
		t.Helper()
		for began := time.Now(); s.Healthy() == nil; time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("the store does not notice that the disk is full")
			}
		}
	}
	must(t, write(t.Context()))
	for round := range 3 {
		free.Store(1<<30 - 1)
		awaitFull()
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := write(short); !errors.Is(err, kv.ErrDiskFull) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("round %d: %v", round, err)
		}
		cancel()
		n--
		done := make(chan error, 1)
		go func() { done <- write(t.Context()) }()
		free.Store(1<<30 + 1<<20) // above the floor, but not by a tenth
		time.Sleep(spaceEvery * 3 / 2)
		if s.Healthy() == nil {
			t.Fatal("the store resumes at the floor: it would stop again at once")
		}
		if v := get(t, s, "a"); v != string([]byte{byte(round + 1)}) {
			t.Fatalf("round %d: a full disk: read %q", round, v)
		}
		select {
		case err := <-done:
			t.Fatalf("round %d: written to a full disk: %v", round, err)
		default:
		}
		free.Store(2 << 30)
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("the store does not resume")
		}
	}
	free.Store(0)
	awaitFull()
	done := make(chan error, 1)
	go func() { done <- write(t.Context()) }()
	time.Sleep(10 * time.Millisecond)
	free.Store(2 << 30)
	must(t, s.Close())
	if err := <-done; err != nil && !errors.Is(err, kv.ErrClosed) {
		t.Fatal(err)
	}
}

// Updates fail before the disk is full, and no commit is lost. If the disk fills suddenly,
// Fatal receives a kv.ErrDiskFull.
func TestFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 30)
	fs := newSmallDisk(&free)
	fatal := make(chan error, 10)
	o := Options{Dir: "/s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, FS: fs, SyncInterval: 10 * time.Millisecond, Fatal: func(err error) {
		fatal <- err
		select {} // as if the process had ended
	}}
	s, err := Open(o)
	must(t, err)
	write := func() error {
		return s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("b")); return nil })
	}
	must(t, write(), s.Healthy())
	free.Store(50 << 20)
	for began := time.Now(); !errors.Is(write(), kv.ErrDiskFull) || !errors.Is(s.Healthy(), kv.ErrDiskFull); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the store does not notice that the disk is full")
		}
	}
	if n := s.FreeBytes(); n != 50<<20 {
		t.Errorf("%d bytes are free", n)
	}
	must(t, s.Close())
	if _, err := Open(o); !errors.Is(err, kv.ErrDiskFull) {
		t.Errorf("opening: %v", err)
	}
	free.Store(1 << 30)
	s, err = Open(o)
	must(t, err)
	must(t, write())
	free.Store(0)
	go func() { _ = write() }()
	select {
	case err := <-fatal:
		if !errors.Is(err, kv.ErrDiskFull) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Fatal was not called")
	}
}

// Close loses nothing on a nearly full disk.
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
	s, err = Open(logged(fs))
	must(t, err)
	n, err := recordsOf(s)
	if err = errors.Join(err, s.Close()); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}
