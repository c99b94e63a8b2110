package graph

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A store with one writing process (alone) differs from a store with several (several) in the
// four interfaces below. Open sets all four.

// owner says which accounts are written here.
type owner interface {
	// owns reports whether the events of an account are applied here.
	owns(did []byte) bool
	// ownsPart is owns for the accounts of a partition.
	ownsPart(part uint8) bool
}

// intake takes batches in.
type intake interface {
	// begin is called before anything of a batch is applied.
	begin(ctx context.Context, source string, b *batch.Batch) error
	// pick appends to to the events of the batch that belong to the lane and have not been
	// applied.
	pick(to []write.Picked, l *lane, source string, b *batch.Batch) []write.Picked
	// prepare makes sure, before the write, that the strings of a segment can get ids.
	prepare(ctx context.Context, seg *write.Segment, w *write.Writer) error
}

// guard keeps processes from writing the same partitions.
type guard interface {
	// check fails a write if this process may not write.
	check(tx kv.Txn) error
	// stopOthers makes the store's other writers stop, as part of a write.
	stopOthers(tx kv.Txn)
	// close gives up what Open took.
	close(ctx context.Context) error
}

// hiddenSets knows the set of hidden accounts.
type hiddenSets interface {
	// load reads the set into memory.
	load(r kv.Reader) error
	// hidden returns the set in the state that r reads.
	hidden(r kv.Reader) (*roaring64.Bitmap, error)
	// hiddenChanged takes over a committed change of the set.
	hiddenChanged(version uint64, changes map[dict.ID]bool)
}

// alone is for a store that one process writes. It has one partition and one lane.
type alone struct {
	layout format.Layout
	ids    intern.Interner
	cache  hiddenCache
}

func (a *alone) owns([]byte) bool { return true }

func (a *alone) ownsPart(uint8) bool { return true }

func (a *alone) begin(context.Context, string, *batch.Batch) error { return nil }

func (a *alone) pick(to []write.Picked, _ *lane, _ string, b *batch.Batch) []write.Picked {
	for i := range b.Events() {
		to = append(to, write.Picked{N: int32(i)})
	}
	return to
}

func (a *alone) prepare(ctx context.Context, seg *write.Segment, w *write.Writer) error {
	return w.Prepare(ctx, seg.MostStrings())
}

func (a *alone) check(kv.Txn) error { return nil }

func (a *alone) stopOthers(kv.Txn) {}

// hidden returns the set in memory if r reads the same version, which is nearly always so.
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
