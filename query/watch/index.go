package watch

import (
	"slices"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// This file maps the changes that the writer reports to the expressions that they may affect.

// changedBy returns the set whose changes affect a leaf. A list's members change with the list
// items that name the list: they are indexed as the list's reverse set, which no expression
// can name.
func changedBy(l algebra.Leaf) algebra.Leaf {
	if l.Op == language.OpListed {
		return algebra.Leaf{Op: language.OpReverse, Kind: kinds.ListItem, Of: l.Of}
	}
	return l
}

// listBlock is the kind of an account's edges to the lists that it blocks.
var listBlock = kinds.ByName("listblock").Kind

// throughLists reports whether a node is the part of blockedBy(…) that leads through lists.
func throughLists(n *language.Node) bool {
	return n.Op == language.OpRank && n.Rank.Via.Kind == listBlock && n.Rank.Via.Op == language.OpReverse && n.Rank.Top == 0 && n.Rank.Min == 1 &&
		len(n.Args) == 1 && n.Args[0].Op == language.OpLists && n.Args[0].Kind == kinds.ListItem
}

// authorOf returns the account that must be visible for a leaf to have members, None if the
// leaf does not depend on one.
func authorOf(l algebra.Leaf) dict.ID {
	switch l.Op {
	case language.OpForward:
		return l.Of
	case language.OpListed:
		return l.By
	default:
		return dict.None
	}
}

// Changed implements graph.Watcher.
func (h *Watcher) Changed(edges []graph.Change, lists []graph.ListChange, hidden []dict.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range edges {
		if h.filter.Has(uint64(c.Member)) {
			h.candidate(algebra.Leaf{Op: language.OpForward, Kind: c.Kind, Of: c.Member}, c.Subject)
		}
		if c.Kind == kinds.ListItem {
			continue // reported in lists, with the member
		}
		if c.Kind == listBlock {
			h.blocking.add(c.Member)
		}
		if h.filter.Has(uint64(c.Subject)) {
			h.candidate(algebra.Leaf{Op: language.OpReverse, Kind: c.Kind, Of: c.Subject}, c.Member)
		}
	}
	for _, c := range lists {
		if h.filter.Has(uint64(c.List)) {
			h.candidate(algebra.Leaf{Op: language.OpReverse, Kind: kinds.ListItem, Of: c.List}, c.Member)
		}
		if h.filter.Has(uint64(c.Member)) {
			h.candidate(algebra.Leaf{Op: language.OpLists, Kind: kinds.ListItem, Of: c.Member}, c.List)
		}
	}
	for _, id := range hidden {
		h.hidden.add(id)
		for _, w := range h.byAuthor[id] {
			w.recheckAll(func(l algebra.Leaf) bool { return authorOf(l) == id })
		}
	}
}

// candidate notes that a member of a set may have changed. Its cost to the writer does not
// depend on the number of expressions with the set.
func (h *Watcher) candidate(of algebra.Leaf, id dict.ID) {
	if e := h.byEdges[of]; e != nil {
		e.add(id)
		h.changed[e] = struct{}{}
	}
}

// recheckAll makes all members of some of an expression's sets candidates.
func (w *watch) recheckAll(which func(algebra.Leaf) bool) {
	w.leaves(func(l algebra.Leaf) {
		if which(l) && !slices.Contains(w.whole, l) {
			w.whole = append(w.whole, l)
		}
	})
}

// leaves calls each for the leaves of an expression whose account or record has an id.
func (w *watch) leaves(each func(algebra.Leaf)) {
	if w.ids == nil {
		return
	}
	for n := range w.e.Root.All() {
		if n.Op.IsSet() {
			if l := algebra.LeafOf(n, w.ids); l.Of != dict.None {
				each(l)
			}
		}
	}
}

// index adds an expression to the index of changes, by the ids of its strings.
func (h *Watcher) index(w *watch) {
	w.leaves(func(l algebra.Leaf) {
		at := changedBy(l)
		h.filter.Add(uint64(at.Of))
		if h.byEdges[at] == nil {
			h.byEdges[at] = &watchedEdges{of: at}
		}
		if e := h.byEdges[at]; !slices.Contains(e.watches, w) {
			e.watches = append(e.watches, w)
		}
		if author := authorOf(l); author != dict.None && !slices.Contains(h.byAuthor[author], w) {
			h.byAuthor[author] = append(h.byAuthor[author], w)
		}
	})
}

// forget removes an expression.
func (h *Watcher) forget(w *watch) {
	without := func(list []*watch) []*watch { return slices.DeleteFunc(list, func(x *watch) bool { return x == w }) }
	w.leaves(func(l algebra.Leaf) {
		at, author := changedBy(l), authorOf(l)
		if e := h.byEdges[at]; e != nil {
			if e.watches = without(e.watches); len(e.watches) == 0 {
				delete(h.byEdges, at)
				delete(h.changed, e)
			}
		}
		if h.byAuthor[author] = without(h.byAuthor[author]); len(h.byAuthor[author]) == 0 {
			delete(h.byAuthor, author)
		}
	})
	delete(h.watches, w.key)
}
