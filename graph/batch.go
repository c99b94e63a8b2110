package graph

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
	events []event
	ops    []op
	first  format.Seq
	last   format.Seq
	time   []byte // of last, as it stood in the event
	exact  bool   // so it did
	dead   []format.DeadLetter
	gaps   []format.Gap
	states []Imported // of eventImport with hasState, in their order

	snapshots []part // of eventSnapshot, in their order
	outcomes  []Outcome
	causes    []Cause // of eventResync, in their order
	archived  bool    // it is of an archive
}

// A span is the place of a string, or of operations, in a Batch.
type span struct{ Start, End uint32 }

// IsEmpty reports whether nothing is there.
func (s span) IsEmpty() bool { return s.Start == s.End }

type eventType uint8

const (
	eventCommit eventType = iota
	eventSync
	eventAccount
	eventImport
	eventResync         // the repo is to be fetched whole
	eventSnapshot       // what a repo held at a rev, or a part of it
	eventArchived       // what an archive has of a repo
	eventArchivedStatus // and of an account: an #account, or a #sync
	eventStatus         // what a host's list of repos says of an account
)

// isOfSource reports whether an event's seq is one of the source that the batch is of.
func (e *event) isOfSource() bool {
	return e.kind <= eventAccount || e.kind == eventArchived || e.kind == eventArchivedStatus
}

type event struct {
	seq      format.Seq
	did      span
	ops      span // of Batch.ops
	kind     eventType
	flags    eventFlags
	rev      format.Rev
	since    format.Rev
	data     format.Root
	prevData format.Root
}

type eventFlags uint16

const (
	hasRev eventFlags = 1 << iota
	hasSince
	hasData
	hasPrevData
	hasState  // of an import: it has the account's state
	fresh     // of an import: the store was empty
	isDamaged // could not be read whole, or tooBig: the repo is desynchronized
	otherRev  // the rev is the commit block's, the message said another
	active    // of an account
	isDeleted // of an account
	isSync    // of an archived status: it is a #sync
)

