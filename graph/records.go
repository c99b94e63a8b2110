package graph

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/intern/dict"
	"skein/internal/idset"
	"skein/internal/kv"
)

// recordReader walks records in the order of their keys, chunk by chunk. Where
// a chunk was spilled, the chunks of its bucket are gathered, and the newest
// word on each path counts: that of the chunk least deep.
type recordReader struct {
	records []format.Record // of the bucket
	raw     []byte          // raw keys of a bucket with several chunks
	actor   dict.ID
	bucket  uint16
	chunks  int
}

var recordReaders = sync.Pool{New: func() any { return new(recordReader) }}

// eachRecord calls each for the live records of an actor until it returns
// false. The record is valid only during the call.
func eachRecord(r kv.Reader, k kinds.Kind, actor dict.ID, each func(*format.Record) bool) error {
	return eachRecordUnder(r, format.AppendRecordsKey(nil, k, actor), func(_ dict.ID, rec *format.Record) bool { return each(rec) })
}

// eachRecordUnder is eachRecord for all actors whose records' keys begin with
// prefix, by actor.
func eachRecordUnder(r kv.Reader, prefix []byte, each func(actor dict.ID, rec *format.Record) bool) error {
	return eachBucket(r, prefix, func(rr *recordReader) (more bool) {
		if rr.chunks > 1 {
			slices.SortFunc(rr.records, format.CompareRecords)
		}
		for i := range rr.records {
			rec := &rr.records[i]
			if rr.chunks > 1 && i > 0 && format.ComparePaths(rr.records[i-1].Path, rec.Path) == 0 {
				continue
			}
			if rec.Flags != format.Removed && !each(rr.actor, rec) {
				return false
			}
		}
		return true
	})
}

// eachRecordOf calls each for the live records of an actor whose subject is
// wanted, in no order, until it returns false. Of a bucket of thousands it looks
// at every record, but puts none in order.
func eachRecordOf(r kv.Reader, k kinds.Kind, actor dict.ID, wanted func(dict.ID) bool, each func(*format.Record) bool) error {
	return eachBucket(r, format.AppendRecordsKey(nil, k, actor), func(rr *recordReader) (more bool) {
		for i := range rr.records {
			rec := &rr.records[i]
			if rec.Flags == 0 && wanted(rec.Subject) && !rr.superseded(rec) && !each(rec) {
				return false
			}
		}
		return true
	})
}

// superseded reports whether a chunk that is less deep has another word on the
// record's path.
func (rr *recordReader) superseded(rec *format.Record) bool {
	return rr.chunks > 1 && slices.ContainsFunc(rr.records, func(r format.Record) bool {
		return r.Age < rec.Age && format.ComparePaths(r.Path, rec.Path) == 0
	})
}

// eachBucket calls each with the records of one bucket after another, of all its
// chunks end to end, until it returns false.
func eachBucket(r kv.Reader, prefix []byte, each func(*recordReader) bool) error {
	rr, _ := recordReaders.Get().(*recordReader)
	defer recordReaders.Put(rr)
	reset := func() { rr.records, rr.raw, rr.chunks = rr.records[:0], rr.raw[:0], 0 }
	reset()
	more := true
	err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(key, v []byte) (bool, error) {
		_, actor, bucket, depth, err := format.ParseChunkKey(key)
		if err != nil {
			return false, err
		}
		if rr.chunks > 0 && (bucket != rr.bucket || actor != rr.actor) {
			if more = each(rr); !more {
				return false, nil
			}
			reset()
		}
		rr.bucket, rr.actor = bucket, actor
		if bucket >= format.RawBucket { // the keys outlive this call
			start := len(rr.raw)
			rr.raw = append(rr.raw, v...)
			v = rr.raw[start:]
		}
		rr.chunks++
		rr.records, _, err = format.CoderOf(actor, bucket).Read(rr.records, v, uint32(depth))
		if err != nil {
			return false, fmt.Errorf("graph: chunk %x: %w", key, err)
		}
		return true, nil
	})
	if err == nil && more && rr.chunks > 0 {
		each(rr)
	}
	return err
}

// Subjects returns the subjects that actor has an edge to: a forward set, such
// as follows. That of a hidden account is empty. Hidden accounts are in it.
func (s *Snapshot) Subjects(k kinds.Kind, actor dict.ID) (idset.Set, error) {
	ids, err := s.AppendSubjects(nil, k, actor)
	return idset.FromUnsorted(ids), err
}

// AppendSubjects appends a forward set to dst, in no order; a subject that
// several records name may be there several times.
func (s *Snapshot) AppendSubjects(dst []uint64, k kinds.Kind, actor dict.ID) ([]uint64, error) {
	if actor == dict.None || s.IsHidden(actor) {
		return dst, nil
	}
	err := eachRecord(s.r, k, actor, func(r *format.Record) bool {
		if r.Subject != dict.None {
			dst = append(dst, uint64(r.Subject))
		}
		return true
	})
	return dst, err
}

// Rkeys returns, for each of the subjects, the lowest record key under which a
// live record of actor names it, nil if none does, whatever the state of the
// accounts.
func (s *Snapshot) Rkeys(k kinds.Kind, actor dict.ID, subjects []dict.ID) ([][]byte, error) {
	rkeys := make([][]byte, len(subjects))
	if actor == dict.None {
		return rkeys, nil
	}
	index := make(map[dict.ID][]int, len(subjects))
	for i, id := range subjects {
		if id != dict.None {
			index[id] = append(index[id], i)
		}
	}
	var buf []byte
	err := eachRecord(s.r, k, actor, func(r *format.Record) bool {
		for _, i := range index[r.Subject] {
			buf = r.Path.AppendRkey(buf[:0])
			if rkeys[i] == nil || bytes.Compare(buf, rkeys[i]) < 0 {
				rkeys[i] = bytes.Clone(buf)
			}
		}
		return true
	})
	return rkeys, err
}

// HasEdge reports whether a live record of actor names subject, whatever the
// state of the two accounts.
func (s *Snapshot) HasEdge(k kinds.Kind, actor, subject dict.ID) (bool, error) {
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	return hasEdge(s.s.Layout, s.r, k, actor, subject)
}

// hasEdge asks the reverse set: one value or two, whatever their sizes.
func hasEdge(l format.Layout, r kv.Reader, k kinds.Kind, actor, subject dict.ID) (bool, error) {
	key := l.AppendMemberKey(nil, k, subject, actor)
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return false, err
	}
	row, err := format.ParseRow(subject, v)
	if err != nil {
		return false, fmt.Errorf("graph: reading set %x: %w", key, err)
	}
	if row.Has(uint64(actor)) {
		return true, nil
	}
	if row.Generation == 0 || row.HasRemoved(uint64(actor)) {
		return false, nil
	}
	key = format.AppendContainerKey(nil, key, format.BlockOf(uint64(actor)))
	v, ok, err = r.Get(key)
	if err != nil || !ok {
		return false, err
	}
	return format.ContainerHas(v, uint16(actor))
}
