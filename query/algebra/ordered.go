package algebra

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// The largest sets whose records Records reads whole, to sort them by time. Larger reverse sets are sorted
// by the dates that are stored with them.
const (
	MaxSortedSubjects = 200_000 // forward sets and OpListed, whose records are stored together
	MaxSortedActors   = 10_000  // OpLists: records of every member are read
)

// maxAhead is how far a record's time may be ahead of the present: clocks differ. A time further ahead is one that a client
// made up, and a record that has it would be the newest for years.
const maxAhead = 5 * time.Minute

// latestAt returns the last microsecond whose records have a time, at a time: the last one of a whole second, because the dates
// of large sets are seconds.
func latestAt(now time.Time) uint64 {
	return uint64(max(now.Add(maxAhead).Unix(), 0))*second + second - 1
}

// An Order is an order of members by the times of their records. Members without a time come last, and so do those whose time
// is ahead of the present. Ties are ordered by id.
type Order struct {
	Oldest bool   // first; else the newest
	now    int64  // the present, in microseconds
	latest uint64 // times after it are ahead of the present
}

// NewestFirst and OldestFirst return the orders at a time, the present of the first page.
func NewestFirst(now time.Time) Order { return Order{false, now.UnixMicro(), latestAt(now)} }

// OldestFirst is documented with NewestFirst.
func OldestFirst(now time.Time) Order { return Order{true, now.UnixMicro(), latestAt(now)} }

// timeOf returns the time by which a record is ordered: ask.Timeless if it comes last.
func (o Order) timeOf(p ask.Path) uint64 {
	if at := ask.TimeOf(p); at <= o.latest {
		return at
	}
	return ask.Timeless
}

// IsAhead reports whether a record's time is ahead of the present.
func (o Order) IsAhead(p ask.Path) bool { return p.HasTime() && ask.TimeOf(p) > o.latest }

// KeyOf returns the TID of a record by which it is ordered: ask.Timeless if it comes last.
func (o Order) KeyOf(tid uint64) uint64 {
	if ask.Micros(tid) > o.latest {
		return ask.Timeless
	}
	return tid
}

// CompareKeys compares two records by their keys (KeyOf) and ids.
func (o Order) CompareKeys(x, y uint64, xID, yID dict.ID) int { return o.compare(x, y, xID, yID) }

// Compare compares two members by their places in the order.
func (o Order) Compare(x, y MemberRecord) int {
	return o.compare(o.timeOf(x.Path), o.timeOf(y.Path), x.ID, y.ID)
}

func (o Order) compare(x, y uint64, xID, yID dict.ID) int {
	if (x == ask.Timeless) != (y == ask.Timeless) {
		return cmp.Compare(x, y)
	}
	if o.Oldest {
		x, y, xID, yID = y, x, yID, xID
	}
	return cmp.Or(cmp.Compare(y, x), cmp.Compare(xID, yID))
}

// A Place says after which member a page of Records starts: not at the beginning (Begun), but after
// the member with this time and id. Sorted is decided on the first page, and applies to all later
// pages.
type Place struct {
	Begun  bool
	Sorted bool
	Micros uint64 // ask.Timeless among those that come last
	ID     dict.ID
	Now    int64 // the time of the first page in microseconds; 0 if nothing in the set is ahead of it
}

// At returns the present of the first page: now, on that page itself and if it does not matter.
func (p *Place) At(now time.Time) time.Time {
	if p.Now != 0 {
		return time.UnixMicro(p.Now)
	}
	return now
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
// are paged by id instead. On the first page, Records sets after.Sorted. Neither depends on the limit.
func (v *Evaluation) Records(n *Node, set sets.Set, after *Place, limit int, order Order) (page []MemberRecord, last *Place, err error) {
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
			last = &Place{Begun: true, ID: dict.ID(ids[len(ids)-1])}
		}
		return page, last, nil
	}
	records, err := v.nextRecords(n, &may, after, limit, order)
	if err != nil {
		return nil, nil, err
	}
	placed := may.placed
	ahead := may.ahead
	for _, r := range records {
		at := order.timeOf(r.Path)
		ahead = ahead || at == ask.Timeless && r.Path.HasTime()
		placed = append(placed, placedRecord{at, r, true})
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
	page, err = v.readRest(n, placed)
	return page, last, err
}

// A placedRecord is a member with the time by which it is ordered. Its record may not have been read.
type placedRecord struct {
	at uint64
	MemberRecord

	read bool
}

