package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// stocked returns an allocator that has leases, and cannot get any more.
func stocked(sizes ...int) *allocator {
	s := dict.Settings{ShardBits: 14, LeaseSize: dict.MaxLeaseSize, Partitions: 1}
	a := &allocator{leases: &leaser{settings: s, open: context.Background()}, ns: dict.DID}
	for i, size := range sizes {
		if first := s.Start(uint32(i+1), 0); size > 0 {
			a.held = append(a.held, idRange{first, first + dict.ID(size)})
		}
	}
	return a
}

// TestCheckoutTwin: transactions in flight check out ids, use some in order, and check in the
// rest. No id goes out twice while it is out, or once it is used. None is lost.
func TestCheckoutTwin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sizes := []int{1 + rng.IntN(1000), 64 * (1 + rng.IntN(20)), 1 + rng.IntN(2000)}
		a := stocked(sizes...)
		total := 0
		for _, n := range sizes {
			total += n
		}
		used := map[dict.ID]bool{}
		out := map[dict.ID]int{} // the transaction that has it
		flying := make([]checkout, 3)
		taken := make([][]dict.ID, len(flying))
		for i := range flying {
			flying[i].a = a
		}
		exhausted := false
		for step := range 1500 {
			who := rng.IntN(len(flying))
			c := &flying[who]
			if rng.IntN(3) > 0 {
				n := rng.IntN(100)
				a.mu.Lock()
				left := a.remaining()
				a.mu.Unlock()
				if !c.need(n) {
					exhausted = true
					if left >= n {
						t.Fatalf("seed %d: %d ids are left, but %d cannot be checked out", seed, left, n)
					}
					continue
				}
				for range n {
					id := c.take()
					if other, is := out[id]; is || used[id] {
						t.Fatalf("seed %d, step %d: %d is taken by %d, used %v, and %d has it", seed, step, id, who, used[id], other)
					}
					out[id] = who
					taken[who] = append(taken[who], id)
				}
				continue
			}
			var ids []dict.ID
			for _, id := range taken[who] {
				delete(out, id)
				if rng.IntN(3) > 0 {
					ids = append(ids, id)
					used[id] = true
				}
			}
			rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			c.settle(ids)
			taken[who] = nil
		}
		if !exhausted {
			t.Errorf("seed %d: the ids never ran out", seed)
		}
		for i := range flying {
			var ids []dict.ID
			for _, id := range taken[i] {
				ids = append(ids, id)
				used[id] = true
			}
			flying[i].settle(ids)
		}
		if left := a.remaining(); left+len(used) != total {
			t.Errorf("seed %d: %d ids are left and %d used, of %d", seed, left, len(used), total)
		}
		if a.end(); a.remaining() > 0 {
			t.Errorf("seed %d: %d ids are left", seed, a.remaining())
		}
	}
}

// TestCheckoutWholeGroups: ids go out in whole groups, so two transactions never write the same.
func TestCheckoutWholeGroups(t *testing.T) {
	a := stocked(10 * 64)
	x, y := checkout{a: a}, checkout{a: a}
	groups := map[dict.ID]*checkout{}
	for i := range 10 {
		for _, c := range []*checkout{&x, &y} {
			if !c.need(3 + i) {
				t.Fatal("too few ids")
			}
			for range 3 + i {
				g := c.take() &^ dict.GroupMask
				if of := groups[g]; of != nil && of != c {
					t.Fatalf("both checkouts have ids of group %d", g)
				}
				groups[g] = c
			}
		}
	}
	if len(groups) > 6 {
		t.Errorf("the ids come from %d groups, but fit into a few", len(groups))
	}
}

// TestDraw: a writer draws only shards of its partition, and every one of few before any repeats.
func TestDraw(t *testing.T) {
	for _, settings := range []dict.Settings{
		{ShardBits: 8, LeaseSize: 16, Partitions: 1},
		{ShardBits: 1, LeaseSize: 16, Partitions: 2},
		{ShardBits: 8, LeaseSize: 16, Partitions: 64},
		{ShardBits: 32, LeaseSize: 16, Partitions: 64},
	} {
		p := &leaser{settings: settings}
		for part := range settings.Partitions {
			met := map[uint32]bool{}
			start, all := rand.Uint64(), min(300, 1<<settings.ShardBits/uint64(settings.Partitions))
			for n := range all {
				shard := p.draw(part, start, n)
				if settings.ShardBits < 32 && shard >= 1<<settings.ShardBits || shard%uint32(settings.Partitions) != uint32(part) {
					t.Fatalf("%v: partition %d draws the shard %d", settings, part, shard)
				}
				met[shard] = true
			}
			if len(met) != int(all) {
				t.Errorf("%v: partition %d draws %d shards of %d", settings, part, len(met), all)
			}
		}
	}
}

