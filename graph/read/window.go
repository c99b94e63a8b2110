package read

import (
	"math"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Window is a range of time: the TIDs in [From, To). It includes a record if the record's
// key is such a TID, and never includes a record whose key is not a TID. A Window without an end
// ends at format.EndOfTime. The zero Window does not limit anything: it includes all records.
type Window struct{ From, To uint64 }

// WindowOf returns the Window of the times in [from, to), in microseconds since 1970. Either
// may be before 1970, or after the last time that a TID can name, in the year 2255.
func WindowOf(from, to int64) Window {
	const end = 1 << (63 - format.ClockBits) // a TID has 63 bits
	if from >= to || from >= end || to <= 0 {
		return Window{format.EndOfTime, format.EndOfTime} // an empty window; the zero Window includes all
	}
	w := Window{0, format.EndOfTime}
	if from > 0 {
		w.From = uint64(from) << format.ClockBits
	}
	if to < end {
		w.To = uint64(to) << format.ClockBits
	}
	return w
}

// All reports whether the window includes all records.
func (w Window) All() bool { return w == Window{} }

// Has reports whether the window includes the record at a path.
func (w Window) Has(p format.Path) bool {
	return w.All() || p.Raw == nil && p.TID >= w.From && p.TID < w.To
}

// And returns the window of the records that both windows include.
func (w Window) And(x Window) Window {
	switch {
	case w.All():
		return x
	case x.All():
		return w
	}
	if w.From, w.To = max(w.From, x.From), min(w.To, x.To); w.From >= w.To {
		return Window{format.EndOfTime, format.EndOfTime}
	}
	return w
}

// paths returns the first and the last path that the window may include.
func (w Window) paths() (from, to format.Path, ok bool) {
	switch {
	case w.All():
		return from, endOfPaths, true
	case w.From >= w.To:
		return from, to, false
	}
	return format.Path{TID: w.From}, format.Path{TID: w.To - 1}, true
}

// endOfPaths is above the paths of all records.
var endOfPaths = format.Path{Raw: []byte{0xff}}

// RecordsWithin is Records for the records whose keys are TIDs in [first, last], and for all whose keys are
// not TIDs. It reads only chunks that may have one, so each may get others, and one twice.
func RecordsWithin(r kv.Reader, k kinds.Kind, actor dict.ID, first, last uint64, each func(*format.Record) bool) error {
	if first <= last {
		more := true
		leaves, err := records(r, k, actor, format.Path{TID: first}, format.Path{TID: min(last, format.EndOfTime-1)}, nil, func(rec *format.Record) bool {
			more = each(rec)
			return more
		})
		if err != nil || !more || !leaves {
			return err
		}
	}
	_, err := records(r, k, actor, firstRaw, endOfPaths, nil, each)
	return err
}

// firstRaw is not above the paths that are not TIDs.
var firstRaw = format.Path{Raw: []byte{0}}

// Begin begins the read with which Records, RecordsNaming and AppendSubjects begin.
func Begin(p kv.Prefetcher, k kinds.Kind, actor dict.ID) {
	if k.IsLabel() {
		lo := format.AppendLabelsKey(nil, k, actor)
		p.PrefetchScan(lo, kv.PrefixEnd(lo), 0)
		return
	}
	p.PrefetchGet(format.AppendRecordsKey(nil, k, actor))
}

// AppendSubjects appends the subjects of an actor's records in a window, in no order, perhaps
// with duplicates. It does not build the records of chunks from which the coder can read the subjects alone.
func AppendSubjects(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, dst []uint64) ([]uint64, error) {
	from, to, wants := w.paths()
	v, ok, err := r.Get(format.AppendRecordsKey(nil, k, actor))
	if err != nil || !ok || !wants {
		return dst, err
	}
	last := to.TID
	if w.All() {
		last = math.MaxUint64
	}
	simple := func(v []byte) (ok bool) {
		dst, ok = format.CoderOf(k, actor).AppendSubjects(dst, v, from.TID, last)
		return ok
	}
	if simple(v) {
		return dst, nil
	}
	_, err = recordsOf(r, k, actor, v, from, to, nil, simple, func(rec *format.Record) bool {
		if rec.Flags == 0 && w.Has(rec.Path) {
			dst = append(dst, uint64(rec.Subject))
		}
		return true
	})
	return dst, err
}

// RecordsNaming is Records for the records in a window that name wanted subjects, or any or none if wanted is nil. It reads only chunks
// that overlap the window, and does not build most of the other records.
func RecordsNaming(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, wanted func(subject dict.ID) bool, each func(*format.Record) bool) error {
	if wanted != nil {
		all := each
		each = func(rec *format.Record) bool { return rec.Flags != 0 || !wanted(rec.Subject) || all(rec) }
	}
	if k.IsLabel() { // a label looks like a record whose key has the label's time, and whose subject is the set of what has the label
		return Labels(r, k, actor, false, func(_, set dict.ID, e *format.LabelEntry) bool {
			return !w.Has(e.Path()) || each(&format.Record{Path: e.Path(), Subject: set})
		})
	}
	from, to, ok := w.paths()
	if !ok {
		return nil
	}
	_, err := records(r, k, actor, from, to, wanted, func(rec *format.Record) bool { return !w.Has(rec.Path) || each(rec) })
	return err
}
