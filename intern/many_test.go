package intern

import (
	"flag"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// go test -tags fdb ./intern -run TestManyIDs -ids.count 100000000 -v runs the test with a
// hundred million ids.
var idsCount = flag.Int64("ids.count", 4_000_000, "ids that TestManyIDs hands out")

// handed records which ids of a block were handed out.
type handed struct {
	mu  sync.Mutex
	set [dict.MaxLeaseSize / 64]uint64
}

// TestManyIDs: sixty-four writers hand out ids, crash at any moment, and start again. No id is
// handed out twice.
func TestManyIDs(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) kv.Store{
		"memory": func(*testing.T) kv.Store {
			return memkv.Open(memkv.Options{Merger: Merger{}, Faults: memkv.Faults{Seed: 5, Conflict: 0.05, Unknown: 0.05}})
		},
		"fdb": func(t *testing.T) kv.Store { return kvtest.Open(t, kvtest.Options(t, Merger{})) },
	} {
		t.Run(name, func(t *testing.T) { testManyIDs(t, open(t)) })
	}
}

func testManyIDs(t *testing.T, store kv.Store) {
	const writers = 64
	settings := dict.Settings{ShardBits: 6, LeaseSize: dict.MaxLeaseSize, Partitions: 1} // few shards, so that writers collide
	var mu sync.Mutex
	blocks := map[dict.BlockKey]*handed{}
	var count, duplicates, crashes atomic.Int64
	note := func(id dict.ID) {
		b := settings.BlockOf(dict.URI, id)
		mu.Lock()
		h := blocks[b]
		if h == nil {
			h = new(handed)
			blocks[b] = h
		}
		mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		at := uint64(id) % dict.MaxLeaseSize
		if h.set[at/64]>>(at%64)&1 != 0 {
			duplicates.Add(1)
		}
		h.set[at/64] |= 1 << (at % 64)
		count.Add(1)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for life := 0; count.Load() < *idsCount; life++ {
				in := newLeaser(store, Options{Settings: settings, Owner: fmt.Sprintf("%d.%d", w, life), Slot: slotOf(uint8(w))})
				a := in.alloc[dict.URI][0]
				d := checkout{a: a}
				for range 1 + rng.IntN(60) {
					n := 1 + rng.IntN(5000)
					if err := a.reserve(t.Context(), n); err != nil {
						t.Error(err)
						return
					}
					if !d.need(n) {
						t.Error("reserved ids are missing")
						return
					}
					d.ids = d.ids[:0]
					for range n {
						id := d.take()
						if rng.IntN(100) > 0 { // some attempts find that another writer was faster
							note(id)
							d.ids = append(d.ids, id)
						}
					}
					d.settle(d.ids)
					if count.Load() >= *idsCount {
						break
					}
				}
				if rng.IntN(2) == 0 { // the writer crashes with its leases
					crashes.Add(1)
					in.end()
					in.background.Wait()
					continue
				}
				in.close()
			}
		})
	}
	wg.Wait()
	if n := duplicates.Load(); n > 0 {
		t.Errorf("%d ids were handed out twice", n)
	}
	leases, used := 0, int64(0)
	viewOf(t, store, func(r kv.Reader) error {
		return leasesOf(r, func(l dict.Lease) error {
			leases++
			if h := blocks[l.BlockKey]; h != nil {
				for _, word := range h.set {
					used += int64(bits.OnesCount64(word))
				}
			}
			delete(blocks, l.BlockKey)
			return nil
		})
	})
	if len(blocks) > 0 {
		t.Errorf("ids of %d blocks without a lease were handed out", len(blocks))
	}
	if used != count.Load() || crashes.Load() == 0 {
		t.Errorf("%d ids in leases, %d handed out, %d crashes", used, count.Load(), crashes.Load())
	}
	t.Logf("%d ids from %d leases of %d writers with %d crashes: none twice", used, leases, writers, crashes.Load())
}