// readRest returns the records of a page, and reads those that were placed without.
func (v *Evaluation) readRest(n *Node, placed []placedRecord) (page []MemberRecord, err error) {
	var rest []dict.ID
	for _, r := range placed {
		if page = append(page, r.MemberRecord); !r.read {
			rest = append(rest, r.ID)
		}
	}
	if len(rest) == 0 {
		return page, nil
	}
	slices.Sort(rest)
	found, err := v.EdgeRecords(n, rest)
	if err != nil {
		return nil, err
	}
	paths := make(map[dict.ID]ask.Path, len(found))
	for _, r := range found {
		paths[r.ID] = r.Path
	}
	for i := range page {
		if !placed[i].read {
			page[i].Path = paths[page[i].ID]
		}
	}
	return page, nil
}

// second is a second in microseconds.
const second = 1_000_000

// mayBeNext has the members that may be on a page of Records.
type mayBeNext struct {
	dated   []ask.Dated    // by their dates: at least all that come before the end of the page
	undated []uint64       // the others, whose records say when: they have no date, or that of the place where the page starts
	placed  []placedRecord // those whose records need not be read to place them
	ahead   bool           // some are dated ahead of the present
	full    bool           // whether limit+1 or more have a date that comes after the place
	oldest  uint32         // the lowest date of these
}

// nextByDate returns the members of a large reverse set that may be on the page after a place: those
// with the first limit+1 dates there, with all members of the last second, and all that have no date, or come last.
// ok is false if more than MaxWindowed have no date.
func (v *Evaluation) nextByDate(n *Node, set sets.Set, after *Place, limit int, order Order) (may mayBeNext, ok bool, err error) {
	if err := v.askForDates(set); err != nil {
		return may, false, err
	}
	latest := uint32(min(order.latest/second, ask.LastDate))
	// Dates are compared as numbers that ascend in the order.
	rank := func(date uint32) uint32 {
		if order.Oldest {
			return date
		}
		return math.MaxUint32 - date
	}
	first, isPlaced := rank(latest), after.Begun && after.Micros != ask.Timeless
	switch {
	case after.Begun && !isPlaced:
		first = math.MaxUint32 // the dated members are on earlier pages
	case isPlaced:
		first = rank(uint32(min(after.Micros/second, uint64(latest))))
	case order.Oldest:
		first = 0
	}
	b := nextDates{need: limit + 1, last: math.MaxUint32}
	wanted := ask.DateRange{From: latest + 1}
	narrow := func(first, last uint32) {
		if wanted.First, wanted.Last = rank(first), rank(last); !order.Oldest {
			wanted.First, wanted.Last = wanted.Last, wanted.First
		}
	}
	narrow(first, b.last)
	var undated, ofPlace, ahead []uint64
	err = v.eachDated(n, set, &wanted, func(id uint64, date uint32) {
		switch {
		case date == ask.Undated:
			undated = append(undated, id)
		case date > latest:
			ahead = append(ahead, id)
		case after.Begun && rank(date) == first: // some may come before the place
			ofPlace = append(ofPlace, id)
		case rank(date) < first:
		case b.add(id, rank(date)):
			narrow(first, b.last)
		}
	}, func() {
		undated, ofPlace, ahead = undated[:0], ofPlace[:0], ahead[:0]
		b.dated, b.last, b.trimAt = b.dated[:0], math.MaxUint32, 0
		narrow(first, b.last)
	})
	if err != nil || len(undated) > MaxWindowed {
		return may, false, err
	}
	b.trim()
	may.full, may.oldest = len(b.dated) >= b.need, latest
	may.place(&b, rank, v.maxOfSecond)
	if len(ofPlace) > v.maxOfSecond {
		may.crowd(uint64(rank(first)), ofPlace)
	} else {
		undated = append(undated, ofPlace...)
	}
	may.ahead = len(ahead) > 0
	if !may.full { // those that come last may be on the page
		for _, id := range ahead {
			may.placed = append(may.placed, placedRecord{ask.Timeless, MemberRecord{ID: dict.ID(id)}, false})
		}
	}
	slices.Sort(undated)
	may.undated = undated
	return may, true, nil
}

