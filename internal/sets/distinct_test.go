package sets

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A Distinct counts what a map has, count after count, in the same memory.
func TestDistinct(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d Distinct
	for round := range 300 {
		if d.Reset(); round == 100 {
			d.round = math.MaxUint32 // the next Reset begins at 1 again
		}
		all := map[uint64]bool{}
		space := uint64(1) << (1 + rng.IntN(62))
		for range rng.IntN(5000) {
			id := rng.Uint64N(space)
			all[id] = true
			d.Add(id)
		}
		if d.Len() != uint64(len(all)) {
			t.Fatalf("round %d: %d ids, want %d", round, d.Len(), len(all))
		}
	}
}
