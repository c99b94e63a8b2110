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

// Records returns a page of set, sorted by the records that make its members those of the leaf n, and the Place of the next
// page, nil after the last one. set is the expression's result or, of a leaf, at most ask.LargeSet of its members. Sets that are
// too large to sort are paged by id instead. On the first page, Records sets after.Sorted. Neither depends on the limit.
func (v *Evaluation) Records(n *language.Node, set sets.Set, after *Place, limit int, order Order) (page []MemberRecord, last *Place, err error) {
	r := recordsOf(v, n)
	most := uint64(MaxSortedActors)
	switch n.Op {
	case language.OpForward, language.OpListed:
		most = MaxSortedSubjects
	case language.OpReverse:
		most = v.dateAbove
	default:
	}
	var may mayBeNext
	sortable := true
	switch {
	case after.Begun && !after.Sorted:
		sortable = false
	case set.Len() <= most:
		may.undated, _ = set.Page(0, math.MaxInt, v.Hidden())
	case n.Op == language.OpReverse:
		if may, sortable, err = r.nextByDate(set, after, limit, order); err != nil {
			return nil, nil, err
		}
	default:
		sortable = false
	}
	if !after.Begun {
		after.Sorted = sortable
	}
	if after.Sorted && !sortable {
		return nil, nil, &LimitError{fmt.Sprintf("the set can no longer be sorted by time: since the first page it has grown past %d members, or past %d whose time is not stored with the set; start again from the first page (without a cursor)", most, MaxWindowed)}
	}
	if !after.Sorted {
		ids, more := set.Page(uint64(after.ID), limit, v.Hidden())
		if page, err = r.of(toIDs(ids)); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &Place{Begun: true, ID: dict.ID(ids[len(ids)-1])}
		}
		return page, last, nil
	}
	records, err := r.next(&may)
	if err != nil {
		return nil, nil, err
	}
	placed := may.placed
	ahead := may.ahead
	for _, m := range records {
		at := order.timeOf(m.Path)
		ahead = ahead || at == ask.Timeless && m.Path.HasTime()
		placed = append(placed, placedRecord{at, m, true})
	}
	slices.SortFunc(placed, func(x, y placedRecord) int { return order.compare(x.at, y.at, x.ID, y.ID) })
	if after.Begun {
		at, found := slices.BinarySearchFunc(placed, *after, func(r placedRecord, p Place) int {
			return order.compare(r.at, p.Micros, r.ID, p.ID)
		})
		if found {
			at++
		}
		placed = placed[at:]
	}
	if len(placed) > limit {
		end := placed[limit-1]
		placed, last = placed[:limit], &Place{Begun: true, Sorted: true, Micros: end.at, ID: end.ID, Now: after.Now}
		if ahead && !after.Begun {
			last.Now = order.now
		}
	}
	page, err = r.rest(placed)
	return page, last, err
}

// A placedRecord is a member with the time by which it is ordered. Its record may not have been read.
type placedRecord struct {
	at uint64
	MemberRecord

	read bool
}

// rest returns the records of a page, and reads those that were placed without.
func (r leafRecords) rest(placed []placedRecord) (page []MemberRecord, err error) {
	var rest []dict.ID
	for _, m := range placed {
		if !m.read {
			rest = append(rest, m.ID)
		}
	}
	slices.Sort(rest)
	found, err := r.of(rest)
	paths := make(map[dict.ID]ask.Path, len(found))
	for _, m := range found {
		paths[m.ID] = m.Path
	}
	for _, m := range placed {
		if !m.read {
			m.Path = paths[m.ID]
		}
		page = append(page, m.MemberRecord)
	}
	return page, err
}

// second is a second in microseconds.
const second = 1_000_000

func toIDs(list []uint64) []dict.ID {
	ids := make([]dict.ID, len(list))
	for i, id := range list {
		ids[i] = dict.ID(id)
	}
	return ids
}
