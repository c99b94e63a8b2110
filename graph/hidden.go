package graph

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// hiddenCache keeps the newest sets of hidden accounts. The set of another state is made of the newest one before it and what was changed
// since (format.Hiding): one read for all questions that need it. If some of that was dropped, the whole set is read.
type hiddenCache struct {
	*core

	making sync.Mutex                   // held while a set is made, and guards writes of sets
	sets   atomic.Pointer[[]*hiddenSet] // newest first; never changed in place
}

// hiddenSet is the set of hidden accounts in a state of the graph.
type hiddenSet struct {
	at  read.HiddenVersions
	set *roaring64.Bitmap
}

// keptHidden is how many sets stay, for questions whose state is a little older than that of others.
const keptHidden = 8

// upTo returns the sets, and the place of the newest one that is not newer than a state.
func (h *hiddenCache) upTo(at *read.HiddenVersions) (sets []*hiddenSet, i int) {
	if kept := h.sets.Load(); kept != nil {
		sets = *kept
	}
	for i < len(sets) && sets[i].at.Sum > at.Sum {
		i++
	}
	return sets, i
}

// of returns the set with some versions, those in the state that r reads.
func (h *hiddenCache) of(r kv.Reader, at read.HiddenVersions) (*roaring64.Bitmap, error) {
	if sets, i := h.upTo(&at); i < len(sets) && sets[i].at == at {
		return sets[i].set, nil
	}
	h.making.Lock()
	defer h.making.Unlock()
	sets, i := h.upTo(&at)
	if i < len(sets) && sets[i].at == at {
		return sets[i].set, nil
	}
	s := &hiddenSet{at: at}
	var err error
	if i < len(sets) {
		s.set, err = h.follow(r, sets[i], &at)
	}
	for s.set == nil && err == nil {
		if s.set, err = read.Bitmap(r, h.layout, kinds.Hidden, 0); err == nil {
			at, err = read.Hidden(r)
		}
		if at != s.at { // ViewAcross has gone on to another state
			s = &hiddenSet{at: at}
			sets, i = h.upTo(&at)
		}
	}
	if err != nil {
		return nil, err
	}
	sets = slices.Insert(slices.Clone(sets), i, s)
	sets = sets[:min(len(sets), keptHidden)]
	h.sets.Store(&sets)
	return s.set, nil
}

// follow makes the set of a state from an older one, nil if that cannot be done.
func (h *hiddenCache) follow(r kv.Reader, from *hiddenSet, at *read.HiddenVersions) (*roaring64.Bitmap, error) {
	set := from.set.Clone() // shares the containers that stay
	ok, err := read.HiddenSince(r, &from.at, at, func(c *format.Hiding) {
		for _, id := range c.Hidden {
			set.Add(uint64(id))
		}
		for _, id := range c.Shown {
			set.Remove(uint64(id))
		}
	})
	if !ok {
		return nil, err
	}
	return set, err
}
