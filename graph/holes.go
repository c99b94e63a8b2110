package graph

import (
	"context"
	"fmt"
	"maps"
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
	if len(s.lanes) == 0 {
		return 0, 0
	}
	h := &s.lanes[0].holes // all lanes receive the same stream
	return h.Noted, h.Compared
}

// Unbroken reports whether a stream has been heard.
func (s *past) Unbroken() bool {
	s.status.Lock()
	defer s.status.Unlock()
	return len(s.lanes) > 0 && !s.lanes[0].holes.Unbroken.IsZero()
}

// SetCompared notes that all repos were compared with the relay's list. noted is the number of
// holes (Holes) when the comparison began.
func (s *past) SetCompared(ctx context.Context, noted uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, l := range s.lanes {
		h := cloneHoles(l.holes)
		h.Compared = max(h.Compared, min(noted, h.Noted))
		if err := l.setHoles(ctx, h); err != nil {
			return fmt.Errorf("graph: noting a comparison of repos: %w", err)
		}
	}
	return nil
}

func cloneHoles(h format.Holes) format.Holes {
	h.Floors = maps.Clone(h.Floors)
	return h
}

// lateStart is the reason of the hole before the first stream of a store that had accounts already.
const lateStart = "late_start"

// late returns a hole if no stream was heard before, and the store has accounts: whatever it knows of them and of all
// others was read earlier, and nobody listened since.
func (s *core) late() *format.Gap {
	for _, l := range s.lanes {
		if l.holes.Unbroken.IsZero() && l.counts.Accounts+l.others.Accounts > 0 {
			return &format.Gap{Reason: lateStart, Suspect: true, Time: time.Now().UTC(), Detail: "accounts were indexed before the stream was read"}
		}
	}
	return nil
}

// holesAfter returns the holes after a source's gaps are added, and whether that changes them.
func (l *lane) holesAfter(source string, gaps []format.Gap) (h format.Holes, changed bool) {
	h = l.holes
	now := time.Now().UTC()
	if h.Unbroken.IsZero() {
		h.Unbroken, changed = now, true
	}
	for i := range gaps {
		if !gaps[i].Suspect { // no repo can have changed unnoticed
			continue
		}
		if h = cloneHoles(h); h.Floors == nil {
			h.Floors = map[uint32]format.Seq{}
		}
		changed, h.Unbroken = true, now
		h.Noted++
		l.raiseFloors(h.Floors, source, gaps[i].After)
	}
	return h, changed
}

// raiseFloors raises the floor of the source that had a hole to the last event before it, and
// the floors of all other sources to their cursors.
func (l *lane) raiseFloors(floors map[uint32]format.Seq, source string, after format.Seq) {
	raise := func(number uint32, i int, to format.Seq) {
		n := format.NoteNumber(number, l.first+uint8(i))
		floors[n] = max(floors[n], to)
	}
	for other, rows := range l.sources {
		for i, row := range rows {
			if row.Number != 0 && other != source {
				raise(row.Number, i, row.Seq)
			}
		}
	}
	for i, row := range l.cursors(source) {
		raise(row.Number, i, after)
	}
}

// setHoles writes the lane's holes, and takes them over.
func (l *lane) setHoles(ctx context.Context, h format.Holes) error {
	err := l.update(ctx, func(tx kv.Txn) error { return l.setFirst(tx, format.KeyHoles, h) })
	if err == nil {
		l.store.status.Lock()
		l.holes = h
		l.store.status.Unlock()
	}
	return err
}

// loadHoles reads the holes of the lanes. Earlier runs may have divided the partitions
// differently: a hole in any of their rows counts for all lanes.
func (s *past) loadHoles(r kv.Reader) error {
	var noted uint64
	var unbroken time.Time
	compared, uncompared := ^uint64(0), false
	for _, l := range s.lanes {
		l.holes = format.Holes{}
		err := l.eachPart(r, format.KeyHoles, func(_ uint8, v []byte) error {
			h, err := format.DecodeHoles(v)
			noted = max(noted, h.Noted)
			if h.Uncompared() {
				compared, uncompared = min(compared, h.Compared), true
			}
			if l.holes.Floors == nil {
				l.holes.Floors = map[uint32]format.Seq{}
			}
			if h.Unbroken.After(unbroken) {
				unbroken = h.Unbroken
			}
			maps.Copy(l.holes.Floors, h.Floors)
			return err
		})
		if err != nil {
			return err
		}
	}
	if !uncompared {
		compared = noted
	}
	for _, l := range s.lanes {
		l.holes.Noted, l.holes.Compared, l.holes.Unbroken = noted, compared, unbroken
	}
	return nil
}
