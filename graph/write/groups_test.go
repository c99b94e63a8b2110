package write

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
)

var errBroken = errors.New("the engine is broken")

// brokenTxn cannot read.
type brokenTxn struct{ kv.Txn }

func (brokenTxn) Get([]byte) ([]byte, bool, error) { return nil, false, errBroken }

// largeRows counts the rows of a value that are too large.
func largeRows(key, v []byte, most int) (n int, err error) {
	each := func(subject dict.ID, row []byte) error {
		_, removed, members, _, err := format.MergeRows(kinds.Like, subject, row)
		if len(removed)+len(members) > most {
			n++
		}
		return err
	}
	if key[0] != format.KeyRows {
		subject, _ := dict.ReadID(key[2:])
		err = each(subject, v)
		return n, err
	}
	_, first, err := format.ParseRowGroupKey(key)
	if err == nil {
		err = format.EachRow(first, v, each)
	}
	return n, err
}

// TestGroupedRows writes random changes of the sets of neighbouring posts, and of accounts, and compares each set with a map after each
// write. Some sets gain more members in one write than a row may have; some of these writes fail. The store is in memory, or in Pebble, which folds later and
// in parts.
func TestGroupedRows(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		merger := NewMerger(Limits{Row: 8, Chunk: 8})
		store := kv.Store(memkv.Open(memkv.Options{Merger: merger}))
		compact := func(context.Context) error { return nil }
		if seed%4 == 0 {
			p, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Merger: merger})
			if err != nil {
				t.Fatal(err)
			}
			store, compact = p, p.Compact
		}
		layout := format.Layout{Settings: dict.DefaultSettings}
		type set struct {
			kind    kinds.Kind
			subject dict.ID
		}
		twin := map[set]map[dict.ID]bool{}
		var sets []set // ascending
		for _, k := range []kinds.Kind{1, kinds.Like, kinds.Repost} {
			for range 20 {
				sets = append(sets, set{k, dict.ID(1<<32 + rng.IntN(48))})
			}
		}
		slices.SortFunc(sets, func(x, y set) int {
			return compareSetChanges(SetChange{Kind: x.kind, Subject: x.subject}, SetChange{Kind: y.kind, Subject: y.subject})
		})
		sets = slices.Compact(sets)
		var writer rows
		spilled, failed := 0, 0
		for range 60 {
			var changes []SetChange
			after := map[set]map[dict.ID]bool{}
			merged := false
			for _, s := range sets {
				if rng.IntN(4) > 0 {
					continue
				}
				n := rng.IntN(4)
				if rng.IntN(20) == 0 {
					n = 30
				}
				members := map[dict.ID]bool{}
				for range n {
					members[dict.ID(1<<33+rng.IntN(200))] = rng.IntN(4) > 0
				}
				added := 0
				after[s] = maps.Clone(twin[s])
				if after[s] == nil {
					after[s] = map[dict.ID]bool{}
				}
				for _, m := range slices.Sorted(maps.Keys(members)) {
					changes = append(changes, SetChange{Kind: s.kind, Remove: !members[m], Date: uint32(rng.IntN(9)), Subject: s.subject, Member: m})
					if delete(after[s], m); members[m] {
						after[s][m] = true
						added++
					}
				}
				merged = merged || added > 8
			}
			breaks := merged && rng.IntN(2) == 0
			err := store.Update(t.Context(), func(tx kv.Txn) error {
				if breaks {
					return writer.write(brokenTxn{tx}, changes, layout, merger)
				}
				return writer.write(tx, changes, layout, merger)
			})
			if breaks != errors.Is(err, errBroken) || err != nil && !breaks {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if breaks {
				failed++
			} else {
				maps.Copy(twin, after)
			}
			if err := store.Update(t.Context(), func(tx kv.Txn) error {
				for _, key := range merger.Topmost(merger.TakeLarge(rng.IntN(4), func(string) bool { return true })) {
					v, _, err := tx.Get([]byte(key))
					large, lerr := largeRows([]byte(key), v, merger.limits.Row)
					n, serr := merger.SpillOne(tx, []byte(key))
					if err := errors.Join(err, lerr, serr); err != nil || n != large {
						t.Fatalf("seed %d: %d rows of %x were spilled, %d are too large: %v", seed, n, key, large, err)
					}
					spilled += n
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(8) == 0 {
				if err := compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.View(t.Context(), func(r kv.Reader) error {
				for _, s := range sets {
					got, err := read.Bitmap(r, layout, s.kind, s.subject)
					if err != nil {
						return err
					}
					var want []uint64
					for m := range twin[s] {
						want = append(want, uint64(m))
					}
					slices.Sort(want)
					if !slices.Equal(got.ToArray(), want) {
						t.Fatalf("seed %d: set %d of %d has %v, want %v", seed, s.kind, s.subject, got, want)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if spilled < 3 || failed < 3 {
			t.Errorf("seed %d: %d spills, %d failed writes: too few to prove anything", seed, spilled, failed)
		}
	}
}
