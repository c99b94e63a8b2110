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
	if g.whole || g.batch.last == 0 {
		return g.batch.last
	}
	return g.batch.events[g.events[len(g.events)-1].n].seq
}

// did returns the account of an event.
func (g *segment) did(p picked) []byte { return g.batch.bytes(g.batch.events[p.n].did) }
