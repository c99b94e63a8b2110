package write

import (
	"cmp"
	"fmt"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/radix"
)

// events is the phase that walks the events in stream order. It drops replays, changes the
// states of accounts, and keeps the last change of each path.
type events struct {
	changes changes
	spare   []change // scratch of lastWriteWins
	sorter  radix.Sorter

	replays int              // events dropped because they were applied before
	hidden  map[dict.ID]bool // accounts to hide (true) or show
	erasing []dict.ID        // deleted accounts

	past *resyncs
	rkey []byte // scratch
}

// ErrErasing ends an attempt with an event of an account that is still being erased. Finish that
// and try again.
type ErrErasing struct {
	Actor dict.ID // the account
}

// Error implements error.
func (e ErrErasing) Error() string { return fmt.Sprintf("graph: account %d is being erased", e.Actor) }

// ErrEnds ends an attempt at a segment of an archive that deletes an account and then has a later
// event of that account. Write the events before that one, erase the account, then continue.
type ErrEnds struct {
	Before int // the number of the later event in the segment
}

// Error implements error.
func (e ErrEnds) Error() string {
	return fmt.Sprintf("graph: the write must end before event %d, whose account is deleted in it", e.Before)
}

// walk applies the segment's events to the states of their accounts, and leaves the changes of
// records in e.changes.
func (e *events) walk(seg *Segment, of *accounts, past *resyncs) error {
	e.past = past
	e.changes, e.replays, e.hidden, e.erasing = e.changes[:0], 0, nil, e.erasing[:0]
	for i, p := range seg.Events {
		as := of.ofEvent(i)
		if as.was.Has(format.FlagErasing) {
			return ErrErasing{as.id}
		}
		if as.now.Has(format.FlagErasing) {
			return ErrEnds{i}
		}
		e.event(seg.Batch, seg.Batch.Event(int(p.N)), as, seg.sourceOf(p))
	}
	e.lastWriteWins()
	return nil
}

// event applies one event. source is the number of the source in the partition of its
// account. The cases have the order of docs/semantics.md#s9 to #s22.
func (e *events) event(b *batch.Batch, ev *batch.Event, as *actorState, source uint32) {
	switch ev.Kind {
	case batch.EventImport:
		e.importEvent(b, ev, as)
	case batch.EventAccount:
		e.account(b, ev, as, source)
	case batch.EventSync:
		e.sync(b, ev, as, source)
	case batch.EventCommit:
		e.commit(b, ev, as, source)
	case batch.EventResync:
		e.past.ask(as, b.Bytes(ev.DID), b.Cause(ev.Seq))
	case batch.EventSnapshot:
		e.snapshot(b, ev, as)
	case batch.EventArchived:
		e.archived(b, ev, as)
	case batch.EventArchivedStatus:
		e.archivedStatus(b, ev, as)
	case batch.EventStatus:
		if !e.past.statusKnown(as) {
			e.setHidden(as, ev.Flags&batch.IsActive == 0)
			if ev.Flags&batch.IsActive != 0 {
				e.past.back(as, b.Bytes(ev.DID))
			}
		}
	}
}

func (e *events) commit(b *batch.Batch, ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	switch {
	case st.DeletionSource == source && ev.Seq <= st.DeletionSeq, // before the account's deletion
		ev.Seq > 0 && st.Source == source && ev.Seq <= st.Seq: // applied before
		e.replays++
		return
	case st.Has(format.FlagHasRev) && ev.Flags&batch.HasRev != 0:
		if ev.Rev <= st.Rev {
			// A commit may announce an imported repo under the rev that it was signed with.
			if ev.Flags&batch.HasData != 0 && st.Source == source &&
				(ev.Flags&batch.HasOtherRev != 0 && ev.Data != st.Data || e.past.leadsOn(as, ev)) {
				e.past.missed(as, b.Bytes(ev.DID), "rev_in_the_past")
				e.past.putBack(as, ev)
				st.Seq = ev.Seq
				return
			}
			e.replays++
			return
		}
	}
	as.changed = true
	if ev.Flags&batch.IsRefuted != 0 { // it does not even prove that there is a newer state
		if e.past.missed(as, b.Bytes(ev.DID), "refuted"); ev.Seq > 0 {
			st.Source, st.Seq = source, ev.Seq
		}
		return
	}
	broken := ev.Flags&batch.IsDamaged != 0
	if broken {
		e.past.behind(as, b.Bytes(ev.DID), "damaged", ev)
	}
	if ev.Flags&(batch.HasRev|batch.HasData) != batch.HasRev|batch.HasData {
		if ev.Seq > 0 {
			st.Source, st.Seq = source, ev.Seq // so that a repetition of this event is a replay
		}
		return // unreadable: it applies nothing, and the rev stays
	}
	switch {
	case !st.Has(format.FlagHasRev):
		if ev.Flags&batch.HasSince != 0 {
			st.Flags |= format.FlagPartial
			if e.past.Partial {
				e.past.queue(as, b.Bytes(ev.DID), "partial")
			}
		}
	case ev.Flags&batch.HasSince == 0, ev.Since < st.Rev,
		!st.Has(format.FlagNoRoot) && (ev.Since != st.Rev || ev.Flags&batch.HasPrevData != 0 && ev.PrevData != st.Data):
		broken = true
		e.past.missed(as, b.Bytes(ev.DID), "chain")
	}
	st.Flags = st.Flags&^(format.FlagNoRoot|format.FlagBehind) | format.FlagHasRev
	noted := e.past.notes(as)
	if noted {
		e.past.noteCommit(as, ev, broken)
	}
	st.Rev, st.Data = ev.Rev, ev.Data
	st.Source, st.Seq = source, ev.Seq
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		o := b.Op(i)
		p := format.ParsePath(b.Bytes(o.Rkey))
		c := change{kind: o.Kind, delete: o.Delete, fresh: as.made || !as.was.MayHold(p), actor: as.id, path: p, subject: -1, order: i}
		if !o.Delete {
			st.NoteLow(p)
			if p.Raw == nil {
				st.Top = max(st.Top, p.TID)
			}
		}
		if o.Subject.End > o.Subject.Start {
			c.subject = int32(i)
		}
		e.changes = append(e.changes, c)
		if noted {
			e.past.notePath(as, o.Kind, b.Bytes(o.Rkey), ev.Rev)
		}
	}
}

