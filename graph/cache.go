package graph

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/intern"
)

// hiddenCache is the newest hidden set, which the writer publishes with every
// commit that changes it. A published set is never changed again.
type hiddenCache struct {
	reading sync.Mutex // by who reads the set anew
	mu      sync.Mutex
	version uint64
	set     *roaring64.Bitmap
}

func (h *hiddenCache) get(version uint64) *roaring64.Bitmap {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.version != version {
		return nil
	}
	return h.set
}

// publish replaces the set by one with the changes made. Containers that do
// not change are shared with the old one.
func (h *hiddenCache) publish(version uint64, changes map[intern.ID]bool) {
	h.mu.Lock()
	old := h.set
	h.mu.Unlock()
	set := old.Clone()
	for id, hidden := range changes {
		if hidden {
			set.Add(uint64(id))
		} else {
			set.Remove(uint64(id))
		}
	}
	h.mu.Lock()
	h.version, h.set = version, set
	h.mu.Unlock()
}

// put keeps a set that was read, unless a newer one is there.
func (h *hiddenCache) put(version uint64, set *roaring64.Bitmap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version > h.version {
		h.version, h.set = version, set
	}
}

// stateCache remembers the states of accounts as of the last commit, for the
// writer: two generations of maps without pointers.
type stateCache struct {
	young, old map[intern.ID]repoState
	limit      int // of each generation
}

func (c *stateCache) get(id intern.ID) (repoState, bool) {
	if st, ok := c.young[id]; ok {
		return st, true
	}
	st, ok := c.old[id]
	return st, ok
}

func (c *stateCache) put(id intern.ID, st repoState) {
	if c.young == nil || len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[intern.ID]repoState, c.limit/4)
	}
	c.young[id] = st
}
