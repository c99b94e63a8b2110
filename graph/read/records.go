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

// A bucket has the records of an actor and kind in one bucket, from all of its chunks one after
// another. The chunk with the lowest depth has the newest change of an entry (format.Live).
type bucket struct {
	records []format.Record
	raw     []byte // the raw keys of the records
	actor   dict.ID
	number  uint16
	chunks  int
}

var recordReaders = sync.Pool{New: func() any { return new(bucket) }}

// Records calls each for the live records of an actor, until each returns false. A record is
// valid only during the call.
func Records(r kv.Reader, k kinds.Kind, actor dict.ID, each func(*format.Record) bool) error {
	if k.IsLabel() {
		return labels(r, k, actor, Window{}, each)
	}
	prefix := format.AppendRecordsKey(nil, k, actor)
	return buckets(r, prefix, kv.PrefixEnd(prefix), nil, nil, func(rr *bucket) bool { return rr.live(each) })
}

// RecordsBetween is Records for the records of all actors in [from, to), by actor.
func RecordsBetween(r kv.Reader, k kinds.Kind, from, to dict.ID, each func(actor dict.ID, rec *format.Record) bool) error {
	return buckets(r, format.AppendRecordsKey(nil, k, from), format.AppendRecordsKey(nil, k, to), nil, nil, func(rr *bucket) (more bool) {
		return rr.live(func(rec *format.Record) bool { return each(rr.actor, rec) })
	})
}

// live calls each for the live records, until each returns false.
func (rr *bucket) live(each func(rec *format.Record) bool) (more bool) {
	if rr.chunks > 1 {
		for rec := range format.Live(rr.records, rr.chunks) {
			if !each(rec) {
				return false
			}
		}
		return true
	}
	for i := range rr.records { // the usual case: format.Live of one chunk, without an iterator
		if rec := &rr.records[i]; rec.Flags != format.Removed && !each(rec) {
			return false
		}
	}
	return true
}

// buckets calls each for one bucket after another of the chunks in [lo, hi), until each returns false. If the chunk at lo was spilled, it skips the chunks below it before below:
// it goes on with the chunk whose key is the next longer beginning of below, and so on. If wanted is not nil, buckets may lack records whose subjects are not wanted, from chunks that nothing was spilled from.
func buckets(r kv.Reader, lo, hi, below []byte, wanted func(subject dict.ID) bool, each func(*bucket) bool) error {
	rr, _ := recordReaders.Get().(*bucket)
	defer recordReaders.Put(rr)
	rr.reset()
	more, jump, at := true, false, lo
	chunk := func(key, v []byte) (bool, error) {
		kind, actor, bucket, depth, err := format.ParseChunkKey(key)
		if err != nil {
			return false, err
		}
		if rr.chunks > 0 && (bucket != rr.number || actor != rr.actor) {
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
	if err == nil && more && rr.chunks > 0 {
		each(rr)
	}
	return err
}

// reset empties the bucket.
func (rr *bucket) reset() { rr.records, rr.raw, rr.chunks = rr.records[:0], rr.raw[:0], 0 }

// add adds a chunk of the actor's bucket, and returns its generation, 0 unless it was spilled.
func (rr *bucket) add(k kinds.Kind, number uint16, depth int, v []byte) (generation uint64, err error) {
	rr.number = number
	if number >= format.RawBucket { // raw keys point into v, and outlive this call
		start := len(rr.raw)
		rr.raw = append(rr.raw, v...)
		v = rr.raw[start:]
	}
	rr.chunks++
	rr.records, generation, err = format.CoderOf(k, rr.actor, number).Read(rr.records, v, uint32(depth))
	return generation, err
}

// addNaming adds the records of a chunk without flags and generation that name wanted subjects. It reports whether it could: add adds other chunks.
func (rr *bucket) addNaming(k kinds.Kind, number uint16, v []byte, wanted func(subject dict.ID) bool) (ok bool) {
	if rr.records, ok = format.CoderOf(k, rr.actor, number).AppendNaming(rr.records, v, wanted); ok {
		rr.number = number
		rr.chunks++
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
