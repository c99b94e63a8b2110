package pebblekv

import (
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

func TestConformance(t *testing.T) {
	dirs := map[kv.Store]string{}
	openIn := func(dir string, m kv.Merger) (kv.Store, error) {
		s, err := Open(Options{Dir: dir, Create: true, Merger: m, Memory: 16 << 20})
		if err != nil {
			return nil, err
		}
		dirs[s] = dir
		return s, nil
	}
	opened := func(t *testing.T, dir string, m kv.Merger) kv.Store {
		t.Helper()
		s, err := openIn(dir, m)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() }) // otherwise it may make files while the folder is removed
		return s
	}
	kvtest.Run(t, kvtest.Engine{
		Open: func(t *testing.T, m kv.Merger) kv.Store { return opened(t, t.TempDir(), m) },
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			must(t, s.Close())
			again := opened(t, dirs[s], kvtest.LastByte{})
			if ps, ok := again.(*Store); ok {
				must(t, ps.Compact(t.Context()))
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
