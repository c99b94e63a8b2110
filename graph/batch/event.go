package batch

import (
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
)

// EventType says what an Event is.
type EventType uint8

// The types of events.
const (
	EventCommit         EventType = iota // a #commit
	EventSync                            // a #sync
	EventAccount                         // an #account
	EventImport                          // an account of an export, or records of one
	EventResync                          // a repo to be refetched
	EventSnapshot                        // a repo's content at a rev, or a part of it
	EventArchived                        // rows of an archive, of one rev of a repo
	EventArchivedStatus                  // an #account or a #sync of an archive
	EventStatus                          // an account's status in a list of repos
)

// An Event is one event of a Batch. Which fields are set depends on Kind and Flags.
type Event struct {
	Seq      format.Seq  // of the source (IsOfSource), else the number of the entry that belongs to it
	DID      Span        // the account
	Ops      Span        // the operations (Batch.Op)
	Kind     EventType   // what it is
	Flags    EventFlags  // what is known about it
	Rev      format.Rev  // with HasRev
	Since    format.Rev  // with HasSince
	Data     format.Root // with HasData
	PrevData format.Root // with HasPrevData
}

// SetAside makes a commit, rows of an archive, or a snapshot an event whose operations cannot be read (docs/semantics.md#s22). It reports
// whether that changes what the event does: a snapshot without operations removes the stored records.
func (e *Event) SetAside() bool {
	switch {
	case e.Kind == EventSnapshot && e.Flags&IsDamaged == 0:
	case (e.Kind == EventCommit || e.Kind == EventArchived) && !e.Ops.IsEmpty():
	default:
		return false
	}
	e.Ops, e.Flags = Span{}, e.Flags&^HasData|IsDamaged
	return true
}

// IsOfSource reports whether Seq is a sequence number of the batch's source.
func (e *Event) IsOfSource() bool {
	return e.Kind <= EventAccount || e.Kind == EventArchived || e.Kind == EventArchivedStatus
}

// EventFlags say what is known about an Event.
type EventFlags uint16

// The flags of events.
const (
	HasRev      EventFlags = 1 << iota // Rev is set
	HasSince                           // Since is set
	HasData                            // Data is set
	HasPrevData                        // PrevData is set
	HasState                           // import: the account's state comes with it
	IsFresh                            // import: the store was empty
	IsDamaged                          // it cannot be applied whole: the repo is desynchronized
	HasOtherRev                        // Rev is the commit block's; the message named another
	IsActive                           // status: the account is active
	IsDeleted                          // status: the account is deleted
	IsSync                             // archived status: it is a #sync
	IsRefuted                          // failed verification: nothing in it is believed
	IsAnswer                           // status: of the account's host and the relay, which were asked
	IsOutside                          // commit, #account: of an account outside the part of the network that the store holds
)

// An Op is the change of one record.
type Op struct {
	Kind    kinds.Kind // the kind of edge
	Delete  bool       // the record was deleted
	Rkey    Span       // the record's key
	Subject Span       // empty if the record is deleted or names no subject
}

// A Span is the place of a string, or of operations, in a Batch.
type Span struct {
	Start, End uint32 // End is exclusive
}

// IsEmpty reports whether the span is empty.
func (s Span) IsEmpty() bool { return s.Start == s.End }

// digestLen is the length of a SHA-256.
const digestLen = 32

// A Commit is the header of a #commit, or of a #sync (which has no Since and no PrevData).
// The batch copies the slices.
type Commit struct {
	DID      []byte // the account
	Rev      []byte // a valid TID, or empty if it is unknown
	Since    []byte // a TID, or empty; anything else matches no commit
	Data     []byte // the SHA-256 of the repo's root, or empty if the commit block is unreadable
	PrevData []byte // likewise of the root before, or empty
	TooBig   bool   // the message left its operations out
	OtherRev bool   // Rev is the commit block's; the message named another
	Refuted  bool   // it failed verification; only DID is set
}
