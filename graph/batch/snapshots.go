package batch

import (
	"bytes"

	"skein.blue/graph/format"
)

// A Snapshot is what a repo held at a rev, or a part of it: the records whose paths
// (collection and key, as in the repo) lie in [From, To). AddPut adds them, as they lie
// in the repo. Empty bounds are open.
//
// It takes the place of what the index has there of an account that is queued
// (Batch.AddResync): records that it does not have go, but what the stream has changed
// after Rev stays. A large one comes in parts, in their order, each in a batch of its
// own; the part that is Last ends the resync.
type Snapshot struct {
	DID  []byte
	Rev  []byte // a TID
	Data []byte // the SHA-256 of the root, of the commit
	// Generation is that of the queue's row when the fetch began (format.Resync).
	Generation  uint64
	From, To    string
	First, Last bool
}

// A part is what a RepoSnapshot says besides its event.
type Part struct {
	Generation  uint64
	from, to    string
	First, Last bool
}

// holds reports whether a path lies in the part.
func (n *Part) Holds(path []byte) bool {
	return string(path) >= n.from && (n.to == "" || string(path) < n.to)
}

// An Outcome is what became of a RepoSnapshot.
type Outcome uint8

// The outcomes.
const (
	// Placed: it is in place, and the resync has ended if it was the last part.
	Placed Outcome = iota
	// Superseded: something has been missed since the fetch began, or another snapshot
	// has begun to be put in place. The repo stays queued.
	Superseded
	// Older: the stream, or a list, has told of a state that this one does not lead to: it
	// is a copy from before. The repo stays queued, however often its host says the same:
	// a cache repeats itself, too.
	Older
	// Deleted: the account has been deleted meanwhile.
	Deleted
	// NotQueued: the repo is not queued; another snapshot was in place before.
	NotQueued
)

// String returns the outcome in a word, as in metrics.
func (o Outcome) String() string {
	return [...]string{"placed", "superseded", "older", "deleted", "not_queued"}[o]
}

// AddSnapshot adds a RepoSnapshot, or a part of one; AddPut then adds its records. The
// batch has no cursor, no event of the stream, and no other of the same account. It
// returns the number of its outcome.
func (b *Batch) AddSnapshot(s *Snapshot) int {
	n := len(b.snapshots)
	b.add(format.Seq(n), EventSnapshot, &Commit{DID: s.DID, Rev: s.Rev, Data: s.Data})
	b.snapshots = append(b.snapshots, Part{s.Generation, s.From, s.To, s.First, s.Last})
	b.outcomes = append(b.outcomes, NotQueued)
	return n
}

// Outcome returns what became of a snapshot, once the batch is applied.
func (b *Batch) Outcome(n int) Outcome { return b.outcomes[n] }

// A Cause is why a repo is queued to be fetched whole.
type Cause struct {
	// Reason is a word, for the operator.
	Reason string
	// Host is the address of where the repo was listed, "" if it was not.
	Host string
	// Told is the rev that it was listed with, 0 if it is not known, or if who listed it is
	// not to be believed: a snapshot of a lower rev is not put in place.
	Told format.Rev
	// Back is the rev that it was listed with, if that is lower than what the index has and
	// the stream may have had a hole: the repo was put back to it. 0 is none.
	Back format.Rev
	// Trust has what the host sends put in place also where the stream has told of a newer
	// state: an operator knows that the repo was put back.
	Trust bool
}

// AddResync queues a repo to be fetched whole.
func (b *Batch) AddResync(did []byte, c Cause) {
	b.add(format.Seq(len(b.causes)), EventResync, &Commit{DID: did}).Flags = 0
	b.causes = append(b.causes, c)
}

// AddStatus adds what a list of repos, or an account's host, says of it: whether it is active.
// Where the stream has said it since its newest hole, that stands.
func (b *Batch) AddStatus(did []byte, isActive bool) {
	e := b.add(0, EventStatus, &Commit{DID: did})
	if e.Flags = 0; isActive {
		e.Flags = Active
	}
}

// AddArchived adds what an archive has of a repo, at a place in the archive: rows of one
// rev. AddPut and AddDelete add them. It changes what is not known better: nothing of
// repos that are complete, nor what the stream has changed after the rev.
func (b *Batch) AddArchived(seq format.Seq, did, rev []byte) {
	b.archived = true
	c := Commit{DID: did, Rev: rev}
	n := len(b.events) - 1
	shared := n >= 0 && bytes.Equal(b.Bytes(b.events[n].Did), did) // rows of an account come one after another
	if shared {
		c.DID = nil
	}
	e := b.add(seq, EventArchived, &c)
	if shared {
		e.Did = b.events[n].Did
	}
	e.Flags &= HasRev
}

// AddArchivedAccount adds an #account that an archive has. A deletion takes away what came
// before it in the archive.
func (b *Batch) AddArchivedAccount(seq format.Seq, did []byte, isActive, erase bool) {
	b.archived = true
	e := b.add(seq, EventArchivedStatus, &Commit{DID: did})
	e.Flags = 0
	if isActive {
		e.Flags = Active
	} else if erase {
		e.Flags = IsDeleted
	}
}

// AddArchivedSync adds a #sync that an archive has: what came before it is void, and what
// the repo held comes after it.
func (b *Batch) AddArchivedSync(seq format.Seq, did, rev []byte) {
	b.archived = true
	e := b.add(seq, EventArchivedStatus, &Commit{DID: did, Rev: rev})
	e.Flags = e.Flags&HasRev | IsSync
}

// ReachArchived says that the rows last added by AddArchived go on to seq.
func (b *Batch) ReachArchived(seq format.Seq) { b.events[len(b.events)-1].Seq = seq }

// A Queued is a repo that was queued, or is due earlier than it was.
type Queued struct {
	DID string
	Row format.Resync
}
