package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

// A MemberRecord is a member and the record that makes it one.
type MemberRecord struct {
	ID   dict.ID
	Path ask.Path
}

// leafRecords reads the records that make accounts or records members of a leaf.
type leafRecords struct {
	*Evaluation

	n *language.Node
	l Leaf // of n, perhaps with a narrower window
}

func recordsOf(v *Evaluation, n *language.Node) leafRecords {
	return leafRecords{v, n, LeafOf(n, v.IDs)}
}

// EdgeRecords finds, for each of ids, the record that makes it a member of the leaf n. ids ascends.
func (v *Evaluation) EdgeRecords(n *language.Node, ids []dict.ID) (found []MemberRecord, err error) {
	return recordsOf(v, n).of(ids)
}

// of finds the records of the members ids, which ascend.
func (r leafRecords) of(ids []dict.ID) (found []MemberRecord, err error) {
	add := func(i int, p ask.Path) error {
		found = append(found, MemberRecord{ids[i], p})
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
	err = r.eachListed(r.l, func(id dict.ID, p ask.Path) {
		if e := shown[id]; e != nil {
			e.Offer(p, ask.Timeless) // the subject is an account
		}
	})
	for _, id := range ids {
		if p, ok := shown[id].Path(); ok {
			found = append(found, MemberRecord{id, p})
		}
	}
	return found, err
}

// subjectTID returns the time of the subject of a reverse set as a TID, or ask.Timeless.
func (r leafRecords) subjectTID() uint64 {
	return ask.TIDOf(r.Expr.Info(r.n).To.Is(), r.Expr.Strings[r.n.Of].S)
}

// next returns the records of the members that may be on a page.
func (r leafRecords) next(may *mayBeNext) (records []MemberRecord, err error) {
	if records, err = r.of(toIDs(may.undated)); err != nil || len(may.dated) == 0 {
		return records, err
	}
	err = r.View.RecordsAt(r.l.Kind, r.l.Of, r.subjectTID(), r.l.Window, may.dated, func(i int, p ask.Path) error {
		records = append(records, MemberRecord{may.dated[i].Actor, p})
		return r.Ended.Err()
	})
	return records, err
}
