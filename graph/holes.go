package graph

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Holes returns how many holes the stream has had (noted), and how many of them, from the first
// on, a comparison of all repos with the relay's list has covered (compared), for the partitions
// of this process.
func (s *past) Holes() (noted, compared uint64) {
	s.status.Lock()
	defer s.status.Unlock()
	return s.holes.Noted, s.holes.Compared
}

// Unbroken reports whether a stream has been heard.
func (s *past) Unbroken() bool {
	s.status.Lock()
	defer s.status.Unlock()
	return !s.holes.Unbroken.IsZero()
}

// SetCompared notes that all repos were compared with the relay's list. noted is the number of
// holes (Holes) when the comparison began.
func (s *past) SetCompared(ctx context.Context, noted uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	h := s.holes
	h.Compared = max(h.Compared, min(noted, h.Noted))
	return s.setHoles(ctx, h)
}

// lateStart is the reason of the hole before the first stream of a store that had accounts already.
const lateStart = "late_start"

// isStream reports whether a source is a stream.
func isStream(source string) bool { return format.Cursor{Source: source}.IsStream() }

// late returns a hole if no stream was heard before, and the store has accounts: whatever it knows of them and of all
// others was read earlier, and nobody listened since. An import says itself what was missed.
func (s *core) late() *format.Gap {
	if !s.holes.Unbroken.IsZero() || s.o.Import || !s.mayHaveAccounts() {
		return nil
	}
	return &format.Gap{Reason: lateStart, Suspect: true, Time: time.Now().UTC(), Detail: "accounts were indexed before the stream was read"}
}

// mayHaveAccounts reports whether an account of the partitions of this process may be known.
func (s *core) mayHaveAccounts() bool {
	return s.total.Accounts > 0 || slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.counts.Accounts > 0 })
}

// holesAfter returns the holes after a source's gaps are added, and whether that changes them. heard is batch.Heard.
func (s *core) holesAfter(source string, gaps []format.Gap, heard time.Time) (h format.Holes, changed bool) {
	h = s.holes
	now := time.Now().UTC()
	if h.Unbroken.IsZero() && isStream(source) {
		h.Unbroken, h.Untimed, changed = now, true, true
	}
	for i := range gaps {
		if !gaps[i].Suspect { // no repo can have changed unnoticed
			continue
		}
		if h.Floors = maps.Clone(h.Floors); h.Floors == nil {
			h.Floors = map[uint32]format.Seq{}
		}
		changed, h.Unbroken, h.Untimed = true, now, true
		h.Noted++
		for _, l := range s.lanes {
			l.raiseFloors(h.Floors, source, gaps[i].After)
		}
	}
	if h.Untimed && !heard.IsZero() {
		h.Untimed, changed = false, true
		if heard.After(h.Unbroken) { // this machine's clock was behind
			h.Unbroken = heard.UTC()
		}
	}
	return h, changed
}

// raiseFloors raises the floor of the source that had a hole to the last event before it, and
// the floors of all other sources to their cursors.
func (l *lane) raiseFloors(floors map[uint32]format.Seq, source string, after format.Seq) {
	raise := func(number uint32, part uint8, to format.Seq) {
		n := format.NoteNumber(number, part)
		floors[n] = max(floors[n], to)
	}
	for other, rows := range l.sources {
		for i, row := range rows {
			if row.Number != 0 && other != source {
				raise(row.Number, uint8(i), row.Seq)
			}
		}
	}
	rows := l.cursors(source)
	for part := range l.parts.Each {
		raise(rows[part].Number, part, after)
	}
}

// setHoles writes the holes, and takes them over.
func (s *core) setHoles(ctx context.Context, h format.Holes) error {
	if len(s.lanes) == 0 {
		return nil
	}
	if err := s.lanes[0].update(ctx, func(tx kv.Txn) error { return setFirst(tx, format.KeyHoles, h.Parts, h) }); err != nil {
		return fmt.Errorf("graph: noting holes of the stream: %w", err)
	}
	s.status.Lock()
	defer s.status.Unlock()
	s.holes = h
	return nil
}
