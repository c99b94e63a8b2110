package algebra

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/internal/sets"
)

// A weighted tally adds up, for each id, the highest weight that each actor gave it, counts it once
// for each actor, and gives the results in order of their sums, however many are asked for.
func TestWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	type key struct {
		id    uint64
		actor int
	}
	for round := range 60 {
		ids := 1 + rng.IntN([]int{3, 50, 5000}[round%3])
		ta := Tally{Weighted: true}
		highest := map[key]uint64{}
		for actor := range 1 + rng.IntN(40) {
			usual := rng.Uint64N(tallyOne + 1)
			ta.NextWeighing(usual)
			for range 1 + rng.IntN(3) {
				var list []uint64
				for range rng.IntN(300) {
					list = append(list, uint64(rng.IntN(ids))<<(rng.IntN(2)*40))
				}
				weight := usual
				var err error
				switch rng.IntN(3) {
				case 0:
					err = ta.AddList(t.Context(), list)
				case 1:
					err = ta.Add(t.Context(), slices.Values(list))
				default:
					weight = rng.Uint64N(4) << 38
					for _, id := range list {
						if err == nil {
							err = ta.AddWeighing(t.Context(), id, weight)
						}
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range list {
					highest[key{id, actor}] = max(highest[key{id, actor}], weight)
				}
				if rng.IntN(10) == 0 {
					if err := ta.Count(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := ta.Count(); err != nil {
			t.Fatal(err)
		}
		out := sets.FromUnsorted([]uint64{1, 2, 1 << 40})
		ta.LeaveOut(out)
		sums := map[uint64]Summed{}
		for k, weight := range highest {
			if s := sums[k.id]; !out.Has(k.id) {
				sums[k.id] = Summed{Counted{k.id, s.Count + 1}, s.Sum + weight}
			}
		}
		for _, least := range []uint32{0, 1, 2, 20} {
			var want []Summed
			for _, s := range sums {
				if s.Count >= least {
					want = append(want, s)
				}
			}
			slices.SortFunc(want, func(x, y Summed) int {
				return cmp.Or(cmp.Compare(y.Sum, x.Sum), cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
			})
			for _, limit := range []int{0, 1, 2, 7, len(want), len(want) + 1} {
				if got := ta.TopSums(least, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
					t.Fatalf("round %d: the first %d of %d with a count of %d: %v, want %v", round, limit, len(want), least, got[:min(len(got), 3)], want[:min(len(want), 3)])
				}
			}
		}
	}
}

// A sum that does not fit stays at the highest value.
func TestSumsAreBounded(t *testing.T) {
	s := sum{all: math.MaxUint64 - tallyOne}
	s.add(tallyOne/2, false)
	s.add(tallyOne, false)
	s.add(tallyOne, false)
	if s.all != math.MaxUint64 {
		t.Errorf("%d", s.all)
	}
}
