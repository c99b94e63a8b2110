package query

import (
	"slices"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// What the writer says has changed finds the expressions that it may concern.

// watchedSet is a set that changes are looked up by.
type watchedSet struct {
	of   dict.ID
	what uint16 // kind and direction
}

func setOf(o op, k kinds.Kind, of dict.ID) watchedSet {
	return watchedSet{of, uint16(k)<<1 | uint16(o)}
}

// changedBy returns what changes a leaf: the edges of its account or record, or who is put on
// its list. (Who names a list is a set that no expression has.)
func (l leaf) changedBy() watchedSet {
	if l.op == opListed {
		return setOf(opReverse, kinds.ListItem, l.of)
	}
	return setOf(l.op, l.kind, l.of)
}

// author returns who must be active for a leaf to have members, None if nobody must.
func (l leaf) author() dict.ID {
	switch l.op {
	case opForward:
		return l.of
	case opListed:
		return l.by
	default:
		return dict.None
	}
}

// Changed implements graph.Watcher.
func (h *watcher) Changed(edges []graph.Change, lists []graph.ListChange, hidden []dict.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range edges {
		if h.filter.Has(uint64(c.Actor)) {
			for _, w := range h.edges[setOf(opForward, c.Kind, c.Actor)] {
				h.candidate(w, c.Subject)
			}
		}
		if c.Kind == kinds.ListItem {
			continue // it is told with the member
		}
		if h.filter.Has(uint64(c.Subject)) {
			for _, w := range h.edges[setOf(opReverse, c.Kind, c.Subject)] {
				h.candidate(w, c.Actor)
			}
		}
	}
	for _, c := range lists {
		if h.filter.Has(uint64(c.List)) {
			for _, w := range h.edges[setOf(opReverse, kinds.ListItem, c.List)] {
				h.candidate(w, c.Member)
			}
		}
	}
	for _, id := range hidden {
		for w := range h.people {
			h.candidate(w, id)
		}
		for _, w := range h.actors[id] {
			h.wholeSets(w, func(l leaf) bool { return l.author() == id })
		}
	}
}

func (h *watcher) candidate(w *watch, id dict.ID) {
	if w.overflow {
		return
	}
	w.candidates[id] = struct{}{}
	if len(w.candidates) > maxCandidates {
		w.overflow = true
		clear(w.candidates)
	}
	h.touched[w] = struct{}{}
}

// wholeSets has all members of some of an expression's sets looked at.
func (h *watcher) wholeSets(w *watch, which func(leaf) bool) {
	w.leaves(func(l leaf) {
		if which(l) && !slices.Contains(w.whole, l) {
			w.whole = append(w.whole, l)
			h.touched[w] = struct{}{}
		}
	})
}

// leaves calls each for the sets of an expression whose account or record is known.
func (w *watch) leaves(each func(leaf)) {
	var walk func(n *node)
	walk = func(n *node) {
		if n.op.isSet() {
			if l := leafAt(n, w.ids); l.of != dict.None {
				each(l)
			}
		}
		for i := range n.args {
			walk(&n.args[i])
		}
	}
	walk(&w.e.root)
}

// index puts an expression where changes find it, once the ids of its strings are known.
func (h *watcher) index(w *watch) {
	w.leaves(func(l leaf) {
		at := l.changedBy()
		h.filter.Add(uint64(at.of))
		if !slices.Contains(h.edges[at], w) {
			h.edges[at] = append(h.edges[at], w)
		}
		if author := l.author(); author != dict.None && !slices.Contains(h.actors[author], w) {
			h.actors[author] = append(h.actors[author], w)
		}
	})
	if w.e.Type() == dict.DID {
		h.people[w] = struct{}{}
	}
	delete(h.unnamed, w)
	if slices.Contains(w.ids, dict.None) {
		h.unnamed[w] = struct{}{}
	}
}

// forget takes an expression out.
func (h *watcher) forget(w *watch) {
	without := func(list []*watch) []*watch { return slices.DeleteFunc(list, func(x *watch) bool { return x == w }) }
	if w.ids != nil {
		w.leaves(func(l leaf) {
			at, author := l.changedBy(), l.author()
			if h.edges[at] = without(h.edges[at]); len(h.edges[at]) == 0 {
				delete(h.edges, at)
			}
			if h.actors[author] = without(h.actors[author]); len(h.actors[author]) == 0 {
				delete(h.actors, author)
			}
		})
	}
	delete(h.people, w)
	delete(h.pending, w)
	delete(h.touched, w)
	delete(h.unnamed, w)
	delete(h.watches, w.key)
}
