package sets

import (
	"math/rand/v2"
	"testing"
)

// A filter passes every member, and few other ids.
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
				t.Fatalf("size %d: member %d is missing", n, id)
			}
		}
		wrong := 0
		for range 10_000 {
			if f.Has(rng.Uint64()) {
				wrong++
			}
		}
		if wrong > 2000 {
			t.Errorf("size %d: %d of 10,000 other ids pass", n, wrong)
		}
	}
	if f := Filter(nil); !f.Has(7) {
		t.Error("a nil filter excludes an id")
	}
}
