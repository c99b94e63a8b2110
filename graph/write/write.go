package write

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Options are a Writer's dependencies. The caller owns them.
type Options struct {
	Layout format.Layout   // of the store
	Merger *Merger         // the one that the store was opened with
	IDs    intern.Interner // gives ids to strings
	// Kinds returns the table of indexed kinds.
	Kinds func() *kinds.Table
	// States are the states of accounts as of the last commit.
	States *StateCache
	Holes  *format.Holes // of the Store, as of the last commit
	Modes  *Modes        // the lane's
}

// A Writer applies segments, one at a time. It reuses its buffers.
type Writer struct {
	Options

	strings intern.Batch // the strings of the write
	// skips is how many versions of the hidden set the next change skips: a Writer's first, more than are kept. Another Writer may have
	// counted its changes of the same accounts elsewhere, and versions of two partitions have no order.
	skips uint64

	accounts accounts
	events   events
	previous previous
	many     manySubjects
	searches searches
	edges    edges
	records  records
}

// New returns a Writer.
func New(o Options) *Writer {
	return &Writer{
		Options: o, skips: format.HidingRing, accounts: accounts{layout: o.Layout, cache: o.States, placing: o.Merger.limits.Placing},
		searches: searches{wide: map[dict.ID]time.Time{}, meters: map[dict.ID]*meter{}},
		events:   events{Modes: o.Modes, layout: o.Layout, holes: o.Holes, far: map[dict.ID]bool{}},
	}
}

// A Result is what an attempt did. It is meaningful only if the attempt is committed. Added,
// Removed and Sets are valid until the next attempt.
type Result struct {
	Totals  format.Counts      // after the write
	Cursors []format.CursorRow // nil: no cursor moved

	Replays        int                 // events dropped because they had been applied before
	Hidden         map[dict.ID]bool    // accounts that were hidden (true) or shown again
	Erasing        []dict.ID           // accounts whose stored records must now be erased: deleted, or replaced
	Sets           []SetChange         // by set, then member; valid until the next attempt
	Added, Removed *[kinds.Max + 1]int // members that sets gained and lost, by kind
}

// Attempt makes one attempt at the write of a segment; before are the counts so far. Besides tx,
// it changes the Writer, the Interner, the cache of states, seg.Cursors and the batch's outcomes,
// so pass fresh seg.Cursors to every attempt. The cache stays right if the attempt fails: it gains
// only states that were read.
func (w *Writer) Attempt(tx kv.Txn, seg *Segment, before format.Counts) (out Result, err error) {
	out = Result{Totals: before.Clone(), Cursors: seg.Cursors}
	if err := w.decide(tx, seg, &out.Totals); err != nil {
		return out, err
	}
	if err := w.records.write(tx, w.events.changes, w.Merger); err != nil {
		return out, err
	}
	if err := w.edges.rows.write(tx, w.edges.sets, w.Layout, w.Merger); err != nil {
		return out, err
	}
	w.accounts.write(tx, &out.Totals)
	if err := w.accounts.writeQueued(tx, w.events.notes); err != nil {
		return out, err
	}
	for _, id := range w.events.erasing {
		tx.Set(format.EraseKey(id), nil)
	}
	out.Replays, out.Hidden, out.Erasing = w.events.replays, w.events.hidden, w.events.erasing
	out.Sets, out.Added, out.Removed = w.edges.sets, &w.edges.addedOf, &w.edges.removedOf
	w.writeCursors(tx, seg, &out)
	if err := SetCounts(tx, seg.Parts.First(), before, out.Totals); err != nil {
		return out, err
	}
	return out, w.writeHidden(tx, seg.Parts.First())
}

// decide reads what the segment's events need, and decides what changes.
func (w *Writer) decide(tx kv.Txn, seg *Segment, totals *format.Counts) error {
	w.strings.Retry()
	w.accounts.gather(seg, &w.strings)
	if err := w.resolve(tx, totals); err != nil {
		return err
	}
	if err := w.accounts.read(tx, seg, &w.strings, w.Kinds()); err != nil {
		return err
	}
	if err := w.events.walk(seg, &w.accounts); err != nil {
		return err
	}
	w.events.changes.addSubjects(seg.Batch, &w.strings, w.Kinds())
	if err := w.resolve(tx, totals); err != nil {
		return err
	}
	w.events.changes.takeSubjects(&w.strings)
	if err := w.previous.read(tx, w.events.changes); err != nil {
		return err
	}
	// What is placed has been fetched whole: its bytes pay for the search. Without a queue, nothing could repair the repo.
	w.searches.most = math.MaxInt / wideSearch
	if seg.isOfStream() && w.events.Queues {
		w.searches.most = w.Merger.limits.Search
	}
	clear(w.searches.meters)
	var err error
	if w.events.changes, err = w.many.settle(tx, w.events.changes, &w.searches); err != nil {
		return err
	}
	w.accounts.count(w.events.changes, totals, w.Kinds())
	if err := w.edges.decide(tx, w.events.changes, w.Layout, w.Kinds(), &w.searches); err != nil {
		return err
	}
	for id, m := range w.searches.meters {
		if m.read.Load() > m.most {
			if w.events.far[id], err = true, ErrFar; m.most > int64(w.searches.most) {
				w.searches.wide[id] = time.Now()
			}
		}
	}
	return err
}

