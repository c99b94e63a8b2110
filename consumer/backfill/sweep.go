package backfill

import (
	"context"
	"fmt"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern/dict"
)

// sweep queues all accounts of the index after a kind was added, because older records of that
// kind are missing everywhere. It continues after an interruption. Only a backfill of the
// whole network sweeps.
func (l *lister) sweep(ctx context.Context, job *listJob) error {
	number := l.o.Store.SweepDue()
	if number == 0 || job.named {
		return nil
	}
	from := dict.None
	if b := l.o.Store.Backfill(); b.Sweep == number {
		from = b.SweepAt
	}
	l.o.Logger.Info("a kind was added; refetching all indexed repos for its older records")
	_, err := l.queue.addAccounts(ctx, l.o, from, batch.Cause{Reason: graph.KindAdded}, func(dict.ID, *graph.RepoState) bool { return true }, func(next dict.ID, more bool) error {
		return l.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
			if b.Sweep, b.SweepAt = number, next; !more {
				b.Swept = number
			}
		})
	})
	return err
}

// addAccounts queues the accounts of the index from an id on for which needs returns true, page by page, and calls
// done, which may be nil, after each page.
func (q *Queue) addAccounts(ctx context.Context, o *Options, from dict.ID, cause batch.Cause, needs func(dict.ID, *graph.RepoState) bool, done func(next dict.ID, more bool) error) (queued int, err error) {
	for more := true; more; {
		if err := q.awaitRoom(ctx, "", nil, 0); err != nil {
			return queued, err
		}
		var b batch.Batch
		var ids []dict.ID
		next := from
		_, err := o.Store.ViewAcross(ctx, func(s *graph.View) error { // of ten million accounts, none may need it
			b.Reset()
			ids, next = ids[:0], from
			if err := s.EachAccount(from, func(id dict.ID, st *graph.RepoState) bool {
				if next = id + 1; needs(id, st) {
					ids = append(ids, id)
				}
				return len(ids) < pageSize
			}); err != nil {
				return err
			}
			more = len(ids) == pageSize
			return s.Strings(dict.DID, ids, func(_ int, did []byte) error {
				b.AddResync(did, cause)
				return nil
			})
		})
		if err == nil {
			err = o.apply(ctx, &b)
		}
		if err == nil && done != nil {
			err = done(next, more)
		}
		if err != nil {
			return queued, fmt.Errorf("queueing accounts of the index: %w", err)
		}
		queued += len(ids)
		from = next
	}
	return queued, nil
}
