package sets_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/internal/sets"
)

func random(rng *rand.Rand) (sets.Set, map[uint64]bool) {
	want := map[uint64]bool{}
	n := []int{0, 1, 5, 300, 9000}[rng.IntN(5)]
	space := []uint64{10, 5000, 100_000, 1 << 45}[rng.IntN(4)]
	for range n {
		want[rng.Uint64N(space)] = true
	}
	ids := slices.Sorted(maps.Keys(want))
	if rng.IntN(2) == 0 {
		b := roaring64.New()
		b.AddMany(ids)
		return sets.FromBitmap(b), want
	}
	return sets.FromList(ids), want
}

// Every operation gives the result that plain maps give, for lists and for bitmaps, and does
// not change its operands.
func TestAlgebra(t *testing.T) {
	for seed := range uint64(250) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a, am := random(rng)
		b, bm := random(rng)
		check := func(what string, got sets.Set, keep func(id uint64) bool) {
			var want []uint64
			for id := range am {
				if keep(id) {
					want = append(want, id)
				}
			}
			for id := range bm {
				if !am[id] && keep(id) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if list := got.List(nil); !slices.Equal(list, want) || got.Len() != uint64(len(want)) || got.Empty() != (len(want) == 0) {
				t.Fatalf("seed %d: %s: %d members, want %d", seed, what, len(list), len(want))
			}
			for range 20 {
				id := rng.Uint64N(6000)
				if got.Has(id) != (keep(id) && (am[id] || bm[id])) {
					t.Fatalf("seed %d: %s: Has(%d) is %v", seed, what, id, got.Has(id))
				}
			}
			checkPages(t, rng, got, b, bm, want)
		}
		check("a", a, func(id uint64) bool { return am[id] })
		check("and", sets.And(a, b), func(id uint64) bool { return am[id] && bm[id] })
		check("or", sets.Or(a, b), func(uint64) bool { return true })
		check("and not", sets.AndNot(a, b), func(id uint64) bool { return am[id] && !bm[id] })
		if n := sets.And(a, b).Len(); sets.AndLen(a, b) != n || sets.AndLen(b, a) != n {
			t.Fatalf("seed %d: AndLen %d, want %d", seed, sets.AndLen(a, b), n)
		}
		check("a, afterwards", a, func(id uint64) bool { return am[id] }) // the operands are unchanged
		check("b, afterwards", b, func(id uint64) bool { return bm[id] })
	}
}

func checkPages(t *testing.T, rng *rand.Rand, s, hidden sets.Set, isHidden map[uint64]bool, want []uint64) {
	t.Helper()
	want = slices.DeleteFunc(slices.Clone(want), func(id uint64) bool { return isHidden[id] || id == 0 })
	limit := 1 + len(want)/(1+rng.IntN(9)) // few pages of a large set
	var all []uint64
	for after, more := uint64(0), true; more; {
		var page []uint64
		page, more = s.Page(after, limit, hidden)
		if len(page) > limit || more && len(page) < limit {
			t.Fatalf("a page of %d, limit %d, more %v", len(page), limit, more)
		}
		all = append(all, page...)
		if len(page) > 0 {
			after = page[len(page)-1]
		}
	}
	if !slices.Equal(all, want) {
		t.Fatalf("pages have %d members, want %d", len(all), len(want))
	}
}

// A Sparse answers like its set, whatever the order of the ids.
func TestSparse(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 60 {
		span := 1 + rng.Uint64N(1<<(4+rng.IntN(40)))
		var ids, asked []uint64
		for range rng.IntN(2 * sets.ListMax) {
			ids = append(ids, rng.Uint64N(span))
		}
		top := uint64(rng.IntN(2)) * -span // the last ids, or the first
		for i := range ids {
			ids[i] += top
		}
		set := sets.FromUnsorted(ids)
		for range 2000 {
			asked = append(asked, top+rng.Uint64N(span+2), math.MaxUint64)
			if len(ids) > 0 {
				asked = append(asked, ids[rng.IntN(len(ids))])
			}
		}
		if rng.IntN(3) > 0 {
			slices.Sort(asked)
		}
		asked = append(asked, asked[:10]...)
		p := sets.NewSparse(set)
		for _, id := range asked {
			if got, want := p.Has(id), set.Has(id); got != want {
				t.Fatalf("%d of %d members below %d: %v", id, set.Len(), span, got)
			}
		}
	}
}
