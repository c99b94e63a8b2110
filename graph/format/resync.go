package format

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// KeyResync is the keyspace of the queue of resyncs: 'w' actor → Resync, JSON. An
// account has a row there exactly while its state has FlagResync.
const KeyResync = 'w'

// ResyncKey is that of an account's row in the queue of resyncs.
func ResyncKey(actor dict.ID) []byte { return dict.AppendID([]byte{KeyResync}, actor) }

// The states of a Resync.
const (
	ResyncWaiting  = ""         // to be fetched when it is due
	ResyncFailed   = "failed"   // given up, with the reason; a new cause queues it again
	ResyncInactive = "inactive" // its host says that the account is not active; asked again when it comes back
)

// A Resync says that a repo is to be fetched whole, and put in the place of what the
// index has of it.
type Resync struct {
	State  string `json:"state,omitempty"`
	Reason string `json:"reason"` // of the last cause
	// Generation is raised by every cause, and never used again, not in a later row
	// either (it is a time, in microseconds, or greater): a snapshot whose fetch began
	// before the last cause does not end it.
	Generation uint64    `json:"gen"`
	Queued     time.Time `json:"queued"` // the first cause
	Due        time.Time `json:"due"`    // not to be fetched before
	Tries      int       `json:"tries,omitempty"`
	Host       string    `json:"host,omitempty"`    // where it was listed, an address; its DID document may say otherwise
	Failure    string    `json:"failure,omitempty"` // why it failed: a word
	Detail     string    `json:"detail,omitempty"`  // and in full
	// Placing is the rev of the snapshot that is being put in place, in several writes.
	Placing Rev `json:"placing,omitempty"`
	// Told is the highest rev that the stream, or a list of repos, has announced and that
	// was not applied: a snapshot of a lower rev is not the repo's newest state.
	Told Rev `json:"told,omitempty"`
	// Back is the state that the repo was put back to, if the stream announced one. A
	// snapshot of that state is taken although its rev is lower than the index's.
	Back PutBack `json:"back,omitzero"`
	// Trust says that an operator wants what the host has, whatever the stream told before.
	Trust bool `json:"trust,omitempty"`
}

// A PutBack is an older state of a repo that became its newest one: an import of an older
// copy, say. Such a state is announced by a #sync, or by a commit that is signed under an
// older rev than its message names.
type PutBack struct {
	Rev  Rev    `json:"rev"`
	Root []byte `json:"root,omitempty"` // a Root; a list of repos names none
	// Above is the highest rev that was told before. A snapshot of a rev up to it, other
	// than that of Root, may be a copy from before the repo was put back.
	Above Rev `json:"above"`
}

// IsZero reports whether the repo was not put back.
func (b PutBack) IsZero() bool { return b.Above == 0 }

// Append appends the value of the row.
func (r *Resync) Append(dst []byte) ([]byte, error) {
	v, err := json.Marshal(r)
	if err != nil {
		return dst, fmt.Errorf("format: writing a row of the queue of resyncs: %w", err)
	}
	return append(dst, v...), nil
}

// DecodeResync reads the value of a row in the queue of resyncs.
func DecodeResync(v []byte) (r Resync, err error) {
	if err := json.Unmarshal(v, &r); err != nil {
		return r, fmt.Errorf("format: reading a row of the queue of resyncs: %w", err)
	}
	return r, nil
}

// KeyTouched is the keyspace of what the stream has changed of repos whose past is still
// to come: of those that are queued, and while an archive is read of those that are
// partial. The past, when it comes, does not undo it.
//
//	't' actor kind rkey → rev(8)                          a path, and the last commit that put or deleted it
//	't' actor 0 rev(8)  → since(8) data(8) prev(8) flags(1)  a commit (TouchedCommit)
const KeyTouched = 't'

// AppendTouchedKey appends the key of a path. Without kind and rkey it is the prefix of
// all that is noted of an actor.
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

// A Touched is what is noted of a path, or of a commit.
type Touched struct {
	Actor  dict.ID
	Kind   kinds.Kind // Hidden: of a commit
	Rkey   []byte     // of a path
	Rev    Rev
	Commit TouchedCommit
}

// A TouchedCommit is what is kept of a commit, to tell whether it follows a snapshot.
type TouchedCommit struct {
	Since      Rev
	Data, Prev Root
	HasPrev    bool // the commit names the root before it
	Broken     bool // it did not follow what the index had
}