type op struct {
	kind    kinds.Kind
	delete  bool
	rkey    span
	subject span // empty: no subject
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

func (b *Batch) put(s []byte) span {
	start := uint32(len(b.arena))
	b.arena = append(b.arena, s...)
	return span{start, uint32(len(b.arena))}
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

func (b *Batch) add(seq format.Seq, kind eventType, c *Commit) *event {
	b.events = append(b.events, event{seq: seq, kind: kind, did: b.put(c.DID)})
	e := &b.events[len(b.events)-1]
	e.ops = span{uint32(len(b.ops)), uint32(len(b.ops))}
	if tid, ok := syntax.ParseTID(c.Rev); ok {
		e.rev = format.Rev(tid)
		e.flags |= hasRev
	}
	if len(c.Since) > 0 {
		e.since = format.NoRev
		if tid, ok := syntax.ParseTID(c.Since); ok {
			e.since = format.Rev(tid)
		}
		e.flags |= hasSince
	}
	if len(c.Data) == digestLen {
		e.data = format.Root(c.Data[:8])
		e.flags |= hasData
	}
	if len(c.PrevData) == digestLen {
		e.prevData = format.Root(c.PrevData[:8])
		e.flags |= hasPrevData
	}
	if c.OtherRev {
		e.flags |= otherRev
	}
	if c.TooBig || e.flags&hasRev == 0 || e.flags&hasData == 0 {
		e.flags |= isDamaged
	}
	return e
}

// AddCommit adds a #commit; AddOp then adds its operations. A commit without
// Rev or Data could not be read whole: it applies nothing and desynchronizes
// its repo.
func (b *Batch) AddCommit(seq format.Seq, c *Commit) { b.add(seq, eventCommit, c) }

// AddSync adds a #sync.
func (b *Batch) AddSync(seq format.Seq, c *Commit) { b.add(seq, eventSync, c) }

// AddAccount adds an #account. erase says that its status is deleted.
func (b *Batch) AddAccount(seq format.Seq, did []byte, isActive, erase bool) {
	e := b.add(seq, eventAccount, &Commit{DID: did})
	e.flags = 0
	if isActive {
		e.flags = active
	} else if erase {
		e.flags = isDeleted
	}
}

// A Ref is a string that is in the batch already.
type Ref struct{ span }

// Keep puts a string into the batch, for AddPutRef. It is valid until Reset.
func (b *Batch) Keep(s []byte) Ref { return Ref{b.put(s)} }

// AddPutRef is AddPut with a subject that several records may share.
func (b *Batch) AddPutRef(k kinds.Kind, rkey []byte, subject Ref) {
	b.addOp(op{kind: k, rkey: b.put(rkey), subject: subject.span})
}

// AddPut adds to the last commit the creation or update of a record of kind k.
// subject is nil if the record is malformed: its path then names no subject.
func (b *Batch) AddPut(k kinds.Kind, rkey, subject []byte) {
	b.addOp(op{kind: k, rkey: b.put(rkey), subject: b.put(subject)})
}

// AddDelete adds to the last commit the deletion of a record of kind k.
func (b *Batch) AddDelete(k kinds.Kind, rkey []byte) {
	b.addOp(op{kind: k, delete: true, rkey: b.put(rkey)})
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
	e := b.add(format.Seq(len(b.states)), eventImport, &Commit{DID: did})
	if e.flags = 0; isFresh {
		e.flags = fresh
	}
	if st != nil {
		e.flags |= hasState
		b.states = append(b.states, *st)
	}
}

func (b *Batch) addOp(o op) {
	if o.rkey.Start == o.rkey.End {
		return // no record has an empty key
	}
	b.ops = append(b.ops, o)
	b.events[len(b.events)-1].ops.End = uint32(len(b.ops))
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
func (b *Batch) Event(i int) *event { return &b.events[i] }

// Op returns an operation by its place, as in event.ops.
func (b *Batch) Op(i uint32) *op { return &b.ops[i] }

// Bytes returns a string of the batch, valid until Reset.
func (b *Batch) Bytes(s span) []byte { return b.arena[s.Start:s.End] }

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
func (b *Batch) Part(n format.Seq) *part { return &b.snapshots[n] }

// SetOutcome notes what became of the n-th snapshot.
func (b *Batch) SetOutcome(n format.Seq, o Outcome) { b.outcomes[n] = o }

// Describe lists the events of the batch in words, one a line, operations
// after their commit. It is for tests and debugging.
func (b *Batch) Describe() (lines []string) {
	for i := range b.events {
		e := &b.events[i]
		switch e.kind {
		case eventAccount:
			lines = append(lines, fmt.Sprintf("%d account %s active=%t deleted=%t", e.seq, b.Bytes(e.did), e.flags&active != 0, e.flags&isDeleted != 0))
			continue
		case eventSync:
			lines = append(lines, fmt.Sprintf("%d sync %s %s %x", e.seq, b.Bytes(e.did), e.rev, e.data))
			continue
		default:
		}
		line := fmt.Sprintf("%d commit %s", e.seq, b.Bytes(e.did))
		if e.flags&hasRev != 0 {
			line += fmt.Sprintf(" rev=%s", e.rev)
		}
		if e.flags&hasSince != 0 {
			line += fmt.Sprintf(" since=%s", e.since)
		}
		if e.flags&hasData != 0 {
			line += fmt.Sprintf(" data=%x", e.data)
		}
		if e.flags&hasPrevData != 0 {
			line += fmt.Sprintf(" prevData=%x", e.prevData)
		}
		if e.flags&isDamaged != 0 {
			line += " damaged"
		}
		lines = append(lines, line)
		for _, o := range b.ops[e.ops.Start:e.ops.End] {
			if o.delete {
				lines = append(lines, fmt.Sprintf("  delete %s %s", o.kind, b.Bytes(o.rkey)))
			} else {
				lines = append(lines, fmt.Sprintf("  put %s %s %s", o.kind, b.Bytes(o.rkey), b.Bytes(o.subject)))
			}
		}
	}
	return lines
}
