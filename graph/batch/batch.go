package batch

import (
	"fmt"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/syntax"
)

// A Batch is a range of the stream, decoded: what Store.Apply takes. It holds
// all strings in one arena, and Reset keeps its memory, so that filling one
// allocates nothing in the long run.
type Batch struct {
	arena  []byte
	events []Event
	ops    []Op
	first  format.Seq
	last   format.Seq
	time   []byte // of last, as it stood in the event
	exact  bool   // so it did
	dead   []format.DeadLetter
	gaps   []format.Gap
	states []Imported // of eventImport with hasState, in their order

	snapshots []Part // of eventSnapshot, in their order
	outcomes  []Outcome
	causes    []Cause // of eventResync, in their order
	archived  bool    // it is of an archive
}

// A span is the place of a string, or of operations, in a Batch.
type Span struct{ Start, End uint32 }

// IsEmpty reports whether nothing is there.
func (s Span) IsEmpty() bool { return s.Start == s.End }

type eventType uint8

const (
	EventCommit eventType = iota
	EventSync
	EventAccount
	EventImport
	EventResync         // the repo is to be fetched whole
	EventSnapshot       // what a repo held at a rev, or a part of it
	EventArchived       // what an archive has of a repo
	EventArchivedStatus // and of an account: an #account, or a #sync
	EventStatus         // what a host's list of repos says of an account
)

// isOfSource reports whether an event's seq is one of the source that the batch is of.
func (e *Event) IsOfSource() bool {
	return e.Kind <= EventAccount || e.Kind == EventArchived || e.Kind == EventArchivedStatus
}

type Event struct {
	Seq      format.Seq
	Did      Span
	Ops      Span // of Batch.ops
	Kind     eventType
	Flags    eventFlags
	Rev      format.Rev
	Since    format.Rev
	Data     format.Root
	PrevData format.Root
}

type eventFlags uint16

const (
	HasRev eventFlags = 1 << iota
	HasSince
	HasData
	HasPrevData
	HasState  // of an import: it has the account's state
	Fresh     // of an import: the store was empty
	IsDamaged // could not be read whole, or tooBig: the repo is desynchronized
	OtherRev  // the rev is the commit block's, the message said another
	Active    // of an account
	IsDeleted // of an account
	IsSync    // of an archived status: it is a #sync
)

type Op struct {
	Kind    kinds.Kind
	Delete  bool
	Rkey    Span
	Subject Span // empty: no subject
}

// digestLen is the length of a SHA-256.
const digestLen = 32

// A Commit is the header of a #commit, or a #sync (which has no Since and
// PrevData). The slices are copied.
type Commit struct {
	DID      []byte
	Rev      []byte // a valid TID, or empty if it is not known
	Since    []byte // a TID, or empty; anything else is the rev of no commit
	Data     []byte // the SHA-256 of the commit block's data, or empty if the block cannot be read
	PrevData []byte // likewise of prevData, or empty
	TooBig   bool
	OtherRev bool // Rev is that of the commit block, and the message said another
}

// maxKept bounds the arena that Reset keeps: a rare large batch does not take
// its memory for ever.
const maxKept = 32 << 20

// Reset empties the batch.
func (b *Batch) Reset() {
	if cap(b.arena) > maxKept {
		b.arena = nil
	}
	b.arena, b.events, b.ops = b.arena[:0], b.events[:0], b.ops[:0]
	b.dead, b.gaps, b.states = b.dead[:0], b.gaps[:0], b.states[:0]
	b.snapshots, b.outcomes = b.snapshots[:0], b.outcomes[:0]
	b.causes, b.archived = b.causes[:0], false
	b.first, b.last, b.time, b.exact = 0, 0, b.time[:0], false
}

// Empty reports whether applying the batch would change nothing.
func (b *Batch) Empty() bool {
	return b.last == 0 && len(b.events) == 0 && len(b.dead) == 0 && len(b.gaps) == 0
}

// Size returns how much the batch holds: events, operations, and the bytes of
// their strings.
func (b *Batch) Size() (events, ops, bytes int) { return len(b.events), len(b.ops), len(b.arena) }

// Last returns the last sequence number of the batch, 0 if it has none.
func (b *Batch) Last() format.Seq { return b.last }

func (b *Batch) put(s []byte) Span {
	start := uint32(len(b.arena))
	b.arena = append(b.arena, s...)
	return Span{start, uint32(len(b.arena))}
}

