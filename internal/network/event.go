package network

import "skein.blue/graph/kinds"

// A Type is the type of an event.
type Type uint8

// The types.
const (
	Commit Type = iota
	Account
	Identity
	Sync
)

// The kinds of records. Those that are indexed are the table's; of them, these have
// shares of their own. Post and Other are not indexed.
var (
	Follow = kinds.ByName("follow").Kind
	Like   = kinds.ByName("like").Kind
	Repost = kinds.ByName("repost").Kind
	Block  = kinds.ByName("block").Kind
)

// The kinds that are not indexed, which no row of the table has.
const (
	Other kinds.Kind = kinds.Max - iota
	Post
)

// A Status is what becomes of an account.
type Status uint8

// The statuses. Away is one that names no status.
const (
	Active Status = iota
	Deactivated
	TakenDown
	Suspended
	Away
	Deleted
)

// An Action is what is done to a record.
type Action uint8

// The actions.
const (
	Create Action = iota
	Update
	Delete
)

// An Event is a message of the stream.
type Event struct {
	Seq     int64
	Rev     uint64 // of a commit; of a #sync, the account's last
	Since   uint64 // the account's rev before, 0 if it had none
	TID     uint64 // the record key
	Account int32
	// The subject: an account, or its post with the key given. Of a delete, what
	// the record named once.
	Subject    int32
	SubjectTID uint64
	Type       Type
	Status     Status
	Kind       kinds.Kind
	Action     Action
	More       uint8 // operations after the first: see Network.Op
}

// An Op is an operation of a commit.
type Op struct {
	Kind       kinds.Kind
	Action     Action
	TID        uint64
	Subject    int32
	SubjectTID uint64
}

// Ops returns how many operations the event has.
func (e *Event) Ops() int {
	if e.Type != Commit {
		return 0
	}
	return 1 + int(e.More)
}

// Op returns the k-th operation of a commit. Those after the first follow
// somebody else.
func (n *Network) Op(e *Event, k int) Op {
	o := Op{e.Kind, e.Action, e.TID + uint64(k)<<10, e.Subject, e.SubjectTID}
	if k > 0 {
		r := n.rng(forMore, uint64(e.Seq)*maxPack+uint64(k))
		o.Subject = int32(n.followed(&r))
	}
	return o
}
