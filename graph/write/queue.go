package write

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// An account's row in the queue of repos to fetch, and what the stream changed in its repo since it was queued, are
// parts of the account's state in a write: accounts reads them, and in the end writes what changed; events changes them.
//
// docs/semantics.md#s37 defines how snapshots and the stream combine.

// Modes say which repos to queue, and whether the past is being read.
type Modes struct {
	Queues    bool // repos with missed events are queued
	Partial   bool // set after the backfill: from then on repos with an unknown past are queued, too
	Archiving bool // an archive is being read
	Part      bool // the store holds a part of the network
}

// queueRow is a row of the queue.
type queueRow struct {
	format.Resync
	changed, gone bool
	due           bool // the write queued the repo or made it due
	forget        bool // delete the stored notes of the stream's changes before writing new ones
}

// touched has the paths and commits that the stream applied to a repo since it was queued, as the store notes them.
type touched struct {
	keys    [][]byte
	paths   map[string]format.Rev // by kind and record key
	commits []format.Touched      // ascending
	reached format.Rev            // the highest archived rev below them
	changed bool                  // reached is another one than the store has
}

// note is what the write adds to the notes of the stream's changes: a path or a commit.
type note struct {
	of *actorState
	format.Touched
}

// storedRecord is a record in the range that a snapshot replaces.
type storedRecord struct {
	kind    kinds.Kind
	path    format.Path
	subject dict.ID
	inPlace bool // the snapshot has it, too
}

func pathName(k kinds.Kind, rkey []byte) string { return string(byte(k)) + string(rkey) }

// readQueued reads the rows of the accounts that are queued. For snapshots and archive rows it also reads the noted
// changes, and for snapshots the stored records. If these are too many for one write, it fails with kv.ErrTooLarge, unless the segment has
// one event.
func (a *accounts) readQueued(tx kv.Txn, seg *Segment, t *kinds.Table) error {
	if len(seg.Events) > 0 && seg.Batch.Event(int(seg.Events[0].N)).Kind == batch.EventImport {
		return nil // an import brings the rows
	}
	if err := a.readRows(tx); err != nil {
		return err
	}
	notes, records := 5*a.placing, a.placing // how many more to read
	for i, p := range seg.Events {
		ev := seg.Batch.Event(int(p.N))
		if ev.Kind != batch.EventSnapshot && ev.Kind != batch.EventArchived {
			continue
		}
		as := a.ofEvent(i)
		if ev.Kind == batch.EventSnapshot {
			if as.row == nil || as.row.Generation != seg.Batch.Part(ev.Seq).Generation {
				continue // it is not placed
			}
			records += int(ev.Ops.End - ev.Ops.Start)
		}
		if as.was.Has(format.FlagResync) || as.was.Has(format.FlagPartial) && !as.was.Has(format.FlagNoRoot) { // its changes may have been noted
			if err := as.readTouched(tx, &notes); err != nil {
				return err
			}
		}
		if ev.Kind == batch.EventSnapshot && as.known && as.was.Has(format.FlagRecords) && !as.was.Has(format.FlagErasing) && notes >= 0 {
			if err := as.readStored(tx, seg.Batch.Part(ev.Seq), t, &records); err != nil {
				return err
			}
		}
		if as.manyNotes, as.manyStored = notes < 0, records < 0; (as.manyNotes || as.manyStored) && len(seg.Events) > 1 {
			return kv.ErrTooLarge
		}
	}
	return nil
}

// readRows reads the rows of the accounts that are queued.
func (a *accounts) readRows(tx kv.Txn) error {
	var queued []*actorState
	a.keys.Reset()
	for i := range a.states {
		if as := &a.states[i]; as.was.Has(format.FlagResync) {
			queued = append(queued, as)
			a.keys.Add(format.ResyncKey(as.id))
		}
	}
	if len(queued) == 0 {
		return nil
	}
	return tx.MultiGet(a.keys.List(), func(i int, v []byte, ok bool) error {
		if !ok {
			return fmt.Errorf("graph: an account is marked as queued, but the queue of repos to fetch has no row %x; run skein check", a.keys.List()[i])
		}
		r, err := format.FromJSON[format.Resync](v)
		queued[i].row = &queueRow{Resync: r}
		return err
	})
}

