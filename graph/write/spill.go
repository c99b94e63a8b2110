package write

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A value that has grown too large is spilled: one atomic write merges its content into finer
// values whose keys extend its key, and leaves the value itself with a higher generation and nothing
// else. A row spills into containers, also a row in a row group, whose other rows stay as they are; a chunk into up to 256 chunks, by the next byte of the TID or
// of the key's hash, which may spill in turn. From then on the value holds later changes, removals included. They override
// the values below, until it spills again.
//
// The Merger marks large values when it folds them. Its marks are lost in a crash; a later fold
// marks the value again. A value that is never folded again stays large, and readable.

// Topmost returns the keys that do not extend another of the keys, and marks the others again for
// later: a value must receive what is spilled into it before it spills itself.
func (m *Merger) Topmost(keys []string) []string {
	slices.Sort(keys)
	kept := keys[:0]
	for _, key := range keys {
		if len(kept) > 0 && strings.HasPrefix(key, kept[len(kept)-1]) {
			m.MarkLarge([]byte(key))
			continue
		}
		kept = append(kept, key)
	}
	return kept
}

// SpillOne spills one value if it is still too large, and returns how many rows or chunks it
// spilled: none, one, or several rows of a group.
func (m *Merger) SpillOne(tx kv.Txn, key []byte) (spilled int, err error) {
	v, ok, err := tx.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	switch key[0] {
	case format.KeyRecord:
		return m.spillChunk(tx, key, v)
	case format.KeyRows:
		return m.spillGroup(tx, key, v)
	}
	return m.spillRow(tx, key, v)
}

// spillLarge spills a row, given as its folds, if it is too large, below a key. It returns the row that is left, nil if it is not too large.
func (m *Merger) spillLarge(tx kv.Txn, kind kinds.Kind, subject dict.ID, above []byte, row ...[]byte) (left []byte, err error) {
	generation, removed, members, dates, err := format.MergeRows(kind, subject, row...)
	if err != nil || len(members)+len(removed) <= m.limits.Row {
		return nil, err
	}
	spillMembers(tx, kind, subject, above, removed, members, dates)
	return format.AppendRow(nil, subject, generation+1, nil, nil), nil
}

func (m *Merger) spillRow(tx kv.Txn, key, v []byte) (spilled int, err error) {
	subject, _ := dict.ReadID(key[2:])
	left, err := m.spillLarge(tx, kinds.Kind(key[1]), subject, key, v)
	if left == nil {
		return 0, err
	}
	tx.Set(key, left)
	return 1, nil
}

// spillGroup spills the rows of a group that are too large.
func (m *Merger) spillGroup(tx kv.Txn, key, v []byte) (spilled int, err error) {
	kind, first, err := format.ParseRowGroupKey(key)
	if err != nil {
		return 0, err
	}
	var emptied format.RowGroup
	if err := format.EachRow(first, v, func(subject dict.ID, row []byte) error {
		left, err := m.spillLarge(tx, kind, subject, format.AppendRowKey(nil, kind, subject), row)
		if left != nil {
			emptied.Add(subject, left)
			spilled++
		}
		return err
	}); err != nil {
		return 0, err
	}
	if spilled > 0 {
		tx.Merge(key, emptied.Value)
	}
	return spilled, nil
}

// spillMerged merges an operand, which alone makes the row of a set too large, into the row, and spills it in the same write. key is
// that of the row or its group.
func (m *Merger) spillMerged(tx kv.Txn, layout format.Layout, kind kinds.Kind, subject dict.ID, key, operand []byte) error {
	v, _, err := tx.Get(key)
	if err == nil {
		v, err = layout.RowIn(kind, subject, v)
	}
	if err != nil {
		return err
	}
	above := key
	if layout.Grouped(kind) {
		above = format.AppendRowKey(nil, kind, subject)
	}
	left, err := m.spillLarge(tx, kind, subject, above, v, operand)
	if err != nil {
		return err
	}
	if !layout.Grouped(kind) {
		tx.Set(key, left)
		return nil
	}
	var g format.RowGroup
	g.Add(subject, left)
	tx.Merge(key, g.Value)
	return nil
}

// spillMembers merges the content of a row into containers, whose keys begin with above, and the dates of its members into their
// blocks of dates. The caller empties the row.
func spillMembers(tx kv.Txn, kind kinds.Kind, subject dict.ID, above []byte, removed, members []uint64, dates []uint32) {
	var add, remove []uint16
	var kbuf, vbuf []byte
	if kind != kinds.Hidden {
		spillDates(tx, kind, subject, removed, members, dates)
	}
	for len(members) > 0 || len(removed) > 0 {
		block := ^uint64(0)
		for _, list := range [][]uint64{members, removed} {
			if len(list) > 0 {
				block = min(block, format.BlockOf(list[0]))
			}
		}
		add, members = format.TakeBlock(add[:0], members, block)
		remove, removed = format.TakeBlock(remove[:0], removed, block)
		kbuf = format.AppendContainerKey(kbuf[:0], above, block)
		vbuf = format.AppendContainer(vbuf[:0], add, remove)
		tx.Merge(kbuf, vbuf)
	}
}

