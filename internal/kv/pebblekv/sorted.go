package pebblekv

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"skein.blue/internal/sets"
)

// writes collects the writes of a transaction, to add them to Pebble's batch in key
// order: the memtable, a skip list, then inserts each key near the one before, in
// memory that the processor has cached (measured in docs/decisions/0008).
type writes struct {
	arena  []byte
	ops    []write
	sorted []write // scratch of sort
	sorter sets.Sorter
	ranges bool // there is a DeleteRange, so the order of the operations must stay
}

// write is one operation. The arena has its key, then its value or the end of its
// range.
type write struct {
	prefix uint64 // the key's first eight bytes
	at     uint32
	key    uint32 // lengths
	value  uint32
	kind   writeKind
}

type writeKind uint8

const (
	writeSet writeKind = iota
	writeDelete
	writeMerge
	writeDeleteRange
)

// maxKeptWrites limits the arena that is reused by the next transaction.
const maxKeptWrites = 32 << 20

func (w *writes) reset() {
	if cap(w.arena) > maxKeptWrites {
		w.arena = nil
	}
	w.arena, w.ops, w.ranges = w.arena[:0], w.ops[:0], false
}

func (w *writes) add(kind writeKind, key, value []byte) {
	var b [8]byte
	copy(b[:], key)
	w.ops = append(w.ops, write{binary.BigEndian.Uint64(b[:]), uint32(len(w.arena)), uint32(len(key)), uint32(len(value)), kind})
	w.arena = append(append(w.arena, key...), value...)
	w.ranges = w.ranges || kind == writeDeleteRange
}

// sort sorts the operations by key, stably: by radix on the first eight bytes, then
// by comparison for the few keys that share them.
func (w *writes) sort() {
	w.sorted = sets.SortBy(&w.sorter, w.ops, w.sorted, w.compare, func(o *write) uint64 { return o.prefix })
	w.ops, w.sorted = w.sorted, w.ops
}

// compare orders operations by key, then by age.
func (w *writes) compare(x, y write) int {
	return cmp.Or(bytes.Compare(w.arena[x.at:x.at+x.key], w.arena[y.at:y.at+y.key]), cmp.Compare(x.at, y.at))
}

// put adds all operations to a batch, in key order unless there is a DeleteRange.
func (w *writes) put(b *pebble.Batch) error {
	if !w.ranges {
		w.sort()
	}
	for i := range w.ops {
		o := &w.ops[i]
		key := w.arena[o.at : o.at+o.key]
		value := w.arena[o.at+o.key : o.at+o.key+o.value]
		var err error
		switch o.kind {
		case writeSet:
			err = b.Set(key, value, nil)
		case writeDelete:
			err = b.Delete(key, nil)
		case writeMerge:
			err = b.Merge(key, value, nil)
		default:
			err = b.DeleteRange(key, value, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
