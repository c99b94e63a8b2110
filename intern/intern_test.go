package intern_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

func mem(seed uint64) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: intern.Merger{}, Faults: memkv.Faults{Seed: seed, Conflict: 0.1, Unknown: 0.1}})
}

func open(t testing.TB, s kv.Store, o intern.Options) intern.Interner {
	t.Helper()
	in, err := intern.Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// resolve interns strings in one transaction.
func resolve(ctx context.Context, s kv.Store, in intern.Interner, b *intern.Batch) error {
	for {
		if err := in.Prepare(ctx, b, b.Len()); err != nil {
			return err
		}
		err := s.Update(ctx, func(tx kv.Txn) error {
			b.Retry()
			_, err := in.Resolve(tx, b)
			return err
		})
		if errors.Is(err, intern.ErrNoLease) {
			continue
		}
		if err == nil {
			in.Committed(b)
		}
		return err
	}
}

// TestDense: the ids of a single writer are one dense sequence, block after block.
func TestDense(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: intern.Merger{}})
	in := open(t, store, intern.Options{Settings: dict.Settings{ShardBits: 8, LeaseSize: 256}})
	var b intern.Batch
	for i := range 1000 {
		b.Add(dict.DID, fmt.Appendf(nil, "did:plc:%d", i))
	}
	if err := resolve(t.Context(), store, in, &b); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 1000; i++ {
		if b.ID(i) != b.ID(i-1)+1 {
			t.Fatalf("id %d follows %d", b.ID(i), b.ID(i-1))
		}
	}
}

func TestExhausted(t *testing.T) {
	// Two shards have 2^32 ids each, in blocks of 2^16, except for the reserved ones. Put
	// their counters at the end.
	store := memkv.Open(memkv.Options{Merger: intern.Merger{}})
	in := open(t, store, intern.Options{Settings: dict.Settings{ShardBits: 1, LeaseSize: 65536}})
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		for shard := range uint32(2) {
			for _, ns := range dict.Namespaces {
				tx.Set(dict.AppendNextKey(nil, ns, shard), []byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Prepare(t.Context(), nil, 1); !errors.Is(err, intern.ErrExhausted) {
		t.Errorf("%v", err)
	}
}

func TestSettings(t *testing.T) {
	store := mem(1)
	for _, bad := range []dict.Settings{{ShardBits: 33, LeaseSize: 1, Partitions: 1}, {ShardBits: 14, LeaseSize: 3, Partitions: 1}, {ShardBits: 14, LeaseSize: 1 << 17, Partitions: 1}, {ShardBits: 14, LeaseSize: 1, Partitions: 3}, {ShardBits: 14, LeaseSize: 1, Partitions: 128}, {ShardBits: 5, LeaseSize: 1, Partitions: 64}} {
		if _, err := intern.Open(t.Context(), store, intern.Options{Settings: bad}); !errors.Is(err, dict.ErrSettings) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
