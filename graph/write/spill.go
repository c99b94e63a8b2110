package write

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A row, or the head of an actor's records, that has grown too large is spilled: one atomic write moves its
// content into leaves, and keeps the value itself, with a higher generation (a row) or a mark of how far the leaves reach (a head), and little else. The other rows of
// a row group stay as they are. The spill rewrites the leaves that change: each has a part of the members, or of
// the paths, and a bounded size. From then on the value holds later changes, removals included. They override
// the leaves, until it spills again.
//
// The Merger marks large values when it folds them. Its marks are lost in a crash; a later fold
// marks the value again. A value that is never folded again stays large, and readable.

// SpillOne spills one value if it is still too large, and returns how many rows or heads it
// spilled: none, one, or several rows of a group.
func (m *Merger) SpillOne(tx kv.Txn, layout format.Layout, key []byte) (spilled int, err error) {
	v, ok, err := tx.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	if key[0] == format.KeyRecord {
		return m.spillChunk(tx, key, v)
	}
	return m.spillValue(tx, layout, key, v)
}

// spillRow spills a row, given as its folds and the key of their value, if it is too large. It returns the row that is left, nil if it is not too large.
func (m *Merger) spillRow(tx kv.Txn, layout format.Layout, kind kinds.Kind, subject dict.ID, key []byte, row ...[]byte) (left []byte, err error) {
	generation, removed, members, dates, err := format.MergeRows(subject, row...)
	if err != nil || len(members)+len(removed) <= m.limits.row(key) {
		return nil, err
	}
	s := setSpill{tx: tx, layout: layout, kind: kind, subject: subject, most: (m.limits.Row + 1) / 2, removed: removed, members: members, dates: dates}
	if err := s.spill(); err != nil {
		return nil, fmt.Errorf("graph: spilling the set of %d: %w", subject, err)
	}
	return format.AppendRow(nil, subject, generation+1, s.removed, s.members, s.dates), nil
}

// setSpill moves the changes of a row into leaves.
type setSpill struct {
	tx      kv.Txn
	layout  format.Layout
	kind    kinds.Kind
	subject dict.ID
	most    int // members of a leaf

	removed, members []uint64 // the changes that are left, ascending: in the end those that stay in the row
	dates            []uint32 // of members

	ids, leaf   []uint64
	days, dated []uint32
}

// spill rewrites the leaves that the changes, which are all of one partition, belong to. The last leaf of a partition has no end.
func (s *setSpill) spill() error {
	for leaves := 0; s.more() && leaves < spillLeaves; {
		from := s.layout.AppendSetLeafKey(nil, s.kind, s.subject, s.first())
		after, passed := true, 0 // all leaves; leaves without a change
		if err := s.tx.Scan(from, kv.PrefixEnd(s.layout.LeavesBeside(from)), false, func(key, v []byte) (bool, error) {
			after = false
			_, _, _, last, _, err := s.layout.ParseSetKey(key)
			switch {
			case err != nil:
				return false, err
			case last < s.first():
				passed++
				return passed < mostPassed, nil
			}
			leaves, passed = leaves+1, 0
			row, err := format.ParseRow(s.subject, v)
			if err == nil {
				s.leaf, err = row.AppendMembers(s.leaf[:0])
			}
			if err == nil {
				s.dated, err = row.AppendDates(s.dated[:0], s.leaf)
			}
			if err == nil {
				s.rewrite(bytes.Clone(key), last)
			}
			return s.more() && leaves < spillLeaves, err
		}); err != nil {
			return err
		}
		if after {
			s.leaf, s.dated = nil, nil
			s.rewrite(nil, math.MaxUint64)
		}
	}
	return nil
}

// mostPassed is how many leaves without a change a spill reads in order to reach the next that has one, rather than begin another read.
const mostPassed = 8

// more reports whether changes are left.
func (s *setSpill) more() bool { return len(s.members) > 0 || len(s.removed) > 0 }

// first returns the first member that is changed.
func (s *setSpill) first() dict.ID {
	id := ^uint64(0)
	for _, list := range [][]uint64{s.members, s.removed} {
		if len(list) > 0 {
			id = min(id, list[0])
		}
	}
	return dict.ID(id)
}

