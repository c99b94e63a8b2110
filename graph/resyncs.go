package graph

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// resyncs is the phase of a write that knows the past of its accounts: which are queued to
// be fetched whole, what the stream has changed of them since, and what the store has
// where a snapshot is put in place. In the end it writes what has changed of that.
//
// How the past and the stream meet is said in docs/SEMANTICS.md.
type resyncs struct {
	modes
	now time.Time

	rows    map[dict.ID]*resyncRow
	touched map[dict.ID]*touched
	stored  map[dict.ID]map[string]storedRecord // by path
	paths   []touchedPath
	commits []touchedCommit
	path    []byte // scratch
	keys    keyBuffer
}

// modes say what is done about what is missing.
type modes struct {
	queues    bool // what was missed is queued
	partial   bool // and so are repos whose past was not seen: the past of all others was fetched
	past      bool // the past of all is being fetched, or was
	archiving bool // an archive is being read
}

// resyncRow is a row of the queue of resyncs.
type resyncRow struct {
	format.Resync
	did           []byte
	changed, gone bool
	forget        bool // what the stream has changed before is void
}

// touched is what the stream has changed of a repo since it was queued.
type touched struct {
	keys    [][]byte
	paths   map[string]format.Rev // by kind and record key
	commits []format.Touched      // ascending
}

// storedRecord is a record in the place of which a snapshot comes.
type storedRecord struct {
	kind    kinds.Kind
	path    format.Path
	subject dict.ID
	inPlace bool // the snapshot has it
}

type touchedPath struct {
	actor dict.ID
	kind  kinds.Kind
	rkey  []byte // in the batch
	rev   format.Rev
}

type touchedCommit struct {
	actor dict.ID
	rev   format.Rev
	format.TouchedCommit
}

