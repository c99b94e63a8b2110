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
	// Older is the root of a snapshot that was older than what the index has, and OlderRev
	// the rev that the repo had in the index then: if its host says so again, the repo has
	// been put back.
	Older    []byte `json:"older,omitempty"`
	OlderRev Rev    `json:"olderRev,omitempty"`
}

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

// The sources in Backfill.Done: the repos of all hosts of the relay, an archive (with its
// address), and the relay's list, by which revs were compared up to a time.
const (
	DoneRepos      = "repos"
	DoneArchive    = "archive "
	DoneComparison = "comparison"
)

// A HostBackfill says how far the repos of a host have been listed.
type HostBackfill struct {
	Cursor string `json:"cursor,omitempty"`
	Done   bool   `json:"done,omitempty"`
	Listed int64  `json:"listed,omitempty"` // repos
	Failed string `json:"failed,omitempty"` // why the list ended early
}

// DecodeBackfill reads the value of KeyBackfill.
func DecodeBackfill(v []byte) (b Backfill, err error) {
	if err := json.Unmarshal(v, &b); err != nil {
		return b, fmt.Errorf("format: reading how far the past was fetched: %w", err)
	}
	return b, nil
}
