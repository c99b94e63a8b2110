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
	for more := true; more; {
		if err := l.queue.awaitRoom(ctx, ""); err != nil {
			return err
		}
		var b batch.Batch
		err := l.o.Store.View(ctx, func(s *graph.View) error {
			b.Reset()
			var ids []dict.ID
			if err := s.EachAccount(from, func(id dict.ID, _ *graph.RepoState) bool {
				ids = append(ids, id)
				return len(ids) < pageSize
			}); err != nil {
				return err
			}
			if more = len(ids) == pageSize; len(ids) > 0 {
				from = ids[len(ids)-1] + 1
			}
			return s.Strings(dict.DID, ids, func(_ int, did []byte) error {
				b.AddResync(did, batch.Cause{Reason: graph.KindAdded})
				return nil
			})
		})
		if err == nil {
			err = l.o.Store.Apply(ctx, "", &b)
		}
		if err == nil {
			err = l.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
				if b.Sweep, b.SweepAt = number, from; !more {
					b.Swept = number
				}
			})
		}
		if err != nil {
			return fmt.Errorf("queueing all accounts: %w", err)
		}
	}
	return nil
}
