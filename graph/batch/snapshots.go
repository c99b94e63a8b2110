package batch

import (
	"bytes"
	"strings"

	"skein.blue/graph/format"
)

// A Snapshot is the content of a repo at a rev, or a part of it: the records whose paths
// (collection/key) lie in [From, To). An empty bound is open. AddPut adds the records, in the
// order of the repo.
//
// The account must be queued (Batch.AddResync). The snapshot replaces what the index has in
// that range: records that the snapshot lacks are deleted, but what the stream changed after
// Rev stays. A large snapshot comes in parts, in order, each in a batch of its own; the Last
// part ends the resync.
type Snapshot struct {
	DID  []byte // the account
	Rev  []byte // a TID
	Data []byte // the SHA-256 of the root, from the commit
	// Generation is the generation of the queue's row when the fetch began (format.Resync).
	Generation  uint64
	From, To    string // paths; To is exclusive
	First, Last bool   // whether it is the first part, and the last one
}

// Keys returns the range of a collection's record keys in the part, and reports whether there may be any. An empty bound is
// open; to is exclusive.
func (n *Snapshot) Keys(collection string) (from, to string, ok bool) {
	prefix := collection + "/"
	if n.To != "" && n.To <= prefix || n.From >= collection+"0" { // the character after the slash
		return "", "", false
	}
	from, _ = strings.CutPrefix(max(n.From, prefix), prefix)
	if strings.HasPrefix(n.To, prefix) {
		to = n.To[len(prefix):]
	}
	return from, to, true
}

// Holds reports whether a path lies in the part.
func (n *Snapshot) Holds(path []byte) bool {
	return string(path) >= n.From && (n.To == "" || string(path) < n.To)
}

// An Outcome says what became of a Snapshot.
type Outcome uint8

// The outcomes.
const (
	// Placed: the index has it. If it was the last part, the resync has ended.
	Placed Outcome = iota
	// Superseded: events were missed since the fetch began, or parts of another snapshot have
	// been placed. The repo stays queued.
	Superseded
	// Older: the stream or a list announced a newer state, and the stream's changes do not
	// lead from this snapshot to that state. The repo stays queued, however often its host
	// sends the same: a cache repeats itself, too.
	Older
	// Deleted: the account was deleted meanwhile.
	Deleted
	// NotQueued: the repo is not queued any more; another snapshot was placed before.
	NotQueued
)

// String returns the outcome as metrics label it.
func (o Outcome) String() string {
	return [...]string{"placed", "superseded", "older", "deleted", "not_queued"}[o]
}

// AddSnapshot adds a Snapshot; AddPut then adds its records. The batch may hold no cursor, no
// event of the stream, and no other snapshot of the account. AddSnapshot returns the number
// to ask Outcome with.
func (b *Batch) AddSnapshot(s *Snapshot) int {
	n := len(b.snapshots)
	b.add(format.Seq(n), EventSnapshot, &Commit{DID: s.DID, Rev: s.Rev, Data: s.Data}).Flags &^= IsDamaged
	b.snapshots = append(b.snapshots, Snapshot{Generation: s.Generation, From: s.From, To: s.To, First: s.First, Last: s.Last})
	b.outcomes = append(b.outcomes, NotQueued)
	return n
}

// EndSnapshot changes where the last added Snapshot ends, and whether it is the last part: both may be known only once
// its records are added.
func (b *Batch) EndSnapshot(to string, last bool) {
	part := &b.snapshots[len(b.snapshots)-1]
	part.To, part.Last = to, last
}

// A Cause says why a repo is queued for a refetch.
type Cause struct {
	// Reason is a word, for the operator.
	Reason string
	// Host is the address of the host that listed the repo, "" if none did.
	Host string
	// Told is the rev that the repo was listed with: a snapshot of a lower rev is rejected. It is
	// 0 if the rev is unknown or the list is not trusted.
	Told format.Rev
	// Back is the listed rev if it is lower than the index's and the stream may have had a hole:
	// the repo was then restored to that older state. 0 means that it was not.
	Back format.Rev
	// Trust accepts what the host sends even if the stream announced a newer state: an operator
	// knows that the host was restored from a backup.
	Trust bool
	// Leaves takes the account out of the queue instead: it no longer belongs to the part of the network that the store
	// holds, so what the index has of its repo becomes out of date.
	Leaves bool
}

// AddResync queues a repo for a refetch.
func (b *Batch) AddResync(did []byte, c Cause) {
	b.add(format.Seq(len(b.causes)), EventResync, &Commit{DID: did}).Flags = 0
	b.causes = append(b.causes, c)
}

// AddStatus adds whether an account is active, according to a list of repos or to its host.
// If the stream announced a status after its newest hole, the stream's status stays.
func (b *Batch) AddStatus(did []byte, isActive bool) {
	e := b.add(0, EventStatus, &Commit{DID: did})
	if e.Flags = 0; isActive {
		e.Flags = IsActive
	}
}

// AddAnswer adds whether an account is active, according to its host and the relay. They were
// asked when the index had the state st: the answer is newer than the #account in st, and older than any
// other.
func (b *Batch) AddAnswer(did []byte, isActive bool, st *format.RepoState) {
	b.AddStatus(did, isActive)
	e := &b.events[len(b.events)-1]
	e.Flags |= IsAnswer
	e.Seq, e.Rev = st.AccountSeq, format.Rev(st.AccountSource)
}

// AddArchived adds rows of an archive, all of one rev of a repo; AddPut and AddDelete then add
// the rows. They change neither complete repos nor what the stream changed after the rev.
func (b *Batch) AddArchived(seq format.Seq, did, rev []byte) {
	b.archived = true
	c := Commit{DID: did, Rev: rev}
	n := len(b.events) - 1
	shared := n >= 0 && bytes.Equal(b.Bytes(b.events[n].DID), did) // the rows of an account are neighbours
	if shared {
		c.DID = nil
	}
	e := b.add(seq, EventArchived, &c)
	if shared {
		e.DID = b.events[n].DID
	}
	e.Flags &= HasRev
}

// AddArchivedAccount adds an #account of an archive. A deletion voids the archive's earlier rows
// of the account.
func (b *Batch) AddArchivedAccount(seq format.Seq, did []byte, isActive, erase bool) {
	b.archived = true
	b.AddAccount(seq, did, isActive, erase)
	b.events[len(b.events)-1].Kind = EventArchivedStatus
}

// AddArchivedSync adds a #sync of an archive. It voids the archive's earlier rows of the repo;
// the repo's content follows it.
func (b *Batch) AddArchivedSync(seq format.Seq, did, rev []byte) {
	b.archived = true
	e := b.add(seq, EventArchivedStatus, &Commit{DID: did, Rev: rev})
	e.Flags = e.Flags&HasRev | IsSync
}

// ReachArchived notes that the rows of the last AddArchived reach up to seq.
func (b *Batch) ReachArchived(seq format.Seq) { b.events[len(b.events)-1].Seq = seq }

// Queued is a repo that was queued for a refetch, or is due earlier than before.
type Queued struct {
	DID string        // the account
	Row format.Resync // its row in the queue
}
