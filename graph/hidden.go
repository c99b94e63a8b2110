package graph

import (
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// hiddenCache keeps the newest sets of hidden accounts. The set of another state is made from the newest one before it, and what
// the writers have noted since then: one read for all questions that need it. Only if that is no longer kept, the whole set is read.
type hiddenCache struct {
	*core

	making sync.Mutex                  // held while a set is made, and guards writes of sets
	sets   atomic.Pointer[[]hiddenSet] // in no order; its elements never change
}

// hiddenSet is the set of hidden accounts in a state of the graph.
type hiddenSet struct {
	at  read.HiddenVersions
	set *roaring64.Bitmap
}

// keptHidden is how many sets stay, for questions whose state is a little older than that of others.
const keptHidden = 8

// upTo returns the newest set that is not newer than a state, the zero hiddenSet if there is none.
func (h *hiddenCache) upTo(at *read.HiddenVersions) (newest hiddenSet) {
	if kept := h.sets.Load(); kept != nil {
		for i := range *kept {
			if s := &(*kept)[i]; s.at.UpTo(at) && newest.at.UpTo(&s.at) {
				newest = *s
			}
		}
	}
	return newest
}

// in returns the set in the state that r reads.
func (h *hiddenCache) in(r kv.Reader) (*roaring64.Bitmap, error) {
	at, err := read.Hidden(r, h.layout)
	if err != nil {
		return nil, err
	}
	if s := h.upTo(&at); s.set != nil && s.at == at {
		return s.set, nil
	}
	h.making.Lock()
	defer h.making.Unlock()
	s := h.upTo(&at)
	if s.set != nil && s.at == at {
		return s.set, nil
	}
	if s, err = h.follow(r, s, at); err == nil {
		h.keep(s)
	}
	return s.set, err
}

// follow makes the set of the state that r reads from an older one, if there is one.
func (h *hiddenCache) follow(r kv.Reader, from hiddenSet, at read.HiddenVersions) (s hiddenSet, err error) {
	if from.set != nil {
		set := from.set.Clone() // shares the containers that stay
		ok, err := read.HiddenSince(r, h.layout, &from.at, &at, func(id dict.ID, hide bool) {
			if hide {
				set.Add(uint64(id))
			} else {
				set.Remove(uint64(id))
			}
		})
		if ok || err != nil {
			return hiddenSet{at, set}, err
		}
	}
	for s.set == nil || s.at != at { // ViewAcross may have gone on to another state
		s.at = at
		if s.set, err = read.Bitmap(r, h.layout, kinds.Hidden, 0); err == nil {
			at, err = read.Hidden(r, h.layout)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// keep keeps a set, instead of the oldest one if there are too many.
func (h *hiddenCache) keep(s hiddenSet) {
	sets, oldest := []hiddenSet{s}, 0
	if kept := h.sets.Load(); kept != nil {
		sets = append(sets, *kept...)
	}
	for i := range sets {
		if sets[i].at.UpTo(&sets[oldest].at) {
			oldest = i
		}
	}
	if len(sets) > keptHidden {
		sets = append(sets[:oldest], sets[oldest+1:]...)
	}
	h.sets.Store(&sets)
}
