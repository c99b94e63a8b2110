package write

import (
	"context"
	"encoding/binary"
	"time"

	"skein.blue/graph/batch"
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
type Writer struct {
	Layout  format.Layout
	Merger  *Merger
	Ids     intern.Interner
	Shared  bool         // several processes write the store
	strings intern.Batch // the strings of the write
	Kinds   func() *kinds.Table

	Accounts Accounts
	Resyncs  Resyncs
	events   events
	Previous previous
	edges    edges
	records  records
	Notes    *Notes
	Holes    holeKeeper

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
type Result struct {
	Totals        format.Counts
	HiddenVersion uint64 // of the hidden set, if it changed
	Cursors       []format.CursorRow
	Noted         uint32        // under which number the notes of the batch were written; 0: they were not
	Holes         *format.Holes // if the batch has one

	Replays        int                 // events that had been applied before
	Hidden         map[dict.ID]bool    // changes of the hidden set
	Erasing        []dict.ID           // accounts that were deleted
	Sets           []SetChange         // by set, then member; valid until the next attempt
	Added, Removed *[kinds.Max + 1]int // members that sets gained and lost, by kind

	Timing Timing // since the writer began, the time of failed attempts included
}

// Timing says where the time of Apply went, since the store was opened.
type Timing struct {
	Intern time.Duration // ids of strings, their reads included
	Read   time.Duration // reads of states, records and edges
	Graph  time.Duration // sorting and deciding
	Commit time.Duration // building and committing the write
}

func (t *Timing) Add(d Timing) {
	t.Intern += d.Intern
	t.Read += d.Read
	t.Graph += d.Graph
	t.Commit += d.Commit
}

// attempt is one attempt at the write. It changes nothing but the writer, and the
// cache of states: what it reads there of accounts that are not in the write nobody
// else changes, and those that are committed overwrites.
func (w *Writer) Attempt(tx kv.Txn, seg *Segment, before format.Counts) (out Result, err error) {
	out = Result{Totals: before.Clone(), Cursors: seg.Cursors}
	clock := stopwatch(time.Now())

	w.strings.Retry()
	w.Accounts.gather(seg, &w.strings)
	if err := w.resolve(tx, &out.Totals); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Intern)
	if err := w.Accounts.read(tx, &w.strings); err != nil {
		return out, err
	}
	if err := w.Resyncs.read(tx, seg, &w.Accounts, w.Kinds()); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)
	if err := w.events.walk(seg, &w.Accounts, &w.Resyncs); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Graph)
	w.events.changes.addSubjects(seg.Batch, &w.strings, w.Kinds())
	if err := w.resolve(tx, &out.Totals); err != nil {
		return out, err
	}
	w.events.changes.takeSubjects(&w.strings)
	clock.lap(&w.timing.Intern)
	if err := w.Previous.read(tx, w.events.changes, &w.Accounts); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)
	if err := w.edges.decide(tx, w.events.changes, &w.Previous, &out.Totals, w.Kinds()); err != nil {
		return out, err
	}
	clock.lap(&w.timing.Read)

	if err := w.records.write(tx, w.events.changes); err != nil {
		return out, err
	}
	w.edges.write(tx, w.Layout, w.Merger)
	w.Accounts.write(tx, &out.Totals)
	if err := w.Resyncs.write(tx); err != nil {
		return out, err
	}
	for _, id := range w.events.erasing {
		tx.Set(format.EraseKey(id), nil)
	}
	if seg.Whole && !w.Shared {
		if out.Noted, err = w.Notes.Write(tx, seg.Source, seg.Cursors[0].Number, seg.Batch.DeadLetters(), seg.Batch.Gaps()); err != nil {
			return out, err
		}
		if h, changed := w.Holes.HolesAfter(seg.Source, seg.Batch.Gaps()); changed {
			out.Holes = &h
			if err := w.Holes.WriteHoles(tx, h); err != nil {
				return out, err
			}
		}
	}
	out.Replays, out.Hidden, out.Erasing = w.events.replays, w.events.hidden, w.events.erasing
	out.Sets, out.Added, out.Removed = w.edges.sets, &w.edges.addedOf, &w.edges.removedOf
	w.writeCursors(tx, seg, &out)
	err = w.writeTotals(tx, seg.First, &out)
	clock.lap(&w.timing.Commit)
	out.Timing = w.timing
	return out, err
}