// resolve gives ids to strings that have none, and counts the new ones.
func (w *Writer) resolve(tx kv.Txn, totals *format.Counts) error {
	made, err := w.IDs.Resolve(tx, &w.strings)
	for _, ns := range dict.Namespaces {
		if made[ns] > 0 {
			totals.Strings[ns.String()] += int64(made[ns])
		}
	}
	return err
}

// writeCursors writes the source's cursors as they are after the segment.
func (w *Writer) writeCursors(tx kv.Txn, seg *Segment, out *Result) {
	if seg.Batch.Last() == 0 {
		out.Cursors = nil // the cursor, if there is one, stays where it is
		return
	}
	seq := seg.last()
	for part := range seg.Parts.Each {
		c := &out.Cursors[part]
		if c.Seq > seq && !c.Future {
			continue // this partition is ahead, and stays where it is
		}
		c.Live = false
		if c.Seq = seq; seg.Whole {
			c.Time, c.Future, c.Exact = seg.Batch.Time(), false, seg.Batch.Exact()
		} else {
			c.Exact = false
		}
		tx.Set(format.CursorKey(part, seg.Source), c.Value())
	}
}

// writeHidden writes the hidden set with its version.
func (w *Writer) writeHidden(tx kv.Txn, first uint8) error {
	if len(w.events.hidden) == 0 {
		return nil
	}
	key := format.PartKey(format.KeyHidden, first)
	v, found, err := tx.Get(key)
	version := w.skips
	if err == nil && found {
		version, err = format.DecodeVersion(v)
		version += w.skips
	}
	if err != nil {
		return err
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(w.events.hidden)), format.HidingMax) {
		version++
		h := format.Hiding{Version: version}
		for _, id := range ids {
			if w.events.hidden[id] {
				h.Hidden = append(h.Hidden, id)
			} else {
				h.Shown = append(h.Shown, id)
			}
		}
		if err := SetJSON(tx, format.HidingKey(first, version), h); err != nil {
			return err
		}
	}
	tx.Set(key, binary.BigEndian.AppendUint64(nil, version))
	tx.Touch()
	for id, hide := range w.events.hidden {
		member := []uint64{uint64(id)}
		row := format.AppendRow(nil, 0, 0, member, nil, nil)
		if hide {
			row = format.AppendRow(nil, 0, 0, nil, member, []uint32{format.OneRecord})
		}
		tx.Merge(w.Layout.AppendMemberKey(nil, kinds.Hidden, 0, id), row)
	}
	return nil
}

// Begin prepares the Writer for a segment. Call it once per segment, before Prepare and Attempt.
func (w *Writer) Begin() { w.strings.Reset() }

// AddStrings adds the strings of a segment, so that Prepare gives them ids.
func (w *Writer) AddStrings(seg *Segment) {
	b := seg.Batch
	for _, p := range seg.Events {
		e := b.Event(int(p.N))
		w.strings.Add(dict.DID, b.Bytes(e.DID))
		for i := e.Ops.Start; i < e.Ops.End; i++ {
			if o := b.Op(i); !o.Subject.IsEmpty() {
				w.strings.Add(w.Kinds().Info(o.Kind).To.Is(), b.Bytes(o.Subject))
			}
		}
	}
}

// Prepare gives ids to the strings that AddStrings added, and makes sure that Attempt can
// give ids to `more` further strings.
func (w *Writer) Prepare(ctx context.Context, more int) error {
	return w.IDs.Prepare(ctx, &w.strings, more)
}

// Abandon releases the ids that a failed attempt took. Call it before retrying with a shorter segment.
func (w *Writer) Abandon() { w.IDs.Abandon(&w.strings) }

// Committed tells the Writer that its last attempt is committed.
func (w *Writer) Committed() {
	w.IDs.Committed(&w.strings)
	w.accounts.committed()
	w.searches.committed()
	if len(w.events.hidden) > 0 {
		w.skips = 0
	}
}

// LabelsCommitted is Committed for AttemptLabels.
func (w *Writer) LabelsCommitted() { w.IDs.Committed(&w.strings) }
