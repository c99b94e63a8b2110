package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Holes returns how many holes the stream has had, and up to which of them all repos have
// been compared with the relay's list. It is of what is written here.
func (s *Store) Holes() (noted, compared uint64) {
	s.told.Lock()
	defer s.told.Unlock()
	if len(s.lanes) == 0 {
		return 0, 0
	}
	h := &s.lanes[0].holes // all lanes hear the same stream
	return h.Noted, h.Compared
}

// SetCompared notes that all repos have been compared with the relay's list, by a comparison
// that began after so many holes had been noted (Holes).
func (s *Store) SetCompared(ctx context.Context, noted uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, l := range s.lanes {
		h := cloneHoles(l.holes)
		h.Compared = max(h.Compared, min(noted, h.Noted))
		err := l.update(ctx, func(tx kv.Txn) error { return l.WriteHoles(tx, h) })
		if err != nil {
			return fmt.Errorf("graph: noting that the repos have been compared: %w", err)
		}
		l.setHoles(h)
	}
	return nil
}

// uncompared is what Snapshot.Uncompared asks of a store that one process writes.
func (s *Store) uncompared() (uncompared, known bool) {
	if !s.Alone() {
		return false, false
	}
	noted, compared := s.Holes()
	return noted > compared, true
}

// isHole reports whether any repo may have changed in a gap without the index's knowing. That
// a kind was added is no hole of the stream: see Lacking.
func isHole(g *format.Gap) bool { return g.Suspect && g.Reason != format.KindAdded }

func cloneHoles(h format.Holes) format.Holes {
	h.Floors = maps.Clone(h.Floors)
	return h
}

// HolesAfter returns the lane's holes after gaps of a source, and whether there is a new one.
func (l *lane) HolesAfter(source string, gaps []format.Gap) (h format.Holes, changed bool) {
	h = l.holes
	for i := range gaps {
		if !isHole(&gaps[i]) {
			continue
		}
		if !changed {
			if h, changed = cloneHoles(h), true; h.Floors == nil {
				h.Floors = map[uint32]format.Seq{}
			}
		}
		h.Noted++
		l.raiseFloors(h.Floors, source, gaps[i].After)
	}
	return h, changed
}

// raiseFloors raises the floors to the last event before a hole: of the source that had it,
// and to the cursors of all others.
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

// WriteHoles writes the lane's holes, and takes away what other runs wrote for its
// partitions.
func (l *lane) WriteHoles(tx kv.Txn, h format.Holes) error {
	v, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("graph: writing the holes of the stream: %w", err)
	}
	for part := l.first + 1; part < l.end; part++ {
		tx.Delete(l.store.layout.PartKey(format.KeyHoles, part))
	}
	tx.Set(l.store.layout.PartKey(format.KeyHoles, l.first), v)
	return nil
}

// setHoles takes over what was committed.
func (l *lane) setHoles(h format.Holes) {
	l.store.told.Lock()
	l.holes = h
	l.store.told.Unlock()
}

// loadHoles reads the holes of the lanes. Earlier runs may have divided the partitions
// otherwise: a hole of any of theirs is one of all lanes.
func (s *Store) loadHoles(r kv.Reader) error {
	var noted uint64
	compared, uncompared := ^uint64(0), false
	for _, l := range s.lanes {
		l.holes = format.Holes{}
		for part := l.first; part < l.end; part++ {
			v, ok, err := r.Get(s.layout.PartKey(format.KeyHoles, part))
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			h, err := format.DecodeHoles(v)
			if err != nil {
				return err
			}
			noted = max(noted, h.Noted)
			if h.Uncompared() {
				compared, uncompared = min(compared, h.Compared), true
			}
			if l.holes.Floors == nil {
				l.holes.Floors = map[uint32]format.Seq{}
			}
			maps.Copy(l.holes.Floors, h.Floors)
		}
	}
	if !uncompared {
		compared = noted
	}
	for _, l := range s.lanes {
		l.holes.Noted, l.holes.Compared = noted, compared
	}
	return nil
}
