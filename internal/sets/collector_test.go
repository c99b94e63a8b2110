package sets

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A Collector's set is that of all ids, however many, in whatever order.
func TestCollector(t *testing.T) {
	for seed, n := range []int{0, 1, 100, ListMax + 1, collectorLen - 1, collectorLen, collectorLen + 1, 3*collectorLen + 5} {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		var c Collector
		var want []uint64
		for i := range n {
			id := uint64(i)*3 + rng.Uint64N(2)<<40
			if rng.IntN(10) == 0 {
				id = rng.Uint64N(1000)
			}
			c.Add(id)
			want = append(want, id)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		if got := c.Set().List(nil); !slices.Equal(got, want) {
			t.Errorf("%d ids: %d in the set, want %d", n, len(got), len(want))
		}
	}
}