// spillDates merges the dates of members, and the removals, into their blocks.
func spillDates(tx kv.Txn, kind kinds.Kind, subject dict.ID, removed, members []uint64, dates []uint32) {
	const low = 1<<format.DateShift - 1
	prefix := format.AppendDatesKey(nil, kind, subject)
	var gone []uint16
	var present []format.Dated
	var kbuf, vbuf []byte
	for len(members) > 0 || len(removed) > 0 {
		block := ^uint64(0)
		for _, list := range [][]uint64{members, removed} {
			if len(list) > 0 {
				block = min(block, list[0]>>format.DateShift)
			}
		}
		gone, present = gone[:0], present[:0]
		for ; len(removed) > 0 && removed[0]>>format.DateShift == block; removed = removed[1:] {
			gone = append(gone, uint16(removed[0]&low))
		}
		for ; len(members) > 0 && members[0]>>format.DateShift == block; members, dates = members[1:], dates[1:] {
			present = append(present, format.Dated{Member: uint16(members[0] & low), Date: dates[0]})
		}
		kbuf = format.AppendDateBlock(append(kbuf[:0], prefix...), block)
		vbuf = format.AppendDates(vbuf[:0], gone, present)
		tx.Merge(kbuf, vbuf)
	}
}

func (m *Merger) spillChunk(tx kv.Txn, key, v []byte) (spilled int, err error) {
	k, actor, bucket, depth, err := format.ParseChunkKey(key)
	if err != nil || depth == format.MaxChunkDepth {
		return 0, err
	}
	if !k.Valid() {
		return 0, fmt.Errorf("graph: record key %x has an unknown kind", key)
	}
	coder := format.CoderOf(k, actor, bucket)
	// Copy the value: the records' keys point into it, and mergeRecords' reads may invalidate it.
	records, generation, err := coder.Read(nil, bytes.Clone(v), 0)
	if err != nil || len(records) <= m.limits.Chunk && len(coder.Append(nil, generation, records)) <= maxChunkBytes { // v may be packed
		return 0, err
	}
	return 1, spillRecords(tx, coder, key, depth, generation, records)
}

// maxOperandBytes bounds the operands that are merged into a chunk: together with the chunk, a
// larger one could exceed the engine's limit for values.
const maxOperandBytes = 16 << 10

// mergeRecords writes ascending records into the chunk at key. If they are too many bytes, it writes
// them below the chunk, as if they had been merged into the chunk and it had then been spilled.
func mergeRecords(tx kv.Txn, c format.ChunkCoder, key []byte, depth int, records []format.Record) error {
	operand := c.Append(nil, 0, records)
	if len(operand) <= maxOperandBytes || depth == format.MaxChunkDepth {
		tx.Merge(key, operand)
		return nil
	}
	v, _, err := tx.Get(key)
	if err != nil {
		return err
	}
	old, generation, err := c.Read(nil, bytes.Clone(v), 0)
	if err != nil {
		return fmt.Errorf("graph: chunk %x: %w", key, err)
	}
	compare := func(x, y format.Record) int { return format.CompareEntries(&x, &y) }
	old = slices.DeleteFunc(old, func(r format.Record) bool { _, again := slices.BinarySearchFunc(records, r, compare); return again })
	all := append(old, records...)
	slices.SortFunc(all, compare)
	return spillRecords(tx, c, key, depth, generation, all)
}

// spillRecords writes records below a chunk, and empties the chunk, under the next generation.
func spillRecords(tx kv.Txn, c format.ChunkCoder, key []byte, depth int, generation uint64, records []format.Record) error {
	below := func(r format.Record) byte { return byte(r.Path.Spread() >> (56 - 8*depth)) }
	if c.IsRaw() { // sort stably by the next byte of the hash; equal ones stay in path order
		slices.SortStableFunc(records, func(x, y format.Record) int { return int(below(x)) - int(below(y)) })
	}
	for group := range sets.Runs(records, func(x, y format.Record) bool { return below(x) == below(y) }) {
		if err := mergeRecords(tx, c, append(slices.Clone(key), below(group[0])), depth+1, group); err != nil {
			return err
		}
	}
	tx.Set(key, c.Append(nil, generation+1, nil))
	return nil
}
