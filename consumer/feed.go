package consumer

import (
	"context"
	"sync"
	"time"

	"skein.blue/graph/batch"
)

// Bounds of a batch. The applier takes a batch when the batch is full, or linger after it has noticed
// that the batch is not empty: small batches keep the index fresh when little happens, and large ones
// save work when much happens.
const (
	maxBatchEvents = 32_768
	maxBatchOps    = 65_536
	maxBatchBytes  = 16 << 20
	linger         = 60 * time.Millisecond
)

// feed is the one queue between reading and applying: a batch that is being
// filled while another is being applied. When both are full the reader waits,
// and so does the relay.
type feed struct {
	mu     sync.Mutex // guards the fields below
	room   sync.Cond  // cur has room again, or err is set
	cur    *queued
	full   bool
	busy   bool // a batch is being applied
	closed bool
	err    error // why applying ended

	wake chan struct{} // cur is not empty; one token
	push chan struct{} // cur must not linger; one token
}

// queued is a batch with the arrival times of some of its messages: of every markEvery-th, because asking for
// the time costs as much as decoding a small message.
type queued struct {
	batch batch.Batch
	marks []time.Time
	added int // messages
}

const markEvery = 16

// eachMark calls each with every mark and the number of messages that it stands for.
func (q *queued) eachMark(each func(at time.Time, messages int)) {
	for i, at := range q.marks {
		each(at, min(markEvery, q.added-i*markEvery))
	}
}

func (q *queued) reset() {
	q.batch.Reset()
	q.marks, q.added = q.marks[:0], 0
}

func newFeed() *feed {
	f := &feed{cur: new(queued), wake: make(chan struct{}, 1), push: make(chan struct{}, 1)}
	f.room.L = &f.mu
	return f
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add waits for room in the current batch, and lets fill add to it. It returns
// the error that ended applying, if one did.
func (f *feed) add(fill func(*batch.Batch)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var arrived time.Time
	if f.full || f.cur.added%markEvery == 0 {
		arrived = time.Now()
	}
	for f.full && f.err == nil {
		f.room.Wait()
	}
	if f.err != nil {
		return f.err
	}
	b := &f.cur.batch
	wasEmpty := b.Empty()
	fill(b)
	if f.cur.added%markEvery == 0 {
		f.cur.marks = append(f.cur.marks, arrived)
	}
	f.cur.added++
	events, ops, bytes := b.Size()
	if b.Notes() >= batch.MaxNotes || events >= maxBatchEvents || ops >= maxBatchOps || bytes >= maxBatchBytes {
		f.full = true
		token(f.push)
	}
	if wasEmpty && !b.Empty() {
		token(f.wake)
	}
	return nil
}

// drain waits until everything added is committed.
func (f *feed) drain() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil && (f.busy || !f.cur.batch.Empty()) {
		token(f.wake)
		token(f.push)
		f.room.Wait()
	}
	return f.err
}

// empty reports whether everything added is committed.
func (f *feed) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.busy && f.cur.batch.Empty()
}

// failed returns the error that ended applying.
func (f *feed) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// close lets run return once everything added is committed.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	token(f.wake)
	token(f.push)
}

// run applies batches until the feed is closed and empty, or apply fails. When
// there is nothing to apply it calls idle, which does a bit of background work
// and reports whether there is more. Canceling ctx abandons batches that are
// not committed yet.
func (f *feed) run(ctx context.Context, apply func(context.Context, *queued) error, idle func(context.Context) (more bool, err error)) error {
	spare := new(queued)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		more, err := idle(ctx)
		if err != nil {
			return f.fail(err)
		}
		if more {
			select {
			case <-f.wake:
			default:
				f.mu.Lock()
				done := f.closed && f.cur.batch.Empty()
				f.mu.Unlock()
				if done {
					return nil // background work is resumed at the next start
				}
				continue
			}
		} else {
			select {
			case <-f.wake:
			case <-ctx.Done():
				return f.fail(ctx.Err())
			}
		}
		timer.Reset(linger)
		select {
		case <-timer.C:
		case <-f.push:
		case <-ctx.Done():
			return f.fail(ctx.Err())
		}
		batch, done := f.take(spare)
		if !batch.batch.Empty() {
			if err := apply(ctx, batch); err != nil {
				return f.fail(err)
			}
		}
		batch.reset()
		spare = batch
		f.mu.Lock()
		f.busy = false
		f.room.Broadcast()
		f.mu.Unlock()
		if done {
			return nil
		}
	}
}

// take swaps the current batch for an empty one.
func (f *feed) take(spare *queued) (batch *queued, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batch, f.cur = f.cur, spare
	f.full, f.busy = false, !batch.batch.Empty() // drain leaves tokens that wake run for nothing
	f.room.Broadcast()
	return batch, f.closed
}

func (f *feed) fail(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.room.Broadcast()
	return err
}
