package algebra

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// The largest sets whose records Records reads whole, to sort them by time. Larger reverse sets are sorted
// by the dates that are stored with them.
const (
	MaxSortedSubjects = 200_000 // forward sets and OpListed, whose records are stored together
	MaxSortedActors   = 10_000  // OpLists: records of every member are read
)

// cost returns what reading the records of all members costs, as so many members of forward sets, and whether those of some are not all read: large
// reverse sets have dates. There is no limit on a single one of these.
func (s *sources) cost() (cost uint64, dated bool) {
	for i := range s.leaves {
		switch r := &s.leaves[i]; {
		case r.isLarge():
			if dated = true; len(s.leaves) > 1 {
				cost += r.set.Len() / datesPerUnit
			}
		case r.l.Op == language.OpReverse:
			cost += r.set.Len() * MaxSortedSubjects / MaxWindowed
		case r.l.Op == language.OpLists:
			cost += r.set.Len() * MaxSortedSubjects / MaxSortedActors
		default:
			cost += r.set.Len()
		}
	}
	return cost, dated
}

// isLarge reports whether the dates of a reverse set are read instead of all records.
func (r *leafRecords) isLarge() bool {
	return r.l.Op == language.OpReverse && r.set.Len() > r.dateAbove
}

// Records returns a page of set, sorted by the records that make its members those of n, a source, and the Place of the next
// page, nil after the last one. set is the expression's result or, of a leaf, at most ask.LargeSet of its members. Sets that are
// too large to sort are paged by id instead. On the first page, Records sets after.Sorted. Neither depends on the limit.
func (v *Evaluation) Records(n *language.Node, set sets.Set, after *Place, limit int, order Order) (page []MemberRecord, last *Place, err error) {
	s, err := sourcesOf(v, n, set, order)
	if err != nil {
		return nil, nil, err
	}
	var may mayBeNext
	sortable := !after.Begun || after.Sorted
	switch cost, dated := s.cost(); {
	case !sortable:
	case cost > MaxSortedSubjects:
		sortable = false
	case dated:
		if may, sortable, err = s.nextByDate(set, after, limit, order); err != nil {
			return nil, nil, err
		}
	default:
		may.undated, _ = set.Page(0, math.MaxInt, v.Hidden())
	}
	if !after.Begun {
		after.Sorted = sortable
	}
	if after.Sorted && !sortable {
		return nil, nil, &LimitError{fmt.Sprintf("the set can no longer be sorted by time: since the first page it has grown past %d members, or past %d whose time is not stored with the set; start again from the first page (without a cursor)", MaxSortedSubjects, MaxWindowed)}
	}
	if !after.Sorted {
		ids, more := set.Page(uint64(after.ID), limit, v.Hidden())
		if page, err = s.of(IDs(ids)); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &Place{Begun: true, ID: dict.ID(ids[len(ids)-1])}
		}
		return page, last, nil
	}
	records, err := s.next(&may)
	if err != nil {
		return nil, nil, err
	}
	placed, ahead := may.placed, may.ahead
	for _, m := range records {
		ahead = ahead || order.IsAhead(m.Path)
		placed = append(placed, placedRecord{order.timeOf(m.Path), m, true})
	}
	placed, last = order.page(placed, after, limit, ahead)
	page, err = s.rest(placed)
	return page, last, err
}

// page sorts members, and returns the page after a place and the Place of the next. ahead says that some are ahead of the present.
func (o Order) page(placed []placedRecord, after *Place, limit int, ahead bool) (page []placedRecord, last *Place) {
	slices.SortFunc(placed, func(x, y placedRecord) int { return o.compare(x.at, y.at, x.ID, y.ID) })
	if after.Begun {
		at, _ := slices.BinarySearchFunc(placed, *after, func(r placedRecord, p Place) int { return cmp.Or(o.compare(r.at, p.Micros, r.ID, p.ID), -1) })
		placed = placed[at:]
	}
	if len(placed) > limit {
		end := placed[limit-1]
		placed, last = placed[:limit], &Place{Begun: true, Sorted: true, Micros: end.at, ID: end.ID, Now: after.Now}
		if ahead && !after.Begun {
			last.Now = o.now
		}
	}
	return placed, last
}

// Created returns a page of set, which has records, sorted by the times in their own keys, and the Place of the next page, nil after the last one.
func (v *Evaluation) Created(set sets.Set, after *Place, limit int, order Order) (page []MemberRecord, last *Place, err error) {
	if set.Len() > MaxSortedSubjects {
		return nil, nil, &LimitError{fmt.Sprintf("order=created reads the key of every member, and fails for sets of more than %d members; this one has %d. sample(E, N) is a smaller one", MaxSortedSubjects, set.Len())}
	}
	var placed []placedRecord
	var ahead bool
	add := func(id dict.ID, tid uint64) {
		m := MemberRecord{ID: id, Path: ask.Path{TID: tid}}
		if tid >= ask.EndOfTime {
			m.Path = ask.Path{Raw: []byte{}} // it has no time
		}
		ahead = ahead || order.IsAhead(m.Path)
		placed = append(placed, placedRecord{order.timeOf(m.Path), m, true})
	}
	var known []uint64
	err = AuthorsOf(v, set, func(id, _ dict.ID, key ask.Path) {
		known = append(known, uint64(id))
		add(id, key.TID)
	})
	if err != nil {
		return nil, nil, err
	}
	others := sets.AndNot(set, sets.FromList(known)).List(nil) // texts, and AT URIs with a handle or of an account without an id
	names, err := v.Names(dict.URI, others)
	if err != nil {
		return nil, nil, err
	}
	for i, uri := range names {
		add(dict.ID(others[i]), ask.TIDOf(dict.URI, uri))
	}
	placed, last = order.page(placed, after, limit, ahead)
	for _, m := range placed {
		page = append(page, m.MemberRecord)
	}
	return page, last, nil
}

// A placedRecord is a member with the time by which it is ordered. Its record may not have been read.
type placedRecord struct {
	at uint64
	MemberRecord

	read bool
}

// rest returns the records of a page, and reads those that were placed without.
func (s *sources) rest(placed []placedRecord) (page []MemberRecord, err error) {
	var rest []dict.ID
	for _, m := range placed {
		if !m.read {
			rest = append(rest, m.ID)
		}
	}
	slices.Sort(rest)
	found, err := s.of(rest)
	records := make(map[dict.ID]MemberRecord, len(found))
	for _, m := range found {
		records[m.ID] = m
	}
	for _, m := range placed {
		if !m.read {
			m.Path, m.By = records[m.ID].Path, records[m.ID].By
		}
		page = append(page, m.MemberRecord)
	}
	return page, err
}

// second is a second in microseconds.
const second = 1_000_000

// IDs returns a list of a set's members as ids.
func IDs(list []uint64) []dict.ID {
	ids := make([]dict.ID, len(list))
	for i, id := range list {
		ids[i] = dict.ID(id)
	}
	return ids
}