// place divides the dated members: those of a second with more than most of them are placed by id.
func (m *mayBeNext) place(b *nextDates, rank func(uint32) uint32, most int) {
	slices.SortFunc(b.dated, func(x, y datedID) int { return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.id, y.id)) })
	for some := range sets.Runs(b.dated, func(x, y datedID) bool { return x.rank == y.rank }) {
		date := rank(some[0].rank)
		m.oldest = min(m.oldest, date)
		if len(some) > most {
			ids := make([]uint64, len(some))
			for i := range some {
				ids[i] = some[i].id
			}
			m.crowd(uint64(date), ids)
			continue
		}
		for _, d := range some {
			m.dated = append(m.dated, ask.Dated{Actor: dict.ID(d.id), Date: date})
		}
	}
	slices.SortFunc(m.dated, func(x, y ask.Dated) int { return cmp.Compare(x.Actor, y.Actor) })
}

// crowd places the members of a second by id, at its beginning.
func (m *mayBeNext) crowd(date uint64, ids []uint64) {
	for _, id := range ids {
		m.placed = append(m.placed, placedRecord{date * second, MemberRecord{ID: dict.ID(id)}, false})
	}
}

// nextDates keeps the members with the first dates, and some in any case.
type nextDates struct {
	need   int
	last   uint32 // later dates are not needed
	dated  []datedID
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
func (v *Evaluation) askForDates(set sets.Set) error {
	if v.Expr.IsLeaf() && set.Len() <= sets.ListMax {
		return nil
	}
	return v.budget.Heavy()
}

// eachDated calls each for those visible members of set whose dates are wanted. All members of set are in the reverse set
// that the leaf n reads. eachDated calls again, and then each from the beginning, if set is a part of that.
func (v *Evaluation) eachDated(n *Node, set sets.Set, wanted *ask.DateRange, each func(id uint64, date uint32), again func()) error {
	var accounts sets.Set
	if n.Is == dict.DID {
		accounts = v.View.Hidden()
	}
	for _, whole := range []bool{true, false} {
		hidden := sets.NewSparse(accounts)
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
// the expression, members of its Source: in microseconds, ask.Timeless for a record whose key has no time. They
// ascend. Times of large reverse sets are whole seconds, except around now.
func (v *Evaluation) Times(set sets.Set, w ask.Window, now time.Time) (times []uint64, err error) {
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
		times = append(times, ask.TimeOf(r.Path))
	}
	slices.Sort(times)
	return times, nil
}

// datedTimes returns the times of the members of a large reverse set, by their dates, and the members
// whose records have to be read.
func (v *Evaluation) datedTimes(n *Node, set sets.Set, now uint32) (times, unsure []uint64, err error) {
	if err := v.askForDates(set); err != nil {
		return nil, nil, err
	}
	from, to := ask.Micros(n.Window.From), ask.Micros(n.Window.To)
	if n.Window.All() {
		from, to = 0, math.MaxUint64
	}
	err = v.eachDated(n, set, ask.DatesBetween(from, to), func(id uint64, date uint32) {
		begin, end := uint64(date)*second, (uint64(date)+1)*second
		switch {
		case date == ask.Undated, date == now, begin < from && from < end, begin < to && to < end:
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

// MaxSized is the largest set that BySize sorts. Of a larger one it sorts a sample. By lists and listed, which it
// reads item by item, it sorts at most maxSizedLists.
const (
	MaxSized      = 20_000
	maxSizedLists = 1_000
)

// A Sized is a member of a set, with the size of a set of its own.
type Sized struct {
	ID   dict.ID
	Size uint64
}

// BySize returns a page of set, sorted by the sizes of the members' sets along via, such as the
// numbers of their followers: the largest first, equal ones by id. last is the Place of the next page,
// nil after the last one; its Micros are a size.
func (v *Evaluation) BySize(set sets.Set, via Via, after Place, limit int) (page []Sized, last *Place, err error) {
	most := MaxSized
	if via.isList() {
		most = maxSizedLists
	}
	if size := set.Len() - sets.AndLen(v.Hidden(), set); size > uint64(most) {
		if v.Exact {
			return nil, nil, &LimitError{fmt.Sprintf("order=size(%s) with exact=true reads a set of every member, and fails for sets of more than %d members; this one has %d", via.Name, most, size)}
		}
		set = lowest(set, v.Hidden(), size, most, 0, v.named(&v.Expr.Root))
		v.samples = append(v.samples, fmt.Sprintf("order=size(%s) sorted %d of %d members", via.Name, most, size))
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
		page, last = page[:limit], &Place{Begun: true, Sorted: true, Micros: end.Size, ID: end.ID}
	}
	return page, last, nil
}