const (
	touchedHasPrev = 1 << iota
	touchedBroken
)

// Append appends the value.
func (c *TouchedCommit) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Since))
	dst = append(append(dst, c.Data[:]...), c.Prev[:]...)
	flags := byte(0)
	if c.HasPrev {
		flags |= touchedHasPrev
	}
	if c.Broken {
		flags |= touchedBroken
	}
	return append(dst, flags)
}

// DecodeTouched reads what is noted of a path, or of a commit. It points into key.
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

// A Backfill says which past is being fetched.
type Backfill struct {
	// Archive is the address of the archive that is being read, "" if none is: while it
	// is, what the stream changes of partial repos is noted (KeyTouched). How far it was
	// read is the cursor of its source.
	Archive string `json:"archive,omitempty"`
	// Begun is when that was begun: the archive is read until it holds what happened
	// until then.
	Begun time.Time `json:"begun,omitzero"`
	// Hosts are the PDSes whose repos are being listed.
	Hosts map[string]HostBackfill `json:"hosts,omitempty"`
	// Named says that an operator named the hosts: they are not the whole network.
	Named bool `json:"named,omitempty"`
	// End is the partition behind the last of those whose writer wrote this.
	End uint8 `json:"end,omitempty"`
	// ListingFrom is when the listing of them began.
	ListingFrom time.Time `json:"listingFrom,omitzero"`
	// ReposFrom is when the listing of all hosts' repos began that has ended last.
	ReposFrom time.Time `json:"reposFrom,omitzero"`
	// Sweep is the number of the last sweep that was begun: the queueing of every account
	// that the store had, because a kind was added (Lack). SweepAt is the account that it
	// goes on with, and Swept the number of the last sweep that queued all of them.
	Sweep   uint64  `json:"sweep,omitempty"`
	SweepAt dict.ID `json:"sweepAt,omitempty"`
	Swept   uint64  `json:"swept,omitempty"`
	// Round is how far the slow comparison with the relay's list is.
	Round Round `json:"round,omitzero"`
	// Done are the sources that were read to their end, and when.
	Done map[string]time.Time `json:"done,omitempty"`
}

// Whole reports whether the past of the whole network was fetched.
func (b Backfill) Whole() bool {
	for source := range b.Done {
		if source == DoneRepos || strings.HasPrefix(source, DoneArchive) {
			return true
		}
	}
	return false
}

// The sources in Backfill.Done: the repos of all hosts of the relay, and an archive (with its
// address).
const (
	DoneRepos   = "repos"
	DoneArchive = "archive "
)

// A Round is a comparison of all repos with the relay's list, which takes days.
type Round struct {
	// Cursor is where the list is gone on with, "" if none is under way.
	Cursor string `json:"cursor,omitempty"`
	Listed int64  `json:"listed,omitempty"`
	// Ended is when the last comparison ended.
	Ended time.Time `json:"ended,omitzero"`
}

// A HostBackfill says how far the repos of a host have been listed.
type HostBackfill struct {
	Cursor string `json:"cursor,omitempty"`
	Done   bool   `json:"done,omitempty"`
	Listed int64  `json:"listed,omitempty"` // repos
	Failed string `json:"failed,omitempty"` // why the list ended early
}

// A Lack says that a kind was added to a store that had accounts: what was made of it before
// is lacking, until every account that was there has been queued by a sweep. From then on it
// is lacking of those that wait to be fetched, and they say so themselves.
type Lack struct {
	// At is when the kind was added.
	At time.Time `json:"at"`
	// Sweep is the first sweep that queues all accounts that were there then.
	Sweep uint64 `json:"sweep"`
}

// DecodeLacking reads the value of KeyLacking, by the names of kinds.
func DecodeLacking(v []byte) (lacking map[string]Lack, err error) {
	if err := json.Unmarshal(v, &lacking); err != nil {
		return nil, fmt.Errorf("format: reading of which kinds something is lacking: %w", err)
	}
	return lacking, nil
}

// DecodeBackfill reads the value of KeyBackfill.
func DecodeBackfill(v []byte) (b Backfill, err error) {
	if err := json.Unmarshal(v, &b); err != nil {
		return b, fmt.Errorf("format: reading how far the past was fetched: %w", err)
	}
	return b, nil
}
