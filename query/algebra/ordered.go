package algebra

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
)

// The largest sets whose records Records reads whole, to sort them by time. Larger reverse sets are sorted
// by the dates that are stored with them.
const (
	MaxSortedSubjects = 200_000 // forward sets and OpListed, whose records are stored together
	MaxSortedActors   = 10_000  // OpLists: records of every member are read
)

// An Order is an order of members by their records.
type Order bool

// NewestFirst orders by the records' times, newest first. Records without a time come last.
// Ties are ordered by id. OldestFirst is the reverse.
const (
	NewestFirst Order = false
	OldestFirst Order = true
)

// Compare compares two members by their places in the order.
func (o Order) Compare(x, y MemberRecord) int {
	if o == OldestFirst {
		x, y = y, x
	}
	return cmp.Or(cmp.Compare(TimeOf(y.Path), TimeOf(x.Path)), cmp.Compare(x.ID, y.ID))
}

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

// record returns a record of the member at the place.
func (p *Place) record() MemberRecord {
	return MemberRecord{ID: p.ID, Path: format.Path{TID: p.Micros << format.ClockBits}}
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
// in an order, and the Place of the next page, nil after the last one. Sets that are too large to sort
// are paged by id instead. On the first page, Records sets after.Sorted.
func (v *Evaluation) Records(n *Node, set idset.Set, after *Place, limit int, order Order) (page []MemberRecord, last *Place, err error) {
	most := uint64(MaxSortedActors)
	switch n.Op {
	case OpForward, OpListed:
		most = MaxSortedSubjects
	case OpReverse:
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
	case n.Op == OpReverse:
		if may, sortable, err = v.nextByDate(n, set, after, limit, order); err != nil {
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
		if page, err = v.EdgeRecords(n, toIDs(ids)); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &Place{true, false, 0, dict.ID(ids[len(ids)-1])}
		}
		return page, last, nil
	}
	if page, err = v.nextRecords(n, &may, after, limit, order); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(page, order.Compare)
	if after.Begun {
		at, found := slices.BinarySearchFunc(page, *after, func(r MemberRecord, p Place) int {
			return order.Compare(r, p.record())
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

// second is a second in microseconds.
const second = 1_000_000

// mayBeNext has the members that may be on a page of Records.
type mayBeNext struct {
	dated   []ask.Dated // by their dates: at least all that come before the end of the page
	undated []uint64    // the others, whose records say when: they have no date, or that of the place where the page starts
	full    bool        // whether the dated are limit+1 or more
}

// nextByDate returns the members of a large reverse set that may be on the page after a place: those
// with the first limit+1 dates there, with all members of the last second, and all that have no date.
// ok is false if these are more than MaxWindowed.
func (v *Evaluation) nextByDate(n *Node, set idset.Set, after *Place, limit int, order Order) (may mayBeNext, ok bool, err error) {
	if err := v.askForDates(set); err != nil {
		return may, false, err
	}
	// Dates are compared as numbers that ascend in the order.
	rank := func(date uint32) uint32 {
		if order == NewestFirst {
			return math.MaxUint32 - date
		}
		return date
	}
	first := uint32(0)
	if after.Begun {
		first = rank(uint32(min(after.Micros/second, format.Undated)))
	}
	b := nextDates{need: limit + 1, last: math.MaxUint32}
	var wanted read.DateRange
	narrow := func(first, last uint32) {
		if wanted = (read.DateRange{First: rank(first), Last: rank(last)}); order == NewestFirst {
			wanted.First, wanted.Last = wanted.Last, wanted.First
		}
	}
	narrow(first, b.last)
	err = v.eachDated(n, set, &wanted, func(id uint64, date uint32) {
		switch {
		case date == format.Undated, after.Begun && rank(date) == first: // some may come before the place
			b.always = append(b.always, id)
		case b.add(id, rank(date)):
			narrow(first, b.last)
		}
	}, func() {
		b.dated, b.always, b.last, b.trimAt = b.dated[:0], b.always[:0], math.MaxUint32, 0
		narrow(first, b.last)
	})
	if err != nil {
		return may, false, err
	}
	b.trim()
	for _, d := range b.dated {
		may.dated = append(may.dated, ask.Dated{Actor: dict.ID(d.id), Date: rank(d.rank)})
	}
	if len(may.dated)+len(b.always) > MaxWindowed {
		return may, false, nil
	}
	slices.SortFunc(may.dated, func(x, y ask.Dated) int { return cmp.Compare(x.Actor, y.Actor) })
	slices.Sort(b.always)
	may.undated, may.full = b.always, len(b.dated) >= b.need
	return may, true, nil
}

// nextDates keeps the members with the first dates, and some in any case.
type nextDates struct {
	need   int
	last   uint32 // later dates are not needed
	dated  []datedID
	always []uint64
	trimAt int
}

type datedID struct {
	rank uint32
	id   uint64
}

// add adds a member that may be needed. It reports whether last may have changed.
func (b *nextDates) add(id uint64, rank uint32) bool {
	b.dated = append(b.dated, datedID{rank, id})
	if len(b.dated) < max(b.trimAt, 4*b.need+1024) {
		return false
	}
	b.trim()
	b.trimAt = 2 * len(b.dated) // many may have the last date
	return true
}

// trim drops the members after the last date that is needed.
func (b *nextDates) trim() {
	if len(b.dated) <= b.need {
		return
	}
	smallestFirst(b.dated, b.need)
	b.last = 0
	for _, d := range b.dated[:b.need] {
		b.last = max(b.last, d.rank)
	}
	kept := b.dated[:b.need]
	for _, d := range b.dated[b.need:] {
		if d.rank == b.last { // none of these has a smaller one
			kept = append(kept, d)
		}
	}
	b.dated = kept
}

// smallestFirst moves the k members with the smallest ranks to the front (Hoare's quickselect).
func smallestFirst(list []datedID, k int) {
	for k > 0 && k < len(list) {
		pivot := list[rand.IntN(len(list))].rank
		less, same := 0, 0 // list begins with the smaller ones, then those like the pivot
		for i := range list {
			switch d := list[i]; {
			case d.rank < pivot:
				list[i] = list[less+same]
				list[less+same] = list[less]
				list[less] = d
				less++
			case d.rank == pivot:
				list[i] = list[less+same]
				list[less+same] = d
				same++
			}
		}
		switch {
		case k < less:
			list = list[:less]
		case k <= less+same:
			return
		default:
			list, k = list[less+same:], k-less-same
		}
	}
}

// askForDates asks the budget, unless the dates are those of a small set. set may be a small part of a large one, whose
// dates are read anyway.
func (v *Evaluation) askForDates(set idset.Set) error {
	if v.Expr.IsLeaf() && set.Len() <= idset.ListMax {
		return nil
	}
	return v.budget.Heavy()
}

// eachDated calls each for those visible members of set whose dates are wanted. All members of set are in the reverse set
// that the leaf n reads. eachDated calls again, and then each from the beginning, if set is a part of that.
func (v *Evaluation) eachDated(n *Node, set idset.Set, wanted *read.DateRange, each func(id uint64, date uint32), again func()) error {
	var accounts idset.Set
	if n.Is == dict.DID {
		accounts = v.View.Hidden()
	}
	for _, whole := range []bool{true, false} {
		hidden := idset.NewSparse(accounts)
		members, err := v.View.Dates(n.Kind, v.IDs[n.Of], wanted, func(id uint64, date uint32) error {
			if (whole || set.Has(id)) && !hidden.Has(id) {
				each(id, date)
			}
			return nil
		})
		if err != nil || !whole || members == set.Len() {
			return err
		}
		again()
	}
	return nil
}

// MaxTimed is the largest number of members whose records Times reads.
const MaxTimed = 200_000

// Times returns the times of the records in a window that make members of set, which is the result of
// the expression, members of its Source: in microseconds, 0 for a record whose key has no time. They
// ascend. Times of large reverse sets are whole seconds, except around now.
func (v *Evaluation) Times(set idset.Set, w ask.Window, now time.Time) (times []uint64, err error) {
	source := *v.Expr.Root.Source()
	source.Window = source.Window.And(w)
	var ids []uint64 // of members whose records have to be read
	if set.Len() > v.dateAbove && source.Op == OpReverse {
		times, ids, err = v.datedTimes(&source, set, uint32(now.Unix()))
	} else {
		ids, _ = set.Page(0, math.MaxInt, v.Hidden())
	}
	if err != nil {
		return nil, err
	}
	if len(ids) > MaxTimed {
		return nil, &LimitError{fmt.Sprintf("histogram reads the records of the members whose time is not stored with the set, and fails above %d such members; this set has %d. sample(E, N) is a smaller one", MaxTimed, len(ids))}
	}
	if len(ids) > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, err
		}
	}
	records, err := v.EdgeRecords(&source, toIDs(ids))
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		times = append(times, TimeOf(r.Path))
	}
	slices.Sort(times)
	return times, nil
}

// datedTimes returns the times of the members of a large reverse set, by their dates, and the members
// whose records have to be read.
func (v *Evaluation) datedTimes(n *Node, set idset.Set, now uint32) (times, unsure []uint64, err error) {
	if err := v.askForDates(set); err != nil {
		return nil, nil, err
	}
	from, to := n.Window.From>>format.ClockBits, n.Window.To>>format.ClockBits
	if n.Window.All() {
		from, to = 0, math.MaxUint64
	}
	err = v.eachDated(n, set, ask.DatesBetween(from, to), func(id uint64, date uint32) {
		begin, end := uint64(date)*second, (uint64(date)+1)*second
		switch {
		case date == format.Undated, date == 0, date == now, begin < from && from < end, begin < to && to < end:
			unsure = append(unsure, id)
		case begin >= from && end <= to:
			times = append(times, begin)
		}
	}, func() { times, unsure = times[:0], unsure[:0] })
	slices.Sort(unsure)
	return times, unsure, err
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
