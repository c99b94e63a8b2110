package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
)

// manyUndated is the number of members without dates up to which all of their records are read.
const manyUndated = 256

// nextRecords returns the records of the members that may be on a page: at least those of all members that are on it, and of
// the next one.
func (v *Evaluation) nextRecords(n *Node, may *mayBeNext, after *Place, limit int, order Order) (records []MemberRecord, err error) {
	ids := toIDs(may.undated)
	switch {
	case order == OldestFirst, len(ids) <= v.lookUpAbove, !v.isUntimed(n), after.Begun && after.Micros == 0:
		records, err = v.EdgeRecords(n, ids)
	case may.full:
		w := n.Window.And(ask.Window{From: may.dates.From, To: endAt(after)})
		var in idset.Set
		if in, err = v.View.ActorsIn(n.Kind, v.IDs[n.Of], w, idset.FromList(may.undated)); err == nil {
			records, err = v.EdgeRecords(n, toIDs(in.List(nil)))
		}
	default:
		records, err = v.newest(n, may.undated, after, limit)
	}
	if err == nil && len(may.dated) > 0 {
		dated := *n
		dated.Window = n.Window.And(may.dates)
		var more []MemberRecord
		more, err = v.EdgeRecords(&dated, toIDs(may.dated))
		records = append(records, more...)
	}
	return records, err
}

// isUntimed reports whether n is a reverse set of a subject without a time. RecordsTo finds the records that name a subject
// with a time soon after that.
func (v *Evaluation) isUntimed(n *Node) bool {
	info := v.Expr.Info(n)
	return n.Op == OpReverse && !n.Kind.IsLabel() && n.Kind != kinds.Hidden && TIDOf(info.To.Is(), v.Expr.Strings[n.Of].S) == 0
}

// endAt returns the end of the window of the records that a page newest first may have after a place.
func endAt(after *Place) uint64 {
	if !after.Begun {
		return format.EndOfTime
	}
	return min(after.Micros+1, format.EndOfTime>>format.ClockBits) << format.ClockBits
}

// newest returns the records of those members ids of the reverse set n that may be on a page newest first, after a place. An account that
// is years old has records in some hundred buckets, and those of one page of a set of thousands of members lie in few of them. So newest reads
// all records of some members; their times say since when limit+1 of all members are likely to have a record, and newest reads the records
// since then. If these are too few, it reads twice as many, and in the end all.
func (v *Evaluation) newest(n *Node, ids []uint64, after *Place, limit int) (records []MemberRecord, err error) {
	some, left := spread(ids, v.readFirst)
	if records, err = v.EdgeRecords(n, toIDs(some)); err != nil {
		return nil, err
	}
	comes := func(r MemberRecord) bool { return !after.Begun || NewestFirst.Compare(r, after.record()) > 0 }
	var times []uint64 // of the sample, the newest first
	for _, r := range records {
		if r.Path.HasTime() && comes(r) {
			times = append(times, TimeOf(r.Path))
		}
	}
	slices.Sort(times)
	slices.Reverse(times)
	repeated, known, err := v.View.Repeated(n.Kind, v.IDs[n.Of])
	if err != nil {
		return nil, err
	}
	w := ask.Window{To: endAt(after)}
	for most := 2 + 3*(limit+1)*len(some)/(2*len(ids)); most < len(times)/2; most *= 2 {
		if w.From = times[most] << format.ClockBits; w.From >= w.To {
			continue
		}
		since := *n
		since.Window = n.Window.And(w)
		found, err := v.EdgeRecords(&since, toIDs(left))
		if err != nil {
			return nil, err
		}
		var again []uint64 // members that may have an older record, which is shown instead
		for _, r := range found {
			if id := uint64(r.ID); !known || repeated.Has(id) {
				again = append(again, id)
			} else {
				records = append(records, r)
			}
		}
		slices.Sort(again)
		shown, err := v.EdgeRecords(n, toIDs(again))
		if err != nil {
			return nil, err
		}
		records = append(records, shown...)
		sure := 0
		for _, r := range records {
			if r.Path.HasTime() && r.Path.TID >= w.From && comes(r) {
				sure++
			}
		}
		if sure > limit {
			return records, nil
		}
		left = without(left, found)
		w.To = w.From
	}
	rest, err := v.EdgeRecords(n, toIDs(left))
	return append(records, rest...), err
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

// without returns those of ids, which ascend, without a record in found.
func without(ids []uint64, found []MemberRecord) []uint64 {
	in := make(map[dict.ID]bool, len(found))
	for _, r := range found {
		in[r.ID] = true
	}
	return slices.DeleteFunc(ids, func(id uint64) bool { return in[dict.ID(id)] })
}
