package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var marker = []byte("marker")

const guardedKeys = 30

// makeGuarded makes a store of several tables in dir.
func makeGuarded(t *testing.T, dir string) Options {
	t.Helper()
	o := Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, Marker: marker}
	s, err := Open(o)
	must(t, err)
	for i := range guardedKeys {
		err := s.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set(marker, []byte{1})
			tx.Set(fmt.Appendf(nil, "k%06d", i), make([]byte, 900_000))
			return nil
		})
		must(t, err)
	}
	must(t, s.Close())
	return o
}

// copyOf copies a folder with hard links, except for the manifest and the guard, which
// tests change.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.Mkdir(to, 0o755))
	for _, name := range names(t, dir) {
		from := filepath.Join(dir, name)
		if strings.HasPrefix(name, manifestPrefix) || name == guardFile {
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, name), b, 0o600)
			}
			must(t, err)
			continue
		}
		must(t, os.Link(from, filepath.Join(to, name)))
	}
	return to
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if e.Name() != "LOCK" {
			all = append(all, e.Name())
		}
	}
	return all
}

func manifestOf(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range names(t, dir) {
		if _, manifest, ok := strings.Cut(name, "marker.manifest."); ok {
			_, manifest, _ = strings.Cut(manifest, ".")
			return filepath.Join(dir, manifest)
		}
	}
	t.Fatal("no manifest")
	return ""
}

// refusedOrWhole opens a store. Either Open fails and changes nothing, or the store has all
// keys.
func refusedOrWhole(t *testing.T, o Options) (refused bool) {
	t.Helper()
	before := names(t, o.Dir)
	s, err := Open(o)
	if err != nil {
		if !errors.Is(err, kv.ErrDamaged) {
			t.Errorf("Open: %v", err)
		}
		if after := names(t, o.Dir); !slices.Equal(before, after) {
			t.Errorf("Open failed, but changed the folder:\n%v\n%v", before, after)
		}
		return true
	}
	n := 0
	err = s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan([]byte("k"), []byte("l"), false, func(_, _ []byte) (bool, error) { n++; return true, nil })
	})
	if err = errors.Join(err, s.Close()); err != nil || n != guardedKeys {
		t.Errorf("%d keys are left, %v", n, err)
	}
	return false
}

// A truncated or damaged manifest is never taken for an older one, with or without a guard.
func TestManifestIsGuarded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	o := makeGuarded(t, dir)
	b, err := os.ReadFile(manifestOf(t, dir))
	must(t, err)
	step := max(1, len(b)/60)
	refused := map[string]int{}
	for at := 0; at < len(b); at += step {
		for what, spoil := range map[string]func() []byte{
			"cut":     func() []byte { return b[:at] },
			"flipped": func() []byte { c := slices.Clone(b); c[at] ^= 0x40; return c },
		} {
			c := o
			c.Dir = copyOf(t, dir)
			must(t, os.WriteFile(manifestOf(t, c.Dir), spoil(), 0o600))
			c.ReadOnly, c.Create = true, false // as skein check and skein export
			first := refusedOrWhole(t, c)
			c.ReadOnly, c.Create = false, true
			if refusedOrWhole(t, c) {
				refused[what]++
				if !first {
					t.Error("Open fails, but not with ReadOnly")
				}
			}
			if t.Failed() {
				t.Fatalf("%s at %d of %d", what, at, len(b))
			}
		}
	}
	if refused["cut"] == 0 || refused["flipped"] == 0 {
		t.Errorf("refused: %v", refused)
	}
	// Without a guard, the marker decides.
	c := o
	c.Dir = copyOf(t, dir)
	must(t, os.Remove(filepath.Join(c.Dir, guardFile)))
	whole := c
	whole.Dir = copyOf(t, c.Dir)
	if refusedOrWhole(t, whole) {
		t.Error("a complete store without a guard does not open")
	}
	must(t, os.WriteFile(manifestOf(t, c.Dir), b[:60], 0o600))
	for _, name := range names(t, c.Dir) { // in a real store, the logs of old tables are gone
		if strings.HasSuffix(name, ".log") {
			must(t, os.Remove(filepath.Join(c.Dir, name)))
		}
	}
	if !refusedOrWhole(t, c) {
		t.Error("a truncated store without a guard opens")
	}
}

