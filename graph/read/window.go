package read

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Window is a range of time: the TIDs in [From, To). It includes a record if the record's
// key is such a TID, and never includes a record whose key is not a TID. The zero Window does
// not limit anything: it includes all records.
type Window struct{ From, To uint64 }

// EndOfTime is the To of a Window without an end. It is above all TIDs, whose top bit is 0
// (https://atproto.com/specs/tid). A record key may look like a TID and have that bit set; it
// names no time, and no other window includes it.
const EndOfTime = format.EndOfTime

// WindowOf returns the Window of the times in [from, to), in microseconds since 1970. Either
// may be before 1970, or after the last time that a TID can name, in the year 2255.
func WindowOf(from, to int64) Window {
	const end = 1 << (63 - format.ClockBits) // a TID has 63 bits
	if from >= to || from >= end || to <= 0 {
		return Window{EndOfTime, EndOfTime} // an empty window; the zero Window includes all
	}
	w := Window{0, EndOfTime}
	if from > 0 {
		w.From = uint64(from) << format.ClockBits
	}
	if to < end {
		w.To = uint64(to) << format.ClockBits
	}
	return w
}

// WindowAround returns the window of the bucket of a TID and the two buckets beside it.
func WindowAround(tid uint64) Window {
	const width = 1 << format.BucketShift
	at := tid >> format.BucketShift << format.BucketShift
	return Window{at - min(at, width), min(at+2*width, EndOfTime)}
}

// All reports whether the window includes all records.
func (w Window) All() bool { return w == Window{} }

// Has reports whether the window includes the record at a path.
func (w Window) Has(p format.Path) bool {
	return w.All() || p.Raw == nil && p.TID >= w.From && p.TID < w.To
}

// InOneBucket reports whether the window is not empty, and all of its times are in one bucket. It is false for the window that includes all records.
func (w Window) InOneBucket() bool {
	return w.From < w.To && w.From>>format.BucketShift == (w.To-1)>>format.BucketShift
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
		return Window{EndOfTime, EndOfTime}
	}
	return w
}

// keys returns the range of the keys of an actor's chunks in a window. Below the first chunk, if that was spilled, only
// chunks whose keys begin below, and the later ones, are of interest. from is nil if the window is empty.
func (w Window) keys(k kinds.Kind, actor dict.ID) (from, to, below []byte) {
	if w.All() {
		from = format.AppendRecordsKey(nil, k, actor)
		return from, kv.PrefixEnd(from), nil
	}
	if w.From >= w.To {
		return nil, nil, nil
	}
	return keysOf(k, actor, w.From, w.To-1)
}

// keysOf is Window.keys for the TIDs in [first, last].
func keysOf(k kinds.Kind, actor dict.ID, first, last uint64) (from, to, below []byte) {
	below = format.AppendChunkKey(nil, k, actor, format.Path{TID: first}, format.MaxChunkDepth)
	from = below[: len(below)-format.MaxChunkDepth : len(below)-format.MaxChunkDepth]
	return from, kv.PrefixEnd(format.AppendChunkKey(nil, k, actor, format.Path{TID: last}, format.MaxChunkDepth)), below
}

// RecordsWithin is Records for the records whose keys are TIDs in [first, last], and, if raw is set, for all whose keys are
// not TIDs. It reads only chunks that may have one, so each may get others.
func RecordsWithin(r kv.Reader, k kinds.Kind, actor dict.ID, first, last uint64, raw bool, each func(*format.Record) bool) error {
	more := true
	live := func(rr *bucket) bool { more = rr.live(each); return more }
	lo, hi, below := keysOf(k, actor, first, last)
	if first <= last {
		if err := buckets(r, lo, hi, below, nil, live); err != nil || !more {
			return err
		}
	}
	if !raw {
		return nil
	}
	prefix := format.AppendRecordsKey(nil, k, actor)
	return buckets(r, binary.BigEndian.AppendUint16(bytes.Clone(prefix), format.RawBucket), kv.PrefixEnd(prefix), nil, nil, live)
}

