package archive

import (
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"skein.blue/graph/batch"
)

// applier decodes parts into batches, and applies one batch while it fills the next.
type applier struct {
	r       *Reader
	decoder *zstd.Decoder
	block   block
	fold    *folder

	ops  int   // of the next batch; see adapt
	read int64 // seq up to which everything was decoded
	tip  int64

	filling   *batch.Batch
	spare     *batch.Batch
	witnessed time.Time
	applying  chan error // result of the batch being applied; nil: none
	reachedTo int64      // last seq of the batch being applied
	appliedTo int64
}

func newApplier(r *Reader, after int64) *applier {
	return &applier{
		r: r, decoder: newDecoder(), ops: min(r.o.Ops, firstOps), fold: newFolder(r.o.Store.Kinds(), r.o.Store.Owns, after, r.o.Dropped), read: after, appliedTo: after,
		filling: new(batch.Batch), spare: new(batch.Batch),
	}
}

// part decodes a segment, or a block.
func (a *applier) part(ctx context.Context, one *part) error {
	all := [][]byte{one.data}
	if one.block < 0 {
		_, found, err := frames(one.data)
		if err != nil {
			return fmt.Errorf("%s: %w", one.segment.Name, err)
		}
		all = found
	}
	for n, frame := range all {
		if err := a.block.unpack(a.decoder, frame); err != nil {
			return fmt.Errorf("%s, block %d: %w", one.segment.Name, max(one.block, n), err)
		}
		if at := a.block.lastWitnessed(); at > 0 {
			a.witnessed = time.UnixMicro(at)
		}
		a.fold.add(&a.block, a.filling)
		a.read = max(a.read, a.fold.last)
		if events, ops, _ := a.filling.Size(); max(ops, events/2) >= a.ops { // an event without operations is half as large
			if err := a.apply(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies the batch in the background, after the one before it.
func (a *applier) apply(ctx context.Context) error {
	if err := a.wait(); err != nil {
		return err
	}
	full := a.filling
	a.filling, a.spare = a.spare, full
	a.reachedTo = int64(full.Last())
	done := make(chan error, 1)
	a.applying = done
	go func() { done <- a.r.o.Store.Apply(ctx, a.r.source, full) }()
	return nil
}

// wait waits for the batch that is being applied, and updates the progress.
func (a *applier) wait() error {
	if a.applying != nil {
		err := <-a.applying
		a.applying = nil
		if err != nil {
			return fmt.Errorf("indexing the archive: %w", err)
		}
		a.appliedTo = a.reachedTo
		a.spare.Reset()
		a.adapt(a.r.o.Store.TakeWait())
	}
	a.r.progress.Store(&Progress{Records: a.fold.records, Seq: a.appliedTo, Tip: a.tip, Witnessed: a.witnessed})
	return nil
}

// The stream waits while a batch of the archive is written. So the first batch is small, and batches grow up to
// Options.Ops while no batch of the stream waits for long; they shrink if one waits longer than longestWait.
const (
	longestWait = 50 * time.Millisecond
	firstOps    = 100_000
	leastOps    = 30_000
) // A longestWait of 250 ms delays events by 0.7 s in the mean instead of 0.23 s, and reads a tenth more.

// adapt changes the size of the next batches after a batch of the stream has waited.
func (a *applier) adapt(waited time.Duration) {
	switch {
	case waited > longestWait:
		a.ops = max(int(float64(a.ops)*max(float64(longestWait)/float64(waited), 0.25)), min(leastOps, a.r.o.Ops))
	case waited < longestWait/4:
		a.ops = min(2*a.ops, a.r.o.Ops)
	case waited < longestWait/2:
		a.ops = min(a.ops+a.ops/4, a.r.o.Ops)
	}
}

// flush applies the remaining batch.
func (a *applier) flush(ctx context.Context) error {
	if !a.filling.Empty() {
		if err := a.apply(ctx); err != nil {
			return err
		}
	}
	return a.wait()
}