// sync applies a #sync. If its root is the index's, no event was missed, and the chain continues
// from the higher rev. A different root with a rev not above the index's is outdated: a relay
// that was killed sends its last events again, under new numbers. But if the message names
// another rev than the block, it announces an import, which may bring an older repo.
func (e *events) sync(b *batch.Batch, ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	known := st.Has(format.FlagHasRev) && ev.Flags&batch.HasRev != 0
	switch {
	case st.Source == source && ev.Seq <= st.Seq:
		e.replays++
		return
	case st.Source != source && known && ev.Rev <= st.Rev: // another source's, or from before the sequence restarted
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
	switch {
	case known && ev.Rev <= st.Rev && ev.Flags&batch.HasData != 0 && (!same || ev.Flags&batch.HasOtherRev != 0 && e.past.toldNewer(as)):
		e.past.missed(as, b.Bytes(ev.DID), "sync")
		e.past.putBack(as, ev)
	case !same:
		e.past.behind(as, b.Bytes(ev.DID), "sync", ev)
	case known:
		st.Rev = max(st.Rev, ev.Rev)
	}
}

// hide notes that an account must be hidden, or shown again.
func (e *events) hide(id dict.ID, hide bool) {
	if e.hidden == nil {
		e.hidden = map[dict.ID]bool{}
	}
	e.hidden[id] = hide
}

// importEvent applies an account or records of an export.
func (e *events) importEvent(b *batch.Batch, ev *batch.Event, as *actorState) {
	if ev.Flags&batch.HasState != 0 {
		im := b.Imported(ev.Seq)
		st := im.State
		if as.now.Has(format.FlagHidden) != st.Has(format.FlagHidden) {
			e.hide(as.id, st.Has(format.FlagHidden))
		}
		st.LowBucket = as.now.LowBucket
		as.now, as.changed = st, true
		e.past.take(as, im)
	}
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		o := b.Op(i)
		c := change{kind: o.Kind, fresh: ev.Flags&batch.IsFresh != 0, actor: as.id, path: format.ParsePath(b.Bytes(o.Rkey)), subject: -1, order: i}
		was := as.now.LowBucket
		as.now.NoteLow(c.path)
		as.changed = as.changed || as.now.LowBucket != was
		if o.Subject.End > o.Subject.Start {
			c.subject = int32(i)
		}
		e.changes = append(e.changes, c)
	}
}

func (e *events) account(b *batch.Batch, ev *batch.Event, as *actorState, source uint32) {
	st := &as.now
	if st.AccountSource == source && ev.Seq <= st.AccountSeq {
		e.replays++
		return
	}
	as.changed = true
	st.AccountSource, st.AccountSeq = source, ev.Seq
	if hide := ev.Flags&batch.IsActive == 0; hide != st.Has(format.FlagHidden) {
		st.Flags ^= format.FlagHidden
		e.hide(as.id, hide)
	}
	if ev.Flags&batch.IsActive != 0 {
		e.past.back(as, b.Bytes(ev.DID))
	}
	if ev.Flags&batch.IsDeleted != 0 {
		e.past.end(as)
		*st = format.RepoState{
			Flags: format.FlagHidden | format.FlagErasing, Source: source, Seq: ev.Seq,
			AccountSource: source, AccountSeq: ev.Seq, DeletionSource: source, DeletionSeq: ev.Seq, LowBucket: st.LowBucket,
		}
		e.erasing = append(e.erasing, as.id)
	}
}

// lastWriteWins sorts the changes by path and keeps the last one of each path.
func (e *events) lastWriteWins() {
	e.spare = sortByID(&e.sorter, e.changes, e.spare, func(c *change) (kinds.Kind, dict.ID) { return c.kind, c.actor },
		func(x, y change) int { return cmp.Or(compareChanges(&x, &y), cmp.Compare(x.order, y.order)) })
	e.changes, e.spare = e.spare, e.changes
	kept := e.changes[:0]
	for i := range e.changes {
		if i+1 < len(e.changes) && compareChanges(&e.changes[i], &e.changes[i+1]) == 0 {
			continue
		}
		kept = append(kept, e.changes[i])
	}
	e.changes = kept
}
