package intern

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/memkv"
	"skein.blue/internal/syntax"
)

// TestFilter adds keys. The filter reports each of them from then on, and few others.
func TestFilter(t *testing.T) {
	var f filter
	rng := rand.New(rand.NewPCG(1, 2))
	key := func(n uint64) uint64 { return cacheKey{n * 7, n}.hash(&tableKey) }
	const keys = 500_000
	for n := range uint64(keys) {
		f.add(key(n))
		if m := rng.Uint64N(n + 1); !f.has(key(m)) {
			t.Fatalf("key %d of %d is missing", m, n)
		}
	}
	for n := range uint64(keys) {
		if !f.has(key(n)) {
			t.Fatalf("key %d is missing", n)
		}
	}
	wrong := 0
	for n := range uint64(keys) {
		if f.has(key(keys + n)) {
			wrong++
		}
	}
	if wrong > keys/30 {
		t.Errorf("%d of %d other keys are reported", wrong, keys)
	}
	if f.bytes() > keys*4 {
		t.Errorf("%d keys take %d bytes", keys, f.bytes())
	}
}

// TestFoldedFilter folds a filter, also while it grows. It keeps all keys, and reports as many others as its comment says.
func TestFoldedFilter(t *testing.T) {
	key := func(n int) uint64 { return cacheKey{uint64(n) * 7, uint64(n)}.hash(&tableKey) }
	for _, keys := range []int{firstBlocks * keysPerBlock, 10 * firstBlocks * keysPerBlock} {
		var f filter
		for n := range keys {
			f.add(key(n))
		}
		size := f.bytes()
		for level, most := range []float64{0.01, 0.1, 0.6} {
			if level > 0 {
				if shrank := f.fold(); f.bytes() != size-shrank || f.bytes() != size/2 || f.level() != level {
					t.Fatalf("folded %d times: %d of %d bytes, level %d", level, f.bytes(), size, f.level())
				}
				size = f.bytes()
			}
			wrong := 0
			for n := range keys {
				if !f.has(key(n)) {
					t.Fatalf("folded %d times: key %d is missing", level, n)
				}
				if f.has(key(keys + n)) {
					wrong++
				}
			}
			if rate := float64(wrong) / float64(keys); len(f.parts) == 1 && (rate > most || rate < most/4) {
				t.Errorf("folded %d times: %.3f of other keys are reported", level, rate)
			}
		}
		// A new part is not folded, and the next fold only folds that one.
		have := keys
		for parts := len(f.parts); len(f.parts) == parts; have++ {
			f.add(key(have))
		}
		size = f.bytes()
		if shrank := f.fold(); f.level() != 1 || shrank != int64(firstBlocks<<(len(f.parts)-1))*bytesPerBlock/2 || f.bytes() != size-shrank {
			t.Errorf("folding the new part freed %d bytes; level %d", shrank, f.level())
		}
		for n := range have {
			if !f.has(key(n)) {
				t.Fatalf("key %d is missing", n)
			}
		}
	}
}

// TestStringFilter resolves strings repeatedly, with restarts, with filters that are filled in
// the background, and with filters that are too small.
func TestStringFilter(t *testing.T) {
	for _, budget := range []int64{1 << 30, 300 << 10, 100 << 10, 20 << 10} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) { testStringFilter(t, budget) })
	}
}

func testStringFilter(t *testing.T, budget int64) {
	store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
	rng := rand.New(rand.NewPCG(3, uint64(budget)))
	ids := map[string]dict.ID{}
	did := func() string {
		n := rng.IntN(4000)
		if n%50 == 0 {
			return fmt.Sprintf("did:web:u%d.example.com", n)
		}
		return fmt.Sprintf("did:plc:%024s", syntax.AppendTID(syntax.AppendTID(nil, uint64(n)<<40), uint64(n))[:24])
	}
	uri := func() string {
		d := did()
		if rng.IntN(20) == 0 {
			return fmt.Sprintf("at://%s/app.bsky.feed.post/key%d", d, rng.IntN(100))
		}
		tid := (uint64(rng.IntN(5))<<spanShift | uint64(rng.IntN(50))<<20) + 1<<50
		return fmt.Sprintf("at://%s/app.bsky.feed.post/%s", d, syntax.AppendTID(nil, tid))
	}
	var filled, folded, skipped bool
	for round := range 6 {
		in, err := Open(t.Context(), store, Options{Alone: true, FilterBytes: budget, CacheBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		d, _ := in.(*Drawer)
		d.strings.fillAfter = 500
		for batch := range 40 {
			var b Batch
			var strs []string
			var at []int
			for range 200 {
				ns, s := dict.DID, did()
				if rng.IntN(2) == 0 {
					ns, s = dict.URI, uri()
				}
				strs, at = append(strs, s), append(at, b.Add(ns, []byte(s)))
			}
			if err := in.Prepare(t.Context(), nil, 1000); err != nil {
				t.Fatal(err)
			}
			if err := store.Update(t.Context(), func(tx kv.Txn) error {
				b.Retry()
				_, err := in.Resolve(tx, &b)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			in.Committed(&b)
			for i, s := range strs {
				id := b.ID(at[i])
				if was, ok := ids[s]; id == dict.None || ok && was != id {
					t.Fatalf("round %d: %s was %d and is %d", round, s, was, id)
				}
				ids[s] = id
			}
			if batch == 20 && round > 0 {
				d.leases.background.Wait() // after this, the filters are ready
			}
		}
		filled = filled || d.strings.ready.Load() && round > 0
		for _, f := range append(slices.Collect(maps.Values(d.strings.spans)), &d.strings.dids) {
			folded = folded || len(f.parts) > 0 && f.level() > 0
		}
		skipped = skipped || d.strings.floor > 0
		if err := in.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	byID := map[dict.ID]string{}
	for s, id := range ids {
		key := id<<1 | dict.ID(len(s)>>31)
		if s[0] == 'a' {
			key |= 1
		}
		if other, ok := byID[key]; ok {
			t.Fatalf("%s and %s are both %d", s, other, id)
		}
		byID[key] = s
	}
	// A filter has 64 KiB, and 16 if it is folded twice. There is room for all; for all if they are folded; for the newest URIs only;
	// or not even for the DIDs and the URIs without a TID.
	if want := budget > 20<<10; filled != want {
		t.Errorf("the filters were ready: %t, want %t", filled, want)
	}
	if want := budget < 1<<30 && budget > 20<<10; folded != want {
		t.Errorf("filters were folded: %t, want %t", folded, want)
	}
	if want := budget < 300<<10; skipped != want {
		t.Errorf("old URIs were dropped: %t, want %t", skipped, want)
	}
}