// read reads what the events of the segment may ask for.
func (q *resyncs) read(tx kv.Txn, seg *segment, of *accounts, t *kinds.Table) error {
	q.now = time.Now().UTC().Truncate(time.Millisecond)
	clear(q.rows)
	clear(q.touched)
	clear(q.stored)
	q.paths, q.commits = q.paths[:0], q.commits[:0]
	if err := q.readRows(tx, of); err != nil {
		return err
	}
	for i, p := range seg.events {
		ev := &seg.batch.events[p.n]
		if ev.kind != eventSnapshot && ev.kind != eventArchived {
			continue
		}
		as := of.ofEvent(i)
		if as.was.Has(format.FlagResync) || as.was.Has(format.FlagPartial) && !as.was.Has(format.FlagNoRoot) {
			if err := q.readTouched(tx, as.id); err != nil {
				return err
			}
		}
		if ev.kind == eventSnapshot && as.known && as.was.LowBucket != format.LowNone {
			if err := q.readStored(tx, as.id, &seg.batch.snapshots[ev.seq], t); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRows reads the rows of the accounts that are queued.
func (q *resyncs) readRows(tx kv.Txn, of *accounts) error {
	q.keys.reset()
	for i := range of.states {
		if as := &of.states[i]; as.was.Has(format.FlagResync) {
			q.keys.add(format.ResyncKey(as.id))
		}
	}
	if len(q.keys.keys) == 0 {
		return nil
	}
	if q.rows == nil {
		q.rows = map[dict.ID]*resyncRow{}
	}
	return tx.MultiGet(q.keys.keys, func(i int, v []byte, ok bool) error {
		if !ok {
			return fmt.Errorf("graph: an account that is queued to be fetched has no row %x: run skein check", q.keys.keys[i])
		}
		id, err := format.ParseActorKey(q.keys.keys[i])
		if err != nil {
			return err
		}
		r, err := format.DecodeResync(v)
		q.rows[id] = &resyncRow{Resync: r}
		return err
	})
}

// readTouched reads what the stream has changed of a repo.
func (q *resyncs) readTouched(tx kv.Txn, actor dict.ID) error {
	if q.touched[actor] != nil {
		return nil
	}
	t := &touched{paths: map[string]format.Rev{}}
	err := kv.ScanPrefix(tx, format.AppendTouchedKey(nil, actor, 0, nil), func(key, v []byte) error {
		key = bytes.Clone(key)
		one, err := format.DecodeTouched(key, v)
		if err != nil || one.Actor != actor { // the prefix of a longer id
			return err
		}
		t.keys = append(t.keys, key)
		if one.Kind == kinds.Hidden {
			t.commits = append(t.commits, one)
		} else {
			t.paths[pathName(one.Kind, one.Rkey)] = one.Rev
		}
		return nil
	})
	if q.touched == nil {
		q.touched = map[dict.ID]*touched{}
	}
	q.touched[actor] = t
	return err
}

func pathName(k kinds.Kind, rkey []byte) string { return string(byte(k)) + string(rkey) }

// readStored reads the records that lie where a snapshot is put in place.
func (q *resyncs) readStored(tx kv.Txn, actor dict.ID, part *snapshot, t *kinds.Table) error {
	stored := map[string]storedRecord{}
	for i := range t.All {
		k := &t.All[i]
		err := read.Records(tx, k.Kind, actor, func(r *format.Record) bool {
			q.path = r.Path.AppendRkey(append(append(q.path[:0], k.Collection...), '/'))
			if part.holds(q.path) {
				p := r.Path
				p.Raw = bytes.Clone(p.Raw)
				stored[pathName(k.Kind, q.path[len(k.Collection)+1:])] = storedRecord{kind: k.Kind, path: p, subject: r.Subject}
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("graph: reading the records of account %d: %w", actor, err)
		}
	}
	if q.stored == nil {
		q.stored = map[dict.ID]map[string]storedRecord{}
	}
	q.stored[actor] = stored
	return nil
}

// queue queues a repo to be fetched whole, for a reason. What the stream changes of it is
// noted from now on.
func (q *resyncs) queue(as *actorState, did []byte, reason string) {
	if q.rows == nil {
		q.rows = map[dict.ID]*resyncRow{}
	}
	row := q.rows[as.id]
	if row == nil || row.gone {
		row = &resyncRow{Resync: format.Resync{Queued: q.now}}
		q.rows[as.id] = row
	}
	if row.Tries == 0 || row.State != format.ResyncWaiting {
		row.Due, row.Tries = q.now, 0
	}
	row.State, row.Reason, row.Failure, row.Detail = format.ResyncWaiting, reason, "", ""
	row.Generation = max(row.Generation+1, uint64(time.Now().UnixMicro()))
	row.did, row.changed = did, true
	as.now.Flags |= format.FlagResync
	as.changed = true
}

// missed notes that something of a repo was missed.
func (q *resyncs) missed(as *actorState, did []byte, reason string) {
	as.changed = true
	as.now.Flags |= format.FlagDesync
	if q.queues {
		q.queue(as, did, reason)
	}
}

// end takes a repo out of the queue, and forgets what the stream has changed of it.
func (q *resyncs) end(as *actorState) {
	if row := q.rows[as.id]; row != nil {
		row.gone, row.changed = true, true
	}
	as.now.Flags &^= format.FlagResync
}

// back notes that an account is active again: a repo that waits for that is due, and one
// that no host would send while the past was fetched is queued.
func (q *resyncs) back(as *actorState, did []byte) {
	if q.past && as.was.Has(format.FlagHidden) && !as.now.Has(format.FlagResync) && !as.now.Complete() {
		q.queue(as, did, "back")
		return
	}
	if row := q.rows[as.id]; row != nil && !row.gone && row.State == format.ResyncInactive {
		row.State, row.Due, row.Tries = format.ResyncWaiting, q.now, 0
		row.did, row.changed = did, true
	}
}

// notes reports whether what the stream changes of an account is noted.
func (q *resyncs) notes(as *actorState) bool {
	return as.now.Has(format.FlagResync) || q.archiving && as.now.Has(format.FlagPartial)
}

// follows reports whether what the index has follows from a snapshot: the first commit
// after its rev says so, and none after that was broken.
func (t *touched) follows(rev format.Rev, root format.Root) bool {
	if t == nil {
		return false
	}
	for i := range t.commits {
		if c := &t.commits[i]; c.Rev > rev {
			return (c.Commit.Since == rev || c.Commit.HasPrev && c.Commit.Prev == root) &&
				!slices.ContainsFunc(t.commits[i+1:], func(c format.Touched) bool { return c.Commit.Broken })
		}
	}
	return false
}

// protects reports whether the stream has changed a path after a rev.
func (t *touched) protects(k kinds.Kind, rkey []byte, rev format.Rev) bool {
	if t == nil || len(t.paths) == 0 {
		return false
	}
	at, ok := t.paths[pathName(k, rkey)]
	return ok && at > rev
}

// write writes what has changed of the queue, and what the stream has changed.
func (q *resyncs) write(tx kv.Txn) error {
	for _, id := range sortedKeys(q.rows) {
		row := q.rows[id]
		switch {
		case !row.changed:
		case row.gone:
			tx.Delete(format.ResyncKey(id))
			if t := q.touched[id]; t != nil {
				for _, key := range t.keys {
					tx.Delete(key)
				}
			} else {
				prefix := format.AppendTouchedKey(nil, id, 0, nil)
				tx.DeleteRange(prefix, kv.PrefixEnd(prefix))
			}
		default:
			if t := q.touched[id]; row.forget && t != nil {
				for _, key := range t.keys {
					tx.Delete(key)
				}
			}
			v, err := row.Append(nil)
			if err != nil {
				return err
			}
			tx.Set(format.ResyncKey(id), v)
		}
	}
	ended := func(id dict.ID) bool { r := q.rows[id]; return r != nil && r.gone }
	var key, v []byte
	for _, p := range q.paths {
		if !ended(p.actor) {
			key = format.AppendTouchedKey(key[:0], p.actor, p.kind, p.rkey)
			tx.Set(key, binary.BigEndian.AppendUint64(v[:0], uint64(p.rev)))
		}
	}
	for i := range q.commits {
		if c := &q.commits[i]; !ended(c.actor) {
			key = format.AppendTouchedCommitKey(key[:0], c.actor, c.rev)
			v = c.Append(v[:0])
			tx.Set(key, v)
		}
	}
	return nil
}

func sortedKeys(m map[dict.ID]*resyncRow) []dict.ID {
	ids := make([]dict.ID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare[dict.ID])
	return ids
}

// A Queued is a repo that was queued, or is due earlier than it was.
type Queued struct {
	DID string
	Row format.Resync
}

// queued returns what the committed write has queued.
func (q *resyncs) queued() (all []Queued) {
	for _, row := range q.rows {
		if row.changed && !row.gone && row.did != nil {
			all = append(all, Queued{string(row.did), row.Resync})
		}
	}
	return all
}

// snapshot puts a snapshot in place, or a part of one (docs/SEMANTICS.md, The past).
func (e *events) snapshot(b *Batch, ev *event, as *actorState) {
	part, out, st := &b.snapshots[ev.seq], &b.outcomes[ev.seq], &as.now
	row, root := e.past.rows[as.id], ev.data
	since := e.past.touched[as.id]
	switch {
	case row == nil || row.gone:
		*out = NotQueued
		return
	case st.Has(format.FlagHidden) && st.DeletionSource != 0 && st.AccountSource == st.DeletionSource && st.AccountSeq == st.DeletionSeq:
		*out = Deleted
		e.past.end(as)
		as.changed = true
		return
	case row.Generation != part.generation, !part.first && row.Placing != ev.rev:
		*out = Superseded
		return
	}
	as.changed = true
	if part.first {
		newest := !st.Has(format.FlagHasRev) || ev.rev >= st.Rev
		if !newest && !since.follows(ev.rev, root) {
			row.changed = true
			if again := row.OlderRev == st.Rev && bytes.Equal(row.Older, root[:]); !again {
				row.Older, row.OlderRev = bytes.Clone(root[:]), st.Rev
				*out = Older
				return
			}
			newest = true // its host says so twice: it has been put back
			row.forget = true
			if since != nil {
				clear(since.paths)
			}
		}
		if newest { // what the stream tells up to this rev is in it
			st.Rev, st.Data = ev.rev, root
			st.Flags = st.Flags&^format.FlagNoRoot | format.FlagHasRev
		}
		row.Placing, row.changed = ev.rev, true
	}
	*out = Placed
	e.place(b, ev, as, since)
	if part.last {
		st.Flags &^= format.FlagPartial | format.FlagDesync
		e.past.end(as)
	}
}

// place makes the changes from what is stored to what a part of a snapshot has.
func (e *events) place(b *Batch, ev *event, as *actorState, since *touched) {
	stored := e.past.stored[as.id]
	for i := ev.ops.start; i < ev.ops.end; i++ {
		o := &b.ops[i]
		rkey := b.bytes(o.rkey)
		if since.protects(o.kind, rkey, ev.rev) {
			continue
		}
		c := change{kind: o.kind, fresh: true, actor: as.id, path: format.ParsePath(rkey), subject: -1, order: i}
		if len(stored) > 0 {
			name := pathName(o.kind, rkey)
			if r, ok := stored[name]; ok {
				c.existed, c.old = true, r.subject
				r.inPlace = true
				stored[name] = r
			}
		}
		e.put(as, c, o, i)
	}
	for _, r := range stored {
		e.rkey = r.path.AppendRkey(e.rkey[:0])
		if !r.inPlace && !since.protects(r.kind, e.rkey, ev.rev) {
			e.changes = append(e.changes, change{kind: r.kind, delete: true, existed: true, fresh: true, actor: as.id, path: r.path, subject: -1, old: r.subject})
		}
	}
}

// put adds the change that puts a record.
func (e *events) put(as *actorState, c change, o *op, at uint32) {
	as.now.NoteLow(c.path)
	if c.path.Raw == nil {
		as.now.Top = max(as.now.Top, c.path.TID)
	}
	if o.subject.end > o.subject.start {
		c.subject = int32(at)
	}
	e.changes = append(e.changes, c)
}

// archived applies rows of an archive, of one rev of a repo.
func (e *events) archived(b *Batch, ev *event, as *actorState) {
	st := &as.now
	if st.Complete() || st.DeletionSource != 0 || ev.flags&hasRev == 0 {
		e.replays++
		return
	}
	as.changed = true
	if !st.Has(format.FlagHasRev) || st.Has(format.FlagNoRoot) {
		st.Rev = max(st.Rev, ev.rev)
		st.Flags |= format.FlagHasRev | format.FlagNoRoot | format.FlagPartial
	}
	since := e.past.touched[as.id]
	for i := ev.ops.start; i < ev.ops.end; i++ {
		o := &b.ops[i]
		rkey := b.bytes(o.rkey)
		if since.protects(o.kind, rkey, ev.rev-1) { // of the same rev is the same
			continue
		}
		p := format.ParsePath(rkey)
		c := change{kind: o.kind, delete: o.delete, fresh: !as.was.MayHold(p), actor: as.id, path: p, subject: -1, order: i}
		if o.delete {
			e.changes = append(e.changes, c)
			continue
		}
		e.put(as, c, o, i)
	}
}

// archivedStatus applies an #account or a #sync of an archive: a deletion, and a #sync,
// take away what came before them. Where the stream has told of the repo since, it is
// fetched instead: what the archive's rows made cannot be told from what the stream did.
func (e *events) archivedStatus(b *Batch, ev *event, as *actorState) {
	st := &as.now
	if st.DeletionSource != 0 {
		e.replays++
		return
	}
	if ev.flags&synced == 0 && st.AccountSource == 0 {
		e.setHidden(as, ev.flags&active == 0)
	}
	if ev.flags&(deleted|synced) == 0 || st.Complete() {
		return
	}
	if st.Has(format.FlagHasRev) && !st.Has(format.FlagNoRoot) {
		e.past.missed(as, b.bytes(ev.did), "archived_sync")
		return
	}
	as.changed = true
	if st.LowBucket == format.LowNone {
		return // it has no records, nor did this write bring any
	}
	flags := st.Flags & (format.FlagHidden | format.FlagResync)
	*st = format.RepoState{Flags: flags | format.FlagErasing, AccountSource: st.AccountSource, AccountSeq: st.AccountSeq, LowBucket: st.LowBucket}
	e.erasing = append(e.erasing, as.id)
}

// setHidden hides an account, or shows it again.
func (e *events) setHidden(as *actorState, hide bool) {
	as.changed = true
	if hide != as.now.Has(format.FlagHidden) {
		as.now.Flags ^= format.FlagHidden
		e.hide(as.id, hide)
	}
}
