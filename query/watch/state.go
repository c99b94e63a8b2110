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

// state is a state of the store during a round, and a cache of what was read from it. All
// expressions share it: each set is read once, and each member is looked up once.
type state struct {
	sn    *ask.View
	meter *meter

	authors map[dict.ID]*authorLists
	wholes  map[algebra.Leaf]sets.Set
	sets    map[algebra.Leaf]*ask.ActorSet
	known   map[algebra.Leaf]map[uint64]bool // by member
	strings map[dict.Namespace]map[uint64]string
}

// authorLists are the lists of one author that the expressions of a round name.
type authorLists struct {
	lists   map[dict.ID]bool
	changes []*changes           // of these expressions
	checked sets.Set             // ids that were looked up in all of the lists
	on      map[dict.ID]sets.Set // members by list, among checked
	whole   bool                 // all members were read
	tooMany bool                 // the author has too many list items to read them
}

// changed returns the ids that may have changed, up to about maxItems.
func (a *authorLists) changed() (ids sets.Set) {
	for _, c := range a.changes {
		if ids = sets.Or(ids, c.ids); ids.Len() > maxItems {
			break
		}
	}
	return ids
}

func newState(sn *ask.View, m *meter, todo []task) *state {
	at := &state{
		sn: sn, meter: m, authors: map[dict.ID]*authorLists{}, wholes: map[algebra.Leaf]sets.Set{}, sets: map[algebra.Leaf]*ask.ActorSet{},
		known: map[algebra.Leaf]map[uint64]bool{}, strings: map[dict.Namespace]map[uint64]string{},
	}
	for i := range todo {
		todo[i].w.leaves(func(l algebra.Leaf) {
			if l.Op != language.OpListed {
				return
			}
			a := at.authors[l.By]
			if a == nil {
				a = &authorLists{lists: map[dict.ID]bool{}, on: map[dict.ID]sets.Set{}}
				at.authors[l.By] = a
			}
			a.lists[l.Of] = true
			a.changes = append(a.changes, todo[i].changes...)
		})
	}
	return at
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
func (at *state) among(n *language.Node, of []dict.ID, ids sets.Set) (in sets.Set, err error) {
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
	}
	threshold := sets.NewThreshold(max(n.Least, 1), len(n.Args))
	for i := range n.Args {
		part, err := at.among(&n.Args[i], of, ids)
		if err != nil {
			return in, err
		}
		switch {
		case n.Op == language.OpAtLeast:
			threshold.Add(part)
		case n.Op == language.OpUnion:
			in = sets.Or(in, part)
			ids = sets.AndNot(ids, part)
		case n.Op == language.OpExcept && i > 0:
			ids = sets.AndNot(ids, part)
		default:
			ids = part
		}
	}
	switch n.Op {
	case language.OpUnion:
		return in, nil
	case language.OpAtLeast:
		return threshold.Members(), nil
	default:
		return ids, nil
	}
}

// inLeaf returns which of ids are members of a leaf.
func (at *state) inLeaf(l algebra.Leaf, ids sets.Set) (sets.Set, error) {
	if err := at.meter.charge(memberCost * int(ids.Len())); err != nil {
		return sets.Set{}, err
	}
	if author := authorOf(l); l.Of == dict.None || author != dict.None && at.sn.IsHidden(author) {
		return sets.Set{}, nil
	}
	if l.Op == language.OpListed {
		return at.inList(l, ids)
	}
	known := at.known[l]
	if known == nil {
		known = map[uint64]bool{}
		at.known[l] = known
	}
	var unknown []uint64
	for id := range ids.All() {
		if _, is := known[id]; !is {
			unknown = append(unknown, id)
		}
	}
	if err := at.ask(l, unknown, known); err != nil {
		return sets.Set{}, err
	}
	var in []uint64
	for id := range ids.All() {
		if known[id] {
			in = append(in, id)
		}
	}
	return sets.FromList(in), nil
}