// rewrite applies the changes up to last to the leaf that was read, old if it is not new.
func (s *setSpill) rewrite(old []byte, last dict.ID) {
	until := func(list []uint64) int {
		return sort.Search(len(list), func(i int) bool { return list[i] > uint64(last) })
	}
	n, m := until(s.removed), until(s.members)
	s.ids, s.days = format.Over(s.ids[:0], s.days[:0], s.removed[:n], s.members[:m], s.dates[:m], s.leaf, s.dated)
	s.removed, s.members, s.dates = s.removed[n:], s.members[m:], s.dates[m:]
	s.write(old)
}

// write writes the members of a leaf, old if it is not new: into several if they are too many.
func (s *setSpill) write(old []byte) {
	if len(s.ids) == 0 && old != nil {
		s.tx.Delete(old)
	}
	pieces := (len(s.ids) + s.most - 1) / s.most
	for ids, days := s.ids, s.days; len(ids) > 0; pieces-- {
		n := (len(ids) + pieces - 1) / pieces
		key, last := old, dict.ID(ids[n-1])
		if n == len(ids) {
			last = s.layout.Settings.LastID(s.layout.Settings.PartitionOfID(last))
		}
		if n < len(ids) || old == nil {
			key = s.layout.AppendSetLeafKey(nil, s.kind, s.subject, last)
		}
		s.tx.Set(key, format.AppendRow(nil, s.subject, 0, nil, ids[:n], days[:n]))
		ids, days = ids[n:], days[n:]
	}
}