// Seen notes that everything up to seq is in the batch. Every event of the
// stream that has a seq ends in a call of it, whatever else it is. eventTime is
// the event's own, in RFC 3339; anything else counts as unknown.
func (b *Batch) Seen(seq format.Seq, eventTime []byte) {
	b.last = seq
	if b.first == 0 {
		b.first = seq
	}
	if len(eventTime) < 64 {
		b.time, b.exact = append(b.time[:0], eventTime...), true
	}
}

// Inexact notes that the time of the last event is not the one that stood there, which is not
// believed.
func (b *Batch) Inexact() { b.exact = false }

// Time returns the time of the last event, zero if it is not known.
func (b *Batch) Time() (t time.Time) {
	if t.UnmarshalText(b.time) != nil {
		return time.Time{}
	}
	return t
}

func (b *Batch) add(seq format.Seq, kind eventType, c *Commit) *Event {
	b.events = append(b.events, Event{Seq: seq, Kind: kind, Did: b.put(c.DID)})
	e := &b.events[len(b.events)-1]
	e.Ops = Span{uint32(len(b.ops)), uint32(len(b.ops))}
	if tid, ok := syntax.ParseTID(c.Rev); ok {
		e.Rev = format.Rev(tid)
		e.Flags |= HasRev
	}
	if len(c.Since) > 0 {
		e.Since = format.NoRev
		if tid, ok := syntax.ParseTID(c.Since); ok {
			e.Since = format.Rev(tid)
		}
		e.Flags |= HasSince
	}
	if len(c.Data) == digestLen {
		e.Data = format.Root(c.Data[:8])
		e.Flags |= HasData
	}
	if len(c.PrevData) == digestLen {
		e.PrevData = format.Root(c.PrevData[:8])
		e.Flags |= HasPrevData
	}
	if c.OtherRev {
		e.Flags |= OtherRev
	}
	if c.TooBig || e.Flags&HasRev == 0 || e.Flags&HasData == 0 {
		e.Flags |= IsDamaged
	}
	return e
}

// AddCommit adds a #commit; AddOp then adds its operations. A commit without
// Rev or Data could not be read whole: it applies nothing and desynchronizes
// its repo.
func (b *Batch) AddCommit(seq format.Seq, c *Commit) { b.add(seq, EventCommit, c) }

// AddSync adds a #sync.
func (b *Batch) AddSync(seq format.Seq, c *Commit) { b.add(seq, EventSync, c) }

// AddAccount adds an #account. erase says that its status is deleted.
func (b *Batch) AddAccount(seq format.Seq, did []byte, isActive, erase bool) {
	e := b.add(seq, EventAccount, &Commit{DID: did})
	e.Flags = 0
	if isActive {
		e.Flags = Active
	} else if erase {
		e.Flags = IsDeleted
	}
}

// A Ref is a string that is in the batch already.
type Ref struct{ Span }

// Keep puts a string into the batch, for AddPutRef. It is valid until Reset.
func (b *Batch) Keep(s []byte) Ref { return Ref{b.put(s)} }

// AddPutRef is AddPut with a subject that several records may share.
func (b *Batch) AddPutRef(k kinds.Kind, rkey []byte, subject Ref) {
	b.addOp(Op{Kind: k, Rkey: b.put(rkey), Subject: subject.Span})
}

// AddPut adds to the last commit the creation or update of a record of kind k.
// subject is nil if the record is malformed: its path then names no subject.
func (b *Batch) AddPut(k kinds.Kind, rkey, subject []byte) {
	b.addOp(Op{Kind: k, Rkey: b.put(rkey), Subject: b.put(subject)})
}

// AddDelete adds to the last commit the deletion of a record of kind k.
func (b *Batch) AddDelete(k kinds.Kind, rkey []byte) {
	b.addOp(Op{Kind: k, Delete: true, Rkey: b.put(rkey)})
}

// An Imported is what another store knew of an account.
type Imported struct {
	State format.RepoState
	// Queued is its row in the queue of repos to fetch, nil if there was none.
	Queued *format.Resync
	// Touched is what the stream has changed of it since it was queued; their Actor is not set.
	Touched []format.Touched
}

// AddImport adds what another store knew of an account, or if that is nil records, which
// AddPut then adds.
func (b *Batch) AddImport(did []byte, st *Imported, isFresh bool) {
	e := b.add(format.Seq(len(b.states)), EventImport, &Commit{DID: did})
	if e.Flags = 0; isFresh {
		e.Flags = Fresh
	}
	if st != nil {
		e.Flags |= HasState
		b.states = append(b.states, *st)
	}
}

