package graph

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// hiddenCache keeps the newest hidden set. The writer publishes a new set with every commit that
// changes it; a published set never changes.
type hiddenCache struct {
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

// publish replaces the set by a copy with the changes. Both share the containers that stay.
func (h *hiddenCache) publish(version uint64, changes map[dict.ID]bool) {
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

// load reads the set.
func (h *hiddenCache) load(r kv.Reader, l format.Layout) (err error) {
	if h.version, err = read.HiddenVersion(r, l); err != nil {
		return err
	}
	h.set, err = read.Bitmap(r, l, kinds.Hidden, 0)
	return err
}

// put stores a set that was read, unless the cache has a newer one.
func (h *hiddenCache) put(version uint64, set *roaring64.Bitmap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version > h.version {
		h.version, h.set = version, set
	}
}