// readTouched reads what the stream changed in a repo, until left is below 0.
func (as *actorState) readTouched(tx kv.Txn, left *int) error {
	if as.touched != nil {
		return nil
	}
	t := &touched{paths: map[string]format.Rev{}}
	as.touched = t
	prefix := format.AppendTouchedKey(nil, as.id, 0, nil)
	return tx.Scan(prefix, kv.PrefixEnd(prefix), false, func(key, v []byte) (bool, error) {
		key = bytes.Clone(key)
		one, err := format.DecodeTouched(key, v)
		if err != nil {
			return false, err
		}
		t.keys = append(t.keys, key)
		switch {
		case one.IsReached():
			t.reached = one.Commit.Since
		case one.Kind == kinds.Hidden:
			t.commits = append(t.commits, one)
		default:
			t.paths[pathName(one.Kind, one.Rkey)] = one.Rev
		}
		*left--
		return *left >= 0, nil
	})
}

// readStored reads the records in the range that a snapshot replaces, until left is below 0, and few others: a large snapshot comes in
// many parts. Only records whose keys are not TIDs are all read for each part of their collection.
func (as *actorState) readStored(tx kv.Txn, part *batch.Snapshot, t *kinds.Table, left *int) error {
	as.stored = map[string]storedRecord{}
	var path []byte
	for i := range t.All {
		k := &t.All[i]
		from, to, ok := part.Keys(k.Collection)
		if !ok {
			continue
		}
		first, ok := dict.FirstTID(from)
		last := uint64(math.MaxUint64)
		if end, before := dict.FirstTID(to); to != "" && before {
			last = end - 1
			ok = ok && end > 0
		}
		if !ok {
			first, last = 1, 0 // none
		}
		err := read.RecordsWithin(tx, k.Kind, as.id, first, last, func(r *format.Record) bool {
			path = r.Path.AppendRkey(append(append(path[:0], k.Collection...), '/'))
			if part.Holds(path) {
				p := r.Path
				p.Raw = bytes.Clone(p.Raw)
				as.stored[pathName(k.Kind, path[len(k.Collection)+1:])] = storedRecord{kind: k.Kind, path: p, subject: r.Subject}
				*left--
			}
			return *left >= 0
		})
		if err != nil {
			return fmt.Errorf("graph: reading the records of account %d: %w", as.id, err)
		}
	}
	return nil
}

// inQueue returns the account's row in the queue, nil if it is not there.
func (as *actorState) inQueue() *queueRow {
	if as.row == nil || as.row.gone {
		return nil
	}
	return as.row
}

// queue queues a repo for a refetch. From now on the stream's changes to it are noted.
func (e *events) queue(as *actorState, reason string) *queueRow {
	row := as.inQueue()
	if row == nil {
		row = &queueRow{Resync: format.Resync{Queued: e.now}, forget: as.row != nil}
		as.row = row
	}
	if row.Tries == 0 || row.State != format.ResyncWaiting {
		row.Due, row.Tries = e.now, 0
	}
	row.State, row.Reason, row.Failure, row.Detail = format.ResyncWaiting, reason, "", ""
	if as.now.Has(format.FlagBehind) && row.Back.IsZero() {
		row.Told = max(row.Told, as.now.Rev+1) // a state newer than the index's was announced and not applied
	}
	row.nextGeneration()
	row.due, row.changed = true, true
	as.now.Flags |= format.FlagResync
	as.changed = true
	return row
}

// markMissed notes that events of a repo were missed.
func (e *events) markMissed(as *actorState, reason string) {
	as.changed = true
	as.now.Flags |= format.FlagDesync
	if e.Queues && !e.outside {
		e.queue(as, reason)
	}
}

// dequeue removes a repo from the queue, with the notes of the stream's changes to it.
func (as *actorState) dequeue() {
	if as.row != nil {
		as.row.gone, as.row.changed = true, true
	}
	as.now.Flags &^= format.FlagResync | format.FlagReturned
}

