package algebra

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
)

// The largest sets that Records sorts by time.
const (
	MaxSortedSubjects = 200_000 // forward sets and OpListed, whose records are stored together
	MaxSortedActors   = 10_000  // other leaves: records of every member are read
)

// NewestFirst orders by the records' times, newest first. Records without a time come last.
// Ties are ordered by id.
func NewestFirst(x, y MemberRecord) int {
	return cmp.Or(cmp.Compare(TimeOf(y.Path), TimeOf(x.Path)), cmp.Compare(x.ID, y.ID))
}

// OldestFirst is the reverse of NewestFirst.
func OldestFirst(x, y MemberRecord) int { return NewestFirst(y, x) }

// TimeOf returns the time of a record in microseconds, 0 if it has none.
func TimeOf(p format.Path) uint64 {
	if !p.HasTime() {
		return 0
	}
	return p.TID >> format.ClockBits
}

// A Place says after which member a page of Records starts: not at the beginning (Begun), but after
// the member with this time and id. Sorted is decided on the first page, and applies to all later
// pages.
type Place struct {
	Begun  bool
	Sorted bool
	Micros uint64
	ID     dict.ID
}

// Order names the order of pages that are sorted by NewestFirst: newest, or id if they are not sorted.
func (p *Place) Order() string {
	if p.Sorted {
		return "newest"
	}
	return "id"
}

// Records returns a page of the members of an expression that is one leaf, sorted by their records with
// order, and the Place of the next page, nil after the last one. Sets that are too large to sort are paged by id instead. On the first page, Records
// sets after.Sorted.
func (v *Evaluation) Records(set idset.Set, after *Place, limit int, order func(x, y MemberRecord) int) (page []MemberRecord, last *Place, err error) {
	most := uint64(MaxSortedActors)
	if v.Expr.Root.Op == OpForward || v.Expr.Root.Op == OpListed {
		most = MaxSortedSubjects
	}
	if !after.Begun {
		after.Sorted = set.Len() <= most
	}
	if after.Sorted && set.Len() > most {
		return nil, nil, &LimitError{fmt.Sprintf("the set has grown past %d members since the first page and can no longer be sorted by time; start again from the first page (without a cursor)", most)}
	}
	if !after.Sorted {
		ids, more := set.Page(uint64(after.ID), limit, v.Hidden())
		all := make([]dict.ID, len(ids))
		for i, id := range ids {
			all[i] = dict.ID(id)
		}
		if page, err = v.EdgeRecords(&v.Expr.Root, all); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &Place{true, false, 0, all[len(all)-1]}
		}
		return page, last, nil
	}
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	ids := make([]dict.ID, len(all))
	for i, id := range all {
		ids[i] = dict.ID(id)
	}
	if page, err = v.EdgeRecords(&v.Expr.Root, ids); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(page, order)
	if after.Begun {
		at, found := slices.BinarySearchFunc(page, *after, func(r MemberRecord, p Place) int {
			return order(r, MemberRecord{ID: p.ID, Path: format.Path{TID: p.Micros << format.ClockBits}})
		})
		if found {
			at++
		}
		page = page[at:]
	}
	if len(page) > limit {
		end := page[limit-1]
		page, last = page[:limit], &Place{true, true, TimeOf(end.Path), end.ID}
	}
	return page, last, nil
}
