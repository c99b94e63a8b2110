package graph

import (
	"slices"
	"sync"
	"sync/atomic"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
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
	ask.Hidden

	at    read.HiddenVersions
	added int // to the filter, which the sets share that were made of one another
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
func (h *hiddenCache) of(r kv.Reader, at read.HiddenVersions) (ask.Hidden, error) {
	if sets, i := h.upTo(&at); i < len(sets) && sets[i].at == at {
		return sets[i].Hidden, nil
	}
	h.making.Lock()
	defer h.making.Unlock()
	kept, i := h.upTo(&at)
	if i < len(kept) && kept[i].at == at {
		return kept[i].Hidden, nil
	}
	s := &hiddenSet{at: at}
	var err error
	if i < len(kept) {
		err = s.follow(r, kept[i])
	}
	for s.Set == nil && err == nil {
		if s.Set, err = read.Bitmap(r, h.layout, kinds.Hidden, 0); err == nil {
			at, err = read.Hidden(r)
		}
		if at != s.at { // ViewAcross has gone on to another state
			s = &hiddenSet{at: at}
			kept, i = h.upTo(&at)
		}
	}
	if err != nil {
		return ask.Hidden{}, err
	}
	if s.Maybe == nil || s.added > 4*len(s.Maybe) { // more than it is made for
		s.added = int(s.Set.GetCardinality())
		s.Maybe = sets.NewFilter(2 * s.added)
		for id := range sets.FromBitmap(s.Set).All() {
			s.Maybe.Add(id)
		}
	}
	kept = slices.Insert(slices.Clone(kept), i, s)
	kept = kept[:min(len(kept), keptHidden)]
	h.sets.Store(&kept)
	return s.Hidden, nil
}

// follow makes the set from that of an older state, unless that cannot be done.
func (s *hiddenSet) follow(r kv.Reader, from *hiddenSet) error {
	set, added := from.Set.Clone(), from.added
	ok, err := read.HiddenSince(r, &from.at, &s.at, func(c *format.Hiding) {
		for _, id := range c.Hidden {
			set.Add(uint64(id))
			from.Maybe.Add(uint64(id)) // before a state with it is asked
		}
		for _, id := range c.Shown {
			set.Remove(uint64(id))
		}
		added += len(c.Hidden)
	})
	if ok {
		s.Hidden, s.added = ask.Hidden{Set: set, Maybe: from.Maybe}, added
	}
	return err
}
