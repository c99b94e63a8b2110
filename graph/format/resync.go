package format

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// KeyResync is the keyspace of the queue of resyncs: 'w' actor → Resync, JSON. An account has
// a row there if and only if its state has FlagResync.
const KeyResync = 'w'

// ResyncKey returns the key of an account's row in the queue of resyncs.
func ResyncKey(actor dict.ID) []byte { return dict.AppendID([]byte{KeyResync}, actor) }

// The states of a Resync.
const (
	ResyncWaiting  = ""         // it waits until it is due
	ResyncFailed   = "failed"   // given up, with the reason; a new cause queues it again
	ResyncInactive = "inactive" // its host says that the account is inactive; skein asks again when it returns
)

// A Resync queues a repo to be fetched whole. The snapshot then replaces what the index has of
// the repo.
type Resync struct {
	State  string `json:"state,omitempty"`
	Reason string `json:"reason"` // of the last cause
	// Generation grows with every cause, and no later row reuses one (it is a time in
	// microseconds, or greater). A snapshot whose fetch began before the last cause does not
	// end the resync.
	Generation uint64    `json:"gen"`
	Queued     time.Time `json:"queued"` // the first cause
	Due        time.Time `json:"due"`    // the earliest time to fetch it
	Tries      int       `json:"tries,omitempty"`
	Host       string    `json:"host,omitempty"`    // the address of the host that listed it; its DID document may name another
	Failure    string    `json:"failure,omitempty"` // the error's name
	Detail     string    `json:"detail,omitempty"`  // the error in full
	// Placing is the rev of the snapshot that is being put in place, in several writes.
	Placing Rev `json:"placing,omitempty"`
	// Told is the highest rev that the stream or a list of repos has announced and that was
	// not applied. A snapshot with a lower rev is not the newest state of the repo.
	Told Rev `json:"told,omitempty"`
	// Back is the state that the repo was put back to, if the stream announced one. A
	// snapshot of that state is accepted although its rev is lower than the index's.
	Back PutBack `json:"back,omitzero"`
	// Trust says that an operator accepts what the host has, whatever the stream announced.
	Trust bool `json:"trust,omitempty"`
}

// A PutBack is an older state of a repo that became its newest one, for example after an
// import of an older copy. A #sync announces such a state, or a commit that is signed with an
// older rev than its message names.
type PutBack struct {
	Rev  Rev    `json:"rev"`
	Root []byte `json:"root,omitempty"` // a Root; empty if a list of repos announced the state
	// Above is the highest rev announced before. A snapshot with a rev up to Above that does
	// not have this Root may be a copy from before the repo was put back.
	Above Rev `json:"above"`
}

// IsZero reports whether the repo was not put back.
func (b PutBack) IsZero() bool { return b.Above == 0 }

// KeyTouched is the keyspace of the stream's changes to repos whose past is still to come:
// queued repos, and partial ones while an archive is read. The past does not undo them when
// it arrives.
//
//	't' actor kind rkey → rev(8)                          a path, and the last commit that put or deleted it
//	't' actor 0 rev(8)  → since(8) data(8) prev(8) flags(1)  a commit (TouchedCommit)
//	't' actor 0 0(8)    → since(8) 0(17)                     the last rev of an archive before these commits
const KeyTouched = 't'

// AppendTouchedKey appends the key of a path. Without an rkey it is the prefix of all keys of
// an actor.
func AppendTouchedKey(dst []byte, actor dict.ID, k kinds.Kind, rkey []byte) []byte {
	dst = dict.AppendID(append(dst, KeyTouched), actor)
	if rkey == nil {
		return dst
	}
	return append(append(dst, byte(k)), rkey...)
}

// AppendTouchedCommitKey appends the key of a commit.
func AppendTouchedCommitKey(dst []byte, actor dict.ID, rev Rev) []byte {
	dst = append(dict.AppendID(append(dst, KeyTouched), actor), byte(kinds.Hidden))
	return binary.BigEndian.AppendUint64(dst, uint64(rev))
}

