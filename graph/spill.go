package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/runs"
)

// A value that has grown too large is spilled: in one atomic write, what it
// holds is merged into finer values under its key, and it is left with nothing
// but the generation that says so. A row spills into containers; a chunk into
// chunks of the next byte of the path, which may be spilled in turn. From then
// on it holds the changes since, removals included, which stand over what lies
// below, until it is spilled again.
//
// Who finds a value too large is the Merger, whenever one is folded. What it
// noted is lost in a crash, and noted again at a later fold; a value that
// nobody folds any more stays large, and is read as it is.

// maxChunkBytes is from how many bytes on a chunk is too large, however few its
// records: keys may have 512 bytes, and FoundationDB's values 100,000.
const maxChunkBytes = 32 << 10

// spillsPerWrite bounds how many values are spilled in one write.
const spillsPerWrite = 32

// spill spills what the Merger found too large of the lane's.
func (s *lane) spill(ctx context.Context) error {
	most := spillsPerWrite
	for {
		keys := s.merger.noted(most, s.isMineToSpill)
		if len(keys) == 0 {
			return nil
		}
		keys = s.merger.apart(keys)
		err := s.update(ctx, func(tx kv.Txn) error {
			for _, key := range keys {
				if s.goes([]byte(key)) {
					continue
				}
				if err := s.merger.spillOne(tx, []byte(key)); err != nil {
					return fmt.Errorf("%x: %w", key, err)
				}
			}
			return nil
		})
		switch {
		case err == nil:
			if s.o.Metrics != nil {
				s.o.Metrics.Spills.Add(float64(len(keys)))
			}
		case errors.Is(err, kv.ErrTooLarge) && len(keys) > 1:
			for _, key := range keys {
				s.merger.note([]byte(key))
			}
			most = len(keys) / 2
		case errors.Is(err, kv.ErrTooLarge): // it stays as it is, and is read so
			s.o.Metrics.retry("spill_too_large")
			return nil
		default:
			return fmt.Errorf("graph: spilling large values: %w", err)
		}
	}
}

// isMineToSpill reports whether a key is of a partition of the lane.
func (s *lane) isMineToSpill(key string) bool {
	_, n := dict.ReadID([]byte(key[2:]))
	if key[0] == keyRecord {
		actor, _ := dict.ReadID([]byte(key[2:]))
		return s.has(s.settings.PartitionOfID(actor))
	}
	return !s.shared() || len(key) > 2+n && s.has(key[2+n])
}

// goes reports whether a key is that of a chunk that is being erased: erasing
// works its way down the keys, and must not find that something went up again.
func (s *lane) goes(key []byte) bool {
	if key[0] != keyRecord {
		return false
	}
	_, actor, _, _, err := parseChunkKey(key)
	return err == nil && s.erasing[actor]
}

// apart puts back the keys that lie under another of keys: what is spilled into
// a value must be there before that is spilled itself.
func (m *Merger) apart(keys []string) []string {
	slices.Sort(keys)
	kept := keys[:0]
	for _, key := range keys {
		if len(kept) > 0 && strings.HasPrefix(key, kept[len(kept)-1]) {
			m.note([]byte(key))
			continue
		}
		kept = append(kept, key)
	}
	return kept
}

// spillOne spills one value, if it is too large still.
func (m *Merger) spillOne(tx kv.Txn, key []byte) error {
	v, ok, err := tx.Get(key)
	if err != nil || !ok {
		return err
	}
	if key[0] == keyRecord {
		return m.spillChunk(tx, key, v)
	}
	return m.spillRow(tx, key, v)
}

func (m *Merger) spillRow(tx kv.Txn, key, v []byte) error {
	subject, _ := dict.ReadID(key[2:])
	r, err := parseRow(subject, v)
	if err != nil {
		return err
	}
	removed, err := r.appendRemoved(nil)
	if err != nil {
		return err
	}
	members, err := r.appendMembers(nil)
	if err != nil || len(members)+len(removed) <= m.limits.Row {
		return err
	}
	var add, less []uint16
	var kbuf, vbuf []byte
	for len(members) > 0 || len(removed) > 0 {
		block := ^uint64(0)
		for _, list := range [][]uint64{members, removed} {
			if len(list) > 0 {
				block = min(block, blockOf(list[0]))
			}
		}
		add, members = takeBlock(add[:0], members, block)
		less, removed = takeBlock(less[:0], removed, block)
		kbuf = appendContainerKey(kbuf[:0], key, block)
		vbuf = appendOperand(vbuf[:0], add, less)
		tx.Merge(kbuf, vbuf)
	}
	tx.Set(key, appendRow(nil, subject, r.generation+1, nil, nil))
	return nil
}

func (m *Merger) spillChunk(tx kv.Txn, key, v []byte) error {
	k, actor, bucket, depth, err := parseChunkKey(key)
	if err != nil || depth == maxChunkDepth {
		return err
	}
	if k.Info() == nil {
		return fmt.Errorf("graph: record key %x is of an unknown kind", key)
	}
	coder := coderOf(actor, bucket)
	records, generation, err := coder.read(nil, v, 0)
	if err != nil || len(records) <= m.limits.Chunk && len(v) <= maxChunkBytes {
		return err
	}
	return coder.spill(tx, key, depth, generation, records)
}

// maxOperandBytes is from how many bytes on records that are written at once are
// not merged into their chunk: with what it holds it could become more than an
// engine takes.
const maxOperandBytes = 16 << 10

// place writes records, which ascend, into the chunk of the key given; or, being
// too many bytes, below it, as if the chunk had been spilled at once.
func (c chunkCoder) place(tx kv.Txn, key []byte, depth int, records []record) error {
	operand := c.append(nil, 0, records)
	if len(operand) <= maxOperandBytes || depth == maxChunkDepth {
		tx.Merge(key, operand)
		return nil
	}
	v, _, err := tx.Get(key)
	if err != nil {
		return err
	}
	old, generation, err := c.read(nil, bytes.Clone(v), 0)
	if err != nil {
		return fmt.Errorf("graph: chunk %x: %w", key, err)
	}
	compare := func(x, y record) int { return comparePaths(x.path, y.path) }
	old = slices.DeleteFunc(old, func(r record) bool { _, again := slices.BinarySearchFunc(records, r, compare); return again })
	all := append(old, records...)
	slices.SortFunc(all, compare)
	return c.spill(tx, key, depth, generation, all)
}

// spill writes records below a chunk, and leaves it empty.
func (c chunkCoder) spill(tx kv.Txn, key []byte, depth int, generation uint64, records []record) error {
	below := func(r record) byte { return byte(r.path.spread() >> (56 - 8*depth)) }
	if c.isRaw() { // by hash; within one, by path
		slices.SortStableFunc(records, func(x, y record) int { return int(below(x)) - int(below(y)) })
	}
	for group := range runs.Of(records, func(x, y record) bool { return below(x) == below(y) }) {
		if err := c.place(tx, append(slices.Clone(key), below(group[0])), depth+1, group); err != nil {
			return err
		}
	}
	tx.Set(key, c.append(nil, generation+1, nil))
	return nil
}