// ask looks up which of ids, ascending, are members of a leaf, and adds them to known.
func (at *state) ask(l algebra.Leaf, ids []uint64, known map[uint64]bool) error {
	if len(ids) == 0 {
		return nil
	}
	if l.Op == language.OpForward {
		for _, id := range ids {
			has, err := at.sn.HasEdge(l.Kind, l.Of, dict.ID(id))
			if err != nil {
				return err
			}
			known[id] = has
		}
		return nil
	}
	t, err := at.actors(l)
	if err != nil {
		return err
	}
	in, err := t.And(sets.FromList(ids))
	if err != nil {
		return err
	}
	for _, id := range ids {
		known[id] = false
	}
	for id := range in.All() {
		known[id] = true
	}
	return nil
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

// inList returns which of ids are on a list. To find an author's items about an account, all
// of the author's items must be read. So they are read once for all lists of the author in the
// round, and for all ids that may have changed.
func (at *state) inList(l algebra.Leaf, ids sets.Set) (sets.Set, error) {
	a := at.authors[l.By]
	if a == nil { // the list got its id in this round
		return sets.Set{}, nil
	}
	if unknown := sets.AndNot(ids, a.checked); !unknown.Empty() {
		unknown = sets.Or(unknown, sets.AndNot(a.changed(), a.checked))
		err := at.readLists(l.By, a, kinds.ListMember, kinds.ListItem, func(id dict.ID) bool { return unknown.Has(uint64(id)) }, nil)
		if err != nil {
			return sets.Set{}, err
		}
		a.checked = sets.Or(a.checked, unknown)
	}
	return sets.And(ids, a.on[l.Of]), nil
}

// readLists reads the members of an author's lists, from the items whose edge of kind from
// leads to an id that wanted accepts. look, if not nil, is called for each item; its error ends
// the reading.
func (at *state) readLists(author dict.ID, a *authorLists, from, to kinds.Kind, wanted func(dict.ID) bool, look func() error) error {
	on := map[dict.ID][]uint64{}
	err := at.sn.JoinedAmong(author, from, to, func(id dict.ID) (bool, error) {
		if look != nil {
			if err := look(); err != nil {
				return false, err
			}
		}
		return wanted(id), at.meter.charge(recordCost)
	}, ask.Window{}, func(_ ask.Path, x, y dict.ID) error {
		list, member := y, x
		if from == kinds.ListItem {
			list, member = x, y
		}
		if a.lists[list] {
			on[list] = append(on[list], uint64(member))
		}
		return at.meter.charge(recordCost)
	})
	if err != nil {
		return err
	}
	for list, ids := range on {
		a.on[list] = sets.Or(a.on[list], sets.FromUnsorted(ids))
	}
	return nil
}

// maxItems is the largest number of list items that an author may have for whole lists to be
// read.
const maxItems = 4 * maxCandidates

// errTooMany ends the work on an expression if too many of its members may have changed.
var errTooMany = errors.New("query: too many members may have changed")

// wholeList returns the members of a list. It reads all lists of the author in the round at
// once.
func (at *state) wholeList(l algebra.Leaf) (set sets.Set, err error) {
	a := at.authors[l.By]
	if a == nil { // the list got its id in this round
		return set, nil
	}
	if !a.whole && !a.tooMany {
		items := 0
		err = at.readLists(l.By, a, kinds.ListItem, kinds.ListMember, func(list dict.ID) bool { return a.lists[list] }, func() error {
			if items++; items > maxItems {
				return errTooMany
			}
			return nil
		})
		a.whole, a.tooMany = err == nil, errors.Is(err, errTooMany)
	}
	if a.tooMany {
		return set, errTooMany
	}
	return a.on[l.Of], err
}

// whole returns the members of a set, hidden accounts included. It fails with errTooMany if they are more than
// maxCandidates. It reads at most that many records of a forward set, the row of a reverse set,
// and for a list the author's items, if there are at most maxItems.
func (at *state) whole(l algebra.Leaf) (members sets.Set, err error) {
	if set, ok := at.wholes[l]; ok {
		return set, nil
	}
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
		members, err = at.wholeList(l)
	default:
		t, failed := at.actors(l)
		if failed != nil {
			return members, failed
		}
		var isKnown bool
		if members, isKnown = t.Known(); !isKnown {
			err = errTooMany
		}
	}
	if err == nil && members.Len() > maxCandidates {
		err = errTooMany
	}
	if err == nil {
		at.wholes[l] = members
	}
	return members, err
}

// names returns the strings of a set's ids.
func (at *state) names(ns dict.Namespace, set sets.Set) ([]string, error) {
	if set.Empty() {
		return nil, nil
	}
	known := at.strings[ns]
	if known == nil {
		known = map[uint64]string{}
		at.strings[ns] = known
	}
	if err := at.meter.charge(memberCost * int(set.Len())); err != nil {
		return nil, err
	}
	ids := set.List(nil)
	var unknown []dict.ID
	for _, id := range ids {
		if _, is := known[id]; !is {
			unknown = append(unknown, dict.ID(id))
		}
	}
	err := at.sn.Strings(ns, unknown, func(i int, s []byte) error { known[uint64(unknown[i])] = string(s); return nil })
	if err != nil {
		return nil, err
	}
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = known[id]
	}
	return slices.Clip(all), nil
}
