package idset

import (
	"math/rand/v2"
	"testing"
)

// A filter never says of a member that it is none, and mostly says so of what is none.
func TestFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 3, 4, 100, 70_000} {
		var ids []uint64
		for range n {
			ids = append(ids, rng.Uint64N(1<<40))
		}
		f := NewFilter(n)
		for _, id := range ids {
			f.Add(id)
		}
		for _, id := range ids {
			if !f.Has(id) {
				t.Fatalf("of %d, %d is said to be none", n, id)
			}
		}
		wrong := 0
		for range 10_000 {
			if f.Has(rng.Uint64()) {
				wrong++
			}
		}
		if wrong > 2000 {
			t.Errorf("of %d, %d of 10,000 others pass", n, wrong)
		}
	}
	if f := Filter(nil); !f.Has(7) {
		t.Error("none knows something")
	}
}
