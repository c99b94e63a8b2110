package network

import "skein.blue/graph/kinds"

// A Type is the type of an event.
type Type uint8

// The types of events.
const (
	Commit Type = iota
	Account
	Identity
	Sync
)

// The kinds of records. The table has the indexed kinds; these of them have their
// own shares. Post and Other are not indexed.
var (
	Follow = kinds.ByName("follow").Kind
	Like   = kinds.ByName("like").Kind
	Repost = kinds.ByName("repost").Kind
	Block  = kinds.ByName("block").Kind
)

// The kinds that are not indexed, and not in the table.
const (
	Other kinds.Kind = kinds.Max - iota
	Post
)

// A Status is a status of an account.
type Status uint8

// The statuses. Away has no name in messages.
const (
	Active Status = iota
	Deactivated
	TakenDown
	Suspended
	Away
	Deleted
)

// An Action is an action on a record.
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
	Rev     uint64 // of a commit; of a #sync, the account's last one
	Since   uint64 // the account's previous rev, 0 if it had none
	TID     uint64 // the record key
	Account int32
	// The subject: an account, or its post with the key SubjectTID. Of a delete,
	// the subject that the record had.
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

// Ops returns the number of operations of the event.
func (e *Event) Ops() int {
	if e.Type != Commit {
		return 0
	}
	return 1 + int(e.More)
}

// Op returns the k-th operation of a commit. Later operations have other subjects
// than the first.
func (n *Network) Op(e *Event, k int) Op {
	o := Op{e.Kind, e.Action, e.TID + uint64(k)<<10, e.Subject, e.SubjectTID}
	if k > 0 {
		r := n.rng(forMore, uint64(e.Seq)*maxPack+uint64(k))
		o.Subject = int32(n.followed(&r))
	}
	return o
}
