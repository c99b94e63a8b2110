package write

import (
	"bytes"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// The methods of the type events in this file apply older data: snapshots of repos, whole or in
// parts, and rows of an archive (docs/semantics.md#s37, #s49).

// snapshot places a snapshot, or a part of one (docs/semantics.md#s40).
func (e *events) snapshot(ev *batch.Event, as *actorState) {
	b := e.batch
	part, st := b.Part(ev.Seq), &as.now
	row, since, root := as.inQueue(), as.touched, ev.Data
	switch {
	case row == nil:
		b.SetOutcome(ev.Seq, batch.NotQueued)
		return
	case st.Has(format.FlagHidden) && st.DeletionSource != 0 && st.AccountSource == st.DeletionSource && st.AccountSeq == st.DeletionSeq:
		b.SetOutcome(ev.Seq, batch.Deleted)
		as.dequeue()
		as.changed = true
		return
	case row.Generation != part.Generation, !part.First && row.Placing != ev.Rev:
		b.SetOutcome(ev.Seq, batch.Superseded)
		return
	}
	as.changed = true
	if part.First {
		isAhead := ev.Rev > e.latest
		newest, ok := row.accepts(st, since, ev.Rev, root)
		if !ok || isAhead && !since.isEmpty() {
			b.SetOutcome(ev.Seq, batch.Older)
			return
		}
		if newest { // the snapshot contains the stream's changes up to this rev
			rev := ev.Rev
			if isAhead { // no commit has this one, so the next commit breaks the chain, and none is a replay
				rev = st.Rev + 1
			}
			st.MoveTo(rev, root)
			st.Flags &^= format.FlagNoRoot | format.FlagBehind
			row.Trust = false
			if row.Back.Rev != ev.Rev { // the repo has moved on from the state to which it was put back
				row.Back = format.PutBack{}
			}
		}
		if !part.Last { // until the last part is placed, only some records are in the snapshot's state
			st.Flags |= format.FlagDesync
		}
		row.Placing, row.changed = ev.Rev, true
	}
	if as.manyStored || ev.Flags&batch.IsDamaged != 0 { // the event was too large
		as.startOver(e, ev)
		return
	}
	b.SetOutcome(ev.Seq, batch.Placed)
	e.placePart(ev, as)
	if part.Last {
		st.Flags &^= format.FlagPartial | format.FlagDesync
		as.dequeue()
		delete(e.far, as.id)
	}
}

// accepts reports whether to use a snapshot (ok): it is the newest announced state (newest), so its
// rev and root become the account's, or the touched commits continue from it to the index's state.
// An older snapshot comes from a cache or a lagging replica, even if the host repeats it. Only the
// stream or an operator can say that a repo was put back to an older state.
func (row *queueRow) accepts(st *format.RepoState, since *touched, rev format.Rev, root format.Root) (newest, ok bool) {
	announced := !row.Back.IsZero() && row.Back.Rev == rev && (len(row.Back.Root) == 0 || bytes.Equal(row.Back.Root, root[:]))
	follows := since.follows(rev, root, st.Rev)
	switch {
	case rev < row.Told:
		return false, false
	case announced || row.Trust:
		// Confirmed by the stream, a list or an operator: accept it if the touched commits follow from
		// it, if there are none, or if it is trusted and its rev is at least the index's.
		return !follows, follows || since.isEmpty() || !announced && rev >= st.Rev
	case !row.Back.IsZero() && rev <= row.Back.Above:
		return false, false
	case !st.Has(format.FlagHasRev) || rev >= st.Rev:
		return true, true
	}
	return false, follows
}

// placePart adds the changes that turn the stored records into those of a part of a snapshot.
func (e *events) placePart(ev *batch.Event, as *actorState) {
	b, since, stored := e.batch, as.touched, as.stored
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		o := b.Op(i)
		rkey := b.Bytes(o.Rkey)
		if since.changedAfter(o.Kind, rkey, ev.Rev) {
			continue
		}
		c := change{kind: o.Kind, fresh: true, actor: as.id, path: format.ParsePath(rkey), subject: -1, order: i}
		if o.Kind.IsMany() {
			e.placeOneOfMany(ev, as, c)
			continue
		}
		if len(stored) > 0 {
			name := pathName(o.Kind, rkey)
			if r, ok := stored[name]; ok {
				c.existed, c.old = true, r.subject
				r.inPlace = true
				stored[name] = r
			}
		}
		e.put(as, c)
	}
	for _, r := range stored {
		e.rkey = r.path.AppendRkey(e.rkey[:0])
		if !r.inPlace && !since.changedAfter(r.kind, e.rkey, ev.Rev) {
			e.changes = append(e.changes, change{kind: r.kind, delete: true, existed: true, fresh: !r.kind.IsMany(), actor: as.id, path: r.path, subject: -1, old: r.subject})
		}
	}
}

