package intern

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

func drawItem(rng *rand.Rand, now uint64) filterItem {
	it := filterItem{ns: dict.URI, key: cacheKey{rng.Uint64(), rng.Uint64()}}
	switch rng.IntN(6) {
	case 0:
		it.ns = dict.DID
	case 1:
	case 2: // URIs of the future must not fill the filters
		it.packed, it.tid = true, (now+rng.Uint64N(2*aheadSpans))<<spanShift
	default:
		it.packed, it.tid = true, (now-rng.Uint64N(30))<<spanShift+rng.Uint64N(1<<spanShift)
	}
	return it
}

// TestFilterTwin: filters of any size never report a known string as new. They report most new
// strings, and keep to their size by dropping the oldest.
func TestFilterTwin(t *testing.T) {
	const part = firstBlocks * bytesPerBlock
	for _, budget := range []int64{part, 3 * part, 10 * part, 1 << 30} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(budget)))
			k := newStringFilter(budget, slog.New(slog.DiscardHandler))
			now := k.ceiling - aheadSpans
			k.ready.Store(true)
			var there []filterItem
			isNew := func(it filterItem) bool { return k.isNew(it.ns, it.packed, it.tid, it.key) }
			kept := func(it filterItem) bool { return !k.timed(it.packed, it.tid) || it.tid>>spanShift >= k.floor }
			said, asked := 0, 0
			for range 60_000 {
				it := drawItem(rng, now)
				if asked++; isNew(it) {
					said++
				}
				k.add(it.ns, it.packed, it.tid, it.key)
				if k.full {
					k.ready.Store(false) // like the Drawer
				}
				if there = append(there, it); isNew(it) || isNew(there[rng.IntN(len(there))]) {
					t.Fatalf("one of %d known strings is reported as new", len(there))
				}
				if k.size > budget && !k.full {
					t.Fatalf("the filters take %d bytes, at most %d are allowed", k.size, budget)
				}
			}
			sum := k.dids.bytes() + k.others.bytes()
			for span, f := range k.spans {
				if sum += f.bytes(); span < k.floor || span >= k.ceiling {
					t.Errorf("there is a filter of span %d, below the floor %d", span, k.floor)
				}
			}
			if !k.full && sum != k.size {
				t.Errorf("the filters take %d bytes, but count %d", sum, k.size)
			}
			for _, it := range there {
				if isNew(it) {
					t.Fatal("a known string is reported as new")
				}
			}
			fresh, wrong := 0, 0
			for range 5000 {
				if it := drawItem(rng, now); kept(it) {
					if fresh++; !isNew(it) {
						wrong++
					}
				}
			}
			switch {
			case budget == 1<<30 && (k.floor > 0 || k.full || wrong > fresh/20 || said < asked*9/10):
				t.Errorf("with room for all: %d of %d new strings seem to be known; %d of %d were reported; floor %d", wrong, fresh, said, asked, k.floor)
			case budget == part && !k.full:
				t.Error("one part has room for all")
			case k.full && wrong < fresh:
				t.Error("full filters report new strings")
			case budget == 10*part && (k.full || k.floor == 0):
				t.Errorf("full %v, floor %d: the test proves nothing", k.full, k.floor)
			}
		})
	}
}

// TestFiltersArePaidFor: after a restart, the dictionary is read once as many look-ups have failed as cost what that costs, and
// an attempt that ends before that tells nothing.
func TestFiltersArePaidFor(t *testing.T) {
	const stored = 40_000
	rng := rand.New(rand.NewPCG(4, 4))
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	open := func() *Drawer {
		d, _ := openAs(t, store, Options{}).(*Drawer)
		return d
	}
	var all []named
	fill := func(d *Drawer, n int) {
		for range n / 100 {
			var b Batch
			for range 100 {
				s := draw(rng, 1<<30)
				all = append(all, s)
				b.Add(s.ns, []byte(s.s))
			}
			must(t, put(t.Context(), store, d, &b))
			d.leases.background.Wait()
		}
	}
	d := open()
	fill(d, stored)
	d.Close()
	d = open()
	k := d.strings
	k.fillAfter = 100
	early := 0
	for ; !k.ready.Load() && early < stored; early += 100 {
		fill(d, 100)
	}
	if early < stored/perMiss/2 || early > 4*stored/perMiss {
		t.Errorf("the filters are ready after %d strings", early)
	}
	var known Batch
	for _, s := range all {
		known.Add(s.ns, []byte(s.s))
	}
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		made, err := d.Resolve(tx, &known)
		if made[dict.DID]+made[dict.URI] > 0 {
			t.Errorf("%v known strings are made again", made)
		}
		return err
	})
	must(t, err)
	wrong := 0
	for range 1000 {
		if !k.isNew(dict.DID, false, 0, cacheKey{rng.Uint64(), rng.Uint64()}) {
			wrong++
		}
	}
	if wrong > 100 {
		t.Errorf("of 1000 new strings, %d are not called new", wrong)
	}
}
