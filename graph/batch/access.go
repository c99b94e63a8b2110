package batch

// These methods are for package write, which applies batches.

// Events returns the number of events.
func (b *Batch) Events() int { return len(b.events) }

// Event returns the i-th event.
func (b *Batch) Event(i int) *Event { return &b.events[i] }

// Op returns an operation by its place in Event.Ops.
func (b *Batch) Op(i uint32) *Op { return &b.ops[i] }

// Bytes returns a string of the batch, valid until Reset.
func (b *Batch) Bytes(s Span) []byte { return b.arena[s.Start:s.End] }

// Archived reports whether the batch came from an archive.
func (b *Batch) Archived() bool { return b.archived }
