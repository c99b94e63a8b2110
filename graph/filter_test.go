package graph

import (
	"math/rand/v2"
	"testing"

	"skein/internal/idset"
)

// A filter never says of a member that it is none, and mostly says so of what is none.
func TestIDFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 3, 4, 100, 70_000} {
		var ids []uint64
		for range n {
			ids = append(ids, rng.Uint64N(1<<40))
		}
		f := filterOf(idset.FromUnsorted(ids), 64)
		for _, id := range ids {
			if !f.has(id) {
				t.Fatalf("of %d, %d is said to be none", n, id)
			}
		}
		wrong := 0
		for range 10_000 {
			if f.has(rng.Uint64()) {
				wrong++
			}
		}
		if wrong > 2000 {
			t.Errorf("of %d, %d of 10,000 others pass", n, wrong)
		}
	}
	if f := filterOf(idset.FromList([]uint64{1}), 63); f != nil || !f.has(7) {
		t.Error("a filter is made for a few questions")
	}
}
