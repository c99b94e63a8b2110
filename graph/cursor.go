package graph

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skein/internal/kv"
)

// Cursor returns the committed cursor of a source, for the writer: the lowest of
// its partitions'.
func (s *Store) Cursor(source string) (c Cursor, found bool) {
	for _, l := range s.lanes {
		for _, row := range l.sources[source] {
			if row.isCursor() && (!found || row.seq < c.Seq) {
				c, found = Cursor{source, row.seq, row.time, row.future}, true
			}
		}
	}
	return c, found
}

// LiveSince returns when a source was first listened to live, if no event of it
// has been applied since. It is for the writer.
func (s *Store) LiveSince(source string) (since time.Time, listening bool) {
	for _, l := range s.lanes {
		for _, row := range l.sources[source] {
			if row.live && (!listening || row.time.Before(since)) {
				since, listening = row.time, true
			}
		}
	}
	return since, listening
}

// SetLive notes that a source without a cursor is listened to live from now on:
// should that end before its first event, the next start can tell what it missed.
// gap, which may be nil, is what was missed before; it is recorded in the same
// write.
func (s *Store) SetLive(ctx context.Context, source string, now time.Time, gap *Gap) error {
	return s.changeCursors(ctx, source, gap, func(l *lane, c *cursorRow) {
		if c.number == 0 {
			c.number = l.newSource()
			c.live = true
		}
		if c.live {
			c.time = now
		}
	})
}

// Cursors returns the cursors of all sources, for the writer.
func (s *Store) Cursors() []Cursor {
	names := map[string]bool{}
	for _, l := range s.lanes {
		for source := range l.sources {
			names[source] = true
		}
	}
	var all []Cursor
	for source := range names {
		if c, ok := s.Cursor(source); ok {
			all = append(all, c)
		}
	}
	return all
}

// SetFuture notes that the source called its cursor one in its future. Only Rewind
// takes the note away: whoever consumes the source applies nothing of it until
// then. A source without a cursor is left without.
func (s *Store) SetFuture(ctx context.Context, source string) error {
	return s.changeCursors(ctx, source, nil, func(_ *lane, c *cursorRow) { c.future = c.isCursor() })
}

// Rewind sets the cursor of a source to seq, so that what comes after is
// applied again: replays change nothing. If the source's sequence is known to
// have begun anew (SetFuture), the source counts as a new one from here on,
// and its numbers are not compared with those of before. gap, which may be nil,
// is what the change leaves out; it is recorded in the same write.
func (s *Store) Rewind(ctx context.Context, source string, seq Seq, gap *Gap) error {
	return s.changeCursors(ctx, source, gap, func(l *lane, c *cursorRow) {
		if c.future || c.number == 0 {
			c.number, c.future = l.newSource(), false
		}
		c.seq, c.live = seq, false
	})
}

// changeCursors changes the rows of a source in all partitions that are written
// here, at once. One whose number stays 0 is not written.
func (s *Store) changeCursors(ctx context.Context, source string, gap *Gap, change func(*lane, *cursorRow)) error {
	rows := make([][]cursorRow, len(s.lanes))
	for i, l := range s.lanes {
		if rows[i] = slices.Clone(l.sources[source]); rows[i] == nil {
			rows[i] = make([]cursorRow, l.end-l.first)
		}
		for j := range rows[i] {
			change(l, &rows[i][j])
		}
	}
	isSet := func(c cursorRow) bool { return c.number != 0 }
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		if err := s.claim.check(tx); err != nil {
			return err
		}
		for i, l := range s.lanes {
			for j, c := range rows[i] {
				if isSet(c) {
					tx.Set(s.cursorKey(l.first+uint8(j), source), c.value())
				}
			}
		}
		if gap == nil {
			return nil
		}
		return writeNotes(tx, source, noteNumber(rows[0][0].number, s.lanes[0].first), nil, []Gap{*gap})
	})
	if err != nil {
		return fmt.Errorf("graph: storing the cursor of %s: %w", source, err)
	}
	for i, l := range s.lanes {
		if slices.ContainsFunc(rows[i], isSet) {
			l.sources[source] = rows[i]
		}
	}
	return nil
}

// beginSource makes the cursors of a source of which not all partitions have one,
// before anything of it is applied: lanes commit one after the other, and the
// cursor of the first must not be taken for that of all.
func (s *Store) beginSource(ctx context.Context, source string, b *Batch) error {
	missing := func(l *lane) bool {
		rows := l.sources[source]
		return rows == nil || slices.ContainsFunc(rows, func(c cursorRow) bool { return !c.isCursor() })
	}
	if b.first == 0 || !slices.ContainsFunc(s.lanes, missing) {
		return nil
	}
	return s.changeCursors(ctx, source, nil, func(l *lane, c *cursorRow) {
		if c.number == 0 {
			c.number = l.newSource()
			c.live = true
		}
		if c.live {
			*c = cursorRow{number: c.number, seq: b.first - 1}
		}
	})
}
