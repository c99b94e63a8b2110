package graph

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A lane applies the events of some partitions, in stream order, one write at a time. To
// compute its writes, a lane reads nothing that another lane writes. So lanes do not wait for
// each other, in one process or in several.
type lane struct {
	store   *Store
	parts   format.Partitions             // at least one
	first   uint8                         // of parts
	counts  format.Counts                 // the row of first, as of the last commit
	others  format.Counts                 // the rows of the other partitions, from earlier divisions
	erasing map[dict.ID]bool              // accounts with an erase job
	stuck   map[dict.ID]bool              // those of them that wait for an operator
	sources map[string][]format.CursorRow // as of the last commit, by partition
	// provisional are the numbers of sources that have no cursor yet.
	provisional map[string]uint32
	states      *write.StateCache
	notes       notes
	events      []write.Picked
	w           *write.Writer
	modes       write.Modes
	archive     *write.Writer // for batches of an archive, which are large; nil if there were none
}

// defaultLanes is how many writes to a store with several partitions are in flight. On two
// cores, with the FoundationDB server on the same machine, two lanes index the most events:
// 51,000/s (one: 40,000 to 52,000; three: 44,000; eight: 39,000; internal/sim/scale,
// BenchmarkIndexFDB -scale.lanes).
const defaultLanes = 2

// makeLanes divides partitions among lanes.
func (s *Store) makeLanes(parts format.Partitions) (lanes []*lane) {
	for n := min(s.o.Lanes, parts.Len()); n > 0; n-- {
		l := &lane{
			store: s, parts: parts.Lowest(parts.Len() / n),
			erasing: map[dict.ID]bool{}, stuck: map[dict.ID]bool{}, sources: map[string][]format.CursorRow{}, provisional: map[string]uint32{},
		}
		l.first = l.parts.First()
		l.notes = notes{first: l.first, counts: map[byte]int{}}
		lanes = append(lanes, l)
		parts &^= l.parts
	}
	for _, l := range lanes {
		l.states = write.NewStateCache(s.o.StateCache / int64(len(lanes)))
		l.w = l.newWriter()
	}
	return lanes
}

func (l *lane) newWriter() *write.Writer {
	s := l.store
	return write.New(write.Options{
		Layout: s.layout, Merger: s.merger, IDs: s.ids, Kinds: s.Kinds,
		States: l.states, Holes: &s.holes, Modes: &l.modes,
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

// load reads the state that the lane keeps in memory.
func (l *lane) load(r kv.Reader) error {
	l.others, l.counts = format.Counts{}.Clone(), format.Counts{}.Clone()
	return errors.Join(kv.ScanPrefix(r, format.KeyCounts, func(k, v []byte) error {
		c, err := format.DecodeCounts(v)
		if part := k[len(k)-1]; part == l.first {
			l.counts = c
		} else if l.parts.Has(part) {
			l.others.Add(c)
		}
		return err
	}), kv.ScanPrefix(r, []byte{format.KeyErase}, func(k, _ []byte) error {
		id, err := format.ParseActorKey(k)
		if err == nil && l.parts.Has(l.store.layout.Settings.PartitionOfID(id)) {
			l.erasing[id] = true
		}
		return err
	}), kv.ScanPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
		part, source := format.ParseCursorKey(k)
		if !l.parts.Has(part) {
			return nil
		}
		if l.sources[source] == nil {
			l.sources[source] = l.newRows()
		}
		c, err := format.DecodeCursor(v)
		l.sources[source][part] = c
		return err
	}), l.notes.load(r))
}

// pieceBytes is the size of the pieces of a row, which may be larger than an engine's largest value.
const pieceBytes = 40_000

// setFirst sets a row of the first of some partitions (read.EachPart), as JSON in pieces, and takes away those of the others, which are
// from other divisions. Questions keep these rows.
func setFirst(tx kv.Txn, key []byte, parts format.Partitions, v any) error {
	for part := range parts.Each {
		old := format.PartKey(key, part)
		tx.DeleteRange(old, kv.PrefixEnd(old))
	}
	tx.Touch()
	text, err := json.Marshal(v)
	for at := 0; at < len(text); at += pieceBytes {
		tx.Set(format.PieceKey(key, parts.First(), at), text[at:min(at+pieceBytes, len(text))])
	}
	return err
}

func (l *lane) newRows() []format.CursorRow {
	return make([]format.CursorRow, max(1, l.store.layout.Settings.Partitions))
}

// cursors returns a copy of the source's rows, or new rows.
func (l *lane) cursors(source string) []format.CursorRow {
	rows := slices.Clone(l.sources[source])
	if rows == nil {
		rows = l.newRows()
	}
	for part := range l.parts.Each {
		if rows[part].Number == 0 {
			rows[part].Number = l.numberOf(source)
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
// call fn again: its results stand. A write that has begun goes on for a second after the end of ctx: nobody would
// know whether it was committed, and the lane's memory would overwrite what it changed.
func (l *lane) update(ctx context.Context, fn func(kv.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	writing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, end) })()
	token := []byte(rand.Text())
	key := format.PartKey(format.KeyWriter, l.first)
	attempts := 0
	return l.store.kv.Update(writing, func(tx kv.Txn) error {
		if err := l.store.claim.check(tx); err != nil {
			return err
		}
		if attempts++; attempts > 1 {
			v, _, err := tx.Get(key)
			if err != nil || bytes.Equal(v, token) {
				return err
			}
		}
		// An abandoned attempt that is still in flight then conflicts with whatever the lane
		// writes later.
		tx.Conflict(key)
		tx.Set(key, token)
		return fn(tx)
	})
}
