package write

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// events is the phase that walks the events in stream order. It drops replays, changes the
// states of accounts and the queue of repos to fetch (queue.go), and keeps the last change of each path. The part for
// snapshots of repos and rows of an archive is in placing.go.
type events struct {
	*Modes
	layout format.Layout
	holes  *format.Holes // the Store's

	changes changes
	spare   []change // scratch space of lastWriteWins
	sorter  sets.Sorter

	replays int              // events dropped because they were applied before
	hidden  map[dict.ID]bool // accounts to hide (true) or show
	erasing []dict.ID        // accounts whose stored records must be erased

	notes  []note
	batch  *batch.Batch
	now    time.Time
	latest format.Rev       // Segment.Latest
	far    map[dict.ID]bool // accounts whose commits that may need a search are set aside until their repos are fetched, because of an ErrFar
	rkey   []byte           // scratch
	// outside says that the event is of an account outside the part of the network that the store holds: most of its commits do
	// not arrive, so its repo is partial for good, no chain connects its commits, and it is never queued.
	outside bool
}

// ErasingError is returned by Attempt if the segment has an event of an account whose records are
// still being erased, unless Segment.Waits has it and repos are queued. Erase them, then try again.
type ErasingError struct {
	Actor dict.ID // the account
}

// Error implements error.
func (e ErasingError) Error() string {
	return fmt.Sprintf("graph: account %d is being erased", e.Actor)
}

// SegmentEndError is returned by Attempt for a segment of an archive in which an event follows a
// deletion or #sync of its account that starts an erasure. Apply the events before Before, erase
// the account, then continue.
type SegmentEndError struct {
	Before int // the later event's index in Segment.Events
}

// Error implements error.
func (e SegmentEndError) Error() string {
	return fmt.Sprintf("graph: the write must end before its event %d: an earlier event of the write erases that event's account", e.Before)
}

// ErrFar is returned by Attempt if commits of accounts needed more of the accounts' records than one commit may read
// (Limits.Search). Attempt has set them aside (batch.Event.SetAside): try again.
var ErrFar = errors.New("graph: the other records of an edge are too far away")

// walk applies the segment's events to the states of their accounts, and collects the record
// changes in e.changes.
func (e *events) walk(seg *Segment, of *accounts) error {
	e.batch, e.latest, e.now = seg.Batch, seg.Latest, time.Now().UTC().Truncate(time.Millisecond)
	e.notes, e.changes, e.replays, e.hidden, e.erasing = e.notes[:0], e.changes[:0], 0, nil, e.erasing[:0]
	for i, p := range seg.Events {
		as, ev := of.ofEvent(i), seg.Batch.Event(int(p.N))
		if e.outside = ev.Flags&batch.IsOutside != 0; e.outside && as.now.Whole() {
			// The account has joined the part since the event was read, and its repo is in place. The event may have lost operations.
			ev.SetAside()
			e.outside = false
		}
		for n := ev.Ops.Start; e.far[as.id] && n < ev.Ops.End; n++ {
			if ev.Kind == batch.EventCommit && as.was.MayHold(format.ParsePath(e.batch.Bytes(e.batch.Op(n).Rkey))) {
				ev.SetAside() // without another search
			}
		}
		switch stuck := seg.Stuck[as.id]; {
		case as.was.Has(format.FlagErasing) && !stuck && (!seg.Waits[as.id] || !e.Queues):
			return ErasingError{as.id}
		case as.was.Has(format.FlagErasing):
			e.whileErasing(ev, as, seg.sourceOf(p), stuck)
			continue
		case as.now.Has(format.FlagErasing):
			return SegmentEndError{i}
		case as.manyNotes:
			as.startOver(e, ev)
			continue
		}
		e.event(ev, as, seg.sourceOf(p))
	}
	e.lastWriteWins()
	return nil
}

// eraseWait is when the repo of an account is fetched that had events while it was being erased.
const eraseWait = 10 * time.Second

