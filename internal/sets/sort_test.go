package sets

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sort and SortBy sort as the stable sort of package slices.
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
		key, other := func(it *Item) uint64 { return it.Key % 16 }, func(it *Item) uint64 { return uint64(it.At) * 0x9e3779b97f4a7c15 >> 60 }
		age := func(x, y Item) int { return cmp.Compare(x.At, y.At) }
		list := slices.Clone(want)
		slices.SortFunc(want, func(x, y Item) int {
			return cmp.Or(cmp.Compare(key(&x), key(&y)), cmp.Compare(other(&x), other(&y)), age(x, y))
		})
		if got := SortBy(&s, list, nil, age, other, key); !slices.Equal(got, want) {
			t.Fatalf("round %d, by two keys: %v, want %v", round, got, want)
		}
	}
}
