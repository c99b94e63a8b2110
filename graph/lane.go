package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrShare is returned by Open for an impossible share.
var ErrShare = errors.New("graph: unusable share of the partitions")

// A Share is the part of a store that one of several writers writes: a run of partitions. N may
// change from one run of the writers to the next.
type Share struct {
	I, N int // the I-th of N, counted from 0
}

// String returns the share as --partition takes it: "0/2".
func (h Share) String() string { return fmt.Sprintf("%d/%d", h.I, max(h.N, 1)) }

// partitions returns the range of the share's partitions. end is exclusive.
func (h Share) partitions(all uint8) (first, end uint8, err error) {
	n := max(h.N, 1)
	switch {
	case h.N < 0 || h.I < 0 || h.I >= n:
		return 0, 0, fmt.Errorf("%w: %s does not exist: the first of n shares is 0/n, the last n-1/n", ErrShare, h)
	case n > int(all):
		return 0, 0, fmt.Errorf("%w: %s: the store has %d partitions, which is the largest number of writers", ErrShare, h, all)
	}
	return uint8(h.I * int(all) / n), uint8((h.I + 1) * int(all) / n), nil
}

// A lane applies the events of a range of partitions, in stream order, one write at a time. To
// compute its writes, a lane reads nothing that another lane writes. So lanes do not wait for
// each other, in one process or in several.
type lane struct {
	store      *Store
	first, end uint8                         // the partitions are first to end-1
	counts     format.Counts                 // the row of first, as of the last commit
	others     format.Counts                 // the rows of the other partitions, from earlier runs
	erasing    map[dict.ID]bool              // accounts with an erase job
	stuck      map[dict.ID]bool              // those of them that wait for an operator
	sources    map[string][]format.CursorRow // as of the last commit, by partition
	// provisional are the numbers of sources that have no cursor yet.
	provisional map[string]uint32
	states      *write.StateCache
	notes       notes
	applied     int64 // events committed since Open
	replays     int64 // how many of them were dropped
	events      []write.Picked
	changes     []Change     // scratch of notify
	holes       format.Holes // as of the last commit
	w           *write.Writer
	modes       write.Modes
	archive     *write.Writer // for batches of an archive, which are large; nil if there were none
}

// defaultLanes is how many writes to a store with several partitions are in flight. On two
// cores, with the FoundationDB server on the same machine, two lanes index the most events:
// 51,000/s (one: 40,000 to 52,000; three: 44,000; eight: 39,000; internal/sim/scale,
// BenchmarkIndexFDB -scale.lanes).
const defaultLanes = 2

// makeLanes divides the partitions among the lanes.
func (s *Store) makeLanes() {
	n := s.o.Lanes
	if n <= 0 {
		n = defaultLanes
	}
	all := int(s.end - s.first)
	n = min(n, all)
	for i := range n {
		l := &lane{
			store: s, first: s.first + uint8(i*all/n), end: s.first + uint8((i+1)*all/n),
			erasing: map[dict.ID]bool{}, stuck: map[dict.ID]bool{}, sources: map[string][]format.CursorRow{}, provisional: map[string]uint32{},
			states: write.NewStateCache(s.o.StateCache / int64(n)),
		}
		l.notes = notes{first: l.first, counts: map[byte]int{}}
		l.w = l.newWriter()
		s.lanes = append(s.lanes, l)
	}
}

func (l *lane) newWriter() *write.Writer {
	s := l.store
	return write.New(write.Options{
		Layout: s.layout, Merger: s.merger, IDs: s.ids, Shared: s.shared(), Kinds: s.Kinds,
		States: l.states, Holes: &l.holes, Modes: &l.modes,
	})
}

// writerOf returns the writer for a batch. Batches of an archive are thirty times as large as
// batches of a stream: they have a writer of their own, whose memory the end of the archive releases.
func (l *lane) writerOf(b *batch.Batch) *write.Writer {
	if !b.Archived() {
		return l.w
	}
	if l.archive == nil {
		l.archive = l.newWriter()
	}
	return l.archive
}

func (l *lane) has(part uint8) bool { return part >= l.first && part < l.end }

