package algebra

import (
	"fmt"
	"math"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// MaxTimed is the largest number of members whose records Times reads.
const MaxTimed = 200_000

// Times returns the times of the records in a window that make members of set, which is the result of
// the expression, members of its Source: in microseconds, ask.Timeless for a record whose key has no time. They
// ascend. Times of large reverse sets are whole seconds, except around now.
func (v *Evaluation) Times(set sets.Set, w language.Window, now time.Time) (times []uint64, err error) {
	s, err := sourcesOf(v, v.Expr.Root.Source(), set, OrderAt(now, false))
	if err != nil {
		return nil, err
	}
	for i := range s.leaves {
		s.leaves[i].l.Window = s.leaves[i].l.Window.And(Within(w))
	}
	var ids []uint64 // of members whose records have to be read
	if len(s.leaves) == 1 && s.leaves[0].isLarge() {
		times, ids, err = s.datedTimes(set, uint32(now.Unix()))
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
	records, err := s.of(IDs(ids))
	if err != nil {
		return nil, err
	}
	for _, m := range records {
		times = append(times, ask.TimeOf(m.Path))
	}
	slices.Sort(times)
	return times, nil
}

// datedTimes returns the times of the members of a large reverse set, by their dates, and the members
// whose records have to be read.
func (s *sources) datedTimes(set sets.Set, now uint32) (times, unsure []uint64, err error) {
	r := &s.leaves[0]
	if err := s.askForDates(set); err != nil {
		return nil, nil, err
	}
	from, to := ask.MicrosOf(r.l.Window.From), ask.MicrosOf(r.l.Window.To)
	if r.l.Window.All() {
		from, to = 0, math.MaxUint64
	}
	err = r.eachDated(set, ask.DatesBetween(from, to), func(id uint64, date uint32) {
		begin, end := uint64(date)*second, (uint64(date)+1)*second
		switch {
		case date == ask.Undated, date == now, begin < from && from < end, begin < to && to < end:
			unsure = append(unsure, id)
		case begin >= from && end <= to:
			times = append(times, begin)
		}
	})
	slices.Sort(unsure)
	return times, unsure, err
}