// A Touched is a row of KeyTouched: a path, or a commit.
type Touched struct {
	Actor  dict.ID       `json:"-"`
	Kind   kinds.Kind    `json:"kind"`           // Hidden for a commit
	Rkey   []byte        `json:"rkey,omitempty"` // nil for a commit
	Rev    Rev           `json:"rev"`
	Commit TouchedCommit `json:"commit,omitzero"`
}

// IsReached reports whether the row says how far an archive reaches: Commit.Since is the highest rev of its rows below that
// of the first commit.
func (t *Touched) IsReached() bool { return t.Kind == kinds.Hidden && t.Rev == 0 }

// A TouchedCommit is the part of a commit that shows whether it follows a snapshot or an archive.
type TouchedCommit struct {
	Since   Rev  `json:"since"`
	Data    Root `json:"data"`
	Prev    Root `json:"prev"`
	HasPrev bool `json:"hasPrev"` // the commit names the root before it
	Broken  bool `json:"broken"`  // it did not follow the state that the index had
}

const (
	touchedHasPrev = 1 << iota
	touchedBroken
)

// Append appends the value.
func (c *TouchedCommit) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Since))
	dst = append(append(dst, c.Data[:]...), c.Prev[:]...)
	return append(dst, flagsOf(c.HasPrev, c.Broken))
}

// DecodeTouched reads a row of KeyTouched. Its Rkey points into key.
func DecodeTouched(key, v []byte) (t Touched, err error) {
	bad := func() (Touched, error) {
		return Touched{}, fmt.Errorf("format: touched path %x → %x is malformed", key, v)
	}
	if len(key) < 2 || key[0] != KeyTouched {
		return bad()
	}
	id, n := dict.ReadID(key[1:])
	rest := key[1+n:]
	if n == 0 || len(rest) < 2 {
		return bad()
	}
	t.Actor, t.Kind = id, kinds.Kind(rest[0])
	if t.Kind != kinds.Hidden {
		if len(v) != 8 {
			return bad()
		}
		t.Rkey, t.Rev = rest[1:], Rev(binary.BigEndian.Uint64(v))
		return t, nil
	}
	if len(rest) != 9 || len(v) != 25 || v[24] >= touchedBroken<<1 {
		return bad()
	}
	t.Rev = Rev(binary.BigEndian.Uint64(rest[1:]))
	c := &t.Commit
	c.Since = Rev(binary.BigEndian.Uint64(v))
	copy(c.Data[:], v[8:])
	copy(c.Prev[:], v[16:])
	c.HasPrev, c.Broken = v[24]&touchedHasPrev != 0, v[24]&touchedBroken != 0
	return t, nil
}

// KeyBackfill is the key of the Backfill of a partition.
var KeyBackfill = []byte("mbackfill")

// A Backfill records what is being backfilled, and the progress.
type Backfill struct {
	// Archive is the address of the archive that is being read, or "". Meanwhile the
	// stream's changes to partial repos are noted (KeyTouched). The cursor of the archive's
	// source is the progress.
	Archive string `json:"archive,omitempty"`
	// Begun is when reading the archive began. It ends once the archive has the events up to
	// that time.
	Begun time.Time `json:"begun,omitzero"`
	// Hosts are the PDSes whose repos are being listed.
	Hosts map[string]HostBackfill `json:"hosts,omitempty"`
	// Named says that an operator named the hosts, which are not the whole network.
	Named bool `json:"named,omitempty"`
	// Parts are the partitions that this row is about.
	Parts Partitions `json:"parts,omitempty"`
	// ListingFrom is when the listing of Hosts began.
	ListingFrom time.Time `json:"listingFrom,omitzero"`
	// ListingHoles is the number of holes of the stream then.
	ListingHoles uint64 `json:"listingHoles,omitempty"`
	// Sweep is the number of the newest sweep: queueing every account that the store had when
	// a kind was added (Lack). SweepAt is the account at which it continues. Swept is the
	// number of the last finished sweep.
	Sweep   uint64  `json:"sweep,omitempty"`
	SweepAt dict.ID `json:"sweepAt,omitempty"`
	Swept   uint64  `json:"swept,omitempty"`
	// Round is the last comparison with the relay's list.
	Round Round `json:"round,omitzero"`
	// Roster is the last list of all accounts that was read, zero if none was.
	Roster Roster `json:"roster,omitzero"`
	// Around says which part of the network the store holds; its Hops are 0 if that is all of it.
	Around Around `json:"around,omitzero"`
}

