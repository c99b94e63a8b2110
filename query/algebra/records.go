package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// A MemberRecord is a member and the record that makes it one.
type MemberRecord struct {
	ID   dict.ID
	Path ask.Path
	By   *language.Node // the leaf
}

// leafRecords reads the records that make accounts or records members of a leaf.
type leafRecords struct {
	*Evaluation

	n   *language.Node
	l   Leaf     // of n, perhaps with a narrower window
	set sets.Set // the members of the leaf that matter
}

// sources reads the records that make accounts or records members of the source of an expression (language.Node.Source): of the leaf that it is
// or, of several leaves that it unites, the newest.
type sources struct {
	*Evaluation

	order  Order // which says what is ahead of the present
	leaves []leafRecords
}

// sourcesOf returns the sources of the members of n that are in a set.
func sourcesOf(v *Evaluation, n *language.Node, set sets.Set, order Order) (*sources, error) {
	s := &sources{Evaluation: v, order: order}
	return s, s.add(n, set)
}

func (s *sources) add(n *language.Node, set sets.Set) error {
	if n.Op.IsSet() {
		s.leaves = append(s.leaves, leafRecords{s.Evaluation, n, LeafOf(n, s.IDs), set})
		return nil
	}
	for i := range n.Args {
		t, err := s.open(&n.Args[i])
		if err != nil {
			return err
		}
		part, err := s.And(set, t)
		if err != nil {
			return err
		}
		if err := s.add(n.Args[i].Source(), part); err != nil {
			return err
		}
	}
	return nil
}

// EdgeRecords finds, for each of ids, the record that makes it a member of n, a source. ids ascends.
func (v *Evaluation) EdgeRecords(n *language.Node, ids []uint64) (map[uint64]MemberRecord, error) {
	s, err := sourcesOf(v, n, sets.FromList(ids), OrderAt(v.Expr.Now, false))
	if err != nil {
		return nil, err
	}
	found, err := s.of(IDs(ids))
	records := make(map[uint64]MemberRecord, len(found))
	for _, f := range found {
		records[uint64(f.ID)] = f
	}
	return records, err
}

// of finds the records of the members ids, which ascend.
func (s *sources) of(ids []dict.ID) (found []MemberRecord, err error) {
	if len(s.leaves) == 1 {
		return s.leaves[0].of(ids)
	}
	newest, order := make(map[dict.ID]MemberRecord, len(ids)), s.order
	order.Oldest = false
	for _, r := range s.leaves {
		some := slices.DeleteFunc(slices.Clone(ids), func(id dict.ID) bool { return !r.set.Has(uint64(id)) })
		records, err := r.of(some)
		if err != nil {
			return nil, err
		}
		for _, m := range records {
			if old, known := newest[m.ID]; !known || order.Compare(m, old) < 0 {
				newest[m.ID] = m
			}
		}
	}
	for _, id := range ids {
		if m, ok := newest[id]; ok {
			found = append(found, m)
		}
	}
	return found, nil
}

// of finds the records of the members ids, which ascend.
func (r leafRecords) of(ids []dict.ID) (found []MemberRecord, err error) {
	add := func(i int, p ask.Path) error {
		found = append(found, MemberRecord{ids[i], p, r.n})
		return r.Ended.Err()
	}
	switch r.l.Op {
	case language.OpReverse:
		err = r.View.RecordsTo(r.l.Kind, r.l.Of, r.subjectTID(), r.l.Window, ids, add)
		return found, err
	case language.OpListed, language.OpLists:
		return r.ofItems(ids)
	default:
	}
	subjectTIDs := slices.Repeat([]uint64{ask.Timeless}, len(ids))
	if to := r.Expr.Info(r.n).To.Is(); to == dict.URI {
		if err = r.View.Strings(to, ids, func(i int, s []byte) error { subjectTIDs[i] = ask.TIDOf(to, s); return nil }); err != nil {
			return nil, err
		}
	}
	err = r.View.RecordsFrom(r.l.Kind, r.l.Of, ids, func(i int) uint64 { return subjectTIDs[i] }, r.l.Window, add)
	return found, err
}

// ofItems is of for an OpListed or OpLists leaf.
func (r leafRecords) ofItems(ids []dict.ID) (found []MemberRecord, err error) {
	shown := make(map[dict.ID]*ask.ShownRecord, len(ids))
	for _, id := range ids {
		shown[id] = &ask.ShownRecord{}
	}
	err = r.eachListed(r.l, nil, func(id dict.ID, p ask.Path) {
		if e := shown[id]; e != nil {
			e.Offer(p, ask.Timeless) // the subject is an account
		}
	})
	for _, id := range ids {
		if p, ok := shown[id].Path(); ok {
			found = append(found, MemberRecord{id, p, r.n})
		}
	}
	return found, err
}

// subjectTID returns the time of the subject of a reverse set as a TID, or ask.Timeless.
func (r leafRecords) subjectTID() uint64 {
	return ask.TIDOf(r.Expr.Info(r.n).To.Is(), r.Expr.Strings[r.n.Of].S)
}

// next returns the records of the members that may be on a page.
func (s *sources) next(may *mayBeNext) (records []MemberRecord, err error) {
	undated, r := IDs(may.undated), &s.leaves[0]
	if len(s.leaves) > 1 {
		for _, m := range may.dated {
			undated = append(undated, m.Actor)
		}
		slices.Sort(undated)
		may.dated = nil
	}
	if records, err = s.of(undated); err != nil || len(may.dated) == 0 {
		return records, err
	}
	err = s.View.RecordsAt(r.l.Kind, r.l.Of, r.subjectTID(), r.l.Window, may.dated, func(i int, p ask.Path) error {
		records = append(records, MemberRecord{may.dated[i].Actor, p, r.n})
		return s.Ended.Err()
	})
	return records, err
}
