package pebblekv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A checkpoint made during writes, flushes and compactions holds the state after one of the
// transactions, at least as new as when it was asked for. It opens like any store, takes writes,
// and what happens to it does not touch the store that it came from.
func TestCheckpoint(t *testing.T) {
	for seed := range uint64(2) {
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(seed, 11))
		s := openForTest(t, Options{Dir: dir, Create: true, SyncInterval: 3 * time.Millisecond, Memory: 8 << 20})
		var was past
		stop := was.write(t, s, seed)
		least := make([]int, 6)
		at := func(i int) string { return filepath.Join(dir, "checkpoints", fmt.Sprint(i)) }
		for i := range least {
			time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond)
			least[i] = was.len() - 1
			must(t, s.Checkpoint(t.Context(), at(i)))
		}
		stop()
		for i, l := range least {
			c := openForTest(t, Options{Dir: at(i), Memory: 8 << 20})
			was.holds(t, c, l)
			must(t, c.Update(t.Context(), func(tx kv.Txn) error { tx.DeleteRange(nil, []byte{0xff}); return nil }), c.Compact(t.Context()), c.Close())
		}
		newest := was.len() - 1
		was.holds(t, s, newest)
		must(t, s.Close(), os.RemoveAll(filepath.Join(dir, "checkpoints")))
		again := openForTest(t, Options{Dir: dir, Memory: 8 << 20})
		was.holds(t, again, newest)
		must(t, again.Close())
	}
}

// A checkpoint is guarded: one that lost a part of its manifest or of a table does not open.
func TestCheckpointIsGuarded(t *testing.T) {
	for _, pattern := range []string{"MANIFEST-*", "*.sst"} {
		dir := t.TempDir()
		s := openForTest(t, Options{Dir: dir, Create: true, Memory: 8 << 20})
		h := kvtest.NewHistory(1)
		for range 20 {
			h.Write(t, s, 60)
		}
		at := filepath.Join(dir, "checkpoints", "1")
		must(t, s.Checkpoint(t.Context(), at), s.Checkpoint(t.Context(), at+"b"))
		if err := s.Checkpoint(t.Context(), at); !errors.Is(err, os.ErrExist) {
			t.Fatalf("over an existing folder: %v", err)
		}
		must(t, s.Close())
		names, err := filepath.Glob(filepath.Join(at, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		if pattern == "*.sst" { // a flipped bit is found by its block's checksum
			for _, name := range names {
				must(t, CheckFile(t.Context(), s.Merger(), name))
			}
			b, err := os.ReadFile(names[0])
			must(t, err)
			b[10] ^= 1
			flipped := filepath.Join(t.TempDir(), "000001.sst")
			must(t, os.WriteFile(flipped, b, 0o600))
			if err := CheckFile(t.Context(), s.Merger(), flipped); !errors.Is(err, kv.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(names[0])
		must(t, err)
		must(t, os.Truncate(names[0], info.Size()-1)) // Pebble reads a manifest up to its damage
		c, err := Open(Options{Dir: at, Memory: 8 << 20, Merger: s.Merger()})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s was cut, and the copy opened", pattern)
		}
	}
}

// A checkpoint that cannot be made is an error, and not the end of the store.
func TestCheckpointFails(t *testing.T) {
	for _, suffix := range []string{".log", "MANIFEST-000001", "OPTIONS-000003", "skein.manifest.new"} {
		dir := t.TempDir()
		fails := suffix
		fs := hooked(vfs.Default, func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, filepath.Join(dir, "checkpoints")) && strings.HasSuffix(op.Path, fails) {
				return errFails
			}
			return nil
		})
		s := openForTest(t, Options{Dir: dir, Create: true, Memory: 8 << 20, FS: fs, Fatal: func(err error) { t.Errorf("%s: the store ended: %v", suffix, err) }})
		h := kvtest.NewHistory(2)
		h.Write(t, s, 60)
		at := filepath.Join(dir, "checkpoints", "1")
		if err := s.Checkpoint(t.Context(), at); !errors.Is(err, errFails) {
			t.Errorf("%s: %v", suffix, err)
		}
		if _, err := os.Stat(at); err == nil {
			t.Errorf("%s: the folder stays", suffix)
		}
		fails = "nothing"
		h.Write(t, s, 60)
		must(t, s.Checkpoint(t.Context(), at), s.Close())
	}
}

var errFails = errors.New("cannot be made")