func (b *Batch) addOp(o Op) {
	if o.Rkey.Start == o.Rkey.End {
		return // no record has an empty key
	}
	b.ops = append(b.ops, o)
	b.events[len(b.events)-1].Ops.End = uint32(len(b.ops))
}

// MaxNotes bounds the dead letters, and the gaps, that one batch keeps: a flood
// of garbage must not take the memory. Apply a batch that has so many.
const MaxNotes = 1000

// Notes returns how many dead letters or gaps the batch holds, the more of the
// two.
func (b *Batch) Notes() int { return max(len(b.dead), len(b.gaps)) }

// AddDeadLetter adds a dead letter. Its Source is set by Apply.
func (b *Batch) AddDeadLetter(d format.DeadLetter) { b.dead = addNote(b.dead, d) }

// AddGap adds a gap. Its Source is set by Apply.
func (b *Batch) AddGap(g format.Gap) { b.gaps = addNote(b.gaps, g) }

func addNote[T any](notes []T, n T) []T {
	if len(notes) == 8*MaxNotes { // one message made so many
		notes = notes[:copy(notes, notes[MaxNotes:])]
	}
	return append(notes, n)
}

// What follows is for the package that applies a batch.

// Events returns how many events the batch holds, and Event one of them.
func (b *Batch) Events() int { return len(b.events) }

// Event returns the i-th event.
func (b *Batch) Event(i int) *Event { return &b.events[i] }

// Op returns an operation by its place, as in event.ops.
func (b *Batch) Op(i uint32) *Op { return &b.ops[i] }

// Bytes returns a string of the batch, valid until Reset.
func (b *Batch) Bytes(s Span) []byte { return b.arena[s.Start:s.End] }

// First returns the first sequence number of the batch, 0 if it has none.
func (b *Batch) First() format.Seq { return b.first }

// Exact reports whether Time is the time that stood in the last event.
func (b *Batch) Exact() bool { return b.exact }

// DeadLetters returns the dead letters.
func (b *Batch) DeadLetters() []format.DeadLetter { return b.dead }

// Gaps returns the gaps.
func (b *Batch) Gaps() []format.Gap { return b.gaps }

// Archived reports whether the batch came from an archive.
func (b *Batch) Archived() bool { return b.archived }

// Imported returns the n-th state of an account that AddImport added.
func (b *Batch) Imported(n format.Seq) *Imported { return &b.states[n] }

// Cause returns the cause of the n-th AddResync.
func (b *Batch) Cause(n format.Seq) *Cause { return &b.causes[n] }

// Part returns what the n-th AddSnapshot says besides its event.
func (b *Batch) Part(n format.Seq) *Part { return &b.snapshots[n] }

// SetOutcome notes what became of the n-th snapshot.
func (b *Batch) SetOutcome(n format.Seq, o Outcome) { b.outcomes[n] = o }

// Describe lists the events of the batch in words, one a line, operations
// after their commit. It is for tests and debugging.
func (b *Batch) Describe() (lines []string) {
	for i := range b.events {
		e := &b.events[i]
		switch e.Kind {
		case EventAccount:
			lines = append(lines, fmt.Sprintf("%d account %s active=%t deleted=%t", e.Seq, b.Bytes(e.Did), e.Flags&Active != 0, e.Flags&IsDeleted != 0))
			continue
		case EventSync:
			lines = append(lines, fmt.Sprintf("%d sync %s %s %x", e.Seq, b.Bytes(e.Did), e.Rev, e.Data))
			continue
		default:
		}
		line := fmt.Sprintf("%d commit %s", e.Seq, b.Bytes(e.Did))
		if e.Flags&HasRev != 0 {
			line += fmt.Sprintf(" rev=%s", e.Rev)
		}
		if e.Flags&HasSince != 0 {
			line += fmt.Sprintf(" since=%s", e.Since)
		}
		if e.Flags&HasData != 0 {
			line += fmt.Sprintf(" data=%x", e.Data)
		}
		if e.Flags&HasPrevData != 0 {
			line += fmt.Sprintf(" prevData=%x", e.PrevData)
		}
		if e.Flags&IsDamaged != 0 {
			line += " damaged"
		}
		lines = append(lines, line)
		for _, o := range b.ops[e.Ops.Start:e.Ops.End] {
			if o.Delete {
				lines = append(lines, fmt.Sprintf("  delete %s %s", o.Kind, b.Bytes(o.Rkey)))
			} else {
				lines = append(lines, fmt.Sprintf("  put %s %s %s", o.Kind, b.Bytes(o.Rkey), b.Bytes(o.Subject)))
			}
		}
	}
	return lines
}
