package graph

import (
	"context"
	"fmt"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
)

// A store with several partitions may have several writing processes, each with a claim of its share of them. A store with one
// partition has one, without a claim, and one lane.

// Owns reports whether the events of an account are applied here.
func (s *core) Owns(did []byte) bool { return s.ownsPart(s.layout.Settings.PartitionOf(did)) }

func (s *core) ownsPart(part uint8) bool { return part >= s.first && part < s.end }

// check fails a write if this process may not write.
func (s *core) check(tx kv.Txn) error {
	if s.claim == nil {
		return nil
	}
	return s.claim.check(tx)
}

// begin makes the cursors of a new source, and writes the notes of the batch, before anything of the batch is applied, in
// several writes: all of them may be too large for one.
func (s *cursors) begin(ctx context.Context, source string, b *batch.Batch) error {
	if err := s.beginSource(ctx, source, b); err != nil {
		return err
	}
	dead, gaps := b.DeadLetters(), b.Gaps()
	if isStream := source != "" && !b.Archived() && b.First() > 0; isStream && s.lanes[0].holes.Unbroken.IsZero() {
		if gap := s.late(); gap != nil {
			gaps = append([]format.Gap{*gap}, gaps...)
		}
	} else if len(dead)+len(gaps) == 0 {
		return nil
	}
	l := s.lanes[0]
	number := l.cursors(source)[0].Number
	// Another writer reads the same dead letters, and writes those of its accounts.
	dead = slices.DeleteFunc(slices.Clone(dead), func(d format.DeadLetter) bool { return !s.isMine(d) })
	for _, l := range s.lanes { // before the gaps are visible: a hole that is not counted is never compared
		if h, changed := l.holesAfter(source, gaps); changed {
			if err := l.setHoles(ctx, h); err != nil {
				return fmt.Errorf("graph: noting a hole of the stream: %w", err)
			}
		}
	}
	for len(dead)+len(gaps) > 0 {
		d, g := dead[:min(len(dead), notesAtOnce)], gaps[:min(len(gaps), notesAtOnce)]
		err := l.update(ctx, func(tx kv.Txn) error { return l.notes.write(tx, source, number, d, g) })
		if err != nil {
			return fmt.Errorf("graph: noting %d dead letters and gaps: %w", len(d)+len(g), err)
		}
		l.notes.written(number, len(d), len(g))
		dead, gaps = dead[len(d):], gaps[len(g):]
	}
	return nil
}

// isMine reports whether this writer writes a dead letter. The writer of the first partition
// writes those without an account.
func (s *core) isMine(d format.DeadLetter) bool {
	if d.DID == "" {
		return s.ownsPart(0)
	}
	return s.Owns([]byte(d.DID))
}

// beginSource makes the missing cursors of a source before any event is applied, if there are several partitions: lanes commit
// one after another, and the first lane's cursor must not count for all.
func (s *cursors) beginSource(ctx context.Context, source string, b *batch.Batch) error {
	missing := func(l *lane) bool {
		rows := l.sources[source]
		return rows == nil || slices.ContainsFunc(rows, func(c format.CursorRow) bool { return !c.IsCursor() })
	}
	if !s.shared() || b.First() == 0 || !slices.ContainsFunc(s.lanes, missing) {
		return nil
	}
	return s.changeCursors(ctx, source, nil, func(l *lane, c *format.CursorRow) {
		if c.Number == 0 {
			c.Number = l.numberOf(source)
			c.Live = true
		}
		if c.Live {
			*c = format.CursorRow{Number: c.Number, Seq: b.First() - 1}
		}
	})
}

// pick collects the events of the batch that belong to the lane. If there are several partitions, it leaves out events that the
// cursor of their partition covers: partitions progress independently.
func (l *lane) pick(source string, b *batch.Batch) {
	s := l.store
	l.events = l.events[:0]
	var cursors []format.CursorRow
	if s.shared() {
		cursors = l.sources[source]
	}
	passed := int64(0)
	for i := range b.Events() {
		e := b.Event(i)
		part := s.layout.Settings.PartitionOf(b.Bytes(e.DID))
		if !l.has(part) {
			continue
		}
		if cursors != nil && e.IsOfSource() && e.Seq > 0 && cursors[part-l.first].Covers(e.Seq) {
			passed++
			continue
		}
		l.events = append(l.events, write.Picked{N: int32(i), Part: part})
	}
	s.status.Lock()
	l.applied += passed
	l.replays += passed
	s.status.Unlock()
	if m := s.o.Metrics; m != nil {
		m.Replays.Add(float64(passed))
	}
}
