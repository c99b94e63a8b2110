package algebra

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// mayBeNext has the members that may be on a page of Records.
type mayBeNext struct {
	dated   []ask.Dated    // by their dates: at least all that come before the end of the page
	undated []uint64       // the others, whose records say when: they have no date, or that of the place where the page starts
	placed  []placedRecord // those whose records need not be read to place them
	ahead   bool           // some are dated ahead of the present
}

// nextByDate returns the members of a large reverse set that may be on the page after a place: those
// with the first limit+1 dates there, with all members of the last second, and all that have no date, or come last.
// ok is false if more than MaxWindowed have no date.
func (s *sources) nextByDate(set sets.Set, after *Place, limit int, order Order) (may mayBeNext, ok bool, err error) {
	if err := s.askForDates(set); err != nil {
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
	err = s.eachDated(set, &wanted, func(id uint64, date uint32) {
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
	})
	if err != nil || len(undated) > MaxWindowed {
		return may, false, err
	}
	b.trim()
	full := len(b.dated) >= b.need // with a date that comes after the place
	may.place(&b, rank, s.maxOfSecond)
	if len(ofPlace) > s.maxOfSecond {
		may.crowd(uint64(rank(first)), ofPlace)
	} else {
		undated = append(undated, ofPlace...)
	}
	may.ahead = len(ahead) > 0
	if !full { // those that come last may be on the page
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
func (s *sources) askForDates(set sets.Set) error {
	if s.Expr.IsLeaf() && set.Len() <= sets.ListMax {
		return nil
	}
	return s.budget.Heavy()
}

// eachDated calls each for visible members of set, with the dates of the records that make them members. Of a single leaf, those whose dates are not wanted
// may be missing.
func (s *sources) eachDated(set sets.Set, wanted *ask.DateRange, each func(id uint64, date uint32)) error {
	if len(s.leaves) == 1 {
		return s.leaves[0].eachDated(set, wanted, each)
	}
	newest := make(map[uint64]uint32, set.Len())
	age := func(date uint32) uint32 { // of what comes last the highest, of what has to be read the lowest
		switch {
		case date == ask.Undated:
			return 0
		case uint64(date)*second > s.order.latest:
			return math.MaxUint32
		}
		return ask.Undated - date
	}
	offer := func(id uint64, date uint32) {
		if old, known := newest[id]; !known || age(date) < age(old) {
			newest[id] = date
		}
	}
	for i := range s.leaves {
		r := &s.leaves[i]
		if r.isLarge() {
			if err := r.eachDated(r.set, &ask.DateRange{Last: ask.Undated}, offer); err != nil {
				return err
			}
			continue
		}
		records, err := r.of(IDs(r.set.List(nil)))
		if err != nil {
			return err
		}
		for _, m := range records {
			date := uint32(ask.Undated)
			if at := ask.TimeOf(m.Path); at != ask.Timeless {
				date = uint32(min(at/second, ask.LastDate))
			}
			offer(uint64(m.ID), date)
		}
	}
	hidden := s.Hidden()
	for id, date := range newest {
		if !hidden.Has(id) {
			each(id, date)
		}
	}
	return nil
}

// eachDated calls each for those visible members of set whose dates are wanted. All members of set are in the reverse set
// that the leaf reads; they are all of it if the expression is the leaf.
func (r *leafRecords) eachDated(set sets.Set, wanted *ask.DateRange, each func(id uint64, date uint32)) error {
	hidden, whole := sets.NewSparse(r.Hidden()), r.Expr.IsLeaf() && r.n.Window.All()
	_, err := r.View.Dates(r.l.Kind, r.l.Of, wanted, func(id uint64, date uint32) error {
		if (whole || set.Has(id)) && !hidden.Has(id) {
			each(id, date)
		}
		return nil
	})
	return err
}
