package memkv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// engine describes a store in memory to the suite.
func engine(f memkv.Faults) kvtest.Engine {
	return kvtest.Engine{
		Open: func(_ *testing.T, m kv.Merger) kv.Store { return memkv.Open(memkv.Options{Merger: m, Faults: f}) },
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mem, ok := s.(*memkv.Store)
			if !ok {
				t.Fatalf("got a %T", s)
			}
			return mem.Reopen(memkv.Options{Merger: s.Merger(), Faults: f})
		},
		Fits:      kvtest.Sizes{Key: 10_000, Value: 50_000},
		TooLarge:  kvtest.Sizes{Key: 10_001, Value: 50_001, Txn: 10_000_001},
		Conflicts: f == memkv.Faults{},
		Sizes:     true,
	}
}

func TestConformance(t *testing.T) { kvtest.Run(t, engine(memkv.Faults{})) }

func TestConformanceWithFaults(t *testing.T) {
	for seed := range uint64(3) {
		kvtest.Run(t, engine(memkv.Faults{Seed: seed, Conflict: 0.2, Unknown: 0.2}))
	}
}

// An attempt that takes too long is not committed.
func TestAge(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}, Limits: memkv.Limits{Key: 8, Value: 16, Txn: 64, Age: time.Millisecond}})
	err := s.Update(context.Background(), func(tx kv.Txn) error {
		tx.Set([]byte("k"), nil)
		time.Sleep(2 * time.Millisecond)
		return nil
	})
	if n := s.Counts().Commits; !errors.Is(err, kv.ErrTooLarge) || n != 0 {
		t.Errorf("%d commits, %v", n, err)
	}
}
