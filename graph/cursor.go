package graph

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// cursors are the cursors of the sources. Its methods are Store's.
type cursors struct{ *core }

// Cursor returns the committed cursor of a source, the lowest among its partitions: 0 if no event was applied to one of them
// yet, and in the future if it is for any.
func (s *cursors) Cursor(source string) (c format.Cursor, found bool) {
	s.status.Lock()
	defer s.status.Unlock()
	return s.cursor(source)
}

func (s *cursors) cursor(source string) (c format.Cursor, found bool) {
	lacks, future := false, false
	for _, l := range s.lanes {
		lacks = lacks || l.lacksCursor(source)
		for _, row := range l.sources[source] {
			if future = future || row.Future; row.IsCursor() && (!found || row.Seq < c.Seq) {
				c, found = cursorOf(source, &row), true
			}
		}
	}
	if c.Future = future; found && lacks {
		c = format.Cursor{Source: source, Future: future}
	}
	return c, found
}

func cursorOf(source string, row *format.CursorRow) format.Cursor {
	return format.Cursor{Source: source, Seq: row.Seq, Time: row.Time, Future: row.Future, Exact: row.Exact}
}

// CursorOf returns the committed cursor of a source in the partition of an account.
func (s *cursors) CursorOf(source string, did []byte) (c format.Cursor, found bool) {
	part := s.layout.Settings.PartitionOf(did)
	s.status.Lock()
	defer s.status.Unlock()
	for _, l := range s.lanes {
		if rows := l.sources[source]; l.parts.Has(part) && rows != nil && rows[part].IsCursor() {
			return cursorOf(source, &rows[part]), true
		}
	}
	return c, false
}

// LiveSince returns when this index first listened to a source live, if it has applied no
// event of the source yet.
func (s *cursors) LiveSince(source string) (since time.Time, listening bool) {
	s.status.Lock()
	defer s.status.Unlock()
	for _, l := range s.lanes {
		for _, row := range l.sources[source] {
			if row.Live && (!listening || row.Time.Before(since)) {
				since, listening = row.Time, true
			}
		}
	}
	return since, listening
}

// SetLive notes that listening to a source without a cursor begins now. If the process ends
// before the first event, the next start knows what it missed. gap, which may be nil, is
// recorded in the same write.
func (s *cursors) SetLive(ctx context.Context, source string, now time.Time, gap *format.Gap) error {
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
func (s *cursors) Cursors() []format.Cursor {
	s.status.Lock()
	defer s.status.Unlock()
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

// Newest returns the cursor with the newest event among those of streams, except one.
func (s *cursors) Newest(except string) (newest format.Cursor, found bool) {
	for _, c := range s.Cursors() {
		if c.Source != except && isStream(c.Source) && (!found || c.Time.After(newest.Time)) {
			newest, found = c, true
		}
	}
	return newest, found
}

// SetFuture notes that the source rejected its cursor as one in the future. The consumer must
// apply no event of the source until Rewind clears the note. Without a cursor, SetFuture
// does nothing.
func (s *cursors) SetFuture(ctx context.Context, source string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, source, nil, func(_ *lane, c *format.CursorRow) { c.Future = c.IsCursor() })
}

// Rewind sets the cursor of a source to seq. Later events are then applied again, and replays
// change nothing. With asNew, and after SetFuture, the source counts as a new source: its sequence numbers are
// not compared with earlier ones. gap, which may be nil, is the range that the change skips; it
// is recorded in the same write.
func (s *cursors) Rewind(ctx context.Context, source string, seq format.Seq, asNew bool, gap *format.Gap) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, source, gap, func(l *lane, c *format.CursorRow) {
		switch {
		case c.Future || asNew:
			c.Number, c.Future = l.newSource(), false
		case c.Number == 0:
			c.Number = l.numberOf(source)
		}
		c.Seq, c.Live, c.Exact = seq, false, c.Exact && c.Seq == seq
	})
}

// changeCursors changes the rows of a source in all partitions of this process, in one write.
// It does not write rows whose number stays 0.
func (s *cursors) changeCursors(ctx context.Context, source string, gap *format.Gap, change func(*lane, *format.CursorRow)) error {
	if len(s.lanes) == 0 {
		return nil
	}
	if gap == nil && isStream(source) {
		gap = s.late()
	}
	var gaps []format.Gap
	if gap != nil {
		gaps = append(gaps, *gap)
	}
	holes, changed := s.holesAfter(source, gaps, time.Time{})
	rows := make([][]format.CursorRow, len(s.lanes))
	for i, l := range s.lanes {
		if rows[i] = slices.Clone(l.sources[source]); rows[i] == nil {
			rows[i] = l.newRows()
		}
		for part := range l.parts.Each {
			old, now := rows[i][part], &rows[i][part]
			if change(l, now); gap != nil && old.Number != now.Number && old.IsCursor() && !old.Future { // events from before the hole come again
				n := format.NoteNumber(now.Number, part)
				holes.Floors[n] = max(holes.Floors[n], gap.After)
			}
		}
	}
	isSet := func(c format.CursorRow) bool { return c.Number != 0 }
	err := s.lanes[0].update(kv.Urgent(ctx), func(tx kv.Txn) error {
		if changed {
			if err := setFirst(tx, format.KeyHoles, holes.Parts, holes); err != nil {
				return err
			}
		}
		for i, l := range s.lanes {
			for part := range l.parts.Each {
				if c := rows[i][part]; isSet(c) {
					tx.Set(format.CursorKey(part, source), c.Value())
				}
			}
		}
		return s.lanes[0].notes.write(tx, source, rows[0][s.lanes[0].first].Number, nil, gaps)
	})
	if err != nil {
		return fmt.Errorf("graph: storing the cursor of %s: %w", source, err)
	}
	s.status.Lock()
	defer s.status.Unlock()
	s.holes = holes
	for i, l := range s.lanes {
		if slices.ContainsFunc(rows[i], isSet) {
			l.sources[source] = rows[i]
		}
	}
	return nil
}
