package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// several is for a store that several processes write. This process writes its share of the
// partitions, in one lane or more, as long as its claim stands.
type several struct {
	store      *Store
	first, end uint8 // the partitions are first to end-1
	claim      *claim
	cache      hiddenCache
}

func (s *several) owns(did []byte) bool {
	return s.ownsPart(s.store.layout.Settings.PartitionOf(did))
}

func (s *several) ownsPart(part uint8) bool { return part >= s.first && part < s.end }

// begin makes the cursors of a new source, and writes the notes of the batch, in several
// writes: all of them may be too large for one.
func (s *several) begin(ctx context.Context, source string, b *batch.Batch) error {
	if err := s.beginSource(ctx, source, b); err != nil {
		return err
	}
	const atOnce = 500
	l := s.store.lanes[0]
	number := l.cursors(source)[0].Number
	// Another writer reads the same dead letters, and writes those of its accounts.
	dead := slices.DeleteFunc(slices.Clone(b.DeadLetters()), func(d format.DeadLetter) bool { return !s.isMine(d) })
	gaps := b.Gaps()
	for _, l := range s.store.lanes { // before the gaps are visible: a hole that is not counted is never compared
		h, changed := l.HolesAfter(source, gaps)
		if !changed {
			continue
		}
		if err := l.update(ctx, func(tx kv.Txn) error { return l.WriteHoles(tx, h) }); err != nil {
			return fmt.Errorf("graph: noting a hole of the stream: %w", err)
		}
		l.setHoles(h)
	}
	for len(dead)+len(gaps) > 0 {
		d, g := dead[:min(len(dead), atOnce)], gaps[:min(len(gaps), atOnce)]
		var noted uint32
		err := l.update(ctx, func(tx kv.Txn) (err error) {
			noted, err = l.notes.Write(tx, source, number, d, g)
			return err
		})
		if err != nil {
			return fmt.Errorf("graph: noting %d dead letters and gaps: %w", len(d)+len(g), err)
		}
		l.notes.Add(noted, len(d), len(g))
		dead, gaps = dead[len(d):], gaps[len(g):]
	}
	return nil
}

// isMine reports whether this writer writes a dead letter. The writer of the first partition
// writes those without an account.
func (s *several) isMine(d format.DeadLetter) bool {
	if d.DID == "" {
		return s.ownsPart(0)
	}
	return s.owns([]byte(d.DID))
}

// beginSource makes the missing cursors of a source before any event is applied: lanes commit
// one after another, and the first lane's cursor must not count for all.
func (s *several) beginSource(ctx context.Context, source string, b *batch.Batch) error {
	missing := func(l *lane) bool {
		rows := l.sources[source]
		return rows == nil || slices.ContainsFunc(rows, func(c format.CursorRow) bool { return !c.IsCursor() })
	}
	if b.First() == 0 || !slices.ContainsFunc(s.store.lanes, missing) {
		return nil
	}
	return s.store.changeCursors(ctx, source, nil, func(l *lane, c *format.CursorRow) {
		if c.Number == 0 {
			c.Number = l.numberOf(source)
			c.Live = true
		}
		if c.Live {
			*c = format.CursorRow{Number: c.Number, Seq: b.First() - 1}
		}
	})
}

// pick leaves out events of other lanes and processes, and events that the cursor of their
// partition covers: partitions progress independently.
func (s *several) pick(to []write.Picked, l *lane, source string, b *batch.Batch) []write.Picked {
	cursors, passed := l.sources[source], int64(0)
	for i := range b.Events() {
		e := b.Event(i)
		part := s.store.layout.Settings.PartitionOf(b.Bytes(e.DID))
		if !l.has(part) {
			continue
		}
		if e.IsOfSource() && e.Seq > 0 && cursors != nil && cursors[part-l.first].Covers(e.Seq) {
			passed++
			if m := s.store.o.Metrics; m != nil {
				m.Replays.Inc()
			}
			continue
		}
		to = append(to, write.Picked{N: int32(i), Part: part})
	}
	s.store.status.Lock()
	l.applied += passed
	l.replays += passed
	s.store.status.Unlock()
	return to
}

// prepare gives ids to the strings of the events in transactions of their own, because other
// writers may need ids for the same strings.
func (s *several) prepare(ctx context.Context, seg *write.Segment, w *write.Writer) error {
	w.AddStrings(seg)
	return w.Prepare(ctx, 0)
}

func (s *several) check(tx kv.Txn) error {
	if s.claim == nil { // during Open
		return nil
	}
	return s.claim.check(tx)
}

func (s *several) stopOthers(tx kv.Txn) {
	tx.DeleteRange(format.ClaimKey(0), format.ClaimKey(s.first))
	tx.DeleteRange(format.ClaimKey(s.end), format.ClaimKey(dict.MaxPartitions))
}

// hidden reads the set again if another process has changed it.
func (s *several) hidden(r kv.Reader) (*roaring64.Bitmap, error) {
	version, err := read.HiddenVersion(r, s.store.layout)
	if err != nil {
		return nil, err
	}
	if set := s.cache.get(version); set != nil {
		return set, nil
	}
	s.cache.reading.Lock()
	defer s.cache.reading.Unlock()
	if set := s.cache.get(version); set != nil {
		return set, nil
	}
	set, err := read.Bitmap(r, s.store.layout, kinds.Hidden, 0)
	if err == nil {
		s.cache.put(version, set)
	}
	return set, err
}

func (s *several) hiddenChanged(uint64, map[dict.ID]bool) {} // hidden notices the new version

func (s *several) load(r kv.Reader) error { return s.cache.load(r, s.store.layout) }

func (s *several) close(ctx context.Context) error {
	if s.claim == nil {
		return nil
	}
	return s.claim.close(ctx)
}
