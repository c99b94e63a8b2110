package memkv_test

import (
	"bytes"
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

func TestLimits(t *testing.T) {
	s := memkv.Open(memkv.Options{
		Merger: kvtest.LastByte{},
		Limits: memkv.Limits{Key: 8, Value: 16, Txn: 64, Age: time.Millisecond},
	})
	for name, fn := range map[string]func(kv.Txn){
		"key":   func(tx kv.Txn) { tx.Set(bytes.Repeat([]byte("k"), 9), nil) },
		"value": func(tx kv.Txn) { tx.Set([]byte("k"), make([]byte, 17)) },
		"fold": func(tx kv.Txn) {
			for i := range byte(10) {
				tx.Merge([]byte("k"), []byte{i, 1})
			}
		},
		"txn": func(tx kv.Txn) {
			for range 8 {
				tx.Set([]byte("k"), make([]byte, 8))
			}
		},
		"age": func(tx kv.Txn) {
			tx.Set([]byte("k"), nil)
			time.Sleep(2 * time.Millisecond)
		},
	} {
		err := s.Update(context.Background(), func(tx kv.Txn) error { fn(tx); return nil })
		if !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.Counts().Commits; n != 0 {
		t.Errorf("%d commits", n)
	}
}

// A transaction is retried if another one wrote into a range that it read, and only then.
func TestConflict(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}})
	attempts := 0
	err := s.Update(context.Background(), func(tx kv.Txn) error {
		attempts++
		if err := tx.Scan([]byte("a"), []byte("b"), false, func(_, _ []byte) (bool, error) { return true, nil }); err != nil {
			return err
		}
		if attempts == 1 {
			for _, k := range []string{"a5", "other"} {
				if err := s.Update(context.Background(), func(tx kv.Txn) error { tx.Set([]byte(k), nil); return nil }); err != nil {
					return err
				}
			}
		}
		if attempts == 2 { // a read through Snapshot is not checked
			if _, _, err := tx.Snapshot().Get([]byte("other")); err != nil {
				return err
			}
			if err := s.Update(context.Background(), func(tx kv.Txn) error { tx.Set([]byte("other"), nil); return nil }); err != nil {
				return err
			}
		}
		tx.Set([]byte("z"), nil)
		return nil
	})
	if err != nil || attempts != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}