// whileErasing applies an event of an account whose records are still being erased. Nothing is put among them: the repo is
// desynchronized, and fetched later, unless the erasure is stuck: nothing could be placed. The account stays hidden: with its
// repo comes the answer whether it is active.
func (e *events) whileErasing(ev *batch.Event, as *actorState, source uint32, stuck bool) {
	hidden := as.now.Has(format.FlagHidden) && as.now.DeletionSource != 0 // else its status is as the stream says
	if stuck {
		as.changed = true
		defer as.dequeue()
	}
	switch ev.Kind {
	case batch.EventArchived:
		if e.replays++; as.now.DeletionSource == 0 {
			e.markMissed(as, "damaged")
		}
		return
	case batch.EventSnapshot:
		e.batch.SetOutcome(ev.Seq, batch.Superseded)
		as.awaitErased(e)
		return
	case batch.EventCommit:
		ev.Ops, ev.Flags = batch.Span{}, ev.Flags&^batch.HasData|batch.IsDamaged
	default:
	}
	e.event(ev, as, source)
	if hidden && !as.now.Has(format.FlagHidden) {
		e.setHidden(as, true)
		e.markMissed(as, "back")
	}
	if row := as.inQueue(); row != nil && row.changed {
		as.awaitErased(e)
	}
}

// awaitErased has the repo, if it is queued, fetched once its records may have been erased.
func (as *actorState) awaitErased(e *events) {
	if row := as.inQueue(); row != nil {
		row.Due, row.changed = e.now.Add(eraseWait), true
	}
}

// event applies one event. source is the source's number in the partition of the event's account.
// docs/semantics.md#s9 to #s22 define the effects.
func (e *events) event(ev *batch.Event, as *actorState, source uint32) {
	switch ev.Kind {
	case batch.EventImport:
		e.importEvent(ev, as)
	case batch.EventAccount:
		e.account(ev, as, source)
	case batch.EventSync:
		e.sync(ev, as, source)
	case batch.EventCommit:
		e.commit(ev, as, source)
	case batch.EventResync:
		e.queueFor(as, e.batch.Cause(ev.Seq))
	case batch.EventSnapshot:
		e.snapshot(ev, as)
	case batch.EventArchived:
		e.archived(ev, as)
	case batch.EventArchivedStatus:
		e.archivedStatus(ev, as)
	case batch.EventStatus:
		if !e.statusKnown(as) || ev.Flags&batch.IsAnswer != 0 && ev.Seq == as.now.AccountSeq && ev.Rev == format.Rev(as.now.AccountSource) {
			if wasHidden := e.setHidden(as, ev.Flags&batch.IsActive == 0); ev.Flags&batch.IsActive != 0 {
				e.reactivated(as, wasHidden)
			}
		}
	}
}

