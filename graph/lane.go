package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"skein/graph/format"
	"skein/intern/dict"
	"skein/internal/kv"
)

// ErrShare is returned by Open for a share that cannot be.
var ErrShare = errors.New("graph: unusable share of the partitions")

// A Share is the part of a store that one of several writers writes: the I-th of
// N, counted from 0. Shares are runs of partitions, so N may be another in the
// next run.
type Share struct{ I, N int }

// String returns the share as it is given: "0/2".
func (h Share) String() string { return fmt.Sprintf("%d/%d", h.I, max(h.N, 1)) }

// partitions returns the first partition of the share, and the one after its
// last.
func (h Share) partitions(all uint8) (first, end uint8, err error) {
	n := max(h.N, 1)
	switch {
	case h.N < 0 || h.I < 0 || h.I >= n:
		return 0, 0, fmt.Errorf("%w: there is no %s: of n shares, the first is 0/n", ErrShare, h)
	case n > int(all):
		return 0, 0, fmt.Errorf("%w: %s: the store has %d partitions, and so at most as many writers", ErrShare, h, all)
	}
	return uint8(h.I * int(all) / n), uint8((h.I + 1) * int(all) / n), nil
}

// A lane applies the events of a run of partitions, in the order of the stream,
// one write at a time. What a lane writes is read by no other to be written
// again, so that lanes, of one process or of several, do not wait for each
// other.
type lane struct {
	*Store

	first, end uint8                         // the partitions are first to end-1
	counts     format.Counts                 // as of the last commit: of the row of first
	others     format.Counts                 // of the rows of the others, which other runs wrote
	erasing    map[dict.ID]bool              // accounts with an erase job
	sources    map[string][]format.CursorRow // as of the last commit, by partition
	states     stateCache
	notes      noteCounts
	events     int64 // committed since the store was opened
	replays    int64 // of them, dropped
	ap         applier
}

// defaultLanes is how many writes a writer of several partitions has in flight.
// On two cores with the server beside it, two index the most events: 51,000/s, and
// one 40,000 to 52,000, three 44,000, eight 39,000 (internal/scale,
// BenchmarkIndexFDB -scale.lanes).
const defaultLanes = 2

// makeLanes divides the partitions among the lanes.
func (s *Store) makeLanes(first, end uint8) {
	n := s.o.Lanes
	if n <= 0 {
		n = defaultLanes
	}
	all := int(end - first)
	n = min(n, all)
	for i := range n {
		l := &lane{
			Store: s, first: first + uint8(i*all/n), end: first + uint8((i+1)*all/n),
			erasing: map[dict.ID]bool{}, sources: map[string][]format.CursorRow{},
		}
		l.states = newStateCache(s.o.StateCache / int64(n))
		s.lanes = append(s.lanes, l)
	}
}

// Owns reports whether the events of an account are applied here.
func (s *Store) Owns(did []byte) bool {
	if !s.Shared() {
		return true
	}
	return s.ownsPart(s.Settings.PartitionOf(did))
}

func (s *Store) ownsPart(part uint8) bool {
	return part >= s.lanes[0].first && part < s.lanes[len(s.lanes)-1].end
}

func (s *lane) has(part uint8) bool { return part >= s.first && part < s.end }

// load reads what the lane keeps in memory.
func (s *lane) load(r kv.Reader) error {
	s.others = format.Counts{}.Clone()
	s.counts = format.Counts{}.Clone()
	for part := s.first; part < s.end; part++ {
		v, ok, err := r.Get(s.PartKey(format.KeyCounts, part))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		c, err := format.DecodeCounts(v)
		if err != nil {
			return err
		}
		if part == s.first {
			s.counts = c
		} else {
			s.others.Add(c)
		}
	}
	err := kv.ScanPrefix(r, []byte{format.KeyErase}, func(k, _ []byte) error {
		id, err := format.ParseActorKey(k)
		if err == nil && s.has(s.Settings.PartitionOfID(id)) {
			s.erasing[id] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	err = kv.ScanPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
		part, source := format.ParseCursorKey(k)
		if !s.has(part) {
			return nil
		}
		if s.sources[source] == nil {
			s.sources[source] = make([]format.CursorRow, s.end-s.first)
		}
		c, err := format.DecodeCursor(v)
		s.sources[source][part-s.first] = c
		return err
	})
	if err != nil {
		return err
	}
	return s.notes.load(r, s.first)
}

// pick lists the events of the batch that are the lane's, and have not been
// applied.
func (s *lane) pick(source string, b *Batch) {
	a := &s.ap
	a.events = a.events[:0]
	if !s.Shared() {
		for i := range b.events {
			a.events = append(a.events, picked{int32(i), 0})
		}
		return
	}
	cursors := s.sources[source]
	for i := range b.events {
		e := &b.events[i]
		part := s.Settings.PartitionOf(b.bytes(e.did))
		switch {
		case !s.has(part):
		case e.kind != eventImport && e.seq > 0 && cursors != nil && cursors[part-s.first].Number != 0 && e.seq <= cursors[part-s.first].Seq && !cursors[part-s.first].Future:
			s.events++
			s.replays++
			if s.o.Metrics != nil {
				s.o.Metrics.Replays.Inc()
			}
		default:
			a.events = append(a.events, picked{int32(i), part})
		}
	}
}

// claimStrings gives ids to the strings of events before they are applied, in
// transactions of their own: other writers may meet the same ones.
func (s *lane) claimStrings(ctx context.Context, b *Batch, events []picked) error {
	strings := &s.ap.strings
	for _, p := range events {
		e := &b.events[p.n]
		strings.Add(dict.DID, b.bytes(e.did))
		for i := e.ops.start; i < e.ops.end; i++ {
			if o := &b.ops[i]; o.subject.end > o.subject.start {
				strings.Add(o.kind.Info().To.Is, b.bytes(o.subject))
			}
		}
	}
	return s.in.Prepare(ctx, strings, 0)
}

// cursors returns a copy of the source's rows, or new ones.
func (s *lane) cursors(source string) []format.CursorRow {
	rows := slices.Clone(s.sources[source])
	if rows == nil {
		rows = make([]format.CursorRow, s.end-s.first)
	}
	for i := range rows {
		if rows[i].Number == 0 {
			rows[i].Number = s.newSource()
		}
	}
	return rows
}

func (s *lane) newSource() uint32 {
	n := uint32(0)
	for _, rows := range s.sources {
		for _, c := range rows {
			n = max(n, c.Number)
		}
	}
	return n + 1
}

// update makes one write of the lane. Each write leaves a token of its own, so
// that an attempt that follows one of unknown outcome sees whether that one was
// committed: then fn, which has left its result, is not called again.
func (s *lane) update(ctx context.Context, fn func(kv.Txn) error) error {
	var token [16]byte
	binary.BigEndian.PutUint64(token[:], rand.Uint64())
	binary.BigEndian.PutUint64(token[8:], rand.Uint64())
	key := s.PartKey(format.KeyWriter, s.first)
	attempts := 0
	return s.kv.Update(ctx, func(tx kv.Txn) error {
		if s.claim != nil {
			if err := s.claim.Check(tx); err != nil {
				return err
			}
		}
		if attempts++; attempts > 1 {
			v, _, err := tx.Get(key)
			if err != nil || bytes.Equal(v, token[:]) {
				return err
			}
		}
		// Whatever the lane writes later makes an attempt conflict that was given
		// up, but is still under way.
		tx.Conflict(key)
		tx.Set(key, token[:])
		return fn(tx)
	})
}
