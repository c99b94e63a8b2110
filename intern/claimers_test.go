package intern

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// cutter ends a context, if there is one to end, within an Update. The attempt may still be
// committed.
type cutter struct {
	kv.Store
	cancel context.CancelFunc
}

func (c *cutter) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return c.Store.Update(ctx, func(tx kv.Txn) error {
		err := fn(tx)
		if ctx.Value(cutKey{}) != nil {
			c.cancel()
		}
		return err
	})
}

type cutKey struct{}

// TestClaimersTwin: several Claimers with different slots claim the same strings at once, over
// lives that end with Close, without it, and in the middle of a claim. Commits fail and have
// unknown outcomes. All agree on one id for each string.
func TestClaimersTwin(t *testing.T) {
	for seed, settings := range []dict.Settings{
		{ShardBits: 14, LeaseSize: 65536, Partitions: 64},
		{ShardBits: 6, LeaseSize: 64, Partitions: 64},
		{ShardBits: 4, LeaseSize: 16, Partitions: 2},
	} {
		t.Run(settings.String(), func(t *testing.T) { testClaimersTwin(t, faulty(uint64(seed)), settings, uint64(seed)) })
	}
	t.Run("fdb", func(t *testing.T) {
		testClaimersTwin(t, kvtest.Open(t, kvtest.Options(t, Merger{})), dict.Settings{ShardBits: 6, LeaseSize: 64, Partitions: 64}, 9)
	})
}

func testClaimersTwin(t *testing.T, store kv.Store, settings dict.Settings, seed uint64) {
	w := newTwin()
	var mu sync.Mutex
	cut := 0
	var wg sync.WaitGroup
	for slot := range uint8(4) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(slot)))
			for life := range 4 {
				cutting := &cutter{Store: store}
				in, err := Open(t.Context(), cutting, Options{Settings: settings, Slot: slotOf(slot), Owner: fmt.Sprint(slot, life), CacheBytes: 8192})
				claimer, ok := in.(*Claimer)
				if err != nil || !ok {
					t.Error(in, err)
					return
				}
				claimer.size = 3 + rng.IntN(2)*1000
				for round := range 12 {
					var b Batch
					var all []named
					var at []int
					for range rng.IntN(60) {
						s := draw(rng, 100+60*(12*life+round)) // there are always new ones
						all, at = append(all, s), append(at, b.Add(s.ns, []byte(s.s)))
					}
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(6) == 0 {
						cutting.cancel = cancel
						ctx = context.WithValue(ctx, cutKey{}, true)
					}
					err := in.Prepare(ctx, &b, 0)
					cancel()
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
							return
						}
						mu.Lock()
						cut++
						mu.Unlock()
						if err := in.Prepare(t.Context(), &b, 0); err != nil { // a later attempt must work
							t.Error(err)
							return
						}
					}
					func() {
						mu.Lock()
						defer mu.Unlock()
						for i, s := range all {
							w.note(t, s, b.ID(at[i]))
							if author, ok := authorOf(s); ok {
								w.note(t, author, b.ID(b.Add(dict.DID, []byte(author.s))))
							}
						}
					}()
				}
				if life%2 == 0 {
					claimer.leases.end()
					claimer.leases.background.Wait()
				} else {
					in.Close()
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	w.equals(t, store)
	w.audited(t, store, settings)
	if cut == 0 {
		t.Error("no claim was cut")
	}
	for n, id := range w.ids {
		if n.ns == dict.DID && settings.PartitionOfID(id) != settings.PartitionOf([]byte(n.s)) {
			t.Fatalf("%s is %d, of another partition", n.s, id)
		}
	}
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		claimed, err := Claimed(r)
		for _, ns := range dict.Namespaces {
			if claimed[ns] != int64(len(w.strings[ns])) {
				t.Errorf("%d strings of %s are claimed, want %d", claimed[ns], ns, len(w.strings[ns]))
			}
		}
		return err
	}))
}