func (e *events) commit(ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	switch {
	case ev.Seq > 0 && st.DeletionSource == source && ev.Seq <= st.DeletionSeq, // before the account's deletion
		ev.Seq > 0 && st.Source == source && ev.Seq <= st.Seq: // applied before
		e.replays++
		return
	case st.Has(format.FlagHasRev) && ev.Flags&batch.HasRev != 0 && ev.Rev <= st.Rev:
		// After an import, a commit's block may still have the older rev under which it was signed.
		if !e.outside && ev.Flags&batch.HasData != 0 && st.Source == source &&
			(ev.Flags&batch.HasOtherRev != 0 && ev.Data != st.Data || as.continuesPutBack(ev)) {
			e.putBack(as, "rev_in_the_past", ev)
			st.Seq = ev.Seq
			return
		}
		e.replays++
		return
	}
	as.changed = true
	st.Source, st.Seq = source, ev.Seq
	if e.outside {
		st.SetPartial()
	}
	if ev.Flags&batch.IsRefuted != 0 { // failed verification: it does not even prove that a newer state exists
		e.markMissed(as, "refuted")
		return
	}
	if st.Has(format.FlagHidden) && (st.AccountSource == 0 || st.AccountSource == source && ev.Seq > st.AccountSeq) {
		e.doubtHidden(as)
	}
	broken := ev.Flags&batch.IsDamaged != 0
	if broken {
		e.noteNewer(as, "damaged", ev)
	}
	if ev.Flags&(batch.HasRev|batch.HasData) != batch.HasRev|batch.HasData {
		return // unreadable: nothing is applied, and the rev does not advance
	}
	// Whether the stream should have brought the commit before this one. A part of the network has heard new accounts as outsiders.
	recent := (!e.Part || st.Has(format.FlagReturned)) && (ev.Flags&batch.HasSince == 0 || time.UnixMicro(int64(ev.Since>>10)).After(cmp.Or(e.holes.Unbroken, e.now)))
	const archived = format.FlagNoRoot | format.FlagPartial // it may follow rows that are still to come: EndArchive compares it
	switch {
	case e.outside:
	case !st.Has(format.FlagHasRev) && ev.Flags&(batch.HasSince|batch.HasPrevData) == 0:
		st.Flags &^= format.FlagPartial // an archive emptied the account before
	case !st.Has(format.FlagHasRev):
		st.Flags |= format.FlagPartial
		if recent {
			e.markMissed(as, "partial")
		} else if e.Partial {
			e.queue(as, "partial")
		}
	case ev.Flags&batch.HasSince == 0, ev.Since < st.Rev, ev.Since != st.Rev && (st.Flags&archived != archived || recent),
		!st.Has(format.FlagNoRoot) && ev.Flags&batch.HasPrevData != 0 && ev.PrevData != st.Data:
		broken = true
		e.markMissed(as, "chain")
	}
	noted := !e.outside && e.isNoting(as) // what is noted must be whole
	if noted {
		e.noteCommit(as, ev, broken)
	}
	st.Flags &^= format.FlagNoRoot | format.FlagBehind
	st.MoveTo(ev.Rev, ev.Data)
	if e.outside {
		st.SetPartial()
	}
	if !broken {
		as.continues()
	}
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		e.op(as, i)
		if o := e.batch.Op(i); noted {
			e.notes = append(e.notes, note{as, format.Touched{Kind: o.Kind, Rkey: e.batch.Bytes(o.Rkey), Rev: ev.Rev}})
		}
	}
}

// op adds the change that an operation makes.
func (e *events) op(as *actorState, i uint32) {
	o := e.batch.Op(i)
	p := format.ParsePath(e.batch.Bytes(o.Rkey))
	e.put(as, change{kind: o.Kind, delete: o.Delete, fresh: as.made || !as.was.MayHold(p), actor: as.id, path: p, subject: -1, order: i})
}

// put adds the change that an operation, c.order, makes.
func (e *events) put(as *actorState, c change) {
	if !c.delete {
		as.now.Flags |= format.FlagRecords
		if c.path.Raw == nil {
			as.now.Top = max(as.now.Top, c.path.TID)
		}
	}
	if !e.batch.Op(c.order).Subject.IsEmpty() {
		c.subject = int32(c.order)
	}
	e.changes = append(e.changes, c)
}

// sync applies a #sync. It compares the message with the index:
//
//   - the same root: no event was missed, and the chain continues from the higher rev
//   - another root, a higher rev: events were missed
//   - another root, a rev that is not higher: the message is out of date, because a relay that was
//     killed sends its last events again, under new numbers
//   - likewise, but the message's rev differs from its commit block's: it announces an import,
//     which may bring an older repo
//   - an unreadable root, a rev that is not higher: events may have been missed, but nothing newer
//     is announced
func (e *events) sync(ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	known := st.Has(format.FlagHasRev) && ev.Flags&batch.HasRev != 0
	switch {
	case ev.Seq > 0 && st.Source == source && ev.Seq <= st.Seq:
		e.replays++
		return
	case st.Source != 0 && st.Source != source && known && ev.Rev <= st.Rev: // from another source, or from the same relay before its sequence restarted
		e.replays++
		return
	}
	same := st.Has(format.FlagHasRev) && ev.Flags&batch.HasData != 0 && ev.Data == st.Data
	if !same && known && ev.Rev <= st.Rev && ev.Flags&(batch.HasOtherRev|batch.HasData) == batch.HasData {
		e.replays++
		return
	}
	as.changed = true
	st.Source, st.Seq = source, ev.Seq
	const imported = batch.HasRev | batch.HasData | batch.HasOtherRev
	row := as.inQueue()
	switch {
	case row != nil && st.Has(format.FlagBehind) && ev.Rev < row.Told && ev.Flags&imported == imported, // than one that the stream announced before
		known && ev.Rev <= st.Rev && ev.Flags&batch.HasData != 0 && (!same || ev.Flags&batch.HasOtherRev != 0 && as.awaitsState()):
		e.putBack(as, "sync", ev)
	case !same && known && ev.Rev <= st.Rev: // unreadable, and announces nothing newer
		e.markMissed(as, "sync")
	case !same:
		e.noteNewer(as, "sync", ev)
	case known:
		st.MoveTo(max(st.Rev, ev.Rev), st.Data)
		as.continues()
	}
}