// RangeOf returns the range of keys that Records, RecordsIn and Subjects scan first, for
// kv.Prefetcher. It is nil if they scan nothing.
func RangeOf(k kinds.Kind, actor dict.ID, w Window) (lo, hi []byte) {
	if k.IsLabel() {
		lo = format.AppendLabelsKey(nil, k, actor)
		return lo, kv.PrefixEnd(lo)
	}
	lo, hi, _ = w.keys(k, actor)
	return lo, hi
}

// AppendSubjects appends the subjects of an actor's records in a window, in no order, perhaps
// with duplicates.
func AppendSubjects(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, dst []uint64) ([]uint64, error) {
	err := Subjects(r, k, actor, w, dst, func(all []uint64) ([]uint64, bool) { dst = all; return all, true })
	return dst, err
}

// Subjects appends the subjects of an actor's records in a window to dst, chunk by chunk, in no order,
// perhaps with duplicates. After each chunk it calls each with the whole slice; each returns the slice to
// append to, and whether to go on. Subjects does not build the records of chunks from which the coder can
// read the subjects alone.
func Subjects(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, dst []uint64, each func(all []uint64) (next []uint64, more bool)) error {
	lo, hi, below := w.keys(k, actor)
	from, last := w.From, w.To-1
	if w.All() {
		last = math.MaxUint64
	}
	more := true
	settle := func(rr *bucket) bool { // takes the records of a bucket
		rr.live(func(rec *format.Record) bool {
			if rec.Flags == 0 && w.Has(rec.Path) {
				dst = append(dst, uint64(rec.Subject))
			}
			return true
		})
		dst, more = each(dst)
		return more
	}
	rr, _ := recordReaders.Get().(*bucket) // a bucket with several chunks
	defer recordReaders.Put(rr)
	rr.actor = actor
	for more && lo != nil && bytes.Compare(lo, hi) < 0 {
		rr.reset()
		var end []byte // of the first bucket, if it was spilled and is read from below on
		err := r.Scan(lo, hi, false, func(key, v []byte) (bool, error) {
			_, _, number, depth, err := format.ParseChunkKey(key)
			if err != nil {
				return false, err
			}
			if rr.chunks > 0 && number != rr.number {
				if !settle(rr) {
					return false, nil
				}
				rr.reset()
			}
			if depth == 0 {
				var ok bool
				if dst, ok = format.CoderOf(k, actor, number).AppendSubjects(dst, v, from, last); ok {
					dst, more = each(dst)
					return more, nil
				}
				if below != nil && bytes.Equal(key, lo) {
					end = kv.PrefixEnd(bytes.Clone(key))
					return false, nil
				}
			}
			if _, err := rr.add(k, number, depth, v); err != nil {
				return false, fmt.Errorf("chunk %x: %w", key, err)
			}
			return true, nil
		})
		if err == nil && more && rr.chunks > 0 {
			settle(rr)
		}
		if err != nil || end == nil {
			return err
		}
		if bytes.Compare(end, hi) > 0 {
			end = hi
		}
		if err := buckets(r, lo, end, below, nil, settle); err != nil {
			return err
		}
		lo, below = end, nil
	}
	return nil
}

// RecordsIn is Records for the records in a window. It reads only chunks that overlap it.
func RecordsIn(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, each func(*format.Record) bool) error {
	return RecordsNaming(r, k, actor, w, nil, each)
}

// RecordsNaming is RecordsIn for the records that name wanted subjects, and does not build most of the others. If wanted
// is nil, it is RecordsIn.
func RecordsNaming(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, wanted func(subject dict.ID) bool, each func(*format.Record) bool) error {
	if wanted != nil {
		all := each
		each = func(rec *format.Record) bool { return rec.Flags != 0 || !wanted(rec.Subject) || all(rec) }
	}
	if k.IsLabel() {
		return labels(r, k, actor, w, each)
	}
	lo, hi, below := w.keys(k, actor)
	if lo == nil {
		return nil
	}
	return buckets(r, lo, hi, below, wanted, func(rr *bucket) bool {
		return rr.live(func(rec *format.Record) bool { return !w.Has(rec.Path) || each(rec) })
	})
}
