package read

import (
	"bytes"
	"math"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Window is a span of time, in TIDs: those in [From, To). A record is in it if its key
// is such a TID; one whose key is none is in no window. The zero Window is no window: all
// records are in it.
type Window struct{ From, To uint64 }

// EndOfTime is the To of a Window that has no end: no TID is as high, because the top bit of
// one is 0 (https://atproto.com/specs/tid). A record key may look like one and have that bit
// set: it names no time, and is in no window.
const EndOfTime = format.EndOfTime

// AnyTime returns a time before and one after all that TIDs name, in microseconds since 1970:
// the ends of a Window that has none.
func AnyTime() (from, to int64) { return math.MinInt64, math.MaxInt64 }

// WindowOf returns the Window of microseconds since 1970 in [from, to). Either may lie before
// 1970, or after the last time that a TID names, in the year 2255.
func WindowOf(from, to int64) Window {
	const end = 1 << (63 - format.ClockBits) // a TID has 63 bits
	if from >= to || from >= end || to <= 0 {
		return Window{EndOfTime, EndOfTime} // no record is in it; the zero Window has all
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

// All reports whether all records are in it.
func (w Window) All() bool { return w == Window{} }

// Has reports whether a record is in it.
func (w Window) Has(p format.Path) bool {
	return w.All() || p.Raw == nil && p.TID >= w.From && p.TID < w.To
}

// keys returns the keys between which an actor's records in a window lie, and, where the
// first chunk was spilled, from where on what lies below it does. from is nil if there are
// none.
func (w Window) keys(k kinds.Kind, actor dict.ID) (from, to, below []byte) {
	if w.All() {
		from = format.AppendRecordsKey(nil, k, actor)
		return from, kv.PrefixEnd(from), nil
	}
	if w.From >= w.To {
		return nil, nil, nil
	}
	first, last := format.Path{TID: w.From}, format.Path{TID: w.To - 1}
	from = format.AppendChunkKey(nil, k, actor, first, 0)
	return from, kv.PrefixEnd(format.AppendChunkKey(nil, k, actor, last, 1)), format.AppendChunkKey(nil, k, actor, first, 1)
}

// AppendSubjects appends the subjects that an actor's records in a window name, in no
// order; one that several name may be there several times. It makes no records of the
// chunks that hold nothing else.
func AppendSubjects(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, dst []uint64) ([]uint64, error) {
	lo, hi, below := w.keys(k, actor)
	from, last := w.From, w.To-1
	if w.All() {
		last = math.MaxUint64
	}
	for lo != nil && bytes.Compare(lo, hi) < 0 {
		var bucket []byte // the key of one that is not so simple
		err := r.Scan(lo, hi, false, func(key, v []byte) (bool, error) {
			_, _, number, depth, err := format.ParseChunkKey(key)
			if err != nil {
				return false, err
			}
			if depth == 0 {
				var ok bool
				if dst, ok = format.CoderOf(actor, number).AppendSubjects(dst, v, from, last); ok {
					return true, nil
				}
			}
			bucket = bytes.Clone(key[:len(key)-depth])
			return false, nil
		})
		if err != nil || bucket == nil {
			return dst, err
		}
		end := kv.PrefixEnd(bucket)
		if bytes.Compare(end, hi) > 0 {
			end = hi
		}
		if !bytes.Equal(bucket, lo) {
			below = nil
		}
		err = buckets(r, bucket, end, below, func(rr *Bucket) bool {
			return rr.live(func(rec *format.Record) bool {
				if rec.Subject != dict.None && w.Has(rec.Path) {
					dst = append(dst, uint64(rec.Subject))
				}
				return true
			})
		})
		if err != nil {
			return dst, err
		}
		lo, below = end, nil
	}
	return dst, nil
}

// RecordsIn is Records, of those in a window. It reads only the chunks that the window
// touches.
func RecordsIn(r kv.Reader, k kinds.Kind, actor dict.ID, w Window, each func(*format.Record) bool) error {
	lo, hi, below := w.keys(k, actor)
	if lo == nil {
		return nil
	}
	return buckets(r, lo, hi, below, func(rr *Bucket) bool {
		return rr.live(func(rec *format.Record) bool { return !w.Has(rec.Path) || each(rec) })
	})
}
