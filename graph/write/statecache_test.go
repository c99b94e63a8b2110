package write

import (
	"math/rand/v2"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// TestStateCache compares the cache with a map: what it has is what was put
// last, the newest are there, and it does not grow over its limit.
func TestStateCache(t *testing.T) {
	const bytes = 100_000
	c := NewStateCache(bytes)
	rng := rand.New(rand.NewPCG(1, 3))
	truth := map[dict.ID]format.RepoState{}
	var newest []dict.ID
	for n := range 200_000 {
		id := dict.ID(1 + rng.IntN(20_000))
		st := format.RepoState{Seq: format.Seq(n), Rev: format.Rev(rng.Uint64())}
		c.Put(id, st)
		truth[id] = st
		newest = append(newest, id)
		if n%7 == 0 {
			for _, id := range newest[max(0, len(newest)-c.limit/2):] {
				if got, ok := c.Get(id); !ok || got != truth[id] {
					t.Fatalf("after %d: %d is %v %t, want %v", n, id, got, ok, truth[id])
				}
				if n%70 != 0 {
					break
				}
			}
			id := dict.ID(1 + rng.IntN(20_000))
			if got, ok := c.Get(id); ok && got != truth[id] {
				t.Fatalf("after %d: %d is %v, want %v", n, id, got, truth[id])
			}
		}
	}
	if size := int64(len(c.young)+len(c.old)) * bytesPerState; size > bytes {
		t.Errorf("it takes %d bytes of %d", size, bytes)
	}
}
