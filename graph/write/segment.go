package write

import (
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// A segment is what one write applies: events of a batch, in the order of the stream.
type Segment struct {
	Source  string
	Batch   *batch.Batch
	Events  []Picked
	First   uint8              // the first of the lane's partitions
	Cursors []format.CursorRow // of the source, by partition, from the lane's first
	Whole   bool               // it ends where the batch ends
}

// picked is an event of the batch that is the lane's.
type Picked struct {
	N    int32 // index in the batch
	Part uint8 // that its account is in
}

// sourceOf returns the number of the source in the partition of an event.
func (g *Segment) sourceOf(p Picked) uint32 { return g.Cursors[p.Part-g.First].Number }

// last returns the sequence number that the segment reaches, 0 if it has none.
func (g *Segment) last() format.Seq {
	if g.Whole || g.Batch.Last() == 0 {
		return g.Batch.Last()
	}
	return g.Batch.Event(int(g.Events[len(g.Events)-1].N)).Seq
}

// did returns the account of an event.
func (g *Segment) did(p Picked) []byte { return g.Batch.Bytes(g.Batch.Event(int(p.N)).DID) }

// maxSegment bounds the events of one write of a stream.
const maxSegment = 32_768

// endOfSegment returns the end of the write that begins at from. What comes in the
// stream after the deletion of an account and is that account's is left to
// another write, which finds the account's records gone.
//
// A batch of an archive is one write, as large as its reader made it: most of its
// deletions are of accounts that have nothing, so they are looked for only once one has
// turned out to end a write (errEnds).
func EndOfSegment(b *batch.Batch, events []Picked, from int, looks bool) int {
	const mostDeleted = 16
	most := maxSegment
	if b.Archived() {
		most = len(events)
	}
	if !looks {
		return min(from+most, len(events))
	}
	gone := map[string]bool{}
	for i := from; i < len(events); i++ {
		e := b.Event(int(events[i].N))
		if i-from >= most || len(gone) == mostDeleted {
			return i
		}
		if len(gone) > 0 && gone[string(b.Bytes(e.DID))] {
			return i
		}
		if e.Kind == batch.EventAccount && e.Flags&batch.IsDeleted != 0 || e.Kind == batch.EventArchivedStatus && e.Flags&(batch.IsDeleted|batch.IsSync) != 0 {
			gone[string(b.Bytes(e.DID))] = true
		}
	}
	return len(events)
}

// mostStrings returns how many strings the segment may have at most.
func (g *Segment) MostStrings() (n int) {
	for _, p := range g.Events {
		ops := g.Batch.Event(int(p.N)).Ops
		n += 1 + int(ops.End-ops.Start)
	}
	return n
}
