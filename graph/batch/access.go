package batch

import "skein.blue/graph/format"

// These methods are for package write, which applies batches.

// Events returns the number of events.
func (b *Batch) Events() int { return len(b.events) }

// Event returns the i-th event.
func (b *Batch) Event(i int) *Event { return &b.events[i] }

// Op returns an operation by its place in Event.Ops.
func (b *Batch) Op(i uint32) *Op { return &b.ops[i] }

// Bytes returns a string of the batch, valid until Reset.
func (b *Batch) Bytes(s Span) []byte { return b.arena[s.Start:s.End] }

// First returns the first sequence number of the batch, 0 if it has none.
func (b *Batch) First() format.Seq { return b.first }

// Exact reports whether Time is the last event's own time.
func (b *Batch) Exact() bool { return b.exact }

// DeadLetters returns the dead letters.
func (b *Batch) DeadLetters() []format.DeadLetter { return b.dead }

// Gaps returns the gaps.
func (b *Batch) Gaps() []format.Gap { return b.gaps }

// Archived reports whether the batch came from an archive.
func (b *Batch) Archived() bool { return b.archived }

// Imported returns the state that the n-th EventImport came with.
func (b *Batch) Imported(n format.Seq) *Imported { return &b.states[n] }

// Cause returns why the repo of the n-th EventResync is queued.
func (b *Batch) Cause(n format.Seq) *Cause { return &b.causes[n] }

// Part returns what the n-th EventSnapshot holds.
func (b *Batch) Part(n format.Seq) *Part { return &b.snapshots[n] }

// SetOutcome sets the outcome of the n-th EventSnapshot.
func (b *Batch) SetOutcome(n format.Seq, o Outcome) { b.outcomes[n] = o }