// resolve gives ids to the strings that have none, and counts the new ones.
func (w *Writer) resolve(tx kv.Txn, totals *format.Counts) error {
	made, err := w.Ids.Resolve(tx, &w.strings)
	for _, ns := range dict.Namespaces {
		if made[ns] > 0 {
			totals.Strings[ns.String()] += int64(made[ns])
		}
	}
	return err
}

// writeCursors writes how far the source is applied with the segment.
func (w *Writer) writeCursors(tx kv.Txn, seg *Segment, out *Result) {
	if seg.Batch.Last() == 0 {
		out.Cursors = nil // it has no cursor still, or the one that it had
		return
	}
	seq := seg.last()
	for i := range out.Cursors {
		c := &out.Cursors[i]
		if w.Shared && c.Seq > seq && !c.Future {
			continue // this partition is ahead of the others, and stays where it is
		}
		c.Live = false
		if c.Seq = seq; seg.Whole {
			c.Time, c.Future, c.Exact = seg.Batch.Time(), false, seg.Batch.Exact()
		} else {
			c.Exact = false
		}
		tx.Set(w.Layout.CursorKey(seg.First+uint8(i), seg.Source), c.Value())
	}
}

// writeTotals writes the counts, and the hidden set with its version.
func (w *Writer) writeTotals(tx kv.Txn, first uint8, out *Result) error {
	if err := WriteCounts(tx, w.Layout.PartKey(format.KeyCounts, first), out.Totals); err != nil {
		return err
	}
	if len(w.events.hidden) == 0 {
		return nil
	}
	key := w.Layout.PartKey(format.KeyHidden, first)
	version, err := read.Version(tx, key)
	if err != nil {
		return err
	}
	out.HiddenVersion = version + 1
	tx.Set(key, binary.BigEndian.AppendUint64(nil, out.HiddenVersion))
	for id, hide := range w.events.hidden {
		member := []uint64{uint64(id)}
		row := format.AppendRow(nil, 0, 0, member, nil)
		if hide {
			row = format.AppendRow(nil, 0, 0, nil, member)
		}
		tx.Merge(w.Layout.AppendMemberKey(nil, kinds.Hidden, 0, id), row)
	}
	return nil
}

// queued returns the repos that the committed write has queued.
func (w *Writer) Queued() []batch.Queued { return w.Resyncs.queued() }

// lists returns what the committed write may have changed of lists.
func (w *Writer) Lists() []ListChange { return listChanges(w.events.changes) }

// setModes says what is done about what is missing.
func (w *Writer) SetModes(m Modes) { w.Resyncs.Modes = m }

// abandon lets go of what an attempt took that will not be repeated as it was.
func (w *Writer) Abandon() { w.Ids.Abandon(&w.strings) }

// begin makes ready for a segment.
func (w *Writer) Begin() {
	w.strings.Reset()
	w.timing = Timing{}
}

// Prepare makes sure that so many new strings can get ids, besides those that were added
// with AddStrings, which have theirs then.
func (w *Writer) Prepare(ctx context.Context, need int) error {
	return w.Ids.Prepare(ctx, &w.strings, need)
}

// addStrings adds the strings of a segment.
func (w *Writer) AddStrings(seg *Segment) {
	b := seg.Batch
	for _, p := range seg.Events {
		e := b.Event(int(p.N))
		w.strings.Add(dict.DID, b.Bytes(e.Did))
		for i := e.Ops.Start; i < e.Ops.End; i++ {
			if o := b.Op(i); !o.Subject.IsEmpty() {
				w.strings.Add(w.Kinds().Info(o.Kind).To.Is, b.Bytes(o.Subject))
			}
		}
	}
}

// committed takes over that the write is committed.
func (w *Writer) Committed() {
	w.Ids.Committed(&w.strings)
	w.Accounts.committed()
}

// stopwatch is the time of its last lap.
type stopwatch time.Time

func (s *stopwatch) lap(d *time.Duration) {
	now := time.Now()
	*d += now.Sub(time.Time(*s))
	*s = stopwatch(now)
}
