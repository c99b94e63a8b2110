package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// manyUndated is the number of members without dates up to which all of their records are read.
const manyUndated = 256

// next returns the records of the members that may be on a page: at least those of all members that are on it, and of
// the next one.
func (r leafRecords) next(may *mayBeNext, after *Place, limit int, order Order) (records []MemberRecord, err error) {
	ids := toIDs(may.undated)
	switch {
	case order.Oldest, len(ids) <= r.lookUpAbove, !r.isUntimed(), after.Begun && after.Micros == ask.Timeless:
		// Members whose records have no time come last.
		records, err = r.of(ids)
	case may.full:
		// limit+1 dated members come after the place, and none of them before this date.
		w := r.l.Window.And(ask.Window{From: ask.TIDAt(uint64(may.oldest) * second), To: endAt(after)})
		var in sets.Set
		if in, err = r.View.ActorsIn(r.l.Kind, r.l.Of, w, sets.FromList(may.undated)); err == nil {
			records, err = r.of(toIDs(in.List(nil)))
		}
	default:
		records, err = r.newest(may.undated, after, limit, order)
	}
	if err != nil || len(may.dated) == 0 {
		return records, err
	}
	err = r.View.RecordsAt(r.l.Kind, r.l.Of, r.subjectTID(), r.l.Window, may.dated, func(i int, p ask.Path) error {
		records = append(records, MemberRecord{may.dated[i].Actor, p})
		return r.Ended.Err()
	})
	return records, err
}

// endAt returns the end of the window of the records that a page newest first may have after a place.
func endAt(after *Place) uint64 {
	if !after.Begun {
		return ask.EndOfTime
	}
	return ask.TIDAt(min(after.Micros+1, ask.MicrosOf(ask.EndOfTime)))
}

// newest returns the records of those members ids of the reverse set that may be on a page newest first, after a place. An account that
// is years old has records in some hundred buckets, and those of one page of a set of thousands of members lie in few of them. So newest reads
// all records of some members; their times say since when limit+1 of all members are likely to have a record, and newest reads the records
// since then. If these turn out to be too few, it tries once more with a longer time, and then reads all.
func (r leafRecords) newest(ids []uint64, after *Place, limit int, order Order) (records []MemberRecord, err error) {
	some, left := spread(ids, r.readFirst)
	if records, err = r.of(toIDs(some)); err != nil {
		return nil, err
	}
	comes := func(m MemberRecord) bool { // before those that come last
		at := order.timeOf(m.Path)
		return at != ask.Timeless && (!after.Begun || order.compare(at, after.Micros, m.ID, after.ID) > 0)
	}
	var times []uint64 // of the sample, the newest first
	for _, m := range records {
		if comes(m) {
			times = append(times, ask.TimeOf(m.Path))
		}
	}
	slices.Sort(times)
	slices.Reverse(times)
	w := ask.Window{To: endAt(after)}
	// Of the sample, the same share as of all is on the page: take one and a half times that, and two more, because a sample is not exact. A
	// window with half of the sample would save too little.
	most := 2 + 3*(limit+1)*len(some)/(2*len(ids))
	for try := 0; try < 2 && most < len(times)/2; try, most = try+1, 3*most {
		if w.From = ask.TIDAt(times[most]); w.From >= w.To {
			continue
		}
		found, members, err := r.since(w, left)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
		sure := 0
		for _, m := range records {
			if m.Path.TID >= w.From && comes(m) {
				sure++
			}
		}
		if sure > limit {
			return records, nil
		}
		left = slices.DeleteFunc(left, func(id uint64) bool { return members[dict.ID(id)] })
		w.To = w.From
	}
	rest, err := r.of(toIDs(left))
	return append(records, rest...), err
}

// since returns the records of those of ids that have a record in a window, perhaps older ones, and these members.
func (r leafRecords) since(w ask.Window, ids []uint64) (records []MemberRecord, members map[dict.ID]bool, err error) {
	in := r
	in.l.Window = r.l.Window.And(w)
	found, err := in.of(toIDs(ids))
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	repeated, known, err := r.View.Repeated(r.l.Kind, r.l.Of)
	if err != nil {
		return nil, nil, err
	}
	members = make(map[dict.ID]bool, len(found))
	var again []uint64 // may have a record outside of the window with a lower key, which is shown instead
	for _, m := range found {
		members[m.ID] = true
		if id := uint64(m.ID); !known || repeated.Has(id) {
			again = append(again, id)
		} else {
			records = append(records, m)
		}
	}
	slices.Sort(again)
	shown, err := r.of(toIDs(again))
	return append(records, shown...), members, err
}

// spread returns n of ids, at equal distances, and the rest.
func spread(ids []uint64, n int) (some, rest []uint64) {
	for i, id := range ids {
		if i*n/len(ids) != (i+1)*n/len(ids) {
			some = append(some, id)
		} else {
			rest = append(rest, id)
		}
	}
	return some, rest
}
