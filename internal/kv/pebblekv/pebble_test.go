package pebblekv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
)

func TestConformance(t *testing.T) {
	dirs := map[kv.Store]string{}
	openIn := func(dir string, m kv.Merger) (kv.Store, error) {
		s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Merger: m, Memory: 16 << 20})
		if err != nil {
			return nil, err
		}
		dirs[s] = dir
		return s, nil
	}
	must := func(t *testing.T, dir string, m kv.Merger) kv.Store {
		t.Helper()
		s, err := openIn(dir, m)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // otherwise it may make files while the folder is removed
		return s
	}
	kvtest.Run(t, kvtest.Engine{
		Open: func(t *testing.T, m kv.Merger) kv.Store { return must(t, t.TempDir(), m) },
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := must(t, dirs[s], kvtest.LastByte{})
			if ps, ok := again.(*pebblekv.Store); ok {
				if err := ps.Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return again
		},
		OpenAs: func(t *testing.T, s kv.Store, m kv.Merger) error {
			again, err := openIn(dirs[s], m)
			if err == nil {
				err = again.Close()
				t.Errorf("it opened; closing: %v", err)
			}
			return err
		},
		Fits:  kvtest.Sizes{Key: 100_000, Value: 1 << 20},
		Sizes: true,
	})
}

func TestOpenErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	o := pebblekv.Options{Dir: dir, Merger: kvtest.LastByte{}}
	if _, err := pebblekv.Open(o); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := pebblekv.Open(o); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("an empty folder: %v", err)
	}
	o.Create = true
	s := pebblekv.OpenForTest(t, o)
	if _, err := pebblekv.Open(o); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("a second open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.Create, o.ReadOnly = false, true
	s = pebblekv.OpenForTest(t, o)
	if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), nil); return nil }); err == nil {
		t.Error("a read-only store accepted a write")
	}
}

// A power failure leaves a prefix of the commits, including every synced one.
func TestCrash(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		mem := harness.NewCrashFS()
		s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: "s", Create: true, FS: mem, SyncInterval: time.Hour, Memory: 8 << 20})
		synced, n := 0, 100+rng.IntN(400)
		for i := range n {
			err := s.Update(t.Context(), func(tx kv.Txn) error {
				tx.Set(fmt.Appendf(nil, "k%06d", i), make([]byte, rng.IntN(20_000)))
				tx.Set([]byte("n"), fmt.Append(nil, i+1))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if rng.IntN(50) == 0 {
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = i + 1
			}
		}
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(seed, 1))})
		r := pebblekv.OpenForTest(t, pebblekv.Options{Dir: "s", FS: after, Memory: 8 << 20, Create: true})
		err := r.View(t.Context(), func(r kv.Reader) error {
			v, _, err := r.Get([]byte("n"))
			if err != nil {
				return err
			}
			got := 0
			if len(v) > 0 {
				if _, err := fmt.Sscan(string(v), &got); err != nil {
					return err
				}
			}
			if got < synced || got > n {
				t.Errorf("seed %d: %d commits of %d survived, %d were synced", seed, got, n, synced)
			}
			count := 0
			err = r.Scan([]byte("k"), []byte("l"), false, func(_, _ []byte) (bool, error) { count++; return true, nil })
			if count != got {
				t.Errorf("seed %d: %d keys after %d commits", seed, count, got)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Close waits for a View that is under way.
func TestCloseWaitsForViews(t *testing.T) {
	s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: t.TempDir(), Create: true})
	err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("1")); return nil })
	if err != nil {
		t.Fatal(err)
	}
	began, closed := make(chan struct{}), make(chan error, 1)
	go func() { <-began; closed <- s.Close() }()
	err = s.View(t.Context(), func(r kv.Reader) error {
		close(began)
		for range 100 {
			time.Sleep(time.Millisecond)
			if _, ok, err := r.Get([]byte("a")); err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		}
		return nil
	})
	if err := errors.Join(err, <-closed); err != nil {
		t.Fatal(err)
	}
}
