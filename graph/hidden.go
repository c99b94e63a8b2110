package graph

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// hiddenCache keeps the newest set of hidden accounts. A published set never changes.
type hiddenCache struct {
	*core

	reading sync.Mutex // held while the set is read again; taken before mu
	mu      sync.Mutex // guards version and set
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

// put stores a set, unless the cache has a newer one.
func (h *hiddenCache) put(version uint64, set *roaring64.Bitmap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.set == nil || version > h.version {
		h.version, h.set = version, set
	}
}

// in returns the set in the state that r reads. It is nearly always in memory, and is read again if another
// process has changed it.
func (h *hiddenCache) in(r kv.Reader) (*roaring64.Bitmap, error) {
	version, err := read.HiddenVersion(r, h.layout)
	if err != nil {
		return nil, err
	}
	if set := h.get(version); set != nil {
		return set, nil
	}
	h.reading.Lock()
	defer h.reading.Unlock()
	if set := h.get(version); set != nil {
		return set, nil
	}
	set, err := read.Bitmap(r, h.layout, kinds.Hidden, 0)
	if err == nil {
		h.put(version, set)
	}
	return set, err
}

// changed takes over a committed change of the set, if no other process changes it: it publishes a copy, which shares the
// containers that stay.
func (h *hiddenCache) changed(version uint64, changes map[dict.ID]bool) {
	if h.shared() || len(changes) == 0 {
		return // in notices the new version
	}
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
	h.put(version, set)
}