// TestHome: leases come from the home shard, one block after another, also after a restart.
func TestHome(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	o := Options{Settings: dict.Settings{ShardBits: 10, LeaseSize: 16, Partitions: 1}}
	home, next := uint32(0), map[dict.Namespace]uint64{}
	for life := range 4 {
		p := newLeaser(store, o)
		for _, ns := range dict.Namespaces {
			for range 3 {
				l, err := p.lease(t.Context(), p.alloc[ns][0])
				must(t, err)
				if life == 0 && next[ns] == 0 && ns == dict.DID {
					home = o.Settings.Shard(l.next)
				}
				if l.next != o.Settings.Start(home, next[ns]) || l.size() != 16 {
					t.Fatalf("life %d: %s leases %d to %d, want block %d of %d", life, ns, l.next, l.end, next[ns], home)
				}
				next[ns]++
			}
		}
	}
}

// TestLeaseRefuses: contradictory rows are an error that names them. Nothing is leased.
func TestLeaseRefuses(t *testing.T) {
	settings := dict.Settings{ShardBits: 1, LeaseSize: 16, Partitions: 1}
	for name, c := range map[string]struct {
		write func(tx kv.Txn)
		says  string
	}{
		"a short counter": {func(tx kv.Txn) {
			tx.Set(dict.AppendNextKey(nil, dict.DID, 0), []byte{1})
			tx.Set(dict.AppendNextKey(nil, dict.DID, 1), []byte{1})
		}, "counter of shard"},
		"a counter that lags behind": {func(tx kv.Txn) {
			for shard := range uint32(2) {
				tx.Set(dict.AppendLeaseKey(nil, dict.DID, shard, 5), (&dict.Lease{Owner: "other"}).Value())
				tx.Set(dict.AppendNextKey(nil, dict.DID, shard), binary.BigEndian.AppendUint64(nil, 5))
			}
		}, "skein check"},
	} {
		store := memkv.Open(memkv.Options{Merger: Merger{}})
		must(t, store.Update(t.Context(), func(tx kv.Txn) error { c.write(tx); return nil }))
		in := openAs(t, store, Options{Settings: settings})
		commits := store.Counts().Commits
		if err := in.Prepare(t.Context(), nil, 1); err == nil || !strings.Contains(err.Error(), c.says) || store.Counts().Commits != commits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPrepareEnds: the end of a context ends waiting for a lease. After Close there are no more leases.
func TestPrepareEnds(t *testing.T) {
	for _, partitions := range []uint8{1, 2} {
		store := memkv.Open(memkv.Options{Merger: Merger{}})
		o := Options{Settings: dict.Settings{ShardBits: 8, LeaseSize: 64, Partitions: partitions}, Owner: "me"}
		in := openAs(t, store, o)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var b Batch
		b.Add(dict.DID, []byte("did:web:a.com"))
		if err := in.Prepare(ctx, &b, 1<<20); !errors.Is(err, context.Canceled) {
			t.Errorf("%d partitions, an ended context: %v", partitions, err)
		}
		must(t, put(t.Context(), store, in, &b))
		in.Close()
		w := newTwin()
		w.note(t, named{dict.DID, "did:web:a.com"}, b.ID(0))
		w.audited(t, store, o.Settings)
		commits := store.Counts().Commits
		var after Batch
		after.Add(dict.DID, []byte("did:web:after.com"))
		if err := in.Prepare(t.Context(), &after, 1); !errors.Is(err, errClosed) {
			t.Errorf("%d partitions, after Close: %v", partitions, err)
		}
		if after.ID(0) != dict.None || store.Counts().Commits != commits {
			t.Errorf("%d partitions: a write after Close", partitions)
		}
	}
}