// importEvent applies an imported account state, or imported records.
func (e *events) importEvent(ev *batch.Event, as *actorState) {
	if ev.Flags&batch.HasState != 0 {
		im := e.batch.Imported(ev.Seq)
		st := im.State
		e.setHidden(as, st.Has(format.FlagHidden))
		st.Flags |= as.now.Flags & format.FlagRecords
		as.now = st
		e.importRow(as, im)
	}
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		o := e.batch.Op(i)
		was := as.now.Flags
		e.put(as, change{kind: o.Kind, fresh: ev.Flags&batch.IsFresh != 0, actor: as.id, path: format.ParsePath(e.batch.Bytes(o.Rkey)), subject: -1, order: i})
		as.changed = as.changed || as.now.Flags != was
	}
}

func (e *events) account(ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	if ev.Seq > 0 && st.AccountSource == source && ev.Seq <= st.AccountSeq {
		e.replays++
		return
	}
	st.AccountSource, st.AccountSeq = source, ev.Seq
	if wasHidden := e.setHidden(as, ev.Flags&batch.IsActive == 0); ev.Flags&batch.IsActive != 0 {
		e.announcedActive(as, wasHidden)
	}
	if ev.Flags&batch.IsDeleted != 0 {
		as.dequeue()
		*st = format.RepoState{
			Flags: format.FlagHidden | format.FlagErasing | st.Flags&format.FlagRecords, Source: source, Seq: ev.Seq,
			AccountSource: source, AccountSeq: ev.Seq, DeletionSource: source, DeletionSeq: ev.Seq,
		}
		e.erasing = append(e.erasing, as.id)
	}
}

// setHidden hides an account, or shows it again. It returns whether the account was hidden.
func (e *events) setHidden(as *actorState, hide bool) (was bool) {
	as.changed = true
	if was = as.now.Has(format.FlagHidden); was != hide {
		as.now.Flags ^= format.FlagHidden
		if e.hidden == nil {
			e.hidden = map[dict.ID]bool{}
		}
		e.hidden[as.id] = hide
	}
	return was
}

// lastWriteWins sorts the changes by path and keeps the last one of each path. Of a record that can name
// several subjects, it keeps those from its last deletion on.
func (e *events) lastWriteWins() {
	e.spare = sets.SortBy(&e.sorter, e.changes, e.spare, func(x, y change) int {
		return cmp.Or(compareChanges(&x, &y), cmp.Compare(x.order, y.order), deletionFirst(x, y))
	}, func(c *change) uint64 { return uint64(c.actor) }, func(c *change) uint64 { return uint64(c.kind) })
	e.changes, e.spare = e.spare, e.changes
	kept := e.changes[:0]
	for i := range e.changes {
		c := &e.changes[i]
		for n := len(kept); n > 0 && (c.delete || !c.kind.IsMany()) && compareChanges(&kept[n-1], c) == 0; n-- {
			kept = kept[:n-1]
		}
		kept = append(kept, *c)
	}
	e.changes = kept
}
