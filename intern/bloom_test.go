package intern

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
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

// TestStringFilter resolves strings repeatedly, with restarts, with filters that are filled in
// the background, and with filters that are too small.
func TestStringFilter(t *testing.T) {
	for _, budget := range []int64{1 << 30, 160 << 10, 50 << 10} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) { testStringFilter(t, budget) })
	}
}

func testStringFilter(t *testing.T, budget int64) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	rng := rand.New(rand.NewPCG(3, uint64(budget)))
	ids := map[string]dict.ID{}
	did := func() string {
		n := rng.IntN(4000)
		if n%50 == 0 {
			return fmt.Sprintf("did:web:u%d.example.com", n)
		}
		return fmt.Sprintf("did:plc:%024s", dict.AppendTID(dict.AppendTID(nil, uint64(n)<<40), uint64(n))[:24])
	}
	uri := func() string {
		d := did()
		if rng.IntN(20) == 0 {
			return fmt.Sprintf("at://%s/app.bsky.feed.post/key%d", d, rng.IntN(100))
		}
		tid := (uint64(rng.IntN(5))<<spanShift | uint64(rng.IntN(50))<<20) + 1<<50
		return fmt.Sprintf("at://%s/app.bsky.feed.post/%s", d, dict.AppendTID(nil, tid))
	}
	var filled, skipped bool
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
		skipped = skipped || d.strings.floor > 0
		in.Close(t.Context())
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
	// A filter has 32 KiB. There is room for all; for the newest URIs only; or not even for the DIDs and the URIs
	// without a TID.
	if want := budget > 50<<10; filled != want {
		t.Errorf("the filters were ready: %t, want %t", filled, want)
	}
	if want := budget < 1<<30; skipped != want {
		t.Errorf("old URIs were dropped: %t, want %t", skipped, want)
	}
}
