package graph

import "skein.blue/graph/format"

// A segment is what one write applies: events of a batch, in the order of the stream.
type segment struct {
	source  string
	batch   *Batch
	events  []picked
	first   uint8              // the first of the lane's partitions
	cursors []format.CursorRow // of the source, by partition, from the lane's first
	whole   bool               // it ends where the batch ends
}

// picked is an event of the batch that is the lane's.
type picked struct {
	n    int32 // index in the batch
	part uint8 // that its account is in
}

// sourceOf returns the number of the source in the partition of an event.
func (g *segment) sourceOf(p picked) uint32 { return g.cursors[p.part-g.first].Number }

// last returns the sequence number that the segment reaches, 0 if it has none.
func (g *segment) last() format.Seq {
	if g.whole || g.batch.Last() == 0 {
		return g.batch.Last()
	}
	return g.batch.Event(int(g.events[len(g.events)-1].n)).seq
}

// did returns the account of an event.
func (g *segment) did(p picked) []byte { return g.batch.Bytes(g.batch.Event(int(p.n)).did) }

// maxSegment bounds the events of one write of a stream.
const maxSegment = 32_768

// endOfSegment returns the end of the write that begins at from. What comes in the
// stream after the deletion of an account and is that account's is left to
// another write, which finds the account's records gone.
//
// A batch of an archive is one write, as large as its reader made it: most of its
// deletions are of accounts that have nothing, so they are looked for only once one has
// turned out to end a write (errEnds).
func endOfSegment(b *Batch, events []picked, from int, looks bool) int {
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
		e := b.Event(int(events[i].n))
		if i-from >= most || len(gone) == mostDeleted {
			return i
		}
		if len(gone) > 0 && gone[string(b.Bytes(e.did))] {
			return i
		}
		if e.kind == eventAccount && e.flags&isDeleted != 0 || e.kind == eventArchivedStatus && e.flags&(isDeleted|isSync) != 0 {
			gone[string(b.Bytes(e.did))] = true
		}
	}
	return len(events)
}

// mostStrings returns how many strings the segment may have at most.
func (g *segment) mostStrings() (n int) {
	for _, p := range g.events {
		ops := g.batch.Event(int(p.n)).ops
		n += 1 + int(ops.End-ops.Start)
	}
	return n
}