// Open never creates a store in a folder with parts of one.
func TestPartsOfAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	o := makeGuarded(t, dir)
	for what, gone := range map[string]func(name string) bool{
		"no marker of the manifest": func(name string) bool { return strings.HasPrefix(name, "marker.manifest") },
		"no manifest":               func(name string) bool { return strings.HasPrefix(name, manifestPrefix) },
		"only tables":               func(name string) bool { return !strings.HasSuffix(name, ".sst") },
		"only logs":                 func(name string) bool { return !strings.HasSuffix(name, ".log") },
		"only options":              func(name string) bool { return !strings.HasPrefix(name, "OPTIONS") },
		"no logs":                   func(name string) bool { return strings.HasSuffix(name, ".log") },
		"no tables":                 func(name string) bool { return strings.HasSuffix(name, ".sst") },
		"one table less":            func(name string) bool { return name == tableOf(t, dir) },
	} {
		t.Run(what, func(t *testing.T) {
			c := o
			c.Dir = copyOf(t, dir)
			for _, name := range names(t, c.Dir) {
				if gone(name) {
					must(t, os.Remove(filepath.Join(c.Dir, name)))
				}
			}
			for _, create := range []bool{true, false} {
				if c.Create = create; !refusedOrWhole(t, c) {
					t.Error("the store opens")
				}
			}
		})
	}
	// It opens a whole store that is mounted read-only.
	c := o
	c.Create, c.ReadOnly, c.FS = false, true, hooked(vfs.Default, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EROFS
		}
		return nil
	})
	if refusedOrWhole(t, c) {
		t.Error("the store does not open")
	}
	// Open continues a start that was interrupted before the first write.
	c = o
	c.Dir = filepath.Join(t.TempDir(), "new")
	for range 2 {
		s, err := Open(c)
		must(t, err)
		must(t, s.Close())
		_ = os.Remove(filepath.Join(c.Dir, guardFile)) // as after an earlier interruption
	}
}

func tableOf(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range names(t, dir) {
		if strings.HasSuffix(name, ".sst") {
			return name
		}
	}
	t.Fatal("no table")
	return ""
}

var errCut = errors.New("the process was killed")

// If a first start is interrupted at any step, the next start continues it.
func TestInterruptedFirstStart(t *testing.T) {
	for steps := int64(0); ; steps++ {
		mem := harness.NewCrashFS()
		var left atomic.Int64
		left.Store(steps)
		cut := hooked(mem, func(op errorfs.Op) error {
			if (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpRename || op.Kind == errorfs.OpRemove) && left.Add(-1) < 0 {
				return errCut
			}
			return nil
		})
		ended := make(chan bool, 1)
		o := Options{Dir: "s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, Marker: marker, FS: cut, Fatal: func(error) {
			ended <- false
			select {} // as if the process had ended
		}}
		go func() {
			s, err := Open(o)
			if err != nil {
				ended <- false
				return
			}
			err = s.Update(t.Context(), func(tx kv.Txn) error { tx.Set(marker, []byte{1}); return nil })
			_ = s.Close() // the file system is gone
			ended <- err == nil && left.Load() > 0
		}()
		done := <-ended
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		o.FS = after
		s, err := Open(o)
		if err != nil {
			t.Fatalf("interrupted after %d steps: %v", steps, err)
		}
		must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set(marker, []byte{1}); return nil }))
		must(t, s.Close())
		if done {
			if steps < 5 {
				t.Errorf("only %d steps", steps)
			}
			return
		}
	}
}

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
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir() // the inner one is made first
	for _, at := range []string{filepath.Join(dir, "plc"), dir} {
		s := openForTest(t, Options{Dir: at, Create: true, Memory: 8 << 20})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
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
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Deleting the lock file does not unlock a store. A new store takes little space, and knows how much is free.
func TestLockAndSize(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 1 << 30}
	s, err := Open(o)
	must(t, err)
	if n, known := kv.Monitored(s).FreeBytes(); !known || n == 0 {
		t.Errorf("%d bytes are free, %v", n, known)
	}
	must(t, os.Remove(filepath.Join(dir, "LOCK")))
	if _, err := Open(o); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("with the lock file gone: %v", err)
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
	for round := range 10 {
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
		time.Sleep(150 * time.Millisecond)
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
	free.Store(2 << 30) // Close flushes
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
	await := func(ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("timed out")
			}
		}
	}
	await(func() bool { return errors.Is(write(), kv.ErrDiskFull) && errors.Is(s.Healthy(), kv.ErrDiskFull) })
	if n, known := s.FreeBytes(); !known || n != 50<<20 {
		t.Errorf("%d bytes are free", n)
	}
	must(t, s.Close())
	if _, err := Open(o); !errors.Is(err, kv.ErrDiskFull) {
		t.Errorf("opening: %v", err)
	}
	free.Store(1 << 30)
	if s, err = Open(o); err != nil {
		t.Fatal(err)
	}
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
