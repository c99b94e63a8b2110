package pebblekv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
)

// A checkpoint made during writes, flushes and compactions holds the state after one of the
// transactions, at least as new as when it was asked for. It opens like any store, takes writes,
// and what happens to it does not touch the store that it came from.
func TestCheckpoint(t *testing.T) {
	for seed := range uint64(3) {
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(seed, 11))
		s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: dir, Create: true, SyncInterval: 3 * time.Millisecond, Memory: 8 << 20})
		var was states
		was.add(kvtest.State{})
		h := kvtest.NewHistory(seed)
		stop := make(chan struct{})
		var busy sync.WaitGroup
		each := func(fn func()) {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						fn()
					}
				}
			})
		}
		each(func() { h.Write(t, s, 60); was.add(h.State()) })
		each(func() {
			time.Sleep(5 * time.Millisecond)
			if err := s.Compact(t.Context()); err != nil {
				t.Error(err)
			}
		})
		least := make([]int, 6)
		at := func(i int) string { return filepath.Join(dir, "checkpoints", fmt.Sprint(i)) }
		for i := range least {
			time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond)
			least[i] = was.len() - 1
			if err := s.Checkpoint(t.Context(), at(i)); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		busy.Wait()
		look := func(w kvtest.State, s kv.Store) {
			t.Helper()
			if err := s.View(t.Context(), func(r kv.Reader) error { w.Equal(t, r); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		for i, l := range least {
			c := pebblekv.OpenForTest(t, pebblekv.Options{Dir: at(i), Memory: 8 << 20})
			n := roundOf(t, c)
			if n < l || n >= was.len() {
				t.Fatalf("seed %d, checkpoint %d: %d transactions of %d, want at least %d", seed, i, n, was.len()-1, l)
			}
			look(was.at(n), c)
			err := c.Update(t.Context(), func(tx kv.Txn) error { tx.DeleteRange(nil, []byte{0xff}); return nil })
			if err = errors.Join(err, c.Compact(t.Context()), c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		look(h.State(), s)
		if err := errors.Join(s.Close(), os.RemoveAll(filepath.Join(dir, "checkpoints"))); err != nil {
			t.Fatal(err)
		}
		again := pebblekv.OpenForTest(t, pebblekv.Options{Dir: dir, Memory: 8 << 20})
		look(h.State(), again)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A checkpoint is guarded: one that lost a part of its manifest or of a table does not open.
func TestCheckpointIsGuarded(t *testing.T) {
	for _, pattern := range []string{"MANIFEST-*", "*.sst"} {
		dir := t.TempDir()
		s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: dir, Create: true, Memory: 8 << 20})
		h := kvtest.NewHistory(1)
		for range 20 {
			h.Write(t, s, 60)
		}
		at := filepath.Join(dir, "checkpoints", "1")
		if err := errors.Join(s.Checkpoint(t.Context(), at), s.Checkpoint(t.Context(), at+"b")); err != nil {
			t.Fatal(err)
		}
		if err := s.Checkpoint(t.Context(), at); !errors.Is(err, os.ErrExist) {
			t.Fatalf("over an existing folder: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(at, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		if pattern == "*.sst" { // a flipped bit is found by its block's checksum
			for _, name := range names {
				if err := pebblekv.CheckFile(t.Context(), s.Merger(), name, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			b[10] ^= 1
			flipped := filepath.Join(t.TempDir(), "000001.sst")
			if err := os.WriteFile(flipped, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := pebblekv.CheckFile(t.Context(), s.Merger(), flipped, func() {}); !errors.Is(err, kv.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(names[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(names[0], info.Size()-1); err != nil { // Pebble reads a manifest up to its damage
			t.Fatal(err)
		}
		c, err := pebblekv.Open(pebblekv.Options{Dir: at, Memory: 8 << 20, Merger: s.Merger()})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s was cut, and the copy opened", pattern)
		}
	}
}

// A checkpoint that cannot be made is an error, and not the end of the store.
func TestCheckpointFails(t *testing.T) {
	for _, suffix := range []string{".log", "MANIFEST-000001", "OPTIONS-000003", "skein.manifest"} {
		dir := t.TempDir()
		fs := &failsIn{FS: vfs.Default, folder: filepath.Join(dir, "checkpoints"), suffix: suffix}
		s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: dir, Create: true, Memory: 8 << 20, FS: fs, Fatal: func(err error) { t.Errorf("%s: the store ended: %v", suffix, err) }})
		h := kvtest.NewHistory(2)
		h.Write(t, s, 60)
		at := filepath.Join(dir, "checkpoints", "1")
		if err := s.Checkpoint(t.Context(), at); !errors.Is(err, errFails) {
			t.Errorf("%s: %v", suffix, err)
		}
		if _, err := os.Stat(at); err == nil {
			t.Errorf("%s: the folder stays", suffix)
		}
		fs.suffix = "nothing"
		h.Write(t, s, 60)
		if err := errors.Join(s.Checkpoint(t.Context(), at), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

var errFails = errors.New("cannot be made")

// failsIn cannot make files with a suffix in folders of a folder.
type failsIn struct {
	vfs.FS

	folder, suffix string
}

func (f *failsIn) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(name, f.folder) && strings.HasSuffix(name, f.suffix) {
		return nil, errFails
	}
	return f.FS.Create(name, c)
}
