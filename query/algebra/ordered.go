package algebra

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"skein.blue/graph/ask"
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

// Source returns the leaf whose records make the members of n members: n itself, or the first set of
// intersect, except and sample. It returns nil for other operators, whose members come from several
// sets, or from none.
func (n *Node) Source() *Node {
	for n.Op == opIntersect || n.Op == OpExcept || n.Op == OpSample {
		n = &n.Args[0]
	}
	if n.Op.IsSet() {
		return n
	}
	return nil
}

// Records returns a page of set, whose members are all in the leaf n, sorted by their records there
// with order, and the Place of the next page, nil after the last one. Sets that are too large to sort
// are paged by id instead. On the first page, Records sets after.Sorted.
func (v *Evaluation) Records(n *Node, set idset.Set, after *Place, limit int, order func(x, y MemberRecord) int) (page []MemberRecord, last *Place, err error) {
	most := uint64(MaxSortedActors)
	if n.Op == OpForward || n.Op == OpListed {
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
		if page, err = v.EdgeRecords(n, toIDs(ids)); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &Place{true, false, 0, dict.ID(ids[len(ids)-1])}
		}
		return page, last, nil
	}
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	if page, err = v.EdgeRecords(n, toIDs(all)); err != nil {
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

// MaxTimed is the largest set that Times reads.
const MaxTimed = 200_000

// Times returns the times of the records in a window that make members of set, which is the result of
// the expression, members of its Source: in microseconds, 0 for a record whose key has no time. They
// ascend.
func (v *Evaluation) Times(set idset.Set, w ask.Window) ([]uint64, error) {
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	if len(all) > MaxTimed {
		return nil, &LimitError{fmt.Sprintf("histogram reads the record of every member, and fails for sets of more than %d members; this one has %d. sample(E, N) is a smaller one", MaxTimed, len(all))}
	}
	if len(all) > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, err
		}
	}
	source := *v.Expr.Root.Source()
	source.Window = source.Window.And(w)
	records, err := v.EdgeRecords(&source, toIDs(all))
	if err != nil {
		return nil, err
	}
	times := make([]uint64, len(records))
	for i, r := range records {
		times[i] = TimeOf(r.Path)
	}
	slices.Sort(times)
	return times, nil
}

func toIDs(list []uint64) []dict.ID {
	ids := make([]dict.ID, len(list))
	for i, id := range list {
		ids[i] = dict.ID(id)
	}
	return ids
}

// MaxSized is the largest set that BySize sorts. Of a larger one it sorts a sample.
const MaxSized = 20_000

// A Sized is a member of a set, with the size of a set of its own.
type Sized struct {
	ID   dict.ID
	Size uint64
}

// BySize returns a page of set, sorted by the sizes of the members' sets along via, such as the
// numbers of their followers: the largest first, equal ones by id. last is the Place of the next page,
// nil after the last one; its Micros are a size.
func (v *Evaluation) BySize(set idset.Set, via Via, after Place, limit int) (page []Sized, last *Place, err error) {
	if size := set.Len() - idset.AndLen(v.Hidden(), set); size > MaxSized {
		if v.Exact {
			return nil, nil, &LimitError{fmt.Sprintf("order=size(%s) with exact=true reads a set of every member, and fails for sets of more than %d members; this one has %d", via.Name, MaxSized, size)}
		}
		set = lowest(set, v.Hidden(), size, MaxSized, 0)
		v.samples = append(v.samples, fmt.Sprintf("order=size(%s) sorted %d of %d members", via.Name, MaxSized, size))
	}
	if set.Len() > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, nil, err
		}
	}
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	page = make([]Sized, len(all))
	err = v.Sizes(via, toIDs(all), func(i int, size uint64) error {
		page[i] = Sized{dict.ID(all[i]), size}
		return v.Ended.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	order := func(x, y Sized) int { return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.ID, y.ID)) }
	slices.SortFunc(page, order)
	if after.Begun {
		at, found := slices.BinarySearchFunc(page, Sized{after.ID, after.Micros}, order)
		if found {
			at++
		}
		page = page[at:]
	}
	if len(page) > limit {
		end := page[limit-1]
		page, last = page[:limit], &Place{true, true, end.Size, end.ID}
	}
	return page, last, nil
}
