package format

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// mergeRuns sorts like a stable sort, whatever the runs: none, empty, one, many small ones beside large ones, and
// runs that do not ascend.
func TestMergeRuns(t *testing.T) {
	type element struct{ key, at int }
	var spare []element
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 31))
		var list []element
		var starts []int
		for range rng.IntN(12) {
			starts = append(starts, len(list))
			n := rng.IntN(4)
			if rng.IntN(5) == 0 {
				n = rng.IntN(60)
			}
			run := make([]element, n)
			for i := range run {
				run[i].key = rng.IntN(40) + rng.IntN(2)*rng.IntN(1000)
			}
			if rng.IntN(10) > 0 {
				slices.SortFunc(run, func(x, y element) int { return cmp.Compare(x.key, y.key) })
			}
			for i := range run {
				run[i].at = len(list) + i
			}
			list = append(list, run...)
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(x, y element) int { return cmp.Compare(x.key, y.key) })
		var got []element
		got, spare = mergeRuns(list, spare, starts, func(x, y *element) int { return cmp.Compare(x.key, y.key) })
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
	}
}
