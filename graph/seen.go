package graph

import (
	"context"
	"encoding/binary"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

const (
	seenDays = 7    // and the day itself
	seenMost = 1024 // marks of a slot and day
)

// Seen returns the marks that AddSeen added to a slot on a day, counted from 1970, and on the seven days before.
func (s *core) Seen(ctx context.Context, slot uint16, day uint32) (marks []uint32, err error) {
	var keys [][]byte
	for ago := range uint32(seenDays + 1) {
		keys = append(keys, format.SeenKey(day-ago, slot))
	}
	err = s.kv.View(ctx, func(r kv.Reader) error {
		marks = nil
		return r.MultiGet(keys, func(_ int, row []byte, _ bool) error {
			for m := range slices.Chunk(row[:len(row)&^3], 4) {
				marks = append(marks, binary.LittleEndian.Uint32(m))
			}
			return nil
		})
	})
	return marks, err
}

// AddSeen adds marks of what was seen to a slot, which keeps the latest 1,024 of a day. The first call on a day deletes what is older
// than Seen returns, of all slots.
func (s *core) AddSeen(ctx context.Context, slot uint16, day uint32, marks []uint32) error {
	if s.o.ReadOnly && !s.layout.Shared() { // the disk is full
		return kv.ErrUnavailable
	}
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		if s.sweptSeen.Load() != day {
			tx.DeleteRange(format.SeenKey(0, 0), format.SeenKey(day-seenDays, 0))
		}
		key := format.SeenKey(day, slot)
		old, _, err := tx.Get(key)
		row, has := slices.Clone(old), map[[4]byte]bool{}
		for m := range slices.Chunk(old[:len(old)&^3], 4) {
			has[[4]byte(m)] = true
		}
		for _, n := range marks {
			m := [4]byte(binary.LittleEndian.AppendUint32(nil, n))
			if !has[m] {
				has[m], row = true, append(row, m[:]...)
			}
		}
		tx.Set(key, row[max(0, len(row)-4*seenMost):])
		return err
	})
	if err == nil {
		s.sweptSeen.Store(day)
	}
	return err
}
