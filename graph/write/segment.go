package write

import (
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// A Segment is what one write applies: events of a batch, in stream order.
type Segment struct {
	Source  string             // where the events come from
	Batch   *batch.Batch       // which has the events
	Events  []Picked           // in stream order
	Parts   format.Partitions  // the lane's
	Cursors []format.CursorRow // the source's, by partition
	Whole   bool               // the segment ends where the batch ends
	Latest  format.Rev         // the highest rev to believe (format.LatestRev)
	Stuck   map[dict.ID]bool   // deleted accounts whose records cannot be erased
	Waits   map[dict.ID]bool   // accounts that are being erased whose events do not wait for that, if their repos can be fetched later
}

// Picked is an event of the batch that belongs to the lane.
type Picked struct {
	N    int32 // index in the batch
	Part uint8 // partition of its account
}

// sourceOf returns the number of the source in the partition of an event.
func (g *Segment) sourceOf(p Picked) uint32 { return g.Cursors[p.Part].Number }

// last returns the sequence number that the segment reaches, 0 if there is none.
func (g *Segment) last() format.Seq {
	if g.Whole || g.Batch.Last() == 0 {
		return g.Batch.Last()
	}
	return g.Batch.Event(int(g.Events[len(g.Events)-1].N)).Seq
}

// did returns the account of an event.
func (g *Segment) did(p Picked) []byte { return g.Batch.Bytes(g.Batch.Event(int(p.N)).DID) }

// isOfStream reports whether the segment's operations are those of commits.
func (g *Segment) isOfStream() bool {
	return len(g.Events) > 0 && g.Batch.Event(int(g.Events[0].N)).Kind <= batch.EventAccount
}

// maxSegment bounds the events that one write of a stream applies.
const maxSegment = 32_768

// EndOfSegment returns the end of the segment that begins at from. If findDeletions is set, the
// segment ends before an event that follows the deletion of its account: a later write applies that
// event, after the account's records are gone.
//
// Set findDeletions for streams. An archive's batch is applied in one write, however large its
// reader made it, and most of its deletions are of accounts without records, so set it for an
// archive only after an attempt has failed with a SegmentEndError.
func EndOfSegment(b *batch.Batch, events []Picked, from int, findDeletions bool) int {
	const maxDeleted = 16
	limit := maxSegment
	if b.Archived() {
		limit = len(events)
	}
	if !findDeletions {
		return min(from+limit, len(events))
	}
	gone := map[string]bool{}
	for i := from; i < len(events); i++ {
		e := b.Event(int(events[i].N))
		if i-from >= limit || len(gone) == maxDeleted {
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

// MostStrings returns the largest number of strings that the segment can have.
func (g *Segment) MostStrings() (n int) {
	for _, p := range g.Events {
		ops := g.Batch.Event(int(p.N)).Ops
		n += 1 + int(ops.End-ops.Start)
	}
	return n
}
