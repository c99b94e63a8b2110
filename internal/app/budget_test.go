package app

import "testing"

// The collector's limit leaves room beside full caches, and the process stays within twice the budget: 2.75 times
// while it reads an archive.
func TestBudget(t *testing.T) {
	for _, memory := range []int64{64 << 20, 128 << 20, 1 << 30, 16 << 30} {
		b := embeddedBudget(memory)
		heap, outside := b.Strings+b.Filters+b.States+b.Sets, int64(0)
		if cgo {
			outside = 2 * b.Engine
		} else {
			heap += b.Engine
		}
		if b.Collector < heap*3/2 {
			t.Errorf("--memory %d: the collector's limit is %d, and full caches take %d", memory, b.Collector, heap)
		}
		if most := b.Collector + outside; most > 2*memory {
			t.Errorf("--memory %d: the process may take %d", memory, most)
		}
		if most := b.Collector + b.Archive + outside; most > memory*11/4 {
			t.Errorf("--memory %d: the process may take %d while it reads an archive", memory, most)
		}
	}
}
