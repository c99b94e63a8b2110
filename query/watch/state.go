package watch

import (
	"cmp"
	"errors"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// state is a state of the store during a round, and a cache of what was read from it. All expressions share it: each reverse set
// is opened once, and each list, string and edge of a forward set is read once.
type state struct {
	sn    *ask.View
	newer *ask.View // has a string for each id; sn lacks new ones
	meter *meter

	sets    map[algebra.Leaf]*ask.ActorSet
	lists   map[algebra.Leaf]sets.Set
	strings map[dict.Namespace]map[dict.ID]string
	edges   map[algebra.Leaf]map[uint64]bool // whether a forward set has a member
}

func newState(sn, newer *ask.View, m *meter) *state {
	return &state{
		sn: sn, newer: newer, meter: m, sets: map[algebra.Leaf]*ask.ActorSet{}, lists: map[algebra.Leaf]sets.Set{},
		edges: map[algebra.Leaf]map[uint64]bool{}, strings: map[dict.Namespace]map[dict.ID]string{dict.DID: {}, dict.URI: {}},
	}
}

// members returns which of ids are members of an expression. of are the ids that the
// expression's strings had in this state.
func (at *state) members(e *language.Expr, of []dict.ID, ids sets.Set) (sets.Set, error) {
	set, err := at.among(&e.Root, of, ids)
	if err == nil && e.Root.Is == dict.DID {
		set = sets.AndNot(set, at.sn.Hidden())
	}
	return set, err
}

// among returns which of ids are members of a part of an expression.
func (at *state) among(n *language.Node, of []dict.ID, ids sets.Set) (sets.Set, error) {
	if ids.Empty() {
		return ids, nil
	}
	switch {
	case n.Op.IsSet():
		return at.inLeaf(algebra.LeafOf(n, of), ids)
	case n.Op == language.OpMembers:
		given := make([]uint64, 0, n.End-n.First)
		for _, id := range of[n.First:n.End] {
			if id != dict.None {
				given = append(given, uint64(id))
			}
		}
		return sets.And(ids, sets.FromUnsorted(given)), at.meter.charge(memberCost * len(given))
	case n.Op == language.OpRank:
		return at.throughLists(algebra.LeafOf(&n.Args[0], of), ids)
	}
	threshold := sets.NewThreshold(max(n.Least, 1), len(n.Args))
	for i := range n.Args {
		part, err := at.among(&n.Args[i], of, ids)
		if err != nil {
			return part, err
		}
		switch {
		case n.Op == language.OpUnion:
			ids = sets.AndNot(ids, part) // the others need not be asked of these
			threshold.Add(part)
		case n.Op == language.OpAtLeast:
			threshold.Add(part)
		case n.Op == language.OpExcept && i > 0:
			ids = sets.AndNot(ids, part)
		default:
			ids = part
		}
	}
	if n.Op == language.OpUnion || n.Op == language.OpAtLeast {
		return threshold.Members(), nil
	}
	return ids, nil
}

// throughLists returns which of ids block a list of an OpLists leaf.
func (at *state) throughLists(l algebra.Leaf, ids sets.Set) (sets.Set, error) {
	var in, all []uint64
	blocked := map[uint64]sets.Set{}
	for id := range ids.All() {
		lists, err := at.sn.Subjects(listBlock, dict.ID(id), ask.Window{})
		if err != nil {
			return lists, err
		}
		blocked[id], all = lists, lists.List(all)
	}
	lists, err := at.inLeaf(l, sets.FromUnsorted(all))
	for id := range ids.All() {
		if sets.AndLen(blocked[id], lists) > 0 {
			in = append(in, id)
		}
	}
	return sets.FromList(in), err
}

// inLeaf returns which of ids are members of a leaf.
func (at *state) inLeaf(l algebra.Leaf, ids sets.Set) (in sets.Set, err error) {
	if author := authorOf(l); ids.Empty() || l.Of == dict.None || author != dict.None && at.sn.IsHidden(author) {
		return in, nil
	}
	if err = at.meter.charge(memberCost * int(ids.Len())); err != nil {
		return in, err
	}
	switch l.Op {
	case language.OpForward:
		known := at.edges[l]
		if known == nil {
			known = map[uint64]bool{}
			at.edges[l] = known
		}
		var has []uint64
		for id := range ids.All() {
			is, isKnown := known[id]
			if !isKnown {
				if is, err = at.sn.HasEdge(l.Kind, l.Of, dict.ID(id), ask.Window{}); err != nil {
					return in, err
				}
				known[id] = is
			}
			if is {
				has = append(has, id)
			}
		}
		return sets.FromList(has), nil
	case language.OpListed:
		in, err = at.list(l)
	case language.OpLists:
		var authors []uint64
		if err = at.newer.Authors(algebra.IDs(ids.List(nil)), func(_ int, author dict.ID, _ uint64) error { authors = append(authors, uint64(author)); return nil }); err == nil {
			by := sets.FromUnsorted(authors)
			in, err = at.listsBy(l.Of, &by)
		}
	default:
		t, err := at.actors(l)
		if err != nil {
			return in, err
		}
		return t.And(ids)
	}
	return sets.And(in, ids), err
}

// actors opens a reverse set.
func (at *state) actors(l algebra.Leaf) (*ask.ActorSet, error) {
	if t := at.sets[l]; t != nil {
		return t, nil
	}
	t, err := at.sn.Actors(l.Kind, l.Of)
	if err == nil {
		at.sets[l] = t
	}
	return t, err
}

// list returns the members of a list. To find an author's items about an account, all of the author's items must be read, so
// the list is read whole, once in a round.
func (at *state) list(l algebra.Leaf) (sets.Set, error) {
	if set, ok := at.lists[l]; ok {
		return set, nil
	}
	var ids []uint64
	err := at.sn.Listed(l.Of, l.By, ask.Window{}, func(id dict.ID, _ ask.Path) { ids = append(ids, uint64(id)) })
	if err == nil {
		err = at.meter.charge(recordCost * len(ids))
	}
	set := sets.FromUnsorted(ids)
	if err == nil {
		at.lists[l] = set
	}
	return set, err
}

// listsBy returns the lists by some authors, nil for all, that an account is on. All of the authors' items about accounts are read.
func (at *state) listsBy(member dict.ID, authors *sets.Set) (lists sets.Set, err error) {
	items := algebra.Leaf{Op: language.OpReverse, Kind: kinds.ListMember, Of: member}
	t, err := at.actors(items)
	if err != nil {
		return lists, err
	}
	var by sets.Set
	if authors != nil {
		by, err = t.And(*authors)
	} else {
		by, err = t.All()
	}
	if err == nil && by.Len() > maxCandidates {
		err = errTooMany
	}
	if err != nil {
		return lists, err
	}
	var ids []uint64
	err = at.sn.Lists(member, algebra.IDs(by.List(nil)), ask.Window{}, func(list dict.ID, _ ask.Path) { ids = append(ids, uint64(list)) })
	return sets.FromUnsorted(ids), err
}

// errTooMany ends the work on an expression if too many of its members may have changed.
var errTooMany = errors.New("query: too many members may have changed")

// whole returns the members of a set, hidden accounts included. It fails with errTooMany if they are more than
// maxCandidates. It reads at most that many records of a forward set, and for a list the author's items.
func (at *state) whole(l algebra.Leaf) (members sets.Set, err error) {
	switch l.Op {
	case language.OpForward:
		var ids []uint64
		var failed error
		err = at.sn.Records(l.Kind, l.Of, func(_ ask.Path, id dict.ID) bool {
			ids = append(ids, uint64(id))
			if failed = at.meter.charge(recordCost); len(ids) > maxCandidates {
				failed = errTooMany
			}
			return failed == nil
		})
		members, err = sets.FromUnsorted(ids), cmp.Or(err, failed)
	case language.OpListed:
		members, err = at.list(l)
	case language.OpLists:
		members, err = at.listsBy(l.Of, nil)
	default:
		var t *ask.ActorSet
		if t, err = at.actors(l); err == nil {
			members, err = t.All()
		}
	}
	if err == nil && members.Len() > maxCandidates {
		err = errTooMany
	}
	return members, err
}

// names returns the strings of a set's ids.
func (at *state) names(ns dict.Namespace, set sets.Set) (all []string, err error) {
	ids, known := algebra.IDs(set.List(nil)), at.strings[ns]
	unknown := slices.DeleteFunc(slices.Clone(ids), func(id dict.ID) bool { return known[id] != "" })
	if err = at.meter.charge(memberCost * len(ids)); err == nil && len(unknown) > 0 {
		err = at.sn.Strings(ns, unknown, func(i int, s []byte) error { known[unknown[i]] = string(s); return nil })
	}
	all = make([]string, len(ids))
	for i, id := range ids {
		all[i] = known[id]
	}
	return all, err
}