// A Roster is a list of all accounts of the network as of a time. Each of them that the index does not have whole is in the
// queue of resyncs, or hidden. A hole of the stream ends what a roster says of later accounts, until a comparison with
// the relay's list renews it (Holes).
type Roster struct {
	// AsOf is when reading the list began.
	AsOf time.Time `json:"asOf,omitzero"`
	// Source is what was read: RosterRepos, RosterStream, or RosterArchive followed by an address.
	Source string `json:"source,omitempty"`
	// Unconfirmed says that the list was not compared with the relay's yet: an archive may lack the end of a history, and
	// lists that were read beside a hole of the stream may lack accounts that were made in it, others those with unread documents.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Archived says of an unconfirmed roster that an archive was read before: accounts may have a state that it gave them, of long ago.
	Archived bool `json:"archived,omitempty"`
	// Unlisted are the addresses of hosts whose lists could not be read.
	Unlisted []string `json:"unlisted,omitempty"`
}

// Known reports whether a list of all accounts was read, even if those of some hosts are missing.
func (r Roster) Known() bool { return !r.AsOf.IsZero() }

// The sources of a Roster: the lists of all hosts of the relay; the stream from its first event; an archive.
const (
	RosterRepos   = "repos"
	RosterStream  = "stream"
	RosterArchive = "archive "
)

// An Around is the part of the network that a store holds: the records of the members, and of everybody else those
// that name a center or one of its records.
type Around struct {
	// Centers are the DIDs of the accounts around which the part is.
	Centers []string `json:"centers"`
	// Lists are the AT URIs of lists whose members belong to the part.
	Lists []string `json:"lists,omitempty"`
	// Hops is 1 if the accounts that the centers follow belong to the part, 2 if those that these follow do, too.
	Hops int `json:"hops"`
	// Since is when the part was given these centers: of what others did to them before, the store may have nothing.
	Since time.Time `json:"since,omitzero"`
	// Members is the number of accounts of the part.
	Members int `json:"members"`
}

// Has reports whether a subject is a center, or a record of one.
func (a Around) Has(subject string) bool {
	return subject != "" && slices.Contains(a.Centers, dict.AuthorityOf(subject))
}

// A Round is a comparison of all repos with the relay's list.
type Round struct {
	// Ended is when the last comparison ended.
	Ended time.Time `json:"ended,omitzero"`
}

// A HostBackfill is the progress of listing the repos of a host.
type HostBackfill struct {
	Cursor string `json:"cursor,omitempty"`
	Done   bool   `json:"done,omitempty"`
	Listed int64  `json:"listed,omitempty"` // repos
	Failed string `json:"failed,omitempty"` // the error that ended the list early
	Unread bool   `json:"unread,omitempty"` // a listed account's DID document could not be read
}

// A Lack says that a kind was added to a store with accounts, and older records of the kind
// are missing. It ends when a sweep has queued every account that the store had. From then on
// the accounts in the queue are incomplete, and no longer the whole kind.
type Lack struct {
	// At is when the kind was added.
	At time.Time `json:"at"`
	// Sweep is the first sweep that queues all accounts that the store had then.
	Sweep uint64 `json:"sweep"`
}
