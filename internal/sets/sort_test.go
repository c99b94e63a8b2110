package sets

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sort sorts as the stable sort of package slices, and does so again after Rekey.
func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s Sorter
	for round := range 500 {
		s.Reset()
		var want []Item
		mask := rng.Uint64() & rng.Uint64()
		for i := range rng.IntN(1000) {
			key := rng.Uint64() & mask
			if round%3 == 0 {
				key |= 1 << 63
			}
			s.Add(key, i)
			want = append(want, Item{key, uint32(i)})
		}
		slices.SortStableFunc(want, func(x, y Item) int { return cmp.Compare(x.Key, y.Key) })
		if got := s.Sort(); !slices.Equal(got, want) && len(want) > 0 {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
		if round%2 == 0 { // again, by another key
			other := func(at uint32) uint64 { return uint64(at) * 0x9e3779b97f4a7c15 >> 50 }
			s.Rekey(other)
			for i := range want {
				want[i].Key = other(want[i].At)
			}
			slices.SortStableFunc(want, func(x, y Item) int { return cmp.Compare(x.Key, y.Key) })
			if got := s.Sort(); !slices.Equal(got, want) && len(want) > 0 {
				t.Fatalf("round %d, again: %v, want %v", round, got, want)
			}
		}
	}
}
