package graph

import (
	"context"
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
	shared  bool         // several processes write the store
	strings intern.Batch // the strings of the write
	kinds   func() *kinds.Table

	accounts accounts
	resyncs  resyncs
	events   events
	previous previous
	edges    edges
	records  records
	notes    *notes
	holes    holeKeeper

	timing Timing
}

// A holeKeeper knows the holes of the stream that its writer has met.
type holeKeeper interface {
	// HolesAfter returns the holes after gaps of a source, and whether there is a new one.
	HolesAfter(source string, gaps []format.Gap) (h format.Holes, changed bool)
	// WriteHoles writes them, as part of a write.
	WriteHoles(tx kv.Txn, h format.Holes) error
}

// result is what an attempt came to, kept until it is known to be committed.
type result struct {
	totals        format.Counts
	hiddenVersion uint64 // of the hidden set, if it changed
	cursors       []format.CursorRow
	noted         uint32        // under which number the notes of the batch were written; 0: they were not
	holes         *format.Holes // if the batch has one

	replays        int                 // events that had been applied before
	hidden         map[dict.ID]bool    // changes of the hidden set
	erasing        []dict.ID           // accounts that were deleted
	sets           []setChange         // by set, then member; valid until the next attempt
	added, removed *[kinds.Max + 1]int // members that sets gained and lost, by kind

	timing Timing // since the writer began, the time of failed attempts included
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
func (w *writer) attempt(tx kv.Txn, seg *segment, before format.Counts) (out result, err error) {
	out = result{totals: before.Clone(), cursors: seg.cursors}
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
	w.events.changes.addSubjects(seg.batch, &w.strings, w.kinds())
	if err := w.resolve(tx, &out.totals); err != nil {
		return out, err
	}
	w.events.changes.takeSubjects(&w.strings)
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
	if seg.whole && !w.shared {
		if out.noted, err = w.notes.write(tx, seg.source, seg.cursors[0].Number, seg.batch.DeadLetters(), seg.batch.Gaps()); err != nil {
			return out, err
		}
		if h, changed := w.holes.HolesAfter(seg.source, seg.batch.Gaps()); changed {
			out.holes = &h
			if err := w.holes.WriteHoles(tx, h); err != nil {
				return out, err
			}
		}
	}
	out.replays, out.hidden, out.erasing = w.events.replays, w.events.hidden, w.events.erasing
	out.sets, out.added, out.removed = w.edges.sets, &w.edges.addedOf, &w.edges.removedOf
	w.writeCursors(tx, seg, &out)
	err = w.writeTotals(tx, seg.first, &out)
	clock.lap(&w.timing.Commit)
	out.timing = w.timing
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
func (w *writer) writeCursors(tx kv.Txn, seg *segment, out *result) {
	if seg.batch.Last() == 0 {
		out.cursors = nil // it has no cursor still, or the one that it had
		return
	}
	seq := seg.last()
	for i := range out.cursors {
		c := &out.cursors[i]
		if w.shared && c.Seq > seq && !c.Future {
			continue // this partition is ahead of the others, and stays where it is
		}
		c.Live = false
		if c.Seq = seq; seg.whole {
			c.Time, c.Future, c.Exact = seg.batch.Time(), false, seg.batch.Exact()
		} else {
			c.Exact = false
		}
		tx.Set(w.layout.CursorKey(seg.first+uint8(i), seg.source), c.Value())
	}
}

// writeTotals writes the counts, and the hidden set with its version.
func (w *writer) writeTotals(tx kv.Txn, first uint8, out *result) error {
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

// queued returns the repos that the committed write has queued.
func (w *writer) queued() []Queued { return w.resyncs.queued() }

// lists returns what the committed write may have changed of lists.
func (w *writer) lists() []ListChange { return listChanges(w.events.changes) }

// setModes says what is done about what is missing.
func (w *writer) setModes(m modes) { w.resyncs.modes = m }

// abandon lets go of what an attempt took that will not be repeated as it was.
func (w *writer) abandon() { w.ids.Abandon(&w.strings) }

// begin makes ready for a segment.
func (w *writer) begin() {
	w.strings.Reset()
	w.timing = Timing{}
}

// Prepare makes sure that so many new strings can get ids, besides those that were added
// with AddStrings, which have theirs then.
func (w *writer) prepare(ctx context.Context, need int) error {
	return w.ids.Prepare(ctx, &w.strings, need)
}

// addStrings adds the strings of a segment.
func (w *writer) addStrings(seg *segment) {
	b := seg.batch
	for _, p := range seg.events {
		e := b.Event(int(p.n))
		w.strings.Add(dict.DID, b.Bytes(e.did))
		for i := e.ops.Start; i < e.ops.End; i++ {
			if o := b.Op(i); !o.subject.IsEmpty() {
				w.strings.Add(w.kinds().Info(o.kind).To.Is, b.Bytes(o.subject))
			}
		}
	}
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
