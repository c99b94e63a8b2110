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

// A walker merges the head of an actor and kind with the leaves below it, one after another. It emits live records, by path.
type walker struct {
	coder      format.ChunkCoder
	from       format.Path                // of leaves, no records below it are emitted
	wanted     func(subject dict.ID) bool // if not nil, records that name others may be left out
	leaves     leafTaker                  // if not nil, takes leaves
	each       func(*format.Record) bool
	head, leaf []format.Record // of the head: those that were not emitted yet
	heads      []format.Record // the memory of head
	value      []byte          // of the head; keys of its records point into it
}

// A leafTaker takes the value of a leaf that its head does not override, instead of the records. It returns false if it cannot.
type leafTaker func(v []byte) bool

var walkers = sync.Pool{New: func() any { return new(walker) }}

// begin takes a head, and emits its records unless leaves may have records from w.from on. more is false if each returned false.
func (w *walker) begin(v []byte) (leaves, more bool, err error) {
	reach := uint64(0)
	ok := false
	if w.wanted != nil {
		w.heads, ok = w.coder.AppendNaming(w.heads[:0], v, w.wanted)
	}
	if !ok { // v is valid until the next read, which each may begin
		w.value = append(w.value[:0], v...)
		if w.heads, reach, err = w.coder.Read(w.heads[:0], w.value); err != nil {
			return false, false, err
		}
	}
	if w.head = w.heads; format.Reaches(reach, w.from) {
		return true, true, nil
	}
	return false, w.end(), nil
}

// below takes a leaf, and emits its records, and those of the head up to its last path.
func (w *walker) below(v []byte, last format.Path) (more bool, err error) {
	if w.leaves != nil && (len(w.head) == 0 || format.ComparePaths(w.head[0].Path, last) > 0) && w.leaves(v) {
		return true, nil
	}
	ok := false
	if w.wanted != nil {
		w.leaf, ok = w.coder.AppendNaming(w.leaf[:0], v, w.wanted)
	}
	if !ok {
		if w.leaf, _, err = w.coder.Read(w.leaf[:0], v); err != nil {
			return false, err
		}
	}
	leaf := w.leaf
	for len(leaf) > 0 && format.ComparePaths(leaf[0].Path, w.from) < 0 {
		leaf = leaf[1:]
	}
	n := 0
	for n < len(w.head) && format.ComparePaths(w.head[n].Path, last) <= 0 {
		n++
	}
	head := w.head[:n]
	w.head = w.head[n:]
	return format.Merged(head, leaf, w.each), nil
}

// end emits what is left of the head.
func (w *walker) end() (more bool) {
	head := w.head
	w.head = nil
	return format.Merged(head, nil, w.each)
}

// Records calls each for the live records of an actor, by path, until each returns false. A record is
// valid only during the call.
func Records(r kv.Reader, k kinds.Kind, actor dict.ID, each func(*format.Record) bool) error {
	return RecordsNaming(r, k, actor, Window{}, nil, each)
}

// records calls each for the live records of an actor whose paths are in [from, to], and perhaps for others, by path. leaves is
// false if none has a record from from on: each was called for all of these.
func records(r kv.Reader, k kinds.Kind, actor dict.ID, from, to format.Path, wanted func(subject dict.ID) bool, each func(*format.Record) bool) (leaves bool, err error) {
	v, ok, err := r.Get(format.AppendRecordsKey(nil, k, actor))
	if err != nil || !ok {
		return false, err
	}
	return recordsOf(r, k, actor, v, from, to, wanted, nil, each)
}

// recordsOf is records, given the head. taker may be nil.
func recordsOf(r kv.Reader, k kinds.Kind, actor dict.ID, head []byte, from, to format.Path, wanted func(subject dict.ID) bool, taker leafTaker, each func(*format.Record) bool) (leaves bool, err error) {
	key := format.AppendRecordsKey(nil, k, actor)
	w, _ := walkers.Get().(*walker)
	defer walkers.Put(w)
	w.coder, w.from, w.wanted, w.leaves, w.each = format.CoderOf(k, actor), from, wanted, taker, each
	leaves, more, err := w.begin(head)
	if err != nil {
		return false, fmt.Errorf("chunk %x: %w", key, err)
	}
	if !leaves || !more {
		return leaves, nil
	}
	for len(w.head) > 0 && format.ComparePaths(w.head[0].Path, from) < 0 { // a leaf with paths below from is not read
		w.head = w.head[1:]
	}
	err = r.Scan(format.AppendLeafKey(key, from), kv.PrefixEnd(key), false, func(key, v []byte) (bool, error) {
		_, _, last, isLeaf, err := format.ParseChunkKey(key)
		if err == nil && !isLeaf {
			err = format.ErrChunk
		}
		if err == nil {
			more, err = w.below(v, last)
		}
		if err != nil {
			return false, fmt.Errorf("chunk %x: %w", key, err)
		}
		return more && format.ComparePaths(last, to) < 0, nil
	})
	if err == nil && more {
		w.end()
	}
	return true, err
}

// RecordsBetween is Records for the records of all actors in [from, to), by actor.
func RecordsBetween(r kv.Reader, k kinds.Kind, from, to dict.ID, each func(actor dict.ID, rec *format.Record) bool) error {
	w, _ := walkers.Get().(*walker)
	defer walkers.Put(w)
	var at dict.ID
	w.head, w.from, w.wanted, w.leaves = nil, format.Path{}, nil, nil
	w.each = func(rec *format.Record) bool { return each(at, rec) }
	more := true
	err := r.Scan(format.AppendRecordsKey(nil, k, from), format.AppendRecordsKey(nil, k, to), false, func(key, v []byte) (bool, error) {
		_, actor, last, isLeaf, err := format.ParseChunkKey(key)
		switch {
		case err != nil:
		case isLeaf && actor == at:
			more, err = w.below(v, last)
		default:
			if more = w.end(); more {
				at, w.head, w.coder = actor, nil, format.CoderOf(k, actor)
				_, more, err = w.begin(v)
			}
		}
		if err != nil {
			return false, fmt.Errorf("chunk %x: %w", key, err)
		}
		return more, nil
	})
	if err == nil && more {
		w.end()
	}
	return err
}

// LiveRecords returns the records of a chunk, those of a leaf that its head does not override.
func LiveRecords(r kv.Reader, key, v []byte) (records []format.Record, err error) {
	_, _, _, isLeaf, err := format.ParseChunkKey(key)
	if err != nil {
		return nil, err
	}
	c, err := format.CoderOfKey(key)
	if err != nil {
		return nil, err
	}
	own, _, err := c.Read(nil, bytes.Clone(v))
	if err != nil {
		return nil, fmt.Errorf("chunk %x: %w", key, err)
	}
	var over []format.Record
	if isLeaf {
		_, n := dict.ReadID(key[2:])
		above, ok, err := r.Get(key[:2+n])
		if err == nil && !ok {
			err = fmt.Errorf("chunk %x has no head: run skein check", key)
		}
		if err == nil {
			over, _, err = c.Read(nil, above)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range own {
		_, found := slices.BinarySearchFunc(over, own[i], func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
		if !found && own[i].Flags != format.Removed {
			records = append(records, own[i])
		}
	}
	return records, nil
}
