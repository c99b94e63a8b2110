package write

import (
	"bytes"
	"cmp"
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
	"skein.blue/internal/syntax"
)

// resyncs is the phase that tracks which accounts are queued for a refetch, what the stream changed
// since then, and which records a snapshot replaces. In the end it writes what changed.
//
// docs/semantics.md#s37 defines how snapshots and the stream combine.
type resyncs struct {
	Modes
	layout format.Layout
	holes  *format.Holes // the lane's
	now    time.Time

	rows    map[dict.ID]*resyncRow
	touched map[dict.ID]*touched
	stored  map[dict.ID]map[string]storedRecord // by pathName
	paths   []touchedPath                       // noted in this write, like commits
	commits []touchedCommit
	path    []byte // scratch
	keys    kv.Keys
}

// Modes say which repos to queue, and whether the past is being read.
type Modes struct {
	Queues    bool // repos with missed events are queued
	Partial   bool // set after the backfill: from then on repos with an unknown past are queued, too
	Past      bool // the past of all repos is being fetched, or was
	Archiving bool // an archive is being read
}

// resyncRow is a row of the resync queue.
type resyncRow struct {
	format.Resync
	did           []byte
	changed, gone bool
	forget        bool // delete the stored touched paths and commits before writing new ones
}

// touched has the paths and commits that the stream applied to a repo since it was queued.
type touched struct {
	keys    [][]byte
	paths   map[string]format.Rev // by kind and record key
	commits []format.Touched      // ascending
}

