package graph

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// writers is what a store that this process writes alone, and one that several write,
// each its partitions, do differently. alone is the first, several the second.
type writers interface {
	// owns reports whether the events of an account are applied here.
	owns(did []byte) bool

	// ownsPart is owns of the accounts of a partition.
	ownsPart(part uint8) bool

	// begin is called before anything of a batch is applied.
	begin(ctx context.Context, source string, b *Batch) error

	// pick appends the events of the batch that are the lane's, and have not been
	// applied.
	pick(to []picked, l *lane, source string, b *Batch) []picked

	// prepare makes ready, before the write, that the strings of a segment can be
	// given ids.
	prepare(ctx context.Context, seg *segment, strings *intern.Batch) error

	// check makes sure, as part of a write, that this process may write.
	check(tx kv.Txn) error

	// stopOthers has the other writers of the store stop, as part of a write.
	stopOthers(tx kv.Txn)

	// notesInWrite reports whether the notes of a batch are written with its events.
	notesInWrite() bool

	// isAhead reports whether a partition is ahead of the others, whose write moves
	// the cursor to seq: then it stays where it is.
	isAhead(c *format.CursorRow, seq format.Seq) bool

	// hidden returns the hidden set of the state that r reads.
	hidden(r kv.Reader) (*roaring64.Bitmap, error)

	// hiddenChanged tells of a committed change of the hidden set.
	hiddenChanged(version uint64, changes map[dict.ID]bool)

	// load reads what is kept in memory.
	load(r kv.Reader) error

	// close gives up what open took.
	close(ctx context.Context) error
}

// alone is for a store that one process writes: it has one partition and one lane.
type alone struct {
	layout format.Layout
	ids    intern.Interner
	cache  hiddenCache
}

func (a *alone) owns([]byte) bool { return true }

func (a *alone) ownsPart(uint8) bool { return true }

func (a *alone) begin(context.Context, string, *Batch) error { return nil }

func (a *alone) pick(to []picked, _ *lane, _ string, b *Batch) []picked {
	for i := range b.events {
		to = append(to, picked{n: int32(i)})
	}
	return to
}

func (a *alone) prepare(ctx context.Context, seg *segment, strings *intern.Batch) error {
	need := 0
	for _, p := range seg.events {
		ops := seg.batch.events[p.n].ops
		need += 1 + int(ops.end-ops.start)
	}
	return a.ids.Prepare(ctx, strings, need)
}

func (a *alone) check(kv.Txn) error { return nil }

func (a *alone) stopOthers(kv.Txn) {}

func (a *alone) notesInWrite() bool { return true }

func (a *alone) isAhead(*format.CursorRow, format.Seq) bool { return false }

// hidden returns the set that the writer keeps, where its version is the same, which is
// nearly always.
func (a *alone) hidden(r kv.Reader) (*roaring64.Bitmap, error) {
	version, err := read.Version(r, format.KeyHidden)
	if err != nil {
		return nil, err
	}
	if set := a.cache.get(version); set != nil {
		return set, nil
	}
	return read.Bitmap(r, a.layout, kinds.Hidden, 0)
}

func (a *alone) hiddenChanged(version uint64, changes map[dict.ID]bool) {
	a.cache.publish(version, changes)
}

func (a *alone) load(r kv.Reader) (err error) { return a.cache.load(r, a.layout) }

func (a *alone) close(context.Context) error { return nil }