// queueFor queues a repo for a Cause, and applies what the Cause says of its revs and host, except a
// rev above the latest one.
func (e *events) queueFor(as *actorState, c *batch.Cause) {
	if c.Leaves {
		as.dequeue()
		as.changed = true
		as.now.SetPartial()
		return
	}
	row := e.queue(as, c.Reason)
	if c.Host != "" {
		row.Host = c.Host
	}
	told := c.Told
	if told > e.latest {
		told = 0
	}
	if c.Reason == format.NeverHeard || c.Reason == format.KindAdded && as.now.Has(format.FlagPartial) || as.now.Has(format.FlagHasRev) && (told > as.now.Rev || c.Back != 0) { // a list shows a state that the stream did not bring
		as.now.Flags |= format.FlagDesync
	}
	if c.Reason == format.KindAdded { // what the stream changed of the kind before was not noted
		told = max(told, as.now.Rev)
	}
	if row.Back.IsZero() || told > row.Back.Above {
		row.Told = max(row.Told, told)
	}
	// Ignore the listed older rev if a state newer than the index's was announced: that may have been after the list was read.
	if c.Back != 0 && c.Back < as.now.Rev && row.Told <= as.now.Rev {
		e.setBack(as, row, format.PutBack{Rev: c.Back})
	}
	if c.Trust {
		row.Trust, row.Told = true, 0
		e.forget(as, row)
	}
}

// importRow imports an account's row from another store's queue, and the stream's changes noted there.
func (e *events) importRow(as *actorState, im *batch.Imported) {
	for _, t := range im.Touched {
		e.notes = append(e.notes, note{as, t})
	}
	if im.Queued != nil {
		as.row = &queueRow{Resync: *im.Queued, changed: true}
		as.now.Flags |= format.FlagResync
	}
}

// noteNewer notes that the stream announced a state that could not be applied, by a #sync or a
// damaged commit. A snapshot must not be older than that state.
func (e *events) noteNewer(as *actorState, reason string, ev *batch.Event) {
	e.markMissed(as, reason)
	st := &as.now
	st.Flags |= format.FlagBehind
	row := as.inQueue()
	if row == nil {
		return
	}
	row.changed = true
	// The announced state is newer than the index's, even if its rev is unknown.
	if st.Has(format.FlagHasRev) && (ev.Flags&batch.HasRev == 0 || ev.Kind == batch.EventCommit) {
		row.Told = max(row.Told, st.Rev+1)
	}
	if ev.Flags&batch.HasRev != 0 {
		if row.Told = max(row.Told, ev.Rev); row.Told <= row.Back.Above { // it is the newest state since the repo was put back
			e.setBack(as, row, format.PutBack{Rev: row.Told})
		}
	} else { // whatever was noted, a snapshot that is used has it
		e.forget(as, row)
	}
}

// putBack notes that the stream announced that the repo was put back to an older state, and that the events between
// were missed. The changes touched before are discarded.
func (e *events) putBack(as *actorState, reason string, ev *batch.Event) {
	e.markMissed(as, reason)
	as.now.Flags |= format.FlagBehind
	if row := as.inQueue(); row != nil {
		e.setBack(as, row, format.PutBack{Rev: ev.Rev, Root: bytes.Clone(ev.Data[:])})
	}
}

// setBack notes the older state to which a repo was put back.
func (e *events) setBack(as *actorState, row *queueRow, to format.PutBack) {
	to.Above = max(as.now.Rev, row.Told, row.Back.Above)
	row.Back, row.Told = to, 0
	e.forget(as, row)
}

// forget discards the touched paths and commits of a repo.
func (e *events) forget(as *actorState, row *queueRow) {
	row.forget, row.changed = true, true
	if t := as.touched; t != nil {
		clear(t.paths)
		t.commits = nil
	}
	e.notes = slices.DeleteFunc(e.notes, func(n note) bool { return n.of == as })
}

// startOver has a repo fetched again, in a state that is not older than the index's, because ev needs too many notes, or is a snapshot that
// changes too much for one write. Then the stored records are erased first.
func (as *actorState) startOver(e *events, ev *batch.Event) {
	if ev.Kind == batch.EventSnapshot {
		e.batch.SetOutcome(ev.Seq, batch.Superseded)
	}
	e.markMissed(as, "many_changes")
	if row := as.inQueue(); row != nil {
		row.Told, row.Placing = max(row.Told, as.now.Rev), 0
		e.forget(as, row)
	}
	if !as.manyNotes {
		as.now.Flags |= format.FlagErasing
		e.erasing = append(e.erasing, as.id)
		as.awaitErased(e)
	}
}

