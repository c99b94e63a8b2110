package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
)

// A store with several partitions may have several writing processes, each with a claim of some. A store with one
// partition has one, without a claim, and one lane.

// Owns reports whether the events of an account are applied here.
func (s *core) Owns(did []byte) bool { return s.ownsPart(s.layout.Settings.PartitionOf(did)) }

func (s *core) ownsPart(part uint8) bool { return format.Partitions(s.parts.Load()).Has(part) }

// Writes reports whether this process has any partition.
func (s *core) Writes() bool { return s.parts.Load() != 0 }

// begin makes the cursors of a new source, and writes the notes of the batch, before anything of the batch is applied, in
// several writes: all of them may be too large for one.
func (s *cursors) begin(ctx context.Context, source string, b *batch.Batch) error {
	// Another writer reads the same dead letters, and writes those of its accounts.
	dead, gaps := slices.DeleteFunc(slices.Clone(b.DeadLetters()), func(d format.DeadLetter) bool { return !s.isMine(source, b, &d) }), b.Gaps()
	if err := s.beginSource(ctx, source, b); err != nil {
		return err
	}
	if isStream(source) && b.First() > 0 && s.holes.Unbroken.IsZero() {
		if gap := s.late(); gap != nil {
			gaps = append([]format.Gap{*gap}, gaps...)
		}
	} else if len(dead)+len(gaps) == 0 && (b.Heard.IsZero() || !s.holes.Untimed) {
		return nil
	}
	l := s.lanes[0]
	number := l.cursors(source)[l.first].Number
	if h, changed := s.holesAfter(source, gaps, b.Heard); changed { // before the gaps are visible: a hole that is not counted is never compared
		if err := s.setHoles(ctx, h); err != nil {
			return err
		}
	}
	for len(dead)+len(gaps) > 0 {
		d, g := dead[:min(len(dead), notesAtOnce)], gaps[:min(len(gaps), notesAtOnce)]
		err := l.update(ctx, func(tx kv.Txn) error { return l.notes.write(tx, source, number, d, g) })
		if err != nil {
			return fmt.Errorf("graph: noting %d dead letters and gaps: %w", len(d)+len(g), err)
		}
		l.notes.counts[format.KeyDeadLetter] += len(d)
		l.notes.counts[format.KeyGap] += len(g)
		l.notes.source = max(l.notes.source, number)
		dead, gaps = dead[len(d):], gaps[len(g):]
	}
	return nil
}

// isMine reports whether this writer writes a dead letter, and none has before: its row has the number of the writer's partition. The
// writer of the first partition writes those without an account.
func (s *cursors) isMine(source string, b *batch.Batch, d *format.DeadLetter) bool {
	if d.DID == "" {
		return s.ownsPart(0)
	}
	c, found := s.CursorOf(source, []byte(d.DID))
	return s.Owns([]byte(d.DID)) && (!found || c.Future || d.Seq > c.Seq || b.First() == 0)
}

// beginSource makes the missing cursors of a source before any event is applied: lanes commit
// one after another, and the first lane's cursor must not count for all.
func (s *cursors) beginSource(ctx context.Context, source string, b *batch.Batch) error {
	if b.First() == 0 || !slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.lacksCursor(source) }) {
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

// lacksCursor reports whether no event of a source was applied to some partition.
func (l *lane) lacksCursor(source string) bool {
	rows := l.sources[source]
	for part := range l.parts.Each {
		if rows == nil || !rows[part].IsCursor() {
			return true
		}
	}
	return false
}

// pick collects the events of the batch that belong to the lane. It leaves out events that the cursor of their partition covers:
// partitions progress independently.
func (l *lane) pick(source string, b *batch.Batch) {
	s := l.store
	l.events = l.events[:0]
	cursors := l.sources[source]
	passed := int64(0)
	for i := range b.Events() {
		e := b.Event(i)
		part := s.layout.Settings.PartitionOf(b.Bytes(e.DID))
		if !l.parts.Has(part) {
			continue
		}
		if cursors != nil && e.IsOfSource() && e.Seq > 0 && cursors[part].Covers(e.Seq) {
			passed++
			continue
		}
		l.events = append(l.events, write.Picked{N: int32(i), Part: part})
	}
	s.status.Lock()
	s.applied += passed
	s.replays += passed
	s.status.Unlock()
}

// own makes the lanes for the partitions of this process, and loads them.
func (s *Store) own(ctx context.Context, parts format.Partitions) error {
	lanes := s.makeLanes(parts)
	var holes format.Holes
	var b format.Backfill
	err := s.kv.View(ctx, func(r kv.Reader) (err error) {
		for _, l := range lanes {
			if err := l.load(r); err != nil {
				return err
			}
		}
		if s.total, err = read.AccountCounts(r); err != nil {
			return err
		}
		if holes, err = read.Holes(r, parts); err == nil {
			b, err = read.Backfill(r, parts)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.setLanes(lanes, parts, holes)
	s.setBackfill(b)
	s.countIncomplete()
	return nil
}

func (s *core) setLanes(lanes []*lane, parts format.Partitions, holes format.Holes) {
	s.status.Lock()
	defer s.status.Unlock()
	s.lanes, s.holes = lanes, holes
	s.parts.Store(uint64(parts))
}

// Move gives up partitions and takes others over, so that each living writer has as many as the others. Call it when Due says so. Nothing may
// be reading the stream, an archive or a list of repos meanwhile, and what begins after it begins at the cursors that it finds.
// If it fails, this process writes nothing until Move is called again.
func (s *Store) Move(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	had := s.parts.Load()
	s.setLanes(nil, 0, format.Holes{})
	err := s.claim.move(ctx, splitRows)
	if err == nil {
		err = s.own(ctx, s.claim.row.Parts)
	}
	if err != nil {
		return fmt.Errorf("graph: moving partitions: %w", err)
	}
	select {
	case <-s.due: // of before this move
	default:
	}
	s.o.Logger.Info("moved partitions among the writers", "had", format.Partitions(had).Len(), "has", s.claim.row.Parts.Len())
	return nil
}

// splitRows gives partitions that move rows of their own, as part of a write: of the holes and of the backfill. One such row is
// about several partitions.
func splitRows(tx kv.Txn, moving format.Partitions) error {
	return errors.Join(
		splitRow(tx, format.KeyHoles, moving, func(h *format.Holes) *format.Partitions { return &h.Parts }),
		splitRow(tx, format.KeyBackfill, moving, func(b *format.Backfill) *format.Partitions { return &b.Parts }))
}

func splitRow[T any](tx kv.Txn, key []byte, moving format.Partitions, partsOf func(*T) *format.Partitions) error {
	var rows []T
	err := read.EachPart(tx, key, func(row T) {
		if all := *partsOf(&row); all&moving != 0 && all&^moving != 0 {
			rows = append(rows, row)
		}
	})
	for i := range rows {
		parts := partsOf(&rows[i])
		all := *parts
		for _, *parts = range []format.Partitions{all & moving, all &^ moving} {
			err = errors.Join(err, setFirst(tx, key, *parts, rows[i]))
		}
	}
	return err
}
