package batch

import (
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Batch is a decoded range of the stream, or a piece of the past. The zero value is empty.
// It holds all strings in one arena, and Reset keeps the memory, so that refilling a batch
// allocates nothing. It is for one goroutine.
type Batch struct {
	reach
	notes
	beside

	arena    []byte
	events   []Event
	ops      []Op
	archived bool // read from an archive
}

// maxKept bounds the arena that Reset keeps, so that one large batch does not hold its
// memory for ever.
const maxKept = 32 << 20

// Reset empties the batch.
func (b *Batch) Reset() {
	if cap(b.arena) > maxKept {
		b.arena = nil
	}
	b.arena, b.events, b.ops = b.arena[:0], b.events[:0], b.ops[:0]
	b.archived = false
	b.reach, b.notes = reach{time: b.time[:0]}, notes{b.dead[:0], b.gaps[:0]}
	b.beside = beside{b.states[:0], b.snapshots[:0], b.outcomes[:0], b.causes[:0]}
}

// Empty reports whether applying the batch would change nothing.
func (b *Batch) Empty() bool {
	return b.last == 0 && len(b.events) == 0 && len(b.dead) == 0 && len(b.gaps) == 0
}

// Size returns how many events and operations the batch holds, and the bytes of their
// strings.
func (b *Batch) Size() (events, ops, bytes int) { return len(b.events), len(b.ops), len(b.arena) }

func (b *Batch) put(s []byte) Span {
	start := uint32(len(b.arena))
	b.arena = append(b.arena, s...)
	return Span{start, uint32(len(b.arena))}
}

func (b *Batch) add(seq format.Seq, kind EventType, c *Commit) *Event {
	b.events = append(b.events, Event{Seq: seq, Kind: kind, DID: b.put(c.DID)})
	e := &b.events[len(b.events)-1]
	e.Ops = Span{uint32(len(b.ops)), uint32(len(b.ops))}
	if tid, ok := dict.ParseTID(c.Rev); ok {
		e.Rev = format.Rev(tid)
		e.Flags |= HasRev
	}
	if len(c.Since) > 0 {
		e.Since = format.NoRev
		if tid, ok := dict.ParseTID(c.Since); ok {
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
		e.Flags |= HasOtherRev
	}
	if c.Refuted {
		e.Flags |= IsRefuted
	}
	if c.TooBig || e.Flags&HasRev == 0 || e.Flags&HasData == 0 {
		e.Flags |= IsDamaged
	}
	return e
}

// AddCommit adds a #commit; AddPut and AddDelete then add its operations. A commit without
// Rev or Data is damaged: it applies nothing and desynchronizes its repo.
func (b *Batch) AddCommit(seq format.Seq, c *Commit) { b.add(seq, EventCommit, c) }

// LoseOp notes that an operation of the last event cannot be applied as its repo has it: the repo is
// desynchronized.
func (b *Batch) LoseOp() { b.events[len(b.events)-1].Flags |= IsDamaged }

// AddSync adds a #sync.
func (b *Batch) AddSync(seq format.Seq, c *Commit) { b.add(seq, EventSync, c) }

// AddAccount adds an #account. erase means that its status is "deleted".
func (b *Batch) AddAccount(seq format.Seq, did []byte, isActive, erase bool) {
	e := b.add(seq, EventAccount, &Commit{DID: did})
	e.Flags = 0
	if isActive {
		e.Flags = IsActive
	} else if erase {
		e.Flags = IsDeleted
	}
}

// Keep copies a string into the batch, for AddSubjects. The Span is valid until Reset.
func (b *Batch) Keep(s []byte) Span { return b.put(s) }

// AddPut adds to the last event the creation or update of a record of kind k. A malformed
// record has a nil subject.
func (b *Batch) AddPut(k kinds.Kind, rkey, subject []byte) {
	b.addOp(Op{Kind: k, Rkey: b.put(rkey), Subject: b.put(subject)})
}

// AddSubjects adds to the last event the creation or update of a record with its subjects: a put for each, and before them
// a deletion if the record names none, or can name several (kinds.Kind.IsMany). Of a kind of records themselves, it adds the record.
func (b *Batch) AddSubjects(k *kinds.Info, rkey []byte, subjects []Span) {
	key := b.put(rkey)
	switch {
	case k.Kind.IsSelf():
		start := uint32(len(b.arena))
		b.arena = k.AppendSelf(b.arena, b.Bytes(b.events[len(b.events)-1].DID), rkey)
		b.addOp(Op{Kind: k.Kind, Rkey: key, Subject: Span{start, uint32(len(b.arena))}})
	case k.Kind.IsMany() || len(subjects) == 0:
		b.addOp(Op{Kind: k.Kind, Delete: true, Rkey: key})
	}
	for _, s := range subjects {
		b.addOp(Op{Kind: k.Kind, Rkey: key, Subject: s})
	}
}

// AddDelete adds to the last event the deletion of a record of kind k.
func (b *Batch) AddDelete(k kinds.Kind, rkey []byte) {
	b.addOp(Op{Kind: k, Delete: true, Rkey: b.put(rkey)})
}

// Imported is what an exported store knew about an account.
type Imported struct {
	// State is the account's state.
	State format.RepoState
	// Queued is its row in the queue of resyncs, nil if it was not queued.
	Queued *format.Resync
	// Touched is what the stream changed since it was queued, with Actor unset.
	Touched []format.Touched
}

// AddImport adds what an exported store knew about an account. If st is nil it adds records
// of the account, by the calls of AddPut that follow. isFresh says that the store was empty.
func (b *Batch) AddImport(did []byte, st *Imported, isFresh bool) {
	e := b.add(format.Seq(len(b.states)), EventImport, &Commit{DID: did})
	if e.Flags = 0; isFresh {
		e.Flags = IsFresh
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