// storedRecord is a record in the range that a snapshot replaces.
type storedRecord struct {
	kind    kinds.Kind
	path    format.Path
	subject dict.ID
	inPlace bool // the snapshot has it, too
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

// read reads the queue's rows, and for snapshots and archive rows also the noted changes, and for
// snapshots the stored records.
func (q *resyncs) read(tx kv.Txn, seg *Segment, of *accounts, t *kinds.Table) error {
	q.now = time.Now().UTC().Truncate(time.Millisecond)
	clear(q.rows)
	clear(q.touched)
	clear(q.stored)
	q.paths, q.commits = q.paths[:0], q.commits[:0]
	if err := q.readRows(tx, of); err != nil {
		return err
	}
	for i, p := range seg.Events {
		ev := seg.Batch.Event(int(p.N))
		if ev.Kind != batch.EventSnapshot && ev.Kind != batch.EventArchived {
			continue
		}
		as := of.ofEvent(i)
		if as.was.Has(format.FlagResync) || as.was.Has(format.FlagPartial) && !as.was.Has(format.FlagNoRoot) { // its changes may have been noted
			if err := q.readTouched(tx, as.id); err != nil {
				return err
			}
		}
		if ev.Kind == batch.EventSnapshot && as.known && as.was.LowBucket != format.LowNone && !as.was.Has(format.FlagErasing) {
			if err := q.readStored(tx, as, seg.Batch.Part(ev.Seq), t); err != nil {
				return err
			}
		}
	}
	return nil
}

// readRows reads the rows of the accounts that are queued.
func (q *resyncs) readRows(tx kv.Txn, of *accounts) error {
	q.keys.Reset()
	for i := range of.states {
		if as := &of.states[i]; as.was.Has(format.FlagResync) {
			q.keys.Add(format.ResyncKey(as.id))
		}
	}
	if q.keys.Len() == 0 {
		return nil
	}
	if q.rows == nil {
		q.rows = map[dict.ID]*resyncRow{}
	}
	return tx.MultiGet(q.keys.List(), func(i int, v []byte, ok bool) error {
		if !ok {
			return fmt.Errorf("graph: an account is marked as queued, but the queue of repos to fetch has no row %x; run skein check", q.keys.List()[i])
		}
		id, err := format.ParseActorKey(q.keys.List()[i])
		if err != nil {
			return err
		}
		r, err := format.DecodeResync(v)
		q.rows[id] = &resyncRow{Resync: r}
		return err
	})
}

// readTouched reads what the stream changed in a repo.
func (q *resyncs) readTouched(tx kv.Txn, actor dict.ID) error {
	if q.touched[actor] != nil {
		return nil
	}
	t := &touched{paths: map[string]format.Rev{}}
	err := kv.ScanPrefix(tx, format.AppendTouchedKey(nil, actor, 0, nil), func(key, v []byte) error {
		key = bytes.Clone(key)
		one, err := format.DecodeTouched(key, v)
		if err != nil {
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

// readStored reads the records in the range that a snapshot replaces, and few others: a large snapshot comes in many parts.
// Only records whose keys are not TIDs are all read for each part of their collection.
func (q *resyncs) readStored(tx kv.Txn, as *actorState, part *batch.Part, t *kinds.Table) error {
	stored, actor := map[string]storedRecord{}, as.id
	for i := range t.All {
		k := &t.All[i]
		from, to, ok := part.Keys(k.Collection)
		if !ok {
			continue
		}
		first, ok := syntax.FirstTID(from)
		last := uint64(math.MaxUint64)
		if end, before := syntax.FirstTID(to); to != "" && before {
			last = end - 1
			ok = ok && end > 0
		}
		if !ok {
			first, last = 1, 0 // none
		}
		err := read.RecordsWithin(tx, k.Kind, actor, first, last, as.was.LowBucket == 0, func(r *format.Record) bool {
			q.path = r.Path.AppendRkey(append(append(q.path[:0], k.Collection...), '/'))
			if part.Holds(q.path) {
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

// queue queues a repo for a refetch. From now on the stream's changes to it are noted.
func (q *resyncs) queue(as *actorState, did []byte, reason string) {
	if q.rows == nil {
		q.rows = map[dict.ID]*resyncRow{}
	}
	row := q.rows[as.id]
	if row == nil || row.gone {
		row = &resyncRow{Resync: format.Resync{Queued: q.now}, forget: row != nil}
		q.rows[as.id] = row
	}
	if row.Tries == 0 || row.State != format.ResyncWaiting {
		row.Due, row.Tries = q.now, 0
	}
	row.State, row.Reason, row.Failure, row.Detail = format.ResyncWaiting, reason, "", ""
	if as.now.Has(format.FlagBehind) && row.Back.IsZero() {
		row.Told = max(row.Told, as.now.Rev+1) // a state newer than the index's was announced and not applied
	}
	row.nextGeneration()
	row.did, row.changed = did, true
	as.now.Flags |= format.FlagResync
	as.changed = true
}

// markMissed notes that events of a repo were missed.
func (q *resyncs) markMissed(as *actorState, did []byte, reason string) {
	as.changed = true
	as.now.Flags |= format.FlagDesync
	if q.Queues {
		q.queue(as, did, reason)
	}
}

// dequeue removes a repo from the queue, with the notes of the stream's changes to it.
func (q *resyncs) dequeue(as *actorState) {
	if row := q.rows[as.id]; row != nil {
		row.gone, row.changed = true, true
	}
	as.now.Flags &^= format.FlagResync
}

// queueFor queues a repo for a Cause, and applies what the Cause says of its revs and host, except a
// rev above latest.
func (q *resyncs) queueFor(as *actorState, did []byte, c *batch.Cause, latest format.Rev) {
	q.queue(as, did, c.Reason)
	row := q.rows[as.id]
	if c.Host != "" {
		row.Host = c.Host
	}
	told := c.Told
	if told > latest {
		told = 0
	}
	if c.Reason == format.KindAdded { // what the stream changed of the kind before was not noted
		told = max(told, as.now.Rev)
	}
	if row.Back.IsZero() || told > row.Back.Above {
		row.Told = max(row.Told, told)
	}
	// Ignore the listed older rev if Told is set: the stream may have announced a newer state after
	// the list was read.
	if c.Back != 0 && c.Back < as.now.Rev && row.Told == 0 {
		q.setBack(as, row, format.PutBack{Rev: c.Back})
	}
	if c.Trust {
		row.Trust, row.Told = true, 0
		q.forget(as.id, row)
	}
}

// importRow imports an account's row from another store's queue, and the stream's changes noted there.
func (q *resyncs) importRow(as *actorState, im *batch.Imported) {
	for i := range im.Touched {
		t := &im.Touched[i]
		if t.Kind == kinds.Hidden {
			q.commits = append(q.commits, touchedCommit{as.id, t.Rev, t.Commit})
		} else {
			q.paths = append(q.paths, touchedPath{as.id, t.Kind, t.Rkey, t.Rev})
		}
	}
	if im.Queued == nil {
		return
	}
	if q.rows == nil {
		q.rows = map[dict.ID]*resyncRow{}
	}
	q.rows[as.id] = &resyncRow{Resync: *im.Queued, changed: true}
	as.now.Flags |= format.FlagResync
}

// noteNewer notes that the stream announced a state that could not be applied, by a #sync or a
// damaged commit. A snapshot must not be older than that state.
func (q *resyncs) noteNewer(as *actorState, did []byte, reason string, ev *batch.Event) {
	q.markMissed(as, did, reason)
	st := &as.now
	st.Flags |= format.FlagBehind
	row := q.rows[as.id]
	if row == nil || row.gone {
		return
	}
	// The announced state is newer than the index's, even if its rev is unknown.
	if st.Has(format.FlagHasRev) && (ev.Flags&batch.HasRev == 0 || ev.Kind == batch.EventCommit) {
		row.Told = max(row.Told, st.Rev+1)
	}
	if ev.Flags&batch.HasRev != 0 {
		row.Told = max(row.Told, ev.Rev)
	} else { // whatever was noted, a snapshot that is used has it
		q.forget(as.id, row)
	}
}

// putBack notes that the stream announced that the repo was put back to an older state. The changes
// touched before are discarded.
func (q *resyncs) putBack(as *actorState, ev *batch.Event) {
	as.now.Flags |= format.FlagBehind
	row := q.rows[as.id]
	if row == nil || row.gone {
		return
	}
	q.setBack(as, row, format.PutBack{Rev: ev.Rev, Root: bytes.Clone(ev.Data[:])})
}

// setBack notes the older state to which a repo was put back.
func (q *resyncs) setBack(as *actorState, row *resyncRow, to format.PutBack) {
	to.Above = max(as.now.Rev, row.Told, row.Back.Above)
	row.Back, row.Told = to, 0
	q.forget(as.id, row)
}

// awaitsState reports whether a state of a repo was announced but has not been applied. If the
// stream then announces the state that the index has, the repo was put back to it.
func (q *resyncs) awaitsState(as *actorState) bool {
	row := q.rows[as.id]
	return row != nil && !row.gone && (row.Told > as.now.Rev || !row.Back.IsZero())
}

// continuesPutBack reports whether a commit continues from the state to which the repo was put back,
// although its rev is not above the index's: the repo's host may have a slow clock.
func (q *resyncs) continuesPutBack(as *actorState, ev *batch.Event) bool {
	row := q.rows[as.id]
	if row == nil || row.gone || row.Back.IsZero() {
		return false
	}
	return ev.Flags&batch.HasSince != 0 && ev.Since == row.Back.Rev && ev.Rev > row.Back.Rev ||
		ev.Flags&batch.HasPrevData != 0 && len(row.Back.Root) > 0 && bytes.Equal(ev.PrevData[:], row.Back.Root)
}

// forget discards the touched paths and commits of a repo.
func (q *resyncs) forget(actor dict.ID, row *resyncRow) {
	row.forget, row.changed = true, true
	if t := q.touched[actor]; t != nil {
		clear(t.paths)
		t.commits = nil
	}
	q.paths = slices.DeleteFunc(q.paths, func(p touchedPath) bool { return p.actor == actor })
	q.commits = slices.DeleteFunc(q.commits, func(c touchedCommit) bool { return c.actor == actor })
}

// statusKnown reports whether the stream announced the account's status after the stream's
// newest hole.
func (q *resyncs) statusKnown(as *actorState) bool {
	return q.holes.Known(&as.now, q.layout.Settings.PartitionOfID(as.id))
}

// reactivated notes that an account is active again. If its repo is in the queue as inactive or given
// up, it becomes due. If the backfill skipped it because the account was hidden, it is queued.
func (q *resyncs) reactivated(as *actorState, did []byte) {
	if q.Past && as.was.Has(format.FlagHidden) && !as.now.Has(format.FlagResync) && !as.now.Whole() {
		q.queue(as, did, "back")
		return
	}
	if row := q.rows[as.id]; row != nil && !row.gone && row.State != format.ResyncWaiting {
		row.State, row.Due, row.Tries = format.ResyncWaiting, q.now, 0
		row.did, row.changed = did, true
	}
}

// doubtHidden notes that a hidden account has made a commit: a relay may repair an account's status without an
// #account. Fetching its repo asks its host and the relay.
func (q *resyncs) doubtHidden(as *actorState, did []byte) {
	if row := q.rows[as.id]; q.Queues && (row == nil || row.gone || row.State != format.ResyncWaiting) {
		q.queue(as, did, "hidden_commit")
	}
}

// announcedActive notes that the stream announced that an account is active. A fetch that has begun
// may still end with the host's answer that it is not: the generation shows that the answer is older.
func (q *resyncs) announcedActive(as *actorState, did []byte) {
	q.reactivated(as, did)
	if row := q.rows[as.id]; row != nil && !row.gone {
		row.nextGeneration()
		row.did, row.changed = did, true
	}
}

// nextGeneration gives the row a new generation, which no earlier row of the repo had.
func (row *resyncRow) nextGeneration() {
	row.Generation = max(row.Generation+1, uint64(time.Now().UnixMicro()))
}

// isNoting reports whether the stream's changes to an account are noted.
func (q *resyncs) isNoting(as *actorState) bool {
	return as.now.Has(format.FlagResync) || q.Archiving && as.now.Has(format.FlagPartial)
}

// noteCommit notes a commit: its rev and root, and the state that it follows. Call it only if isNoting(as) is true.
func (q *resyncs) noteCommit(as *actorState, ev *batch.Event, broken bool) {
	c := touchedCommit{actor: as.id, rev: ev.Rev}
	c.Since, c.Data, c.Broken, c.HasPrev = ev.Since, ev.Data, broken, ev.Flags&batch.HasPrevData != 0
	c.Prev = ev.PrevData
	q.commits = append(q.commits, c)
}

// notePath notes a path that the commit changed. rkey lies in the batch.
func (q *resyncs) notePath(as *actorState, k kinds.Kind, rkey []byte, rev format.Rev) {
	q.paths = append(q.paths, touchedPath{as.id, k, rkey, rev})
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

// changedAfter reports whether the stream changed a path after a rev.
func (t *touched) changedAfter(k kinds.Kind, rkey []byte, rev format.Rev) bool {
	if t == nil || len(t.paths) == 0 {
		return false
	}
	at, ok := t.paths[pathName(k, rkey)]
	return ok && at > rev
}

// write writes the changed rows of the queue, and the notes of the stream's changes.
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
			if row.forget {
				prefix := format.AppendTouchedKey(nil, id, 0, nil)
				tx.DeleteRange(prefix, kv.PrefixEnd(prefix))
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

// queued returns the repos that the write queued or made due: their did is set.
func (q *resyncs) queued() (all []batch.Queued) {
	for _, row := range q.rows {
		if row.changed && !row.gone && row.did != nil {
			all = append(all, batch.Queued{DID: string(row.did), Row: row.Resync})
		}
	}
	return all
}