// placeOneOfMany adds the change of one subject of a record in a snapshot that can name several. With the
// first of them it adds the deletion of those that are stored.
func (e *events) placeOneOfMany(ev *batch.Event, as *actorState, c change) {
	b, stored := e.batch, as.stored
	o := b.Op(c.order)
	name := pathName(o.Kind, b.Bytes(o.Rkey))
	r, isStored := stored[name]
	c.fresh = !isStored
	if first := c.order; first == ev.Ops.Start || b.Op(first-1).Kind != o.Kind || !bytes.Equal(b.Bytes(b.Op(first-1).Rkey), b.Bytes(o.Rkey)) {
		clear := c
		clear.delete = true
		e.changes = append(e.changes, clear)
		if isStored {
			r.inPlace = true
			stored[name] = r
		}
	}
	e.put(as, c)
}

// archived applies archive rows that share a repo and a rev.
func (e *events) archived(ev *batch.Event, as *actorState) {
	st := &as.now
	b, row := e.batch, as.inQueue()
	placing := row != nil && row.Placing != 0 // a snapshot is partly placed, and takes precedence over archive rows
	if st.Whole() || placing || st.DeletionSource != 0 || ev.Flags&batch.HasRev == 0 {
		e.replays++
		return
	}
	as.changed = true
	since := as.touched
	switch {
	case ev.Flags&batch.IsDamaged != 0:
		e.markMissed(as, "damaged")
		return
	case ev.Rev > e.latest:
		e.markMissed(as, "future_rev")
		return
	case !st.Has(format.FlagHasRev) || st.Has(format.FlagNoRoot):
		st.MoveTo(max(st.Rev, ev.Rev), st.Data)
		st.Flags |= format.FlagNoRoot | format.FlagPartial
	case ev.Rev > st.Rev: // the stream, which has taken over, is still to bring it
		return
	default:
		since.reach(ev.Rev)
	}
	for i := ev.Ops.Start; i < ev.Ops.End; i++ {
		o := b.Op(i)
		rkey := b.Bytes(o.Rkey)
		if since.changedAfter(o.Kind, rkey, ev.Rev-1) { // at the same rev, stream and archive have the same change
			continue
		}
		e.op(as, i)
	}
}

// archivedStatus applies an #account or a #sync of an archive. A deletion and a #sync void the
// archive's earlier rows. If the stream has changed the repo meanwhile, the repo is queued for a
// refetch instead, because records from the archive cannot be distinguished from those of the stream.
func (e *events) archivedStatus(ev *batch.Event, as *actorState) {
	st := &as.now
	if st.DeletionSource != 0 {
		e.replays++
		return
	}
	if ev.Flags&batch.IsSync == 0 && st.AccountSource == 0 && !st.Whole() {
		e.setHidden(as, ev.Flags&batch.IsActive == 0)
	}
	if ev.Flags&(batch.IsDeleted|batch.IsSync) == 0 || st.Whole() {
		return
	}
	if st.Has(format.FlagHasRev) && !st.Has(format.FlagNoRoot) {
		e.markMissed(as, "archived_sync")
		return
	}
	as.changed = true
	if ev.Flags&batch.IsSync == 0 && !st.Has(format.FlagHasRev) && !st.Has(format.FlagRecords) {
		return // there is nothing to void
	}
	flags := st.Flags&(format.FlagHidden|format.FlagResync|format.FlagDesync|format.FlagRecords|format.FlagReturned) | format.FlagPartial
	*st = format.RepoState{Flags: flags, AccountSource: st.AccountSource, AccountSeq: st.AccountSeq}
	if st.Has(format.FlagRecords) { // it has records, in the store or in this write
		st.Flags |= format.FlagErasing
		e.erasing = append(e.erasing, as.id)
	}
}
