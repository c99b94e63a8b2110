package read

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Bucket has the records of an actor and kind in one bucket, from all of its chunks one after
// another. The chunk with the lowest depth has the newest change of an entry (format.Live).
type Bucket struct {
	Records []format.Record
	raw     []byte // the raw keys of the records
	actor   dict.ID
	Number  uint16
	Chunks  int
}

var recordReaders = sync.Pool{New: func() any { return new(Bucket) }}

// Records calls each for the live records of an actor, until each returns false. A record is
// valid only during the call.
func Records(r kv.Reader, k kinds.Kind, actor dict.ID, each func(*format.Record) bool) error {
	if k.IsLabel() {
		return labels(r, k, actor, Window{}, each)
	}
	return RecordsUnder(r, format.AppendRecordsKey(nil, k, actor), func(_ dict.ID, rec *format.Record) bool { return each(rec) })
}

// RecordsUnder is Records for the records of all actors whose keys begin with prefix, by actor.
func RecordsUnder(r kv.Reader, prefix []byte, each func(actor dict.ID, rec *format.Record) bool) error {
	return Buckets(r, prefix, func(rr *Bucket) (more bool) {
		return rr.live(func(rec *format.Record) bool { return each(rr.actor, rec) })
	})
}

// RecordsBetween is Records for the records of all actors in [from, to), by actor.
func RecordsBetween(r kv.Reader, k kinds.Kind, from, to dict.ID, each func(actor dict.ID, rec *format.Record) bool) error {
	return buckets(r, format.AppendRecordsKey(nil, k, from), format.AppendRecordsKey(nil, k, to), nil, nil, func(rr *Bucket) (more bool) {
		return rr.live(func(rec *format.Record) bool { return each(rr.actor, rec) })
	})
}

// live calls each for the live records, until each returns false.
func (rr *Bucket) live(each func(rec *format.Record) bool) (more bool) {
	if rr.Chunks > 1 {
		for rec := range format.Live(rr.Records, rr.Chunks) {
			if !each(rec) {
				return false
			}
		}
		return true
	}
	for i := range rr.Records { // the usual case: format.Live of one chunk, without an iterator
		if rec := &rr.Records[i]; rec.Flags != format.Removed && !each(rec) {
			return false
		}
	}
	return true
}

// Buckets calls each for one bucket after another, until each returns false.
func Buckets(r kv.Reader, prefix []byte, each func(*Bucket) bool) error {
	return buckets(r, prefix, kv.PrefixEnd(prefix), nil, nil, each)
}

// buckets is Buckets for the chunks in [lo, hi). If the chunk at lo was spilled, it skips the chunks below it before below:
// it goes on with the chunk whose key is the next longer beginning of below, and so on. If wanted is not nil, buckets may lack records whose subjects are not wanted, from chunks that nothing was spilled from.
func buckets(r kv.Reader, lo, hi, below []byte, wanted func(subject dict.ID) bool, each func(*Bucket) bool) error {
	rr, _ := recordReaders.Get().(*Bucket)
	defer recordReaders.Put(rr)
	rr.reset()
	more, jump, at := true, false, lo
	chunk := func(key, v []byte) (bool, error) {
		kind, actor, bucket, depth, err := format.ParseChunkKey(key)
		if err != nil {
			return false, err
		}
		if rr.Chunks > 0 && (bucket != rr.Number || actor != rr.actor) {
			if more = each(rr); !more {
				return false, nil
			}
			rr.reset()
		}
		rr.actor = actor
		if wanted != nil && rr.addNaming(kind, bucket, v, wanted) {
			jump = false
			return true, nil
		}
		generation, err := rr.add(kind, bucket, depth, v)
		if err != nil {
			return false, fmt.Errorf("chunk %x: %w", key, err)
		}
		jump = len(at) < len(below) && generation > 0 && bytes.Equal(key, at)
		return !jump, nil
	}
	err := r.Scan(at, hi, false, chunk)
	for err == nil && jump {
		at, jump = below[:len(at)+1], false
		err = r.Scan(at, hi, false, chunk)
	}
	if err == nil && more && rr.Chunks > 0 {
		each(rr)
	}
	return err
}

// reset empties the bucket.
func (rr *Bucket) reset() { rr.Records, rr.raw, rr.Chunks = rr.Records[:0], rr.raw[:0], 0 }

// add adds a chunk of the actor's bucket, and returns its generation, 0 unless it was spilled.
func (rr *Bucket) add(k kinds.Kind, number uint16, depth int, v []byte) (generation uint64, err error) {
	rr.Number = number
	if number >= format.RawBucket { // raw keys point into v, and outlive this call
		start := len(rr.raw)
		rr.raw = append(rr.raw, v...)
		v = rr.raw[start:]
	}
	rr.Chunks++
	rr.Records, generation, err = format.CoderOf(k, rr.actor, number).Read(rr.Records, v, uint32(depth))
	return generation, err
}

// addNaming adds the records of a chunk without flags and generation that name wanted subjects. It reports whether it could: add adds other chunks.
func (rr *Bucket) addNaming(k kinds.Kind, number uint16, v []byte, wanted func(subject dict.ID) bool) (ok bool) {
	if rr.Records, ok = format.CoderOf(k, rr.actor, number).AppendNaming(rr.Records, v, wanted); ok {
		rr.Number = number
		rr.Chunks++
	}
	return ok
}

// HasEdge looks an edge up in the reverse set. It reads one or two values, whatever the size
// of the set.
func HasEdge(r kv.Reader, l format.Layout, k kinds.Kind, actor, subject dict.ID) (bool, error) {
	key := l.AppendMemberKey(nil, k, subject, actor)
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return false, err
	}
	var row format.Row
	if v, err = l.RowIn(k, subject, v); err == nil {
		row, err = format.ParseRow(subject, v)
	}
	if err != nil {
		return false, fmt.Errorf("reading set %x: %w", key, err)
	}
	if row.Has(uint64(actor)) {
		return true, nil
	}
	if row.Generation == 0 || row.HasRemoved(uint64(actor)) {
		return false, nil
	}
	v, ok, err = r.Get(l.AppendMemberContainerKey(nil, k, subject, actor))
	if err != nil || !ok {
		return false, err
	}
	return format.ContainerHas(v, uint16(actor))
}

// LiveRecords returns the records of a chunk that chunks above it do not override.
func LiveRecords(r kv.Reader, key, v []byte) ([]format.Record, error) {
	_, _, _, depth, err := format.ParseChunkKey(key)
	if err != nil {
		return nil, err
	}
	c, err := format.CoderOfKey(key)
	if err != nil {
		return nil, err
	}
	records, _, err := c.Read(nil, bytes.Clone(v), 0)
	if err != nil {
		return nil, fmt.Errorf("chunk %x: %w", key, err)
	}
	for d := range depth {
		above := key[:len(key)-depth+d]
		v, ok, err := r.Get(above)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("chunk %x has no chunk %x above it: run skein check", key, above)
		}
		over, _, err := c.Read(nil, v, 0)
		if err != nil {
			return nil, fmt.Errorf("chunk %x: %w", above, err)
		}
		records = slices.DeleteFunc(records, func(r format.Record) bool {
			_, found := slices.BinarySearchFunc(over, r, func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
			return found
		})
	}
	return slices.DeleteFunc(records, func(r format.Record) bool { return r.Flags == format.Removed }), nil
}
