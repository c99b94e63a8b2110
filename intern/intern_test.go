package intern_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
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

func uri(i int) string {
	return fmt.Sprintf("at://did:plc:%024d/app.bsky.feed.post/%d", i%7, i)
}

// TestConcurrentWriters: with many writers on one store, conflicts and unknown outcomes, each
// string has one id and each id one string, in both namespaces and over restarts.
func TestConcurrentWriters(t *testing.T) {
	onMemory := func(*testing.T) kv.Store { return mem(7) }
	onFDB := func(t *testing.T) kv.Store { return kvtest.Open(t, kvtest.Options(t, intern.Merger{})) }
	for _, c := range []struct {
		dict.Settings
		engine string
		open   func(t *testing.T) kv.Store
	}{
		{dict.Settings{ShardBits: 14, LeaseSize: 65536, Partitions: 1}, "memory", onMemory},
		{dict.Settings{ShardBits: 1, LeaseSize: 16, Partitions: 1}, "memory", onMemory},
		{dict.Settings{ShardBits: 32, LeaseSize: 1, Partitions: 1}, "memory", onMemory},
		{dict.Settings{ShardBits: 14, LeaseSize: 65536, Partitions: 64}, "memory", onMemory},
		{dict.Settings{ShardBits: 6, LeaseSize: 16, Partitions: 64}, "memory", onMemory},
		{dict.Settings{ShardBits: 3, LeaseSize: 128, Partitions: 4}, "memory", onMemory},
		{dict.Settings{ShardBits: 32, LeaseSize: 1, Partitions: 2}, "memory", onMemory},
		{dict.SharedSettings, "fdb", onFDB},
		{dict.Settings{ShardBits: 8, LeaseSize: 32, Partitions: 8}, "fdb", onFDB},
	} {
		settings := c.Settings
		t.Run(fmt.Sprintf("%s/%s", c.engine, settings), func(t *testing.T) {
			store := c.open(t)
			var mu sync.Mutex
			ids := map[string]dict.ID{}
			note := func(s string, id dict.ID) {
				mu.Lock()
				defer mu.Unlock()
				if old, ok := ids[s]; ok && old != id {
					t.Errorf("%q is %d and %d", s, old, id)
				}
				ids[s] = id
			}
			for range 2 { // the second round is after a restart
				var wg sync.WaitGroup
				for w := range 8 {
					wg.Go(func() {
						in, err := intern.Open(t.Context(), store, intern.Options{Settings: settings, CacheBytes: 1, Owner: fmt.Sprint(w)})
						if err != nil {
							t.Error(err)
							return
						}
						rng := rand.New(rand.NewPCG(uint64(w), 0))
						var b intern.Batch
						for range 15 {
							b.Reset()
							var strings []string
							for range 1 + rng.IntN(30) {
								s := uri(rng.IntN(600))
								strings = append(strings, s)
								b.Add(dict.URI, []byte(s))
							}
							if err := resolve(t.Context(), store, in, &b); err != nil {
								t.Error(err)
								return
							}
							for _, s := range strings {
								note(s, b.ID(b.Add(dict.URI, []byte(s))))
							}
						}
						if w%2 == 0 { // the others crash
							in.Close(t.Context())
						}
					})
				}
				wg.Wait()
			}
			seen := map[dict.ID]string{}
			for s, id := range ids {
				if other, ok := seen[id]; ok || id == dict.None {
					t.Fatalf("%d is %q and %q", id, s, other)
				}
				seen[id] = s
			}
			err := store.View(t.Context(), func(r kv.Reader) error {
				list := make([]dict.ID, 0, len(seen))
				for id := range seen {
					list = append(list, id)
				}
				err := intern.Strings(r, dict.URI, list, func(i int, s []byte) error {
					if string(s) != seen[list[i]] {
						t.Errorf("%d is %q, want %q", list[i], s, seen[list[i]])
					}
					return nil
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
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
