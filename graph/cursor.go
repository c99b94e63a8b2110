package graph

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Cursor returns the committed cursor of a source: the lowest of its partitions'.
func (s *Store) Cursor(source string) (c format.Cursor, found bool) {
	s.told.Lock()
	defer s.told.Unlock()
	return s.cursor(source)
}

func (s *Store) cursor(source string) (c format.Cursor, found bool) {
	for _, l := range s.lanes {
		for _, row := range l.sources[source] {
			if row.IsCursor() && (!found || row.Seq < c.Seq) {
				c, found = format.Cursor{Source: source, Seq: row.Seq, Time: row.Time, Future: row.Future, Exact: row.Exact}, true
			}
		}
	}
	return c, found
}

// CursorOf returns the committed cursor of a source in the partition that an account is in,
// which another lane than others' may have written.
func (s *Store) CursorOf(source string, did []byte) (c format.Cursor, found bool) {
	part := s.layout.Settings.PartitionOf(did)
	s.told.Lock()
	defer s.told.Unlock()
	for _, l := range s.lanes {
		if rows := l.sources[source]; l.has(part) && rows != nil && rows[part-l.first].IsCursor() {
			row := rows[part-l.first]
			return format.Cursor{Source: source, Seq: row.Seq, Time: row.Time, Future: row.Future, Exact: row.Exact}, true
		}
	}
	return c, false
}

// LiveSince returns when a source was first listened to live, if no event of it
// has been applied since.
func (s *Store) LiveSince(source string) (since time.Time, listening bool) {
	s.told.Lock()
	defer s.told.Unlock()
	for _, l := range s.lanes {
		for _, row := range l.sources[source] {
			if row.Live && (!listening || row.Time.Before(since)) {
				since, listening = row.Time, true
			}
		}
	}
	return since, listening
}

// SetLive notes that a source without a cursor is listened to live from now on:
// should that end before its first event, the next start can tell what it missed.
// gap, which may be nil, is what was missed before; it is recorded in the same
// write.
func (s *Store) SetLive(ctx context.Context, source string, now time.Time, gap *format.Gap) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, source, gap, func(l *lane, c *format.CursorRow) {
		if c.Number == 0 {
			c.Number = l.numberOf(source)
			c.Live = true
		}
		if c.Live {
			c.Time = now
		}
	})
}

// Cursors returns the cursors of all sources.
func (s *Store) Cursors() []format.Cursor {
	s.told.Lock()
	defer s.told.Unlock()
	names := map[string]bool{}
	for _, l := range s.lanes {
		for source := range l.sources {
			names[source] = true
		}
	}
	var all []format.Cursor
	for source := range names {
		if c, ok := s.cursor(source); ok {
			all = append(all, c)
		}
	}
	return all
}

// SetFuture notes that the source called its cursor one in its future. Only Rewind
// takes the note away: whoever consumes the source applies nothing of it until
// then. A source without a cursor is left without.
func (s *Store) SetFuture(ctx context.Context, source string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, source, nil, func(_ *lane, c *format.CursorRow) { c.Future = c.IsCursor() })
}

// Rewind sets the cursor of a source to seq, so that what comes after is
// applied again: replays change nothing. If the source's sequence is known to
// have begun anew (SetFuture), the source counts as a new one from here on,
// and its numbers are not compared with those of before. gap, which may be nil,
// is what the change leaves out; it is recorded in the same write.
func (s *Store) Rewind(ctx context.Context, source string, seq format.Seq, gap *format.Gap) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, source, gap, func(l *lane, c *format.CursorRow) {
		switch {
		case c.Future:
			c.Number, c.Future = l.newSource(), false
		case c.Number == 0:
			c.Number = l.numberOf(source)
		}
		c.Seq, c.Live, c.Exact = seq, false, c.Exact && c.Seq == seq
	})
}

// changeCursors changes the rows of a source in all partitions that are written
// here, at once. One whose number stays 0 is not written.
func (s *Store) changeCursors(ctx context.Context, source string, gap *format.Gap, change func(*lane, *format.CursorRow)) error {
	rows := make([][]format.CursorRow, len(s.lanes))
	for i, l := range s.lanes {
		if rows[i] = slices.Clone(l.sources[source]); rows[i] == nil {
			rows[i] = make([]format.CursorRow, l.end-l.first)
		}
		for j := range rows[i] {
			change(l, &rows[i][j])
		}
	}
	var holes []format.Holes
	if gap != nil && isHole(gap) {
		for _, l := range s.lanes {
			h, _ := l.HolesAfter(source, []format.Gap{*gap})
			holes = append(holes, h)
		}
	}
	isSet := func(c format.CursorRow) bool { return c.Number != 0 }
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		if err := s.guard.check(tx); err != nil {
			return err
		}
		for i := range holes {
			if err := s.lanes[i].WriteHoles(tx, holes[i]); err != nil {
				return err
			}
		}
		for i, l := range s.lanes {
			for j, c := range rows[i] {
				if isSet(c) {
					tx.Set(s.layout.CursorKey(l.first+uint8(j), source), c.Value())
				}
			}
		}
		if gap == nil {
			return nil
		}
		_, err := s.lanes[0].notes.Write(tx, source, rows[0][0].Number, nil, []format.Gap{*gap})
		return err
	})
	if err != nil {
		return fmt.Errorf("graph: storing the cursor of %s: %w", source, err)
	}
	s.told.Lock()
	defer s.told.Unlock()
	for i, l := range s.lanes {
		if slices.ContainsFunc(rows[i], isSet) {
			l.sources[source] = rows[i]
		}
		if holes != nil {
			l.holes = holes[i]
		}
	}
	return nil
}