// TestClaimEndsAtALease: a claim of DIDs ends while it waits for a lease for one partition, and has drawn ids of
// another. A later claim of URIs does not use these.
func TestClaimEndsAtALease(t *testing.T) {
	settings := dict.Settings{ShardBits: 6, LeaseSize: 64, Partitions: 2}
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	cutting := &cutter{Store: store}
	in := openAs(t, cutting, Options{Settings: settings})
	w := newTwin()
	claim := func(ctx context.Context, all ...named) error {
		var b Batch
		for _, s := range all {
			b.Add(s.ns, []byte(s.s))
		}
		if err := in.Prepare(ctx, &b, 0); err != nil {
			return err
		}
		for i, s := range all {
			w.note(t, s, b.ID(i))
		}
		return nil
	}
	var of [2][]named // by partition
	for n := 0; len(of[0]) < 4 || len(of[1]) < 1; n++ {
		did := fmt.Sprintf("did:web:%d.example.com", n)
		part := settings.PartitionOf([]byte(did))
		of[part] = append(of[part], named{dict.DID, did})
	}
	must(t, claim(t.Context(), of[0][:2]...)) // leases for one partition
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), cutKey{}, true))
	cutting.cancel = cancel
	if err := claim(ctx, of[0][2], of[0][3], of[1][0]); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for n := range claimsInFlight { // so that each of the claims' workers has one, also the one that has drawn ids
		must(t, claim(t.Context(), named{dict.URI, fmt.Sprintf("at://a%d.example/x.y.z/1", n)}))
	}
	must(t, claim(t.Context(), of[0][2], of[0][3], of[1][0]))
	in.Close()
	w.equals(t, store)
	w.audited(t, store, settings)
}

// TestClaimerMade: a Claimer knows which strings of a batch are new, and its Resolve does
// nothing in the transaction.
func TestClaimerMade(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	in := openAs(t, store, Options{Settings: dict.SharedSettings})
	var b Batch
	old := b.Add(dict.DID, []byte("did:web:old.com"))
	must(t, in.Prepare(t.Context(), &b, 0))
	if !b.Made(old) {
		t.Error("Made does not report a new string")
	}
	id := b.ID(old)
	for _, cached := range []bool{true, false} {
		if !cached {
			in = openAs(t, store, Options{Settings: dict.SharedSettings, Slot: slotOf(1)})
		}
		b.Reset()
		old, fresh := b.Add(dict.DID, []byte("did:web:old.com")), b.Add(dict.DID, fmt.Appendf(nil, "did:web:%v.com", cached))
		must(t, in.Prepare(t.Context(), &b, 0))
		if b.Made(old) || b.ID(old) != id || !b.Made(fresh) {
			t.Errorf("cached %v: made %v, %v", cached, b.Made(old), b.Made(fresh))
		}
		before := store.Counts().Commits
		err := store.Update(t.Context(), func(tx kv.Txn) error {
			made, err := in.Resolve(tx, &b)
			if made != [len(dict.Namespaces) + 1]int{} {
				t.Errorf("Resolve creates %v", made)
			}
			return err
		})
		if err != nil || store.Counts().Commits != before {
			t.Errorf("Resolve writes: %v", err)
		}
		want := b.ID(fresh)
		in.Abandon(&b)
		in.Committed(&b)
		if b.ID(fresh) != want {
			t.Errorf("the claimed id is now %d, and was %d", b.ID(fresh), want)
		}
	}
}

// TestChunksOf: claims are divided into chunks for one transaction each, and stay in order.
func TestChunksOf(t *testing.T) {
	for _, c := range []struct{ n, size, chunks int }{
		{0, 10, 0}, {1, 10, 1}, {claimSize, 10, 1}, {claimSize + 1, 10, 2}, {5 * claimSize, 100, 5}, {400, 8000, 7},
	} {
		order := make([]claim, c.n)
		for i := range order {
			order[i].key = slices.Repeat([]byte{byte(i)}, c.size)
		}
		chunks := chunksOf(order, claimSize)
		if len(chunks) != c.chunks {
			t.Errorf("%+v: %d chunks", c, len(chunks))
		}
		next := 0
		for _, chunk := range chunks {
			bytes := 0
			for i := range chunk {
				if &chunk[i] != &order[next] {
					t.Fatalf("%+v: not in order at %d", c, next)
				}
				bytes += len(chunk[i].key)
				next++
			}
			if len(chunk) > claimSize || bytes > 510_000 {
				t.Errorf("%+v: a chunk of %d claims, %d bytes", c, len(chunk), bytes)
			}
		}
		if next != c.n {
			t.Errorf("%+v: %d claims", c, next)
		}
	}
}
