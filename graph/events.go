package graph

import (
	"cmp"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/radix"
)

// events is the phase of a write that walks its events in the order of the stream:
// replays drop out, the states of accounts change, and of the changes to each path
// the last is kept.
type events struct {
	changes changes
	spare   []change // scratch of lastWriteWins
	sorter  radix.Sorter

	replays int              // events that had been applied before
	hidden  map[dict.ID]bool // changes of the hidden set
	erasing []dict.ID        // accounts that were deleted

	past *resyncs
	rkey []byte // scratch
}

// errErasing ends an attempt that met an account which is still being erased.
type errErasing struct{ actor dict.ID }

// errEnds ends an attempt at a write of an archive's events that has to end before the
// event with this number: what its account had is to be erased first.
type errEnds struct{ before int }

func (e errEnds) Error() string {
	return fmt.Sprintf("graph: the account of event %d of the write is to be erased before", e.before)
}

func (e errErasing) Error() string { return fmt.Sprintf("graph: account %d is being erased", e.actor) }

// walk applies the segment's events to the states of their accounts, and leaves in
// e.changes what they change, by path.
func (e *events) walk(seg *segment, of *accounts, past *resyncs) error {
	e.past = past
	e.changes, e.replays, e.hidden, e.erasing = e.changes[:0], 0, nil, e.erasing[:0]
	for i, p := range seg.events {
		as := of.ofEvent(i)
		if as.was.Has(format.FlagErasing) {
			return errErasing{as.id}
		}
		if as.now.Has(format.FlagErasing) {
			return errEnds{i}
		}
		e.event(seg.batch, seg.batch.Event(int(p.n)), as, seg.sourceOf(p))
	}
	e.lastWriteWins()
	return nil
}

// event applies one event. source is the number of the source in the partition of its
// account. The order of the questions asked here is that of docs/SEMANTICS.md, 6 to 14.
func (e *events) event(b *Batch, ev *event, as *actorState, source uint32) {
	switch ev.kind {
	case eventImport:
		e.importEvent(b, ev, as)
	case eventAccount:
		e.account(b, ev, as, source)
	case eventSync:
		e.sync(b, ev, as, source)
	case eventCommit:
		e.commit(b, ev, as, source)
	case eventResync:
		e.past.ask(as, b.Bytes(ev.did), b.Cause(ev.seq))
	case eventSnapshot:
		e.snapshot(b, ev, as)
	case eventArchived:
		e.archived(b, ev, as)
	case eventArchivedStatus:
		e.archivedStatus(b, ev, as)
	case eventStatus:
		if !e.past.statusKnown(as) {
			e.setHidden(as, ev.flags&active == 0)
			if ev.flags&active != 0 {
				e.past.back(as, b.Bytes(ev.did))
			}
		}
	}
}

func (e *events) commit(b *Batch, ev *event, as *actorState, source uint32) {
	st := &as.now
	switch {
	case st.DeletionSource == source && ev.seq <= st.DeletionSeq, // from before the account's deletion
		ev.seq > 0 && st.Source == source && ev.seq <= st.Seq: // applied, or from before what was
		e.replays++
		return
	case st.Has(format.FlagHasRev) && ev.flags&hasRev != 0:
		if ev.rev <= st.Rev {
			// A repo that was imported may be announced by a commit of the rev that it
			// was signed under.
			if ev.flags&hasData != 0 && st.Source == source &&
				(ev.flags&otherRev != 0 && ev.data != st.Data || e.past.leadsOn(as, ev)) {
				e.past.missed(as, b.Bytes(ev.did), "rev_in_the_past")
				e.past.putBack(as, ev)
				st.Seq = ev.seq
				return
			}
			e.replays++
			return
		}
	}
	as.changed = true
	broken := ev.flags&isDamaged != 0
	if broken {
		e.past.behind(as, b.Bytes(ev.did), "damaged", ev)
	}
	if ev.flags&(hasRev|hasData) != hasRev|hasData {
		if ev.seq > 0 {
			st.Source, st.Seq = source, ev.seq // should it come again, it is the same one
		}
		return // could not be read whole: applies nothing, the rev stays
	}
	switch {
	case !st.Has(format.FlagHasRev):
		if ev.flags&hasSince != 0 {
			st.Flags |= format.FlagPartial
			if e.past.partial {
				e.past.queue(as, b.Bytes(ev.did), "partial")
			}
		}
	case ev.flags&hasSince == 0, ev.since < st.Rev,
		!st.Has(format.FlagNoRoot) && (ev.since != st.Rev || ev.flags&hasPrevData != 0 && ev.prevData != st.Data):
		broken = true
		e.past.missed(as, b.Bytes(ev.did), "chain")
	}
	st.Flags = st.Flags&^(format.FlagNoRoot|format.FlagBehind) | format.FlagHasRev
	noted := e.past.notes(as)
	if noted {
		e.past.noteCommit(as, ev, broken)
	}
	st.Rev, st.Data = ev.rev, ev.data
	st.Source, st.Seq = source, ev.seq
	for i := ev.ops.Start; i < ev.ops.End; i++ {
		o := b.Op(uint32(i))
		p := format.ParsePath(b.Bytes(o.rkey))
		c := change{kind: o.kind, delete: o.delete, fresh: as.made || !as.was.MayHold(p), actor: as.id, path: p, subject: -1, order: i}
		if !o.delete {
			st.NoteLow(p)
			if p.Raw == nil {
				st.Top = max(st.Top, p.TID)
			}
		}
		if o.subject.End > o.subject.Start {
			c.subject = int32(i)
		}
		e.changes = append(e.changes, c)
		if noted {
			e.past.notePath(as, o.kind, b.Bytes(o.rkey), ev.rev)
		}
	}
}