// awaitsState reports whether a state of a repo was announced but has not been applied. If the
// stream then announces the state that the index has, the repo was put back to it.
func (as *actorState) awaitsState() bool {
	row := as.inQueue()
	return row != nil && (row.Told > as.now.Rev || !row.Back.IsZero())
}

// continuesPutBack reports whether a commit continues from the state to which the repo was put back,
// although its rev is not above the index's: the repo's host may have a slow clock.
func (as *actorState) continuesPutBack(ev *batch.Event) bool {
	row := as.inQueue()
	if row == nil || row.Back.IsZero() {
		return false
	}
	return ev.Flags&batch.HasSince != 0 && ev.Since == row.Back.Rev && ev.Rev > row.Back.Rev ||
		ev.Flags&batch.HasPrevData != 0 && len(row.Back.Root) > 0 && bytes.Equal(ev.PrevData[:], row.Back.Root)
}

// statusKnown reports whether the stream announced the account's status after the stream's
// newest hole.
func (e *events) statusKnown(as *actorState) bool {
	return e.holes.Known(&as.now, e.layout.Settings.PartitionOfID(as.id))
}

// back is the reason to fetch the repo of an account that is active again, and backWait how long to wait for a #sync or a
// commit, which may make that unnecessary.
const (
	back     = "back"
	backWait = 10 * time.Second
)

// reactivated notes that an account is active again. Relays drop the commits of inactive accounts, and a backfill skips them,
// so its repo is queued. If it is in the queue as inactive or given up, it becomes due.
func (e *events) reactivated(as *actorState, wasHidden bool) {
	if wasHidden && !e.outside && e.Queues { // without a queue, nothing would end that of an account that writes no more
		as.now.Flags |= format.FlagReturned
		if !as.now.Has(format.FlagResync) {
			if row := e.queue(as, back); as.now.Whole() {
				row.Due = e.now.Add(backWait)
			}
			return
		}
	}
	if row := as.inQueue(); row != nil && row.State != format.ResyncWaiting {
		row.State, row.Due, row.Tries = format.ResyncWaiting, e.now, 0
		row.due, row.changed = true, true
	}
}

// continues notes that the stream shows the state that the index has of a repo, or continues from it: an account that is active
// again has missed nothing.
func (as *actorState) continues() {
	as.now.Flags &^= format.FlagReturned
	if row := as.inQueue(); row != nil && row.Reason == back && as.now.Whole() {
		as.dequeue()
	}
}

// doubtHidden notes that a hidden account has made a commit: a relay may repair an account's status without an
// #account. Fetching its repo asks its host and the relay.
func (e *events) doubtHidden(as *actorState) {
	if e.outside { // nobody fetches its repo; relays send no commits of inactive accounts
		e.setHidden(as, false)
		return
	}
	if row := as.inQueue(); e.Queues && (row == nil || row.State != format.ResyncWaiting) {
		e.queue(as, "hidden_commit")
	}
}

// announcedActive notes that the stream announced that an account is active. A fetch that has begun
// may still end with the host's answer that it is not: the generation shows that the answer is older.
func (e *events) announcedActive(as *actorState, wasHidden bool) {
	e.reactivated(as, wasHidden)
	if row := as.inQueue(); row != nil {
		row.nextGeneration()
		row.due, row.changed = true, true
	}
}

// nextGeneration gives the row a new generation, which no earlier row of the repo had.
func (row *queueRow) nextGeneration() {
	row.Generation = max(row.Generation+1, uint64(time.Now().UnixMicro()))
}

// isNoting reports whether the stream's changes to an account are noted.
func (e *events) isNoting(as *actorState) bool {
	return as.now.Has(format.FlagResync) || e.Archiving && as.now.Has(format.FlagPartial)
}

