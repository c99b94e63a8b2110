package graph

import (
	"encoding/binary"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A writer turns a segment into one atomic write, in phases: each decides one thing,
// with what those before it have decided. Its memory is reused from write to write.
//
// Reads see the state before the write, so nothing is written before everything has
// been decided.
type writer struct {
	layout  format.Layout
	merger  *Merger
	ids     intern.Interner
	writers writers
	strings intern.Batch // the strings of the write
	kinds   func() *kinds.Table

	accounts accounts
	resyncs  resyncs
	events   events
	previous previous
	edges    edges
	records  records
	notes    *notes
	lane     *lane

	timing Timing
}

// outcome is what an attempt came to, kept until it is known to be committed.
type outcome struct {
	totals        format.Counts
	hiddenVersion uint64 // of the hidden set, if it changed
	cursors       []format.CursorRow
	noted         uint32        // under which number the notes of the batch were written; 0: they were not
	holes         *format.Holes // if the batch has one
}

// Timing says where the time of Apply went, since the store was opened.
type Timing struct {
	Intern time.Duration // ids of strings, their reads included
	Read   time.Duration // reads of states, records and edges
	Graph  time.Duration // sorting and deciding
	Commit time.Duration // building and committing the write
}

func (t *Timing) add(d Timing) {
	t.Intern += d.Intern
	t.Read += d.Read
	t.Graph += d.Graph
	t.Commit += d.Commit
}

// attempt is one attempt at the write. It changes nothing but the writer, and the
// cache of states: what it reads there of accounts that are not in the write nobody
// else changes, and those that are committed overwrites.
func (w *writer) attempt(tx kv.Txn, seg *segment, before format.Counts) (out outcome, err error) {
	out = outcome{totals: before.Clone(), cursors: seg.cursors}
	clock := stopwatch(time.Now())

	w.strings.Retry()
	w.accounts.gather(seg, &w.strings)
	if err := w.resolve(tx, &out.totals); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Intern)
	if err := w.accounts.read(tx, &w.strings); err != nil {
		return out, err
	}
	if err := w.resyncs.read(tx, seg, &w.accounts, w.kinds()); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)
	if err := w.events.walk(seg, &w.accounts, &w.resyncs); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Graph)
	w.events.subjects(seg.batch, &w.strings, w.kinds())
	if err := w.resolve(tx, &out.totals); err != nil {
		return out, err
	}
	w.events.resolved(&w.strings)
	clock.lap(&w.timing.Intern)
	if err := w.previous.read(tx, w.events.changes, &w.accounts); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)
	if err := w.edges.decide(tx, w.events.changes, &w.previous, &out.totals, w.kinds()); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)

	if err := w.records.write(tx, w.events.changes); err != nil {
		return out, err
	}
	w.edges.write(tx, w.layout, w.merger)
	w.accounts.write(tx, &out.totals)
	if err := w.resyncs.write(tx); err != nil {
		return out, err
	}
	for _, id := range w.events.erasing {
		tx.Set(format.EraseKey(id), nil)
	}
	if seg.whole && w.writers.notesInWrite() {
		if out.noted, err = w.notes.write(tx, seg.source, seg.cursors[0].Number, seg.batch.dead, seg.batch.gaps); err != nil {
			return out, err
		}
		if h, changed := w.lane.holesAfter(seg.source, seg.batch.gaps); changed {
			out.holes = &h
			if err := w.lane.writeHoles(tx, h); err != nil {
				return out, err
			}
		}
	}
	w.writeCursors(tx, seg, &out)
	err = w.writeTotals(tx, seg.first, &out)
	clock.lap(&w.timing.Commit)
	return out, err
}

// resolve gives ids to the strings that have none, and counts the new ones.
func (w *writer) resolve(tx kv.Txn, totals *format.Counts) error {
	made, err := w.ids.Resolve(tx, &w.strings)
	for _, ns := range dict.Namespaces {
		if made[ns] > 0 {
			totals.Strings[ns.String()] += int64(made[ns])
		}
	}
	return err
}

// writeCursors writes how far the source is applied with the segment.
func (w *writer) writeCursors(tx kv.Txn, seg *segment, out *outcome) {
	if seg.batch.last == 0 {
		out.cursors = nil // it has no cursor still, or the one that it had
		return
	}
	seq := seg.last()
	for i := range out.cursors {
		c := &out.cursors[i]
		if w.writers.isAhead(c, seq) {
			continue
		}
		c.Live = false
		if c.Seq = seq; seg.whole {
			c.Time, c.Future, c.Exact = seg.batch.Time(), false, seg.batch.exact
		} else {
			c.Exact = false
		}
		tx.Set(w.layout.CursorKey(seg.first+uint8(i), seg.source), c.Value())
	}
}

// writeTotals writes the counts, and the hidden set with its version.
func (w *writer) writeTotals(tx kv.Txn, first uint8, out *outcome) error {
	if err := writeCounts(tx, w.layout.PartKey(format.KeyCounts, first), out.totals); err != nil {
		return err
	}
	if len(w.events.hidden) == 0 {
		return nil
	}
	key := w.layout.PartKey(format.KeyHidden, first)
	version, err := read.Version(tx, key)
	if err != nil {
		return err
	}
	out.hiddenVersion = version + 1
	tx.Set(key, binary.BigEndian.AppendUint64(nil, out.hiddenVersion))
	for id, hide := range w.events.hidden {
		member := []uint64{uint64(id)}
		row := format.AppendRow(nil, 0, 0, member, nil)
		if hide {
			row = format.AppendRow(nil, 0, 0, nil, member)
		}
		tx.Merge(w.layout.AppendMemberKey(nil, kinds.Hidden, 0, id), row)
	}
	return nil
}

// committed takes over that the write is committed.
func (w *writer) committed() {
	w.ids.Committed(&w.strings)
	w.accounts.committed()
}

// stopwatch is the time of its last lap.
type stopwatch time.Time

func (s *stopwatch) lap(d *time.Duration) {
	now := time.Now()
	*d += now.Sub(time.Time(*s))
	*s = stopwatch(now)
}