// sync: the same root as ours means that nothing was missed, and the chain goes on
// from the higher rev. Another root under a rev that is not above ours is from before:
// a relay that was killed sends the last ones again, under new numbers. But one whose
// message names another rev announces an import, which may bring an older repo.
func (e *events) sync(b *Batch, ev *event, as *actorState, source uint32) {
	st := &as.now
	known := st.Has(format.FlagHasRev) && ev.flags&hasRev != 0
	switch {
	case st.Source == source && ev.seq <= st.Seq:
		e.replays++
		return
	case st.Source != source && known && ev.rev <= st.Rev: // of another source, or from before a sequence began anew
		e.replays++
		return
	}
	same := st.Has(format.FlagHasRev) && ev.flags&hasData != 0 && ev.data == st.Data
	if !same && known && ev.rev <= st.Rev && ev.flags&(otherRev|hasData) == hasData {
		e.replays++
		return
	}
	as.changed = true
	st.Source, st.Seq = source, ev.seq
	switch {
	case known && ev.rev <= st.Rev && ev.flags&hasData != 0 && (!same || ev.flags&otherRev != 0 && e.past.toldNewer(as)):
		e.past.missed(as, b.Bytes(ev.did), "sync")
		e.past.putBack(as, ev)
	case !same:
		e.past.behind(as, b.Bytes(ev.did), "sync", ev)
	case known:
		st.Rev = max(st.Rev, ev.rev)
	}
}

// hide notes that an account is to be hidden, or shown again.
func (e *events) hide(id dict.ID, hide bool) {
	if e.hidden == nil {
		e.hidden = map[dict.ID]bool{}
	}
	e.hidden[id] = hide
}

// importEvent takes over what another store knew.
func (e *events) importEvent(b *Batch, ev *event, as *actorState) {
	if ev.flags&hasState != 0 {
		im := b.Imported(ev.seq)
		st := im.State
		if as.now.Has(format.FlagHidden) != st.Has(format.FlagHidden) {
			e.hide(as.id, st.Has(format.FlagHidden))
		}
		st.LowBucket = as.now.LowBucket
		as.now, as.changed = st, true
		e.past.take(as, im)
	}
	for i := ev.ops.Start; i < ev.ops.End; i++ {
		o := b.Op(uint32(i))
		c := change{kind: o.kind, fresh: ev.flags&fresh != 0, actor: as.id, path: format.ParsePath(b.Bytes(o.rkey)), subject: -1, order: i}
		was := as.now.LowBucket
		as.now.NoteLow(c.path)
		as.changed = as.changed || as.now.LowBucket != was
		if o.subject.End > o.subject.Start {
			c.subject = int32(i)
		}
		e.changes = append(e.changes, c)
	}
}

func (e *events) account(b *Batch, ev *event, as *actorState, source uint32) {
	st := &as.now
	if st.AccountSource == source && ev.seq <= st.AccountSeq {
		e.replays++
		return
	}
	as.changed = true
	st.AccountSource, st.AccountSeq = source, ev.seq
	if hide := ev.flags&active == 0; hide != st.Has(format.FlagHidden) {
		st.Flags ^= format.FlagHidden
		e.hide(as.id, hide)
	}
	if ev.flags&active != 0 {
		e.past.back(as, b.Bytes(ev.did))
	}
	if ev.flags&isDeleted != 0 {
		e.past.end(as)
		*st = format.RepoState{
			Flags: format.FlagHidden | format.FlagErasing, Source: source, Seq: ev.seq,
			AccountSource: source, AccountSeq: ev.seq, DeletionSource: source, DeletionSeq: ev.seq, LowBucket: st.LowBucket,
		}
		e.erasing = append(e.erasing, as.id)
	}
}

// lastWriteWins sorts the changes by path and keeps the last on each.
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