// noteCommit notes a commit: its rev and root, and the state that it follows. Call it only if isNoting(as) is true.
func (e *events) noteCommit(as *actorState, ev *batch.Event, broken bool) {
	if as.now.Has(format.FlagNoRoot) {
		e.notes = append(e.notes, note{as, format.Touched{Commit: format.TouchedCommit{Since: as.now.Rev}}})
	}
	e.notes = append(e.notes, note{as, format.Touched{Rev: ev.Rev, Commit: format.TouchedCommit{
		Since: ev.Since, Data: ev.Data, Prev: ev.PrevData, HasPrev: ev.Flags&batch.HasPrevData != 0, Broken: broken,
	}}})
}

// follows reports whether the touched commits form an unbroken chain from a snapshot (rev, root) to
// the rev of the index, current: the first one after rev follows the snapshot, each later one its
// predecessor, and the last one reaches current. A commit is missing from the chain if another
// snapshot, perhaps placed only in part, contained it.
func (t *touched) follows(rev format.Rev, root format.Root, current format.Rev) bool {
	if t == nil {
		return false
	}
	reached := false
	for i := range t.commits {
		c := &t.commits[i]
		if c.Rev <= rev {
			continue
		}
		if c.Commit.Since != rev && (!c.Commit.HasPrev || c.Commit.Prev != root) || reached && c.Commit.Broken {
			return false
		}
		rev, root, reached = c.Rev, c.Commit.Data, true
	}
	return reached && rev == current
}

// reach notes the rev of rows of an archive that lie before the noted commits.
func (t *touched) reach(rev format.Rev) {
	if t != nil && rev > t.reached && (len(t.commits) == 0 || rev < t.commits[0].Rev) {
		t.reached, t.changed = rev, true
	}
}

// isEmpty reports whether no commit was noted.
func (t *touched) isEmpty() bool { return t == nil || len(t.commits) == 0 }

// changedAfter reports whether the stream changed a path after a rev.
func (t *touched) changedAfter(k kinds.Kind, rkey []byte, rev format.Rev) bool {
	if t == nil || len(t.paths) == 0 {
		return false
	}
	at, ok := t.paths[pathName(k, rkey)]
	return ok && at > rev
}

// writeQueued writes the changed rows of the queue, and the notes of the stream's changes.
func (a *accounts) writeQueued(tx kv.Txn, notes []note) error {
	for i := range a.states {
		as := &a.states[i]
		row := as.row
		if t := as.touched; t != nil && t.changed {
			notes = append(notes, note{as, format.Touched{Commit: format.TouchedCommit{Since: t.reached}}})
		}
		if row == nil || !row.changed {
			continue
		}
		if row.gone && as.touched != nil && len(as.touched.keys) < 1000 { // deletes of very many keys are too large
			for _, key := range as.touched.keys {
				tx.Delete(key)
			}
		} else if row.gone || row.forget {
			prefix := format.AppendTouchedKey(nil, as.id, 0, nil)
			tx.DeleteRange(prefix, kv.PrefixEnd(prefix))
		}
		if row.gone {
			tx.Delete(format.ResyncKey(as.id))
			continue
		}
		if err := SetJSON(tx, format.ResyncKey(as.id), &row.Resync); err != nil {
			return err
		}
	}
	var key, v []byte
	for i := range notes {
		n := &notes[i]
		switch {
		case n.of.row != nil && n.of.row.gone:
			continue
		case n.Kind == kinds.Hidden:
			key, v = format.AppendTouchedCommitKey(key[:0], n.of.id, n.Rev), n.Commit.Append(v[:0])
		default:
			key, v = format.AppendTouchedKey(key[:0], n.of.id, n.Kind, n.Rkey), binary.BigEndian.AppendUint64(v[:0], uint64(n.Rev))
		}
		tx.Set(key, v)
	}
	return nil
}

// Queued returns the repos that the last attempt queued or made due.
func (w *Writer) Queued() (all []batch.Queued) {
	for i := range w.accounts.states {
		as := &w.accounts.states[i]
		if row := as.inQueue(); row != nil && row.due {
			all = append(all, batch.Queued{DID: string(as.did), Row: row.Resync})
		}
	}
	return all
}
