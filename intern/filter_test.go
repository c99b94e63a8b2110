package intern

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/memkv"
)

// filterItem is a string as a filter knows it.
type filterItem struct {
	ns     dict.Namespace
	packed bool
	tid    uint64
	key    cacheKey
}

func drawItem(rng *rand.Rand, now uint64) filterItem {
	it := filterItem{ns: dict.URI, key: cacheKey{rng.Uint64(), rng.Uint64()}}
	switch rng.IntN(6) {
	case 0:
		it.ns = dict.DID
	case 1:
	case 2: // of the future, from which nobody can fill the filters
		it.packed, it.tid = true, (now+rng.Uint64N(2*aheadSpans))<<spanShift
	default:
		it.packed, it.tid = true, (now-rng.Uint64N(30))<<spanShift+rng.Uint64N(1<<spanShift)
	}
	return it
}

// Filters of any size never say new of what is there; of what is not they mostly do;
// and they keep to their size, letting the oldest go.
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
					k.ready.Store(false) // as the Drawer does
				}
				if there = append(there, it); isNew(it) || isNew(there[rng.IntN(len(there))]) {
					t.Fatalf("what is there is said to be new, of %d", len(there))
				}
				if k.size > budget && !k.full {
					t.Fatalf("they take %d bytes, and may take %d", k.size, budget)
				}
			}
			sum := k.dids.bytes() + k.others.bytes()
			for span, f := range k.spans {
				if sum += f.bytes(); span < k.floor || span >= k.ceiling {
					t.Errorf("there is a filter of span %d, and they begin at %d", span, k.floor)
				}
			}
			if !k.full && sum != k.size {
				t.Errorf("they take %d bytes, and %d are counted", sum, k.size)
			}
			for _, it := range there {
				if isNew(it) {
					t.Fatal("what is there is said to be new")
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
				t.Errorf("with room for all: %d of %d seem to be there; %d of %d were new; floor %d", wrong, fresh, said, asked, k.floor)
			case budget == part && !k.full:
				t.Error("there is room in a single part")
			case k.full && wrong < fresh:
				t.Error("they say new, and know nothing any more")
			case budget == 10*part && (k.full || k.floor == 0):
				t.Errorf("full %v, floor %d: it shows nothing", k.full, k.floor)
			}
		})
	}
}

// Filters that are not ready say nothing, those of an empty store are, and those of
// another are once they are filled: then they know all that is there.
func TestFilterIsFilled(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
	log := slog.New(slog.DiscardHandler)
	k := newStringFilter(1<<20, log)
	it := filterItem{ns: dict.DID, key: cacheKey{1, 2}}
	if k.isNew(it.ns, it.packed, it.tid, it.key) {
		t.Error("it says new before it was opened")
	}
	if err := k.open(t.Context(), store); err != nil || !k.ready.Load() || !k.isNew(it.ns, it.packed, it.tid, it.key) {
		t.Errorf("of an empty store: ready %v, %v", k.ready.Load(), err)
	}
	filledStore, w := filled(t, Options{})
	k = newStringFilter(64<<20, log)
	if err := k.open(t.Context(), filledStore); err != nil || k.ready.Load() {
		t.Errorf("of a store with strings: ready %v, %v", k.ready.Load(), err)
	}
	if err := k.fill(t.Context(), filledStore); err != nil || !k.ready.Load() {
		t.Fatalf("filled: ready %v, %v", k.ready.Load(), err)
	}
	var b Batch
	for s := range w.ids {
		b.Add(s.ns, []byte(s.s))
	}
	viewOf(t, filledStore, func(r kv.Reader) error { return Lookup(r, &b) })
	for i := range b.items {
		it := &b.items[i]
		if k.isNew(it.ns, it.author != noAuthor, it.tid, b.settled(it)) {
			t.Fatalf("item %d of %d, which is there, is said to be new", i, b.Len())
		}
	}
	// One that has no room is not ready, and gives up.
	small := newStringFilter(1, log)
	if err := small.fill(t.Context(), filledStore); err != nil || small.ready.Load() || !small.full {
		t.Errorf("without room: ready %v, full %v, %v", small.ready.Load(), small.full, err)
	}
}
