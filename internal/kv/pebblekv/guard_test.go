package pebblekv

import (
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

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

const guardedKeys = 30

// makeGuarded makes a store of several tables in dir.
func makeGuarded(t *testing.T, dir string) Options {
	t.Helper()
	o := Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20}
	s, err := Open(o)
	must(t, err)
	for i := range guardedKeys {
		err := s.Update(t.Context(), func(tx kv.Txn) error {
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
		all = append(all, e.Name())
	}
	return all
}

func manifestIn(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	desc, err := pebble.Peek(dir, fs)
	must(t, err)
	return desc.ManifestFilename
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

// A truncated or damaged manifest is never taken for an older one.
func TestManifestIsGuarded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	o := makeGuarded(t, dir)
	b, err := os.ReadFile(manifestIn(t, vfs.Default, dir))
	must(t, err)
	step := max(1, len(b)/20)
	refused := map[string]int{}
	for at := 0; at < len(b); at += step {
		for what, spoil := range map[string]func() []byte{
			"cut":     func() []byte { return b[:at] },
			"flipped": func() []byte { c := slices.Clone(b); c[at] ^= 0x40; return c },
		} {
			c := o
			c.Dir = copyOf(t, dir)
			must(t, os.WriteFile(manifestIn(t, vfs.Default, c.Dir), spoil(), 0o600))
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
	// No store is without a guard.
	c := o
	c.Dir = copyOf(t, dir)
	must(t, os.Remove(filepath.Join(c.Dir, guardFile)))
	if !refusedOrWhole(t, c) {
		t.Error("a store without a guard opens")
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
	c.Create, c.ReadOnly, c.FS = false, true, hooked(disk{vfs.Default}, func(op errorfs.Op) error {
		if op.Kind != errorfs.OpLock && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EROFS
		}
		return nil
	})
	if refusedOrWhole(t, c) {
		t.Error("the store does not open")
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
		o := Options{Dir: "s", Merger: kvtest.LastByte{}, Create: true, Memory: 8 << 20, FS: cut, Fatal: func(error) {
			ended <- false
			select {} // as if the process had ended
		}}
		go func() {
			s, err := Open(o)
			if err != nil {
				ended <- false
				return
			}
			err = s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte{1}); return nil })
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
		must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte{1}); return nil }))
		must(t, s.Close())
		if done {
			if steps < 5 {
				t.Errorf("only %d steps", steps)
			}
			return
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
	written.Store(0)
	some()
	for want := range int64(2) {
		if w := written.Load(); w != want {
			t.Errorf("the guard was written %d times, want %d", w, want)
		}
		must(t, s.Sync(), s.Sync()) // the second has nothing to sync
	}
	full, broken := syscall.ENOSPC, syscall.EIO
	fail.Store(&full)
	some()
	must(t, s.Sync(), s.Healthy())
	fail.Store(nil)
	if err := s.Sync(); err != nil || s.fs.guard.unsaved {
		t.Errorf("with space again, unsaved is %v: %v", s.fs.guard.unsaved, err)
	}
	fail.Store(&broken)
	some()
	for what, err := range map[string]error{"Sync": s.Sync(), "Close": s.Close()} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s, when the guard cannot be written: %v", what, err)
		}
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
	f := &markedFile{File: errorfs.WrapFile(file, errorfs.InjectorFunc(full(&free))), fs: fs, written: mark{File: "000001.log"}}
	write := func(n int) {
		_, _ = f.Write(make([]byte, n))
		must(t, f.syncAndMark())
	}
	marked := func(want int64) {
		t.Helper()
		if len(fs.guard.marks) != 1 || fs.guard.marks[0].Bytes != want {
			t.Errorf("marks %+v, want %d bytes", fs.guard.marks, want)
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