// load reads the state that the lane keeps in memory.
func (l *lane) load(r kv.Reader) error {
	l.others, l.counts = format.Counts{}.Clone(), format.Counts{}.Clone()
	err := l.eachPart(r, format.KeyCounts, func(part uint8, v []byte) error {
		c, err := format.DecodeCounts(v)
		if part == l.first {
			l.counts = c
		} else {
			l.others.Add(c)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = kv.ScanPrefix(r, []byte{format.KeyErase}, func(k, _ []byte) error {
		id, err := format.ParseActorKey(k)
		if err == nil && l.has(l.store.layout.Settings.PartitionOfID(id)) {
			l.erasing[id] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	err = kv.ScanPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
		part, source := format.ParseCursorKey(k)
		if !l.has(part) {
			return nil
		}
		if l.sources[source] == nil {
			l.sources[source] = make([]format.CursorRow, l.end-l.first)
		}
		c, err := format.DecodeCursor(v)
		l.sources[source][part-l.first] = c
		return err
	})
	if err != nil {
		return err
	}
	return l.notes.load(r)
}

// eachPart calls each with the values of a row that each partition of the lane may have.
func (l *lane) eachPart(r kv.Reader, key []byte, each func(part uint8, v []byte) error) error {
	for part := l.first; part < l.end; part++ {
		v, ok, err := r.Get(format.PartKey(key, part))
		if err == nil && ok {
			err = each(part, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setFirst sets such a row of the lane's first partition, as JSON, and takes away what other runs, which divided the partitions
// differently, wrote for the others.
func (l *lane) setFirst(tx kv.Txn, key []byte, v any) error {
	for part := l.first + 1; part < l.end; part++ {
		tx.Delete(format.PartKey(key, part))
	}
	return write.SetJSON(tx, format.PartKey(key, l.first), v)
}

// cursors returns a copy of the source's rows, or new rows.
func (l *lane) cursors(source string) []format.CursorRow {
	rows := slices.Clone(l.sources[source])
	if rows == nil {
		rows = make([]format.CursorRow, l.end-l.first)
	}
	for i := range rows {
		if rows[i].Number == 0 {
			rows[i].Number = l.numberOf(source)
		}
	}
	return rows
}

// latestRev returns the highest rev to believe in a batch whose last event has a time.
func (l *lane) latestRev(now time.Time) format.Rev {
	times := []time.Time{now, time.Now()}
	for _, rows := range l.sources {
		for i := range rows {
			times = append(times, rows[i].Time)
		}
	}
	return format.LatestRev(slices.MaxFunc(times, time.Time.Compare))
}

// numberOf returns the number of a source that has no cursor yet: the same one at each call.
func (l *lane) numberOf(source string) uint32 {
	if l.provisional[source] == 0 {
		l.provisional[source] = l.newSource()
	}
	return l.provisional[source]
}

// newSource returns a number that neither a source nor a note of a source uses.
func (l *lane) newSource() uint32 {
	n := uint32(0)
	for _, rows := range l.sources {
		for _, c := range rows {
			n = max(n, c.Number)
		}
	}
	for _, provisional := range l.provisional {
		n = max(n, provisional)
	}
	return max(n, l.notes.source) + 1
}

// update makes one write of the lane. Each write leaves a token, so that a repeated attempt
// sees whether an attempt with an unknown outcome was committed. In that case update does not
// call fn again: its results stand.
func (l *lane) update(ctx context.Context, fn func(kv.Txn) error) error {
	var token [16]byte
	binary.BigEndian.PutUint64(token[:], rand.Uint64())
	binary.BigEndian.PutUint64(token[8:], rand.Uint64())
	key := format.PartKey(format.KeyWriter, l.first)
	attempts := 0
	return l.store.kv.Update(ctx, func(tx kv.Txn) error {
		if err := l.store.check(tx); err != nil {
			return err
		}
		if attempts++; attempts > 1 {
			v, _, err := tx.Get(key)
			if err != nil || bytes.Equal(v, token[:]) {
				return err
			}
		}
		// An abandoned attempt that is still in flight then conflicts with whatever the lane
		// writes later.
		tx.Conflict(key)
		tx.Set(key, token[:])
		return fn(tx)
	})
}
