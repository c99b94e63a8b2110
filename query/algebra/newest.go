package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// manyUndated is the number of members without dates up to which all of their records are read.
const manyUndated = 256

// nextRecords returns the records of the members that may be on a page: at least those of all members that are on it, and of
// the next one.
func (v *Evaluation) nextRecords(n *Node, may *mayBeNext, after *Place, limit int, order Order) (records []MemberRecord, err error) {
	ids := toIDs(may.undated)
	switch {
	case order.Oldest, len(ids) <= v.lookUpAbove, !v.isUntimed(n), after.Begun && after.Micros == ask.Timeless:
		// Members whose records have no time come last.
		records, err = v.EdgeRecords(n, ids)
	case may.full:
		// limit+1 dated members come after the place, and none of them before this date.
		w := n.Window.And(ask.Window{From: ask.TIDAt(uint64(may.oldest) * second), To: endAt(after)})
		var in sets.Set
		if in, err = v.View.ActorsIn(n.Kind, v.IDs[n.Of], w, sets.FromList(may.undated)); err == nil {
			records, err = v.EdgeRecords(n, toIDs(in.List(nil)))
		}
	default:
		records, err = v.newest(n, may.undated, after, limit, order)
	}
	if err != nil || len(may.dated) == 0 {
		return records, err
	}
	err = v.View.RecordsAt(n.Kind, v.IDs[n.Of], v.timeOf(n), n.Window, may.dated, func(i int, p ask.Path) error {
		records = append(records, MemberRecord{may.dated[i].Actor, p})
		return v.Ended.Err()
	})
	return records, err
}

// timeOf returns the time of the subject of a reverse set as a TID, or ask.Timeless.
func (v *Evaluation) timeOf(n *Node) uint64 {
	return ask.TIDOf(v.Expr.Info(n).To.Is(), v.Expr.Strings[n.Of].S)
}

// isUntimed reports whether n is a reverse set of a subject without a time. RecordsTo finds the records that name a subject
// with a time soon after that.
func (v *Evaluation) isUntimed(n *Node) bool {
	return n.Op == OpReverse && !n.Kind.IsLabel() && n.Kind != kinds.Hidden && v.timeOf(n) == ask.Timeless
}

// endAt returns the end of the window of the records that a page newest first may have after a place.
func endAt(after *Place) uint64 {
	if !after.Begun {
		return ask.EndOfTime
	}
	return ask.TIDAt(min(after.Micros+1, ask.Micros(ask.EndOfTime)))
}

// newest returns the records of those members ids of the reverse set n that may be on a page newest first, after a place. An account that
// is years old has records in some hundred buckets, and those of one page of a set of thousands of members lie in few of them. So newest reads
// all records of some members; their times say since when limit+1 of all members are likely to have a record, and newest reads the records
// since then. If these turn out to be too few, it tries once more with a longer time, and then reads all.
func (v *Evaluation) newest(n *Node, ids []uint64, after *Place, limit int, order Order) (records []MemberRecord, err error) {
	some, left := spread(ids, v.readFirst)
	if records, err = v.EdgeRecords(n, toIDs(some)); err != nil {
		return nil, err
	}
	comes := func(r MemberRecord) bool { // before those that come last
		at := order.timeOf(r.Path)
		return at != ask.Timeless && (!after.Begun || order.compare(at, after.Micros, r.ID, after.ID) > 0)
	}
	var times []uint64 // of the sample, the newest first
	for _, r := range records {
		if comes(r) {
			times = append(times, ask.TimeOf(r.Path))
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
		found, members, err := v.since(n, w, left)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
		sure := 0
		for _, r := range records {
			if r.Path.TID >= w.From && comes(r) {
				sure++
			}
		}
		if sure > limit {
			return records, nil
		}
		left = slices.DeleteFunc(left, func(id uint64) bool { return members[dict.ID(id)] })
		w.To = w.From
	}
	rest, err := v.EdgeRecords(n, toIDs(left))
	return append(records, rest...), err
}

// since returns the records of those of ids that have a record in a window, perhaps older ones, and these members.
func (v *Evaluation) since(n *Node, w ask.Window, ids []uint64) (records []MemberRecord, members map[dict.ID]bool, err error) {
	in := *n
	in.Window = n.Window.And(w)
	found, err := v.EdgeRecords(&in, toIDs(ids))
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	repeated, known, err := v.View.Repeated(n.Kind, v.IDs[n.Of])
	if err != nil {
		return nil, nil, err
	}
	members = make(map[dict.ID]bool, len(found))
	var again []uint64 // may have a record outside of the window with a lower key, which is shown instead
	for _, r := range found {
		members[r.ID] = true
		if id := uint64(r.ID); !known || repeated.Has(id) {
			again = append(again, id)
		} else {
			records = append(records, r)
		}
	}
	slices.Sort(again)
	shown, err := v.EdgeRecords(n, toIDs(again))
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