// spillValue spills the row, or the rows of the group, in the value of a key that are too large.
func (m *Merger) spillValue(tx kv.Txn, layout format.Layout, key, v []byte) (spilled int, err error) {
	if key[0] == format.KeyReverse {
		subject, _ := dict.ReadID(key[2:])
		left, err := m.spillRow(tx, layout, kinds.Kind(key[1]), subject, key, v)
		if left == nil {
			return 0, err
		}
		tx.Set(key, left)
		return 1, nil
	}
	kind, first, err := format.ParseRowGroupKey(key)
	if err != nil {
		return 0, err
	}
	var emptied format.RowGroup
	if err := format.EachRow(first, bytes.Clone(v), func(subject dict.ID, row []byte) error {
		left, err := m.spillRow(tx, layout, kind, subject, key, row)
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
		v, err = format.RowOf(kind, subject, v)
	}
	if err != nil {
		return err
	}
	left, err := m.spillRow(tx, layout, kind, subject, key, bytes.Clone(v), operand)
	if err != nil {
		return err
	}
	if !format.HasGroups(kind) {
		tx.Set(key, left)
		return nil
	}
	var g format.RowGroup
	g.Add(subject, left)
	tx.Merge(key, g.Value)
	return nil
}

// spillLeaves bounds the leaves that the spill of one row or head rewrites. The changes of others stay where they are.
const spillLeaves = 256

func (m *Merger) spillChunk(tx kv.Txn, key, v []byte) (spilled int, err error) {
	coder, err := format.CoderOfKey(key)
	if err != nil {
		return 0, err
	}
	own, _ := leafMemories.Get().(*leafMemory)
	defer leafMemories.Put(own)
	own.in = append(own.in[:0], v...) // the records' keys point into it, and later reads may invalidate v
	records, reach, err := coder.Read(own.old[:0], own.in)
	own.old = records
	if err != nil || len(records) <= m.limits.Chunk && len(coder.Append(own.out[:0], reach, records)) <= maxChunkBytes { // v may be packed
		return 0, err
	}
	return 1, m.spillRecords(tx, coder, key, reach, records, spillLeaves)
}

// maxOperandBytes bounds the operands that are merged into a chunk: together with the chunk, a
// larger one could exceed the engine's limit for values.
const maxOperandBytes = 16 << 10

// mergeRecords merges ascending records into the head at key; operand is their byte form. If they are too many bytes, it writes
// them into leaves, as if they had been merged into the head and it had then been spilled.
func (m *Merger) mergeRecords(tx kv.Txn, c format.ChunkCoder, key, operand []byte, records []format.Record) error {
	if len(operand) <= maxOperandBytes {
		tx.Merge(key, operand)
		return nil
	}
	v, _, err := tx.Get(key)
	if err != nil {
		return err
	}
	old, reach, err := c.Read(nil, bytes.Clone(v))
	if err != nil {
		return fmt.Errorf("graph: chunk %x: %w", key, err)
	}
	return m.spillRecords(tx, c, key, reach, format.AppendNewest(nil, records, old), math.MaxInt)
}

// leafMemory is what the reading of a head and the rewriting of a leaf take.
type leafMemory struct {
	old, all []format.Record
	in, out  []byte
}

var leafMemories = sync.Pool{New: func() any { return new(leafMemory) }}

// spillRecords moves the records of a head into leaves, and sets the reach of the head, which was reach. It rewrites at most so many leaves. The head
// keeps the records of other leaves, and those that would make a small leaf at the end.
func (m *Merger) spillRecords(tx kv.Txn, c format.ChunkCoder, head []byte, reach uint64, records []format.Record, most int) error {
	isRemoved := func(r format.Record) bool { return r.Flags == format.Removed }
	end := kv.PrefixEnd(head)
	rest, last := records, false
	own, _ := leafMemories.Get().(*leafMemory)
	defer leafMemories.Put(own)
	for leaves := 0; len(rest) > 0 && !last && leaves < most; leaves++ {
		last = true // unless there is a leaf that the next record belongs to
		err := tx.Scan(format.AppendLeafKey(bytes.Clone(head), rest[0].Path), end, false, func(key, v []byte) (bool, error) {
			_, _, to, _, err := format.ParseChunkKey(key)
			if err != nil {
				return false, err
			}
			own.in = append(own.in[:0], v...)
			if own.old, _, err = c.Read(own.old[:0], own.in); err != nil {
				return false, fmt.Errorf("graph: chunk %x: %w", key, err)
			}
			n := 0
			for n < len(rest) && format.ComparePaths(rest[n].Path, to) <= 0 {
				n++
			}
			own.all = format.AppendNewest(own.all[:0], rest[:n], own.old)
			all := slices.DeleteFunc(own.all, isRemoved)
			rest, last = rest[n:], false
			if len(all) == 0 {
				tx.Delete(key)
			}
			for len(all) > 0 {
				pieces := (len(all) + m.limits.Chunk - 1) / m.limits.Chunk // of about one size, unless some have long keys
				n := m.piece(all, (len(all)+pieces-1)/pieces)
				if n < len(all) {
					setLeaf(tx, c, head, all[:n])
				} else {
					own.out = c.AppendStored(own.out[:0], 0, all)
					tx.Set(key, own.out)
				}
				all = all[n:]
			}
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	if last { // after all leaves: there is nothing to remove
		rest = slices.DeleteFunc(slices.Clone(rest), isRemoved)
		for begun := len(rest) < len(records); len(rest) > 0; begun = true {
			n := m.piece(rest, m.limits.Chunk)
			if begun && n == len(rest) && n < m.limits.Chunk/4 {
				break
			}
			setLeaf(tx, c, head, rest[:n])
			rest = rest[n:]
		}
	}
	moved := len(records)
	if len(rest) > 0 {
		moved, _ = slices.BinarySearchFunc(records, rest[0], func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
	}
	if moved > 0 {
		reach = max(reach, format.ReachOf(records[moved-1].Path))
	}
	tx.Set(head, c.Append(nil, reach, rest))
	return nil
}

// piece returns how many of the records, which ascend, make a leaf of about n records. All subjects of a record belong to one leaf.
func (m *Merger) piece(records []format.Record, n int) int {
	const most = 24 // the bytes of a record, without a key that is not a TID
	bytes, at := 0, 0
	for at < len(records) && (at == 0 || at < n && bytes < maxChunkBytes || format.ComparePaths(records[at-1].Path, records[at].Path) == 0) {
		bytes += most + len(records[at].Path.Raw)
		at++
	}
	return at
}

// setLeaf writes a new leaf.
func setLeaf(tx kv.Txn, c format.ChunkCoder, head []byte, records []format.Record) {
	tx.Set(format.AppendLeafKey(bytes.Clone(head), records[len(records)-1].Path), c.AppendStored(nil, 0, records))
}
