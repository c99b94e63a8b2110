package backfill

import (
	"context"
	"errors"
	"slices"
	"time"

	"skein.blue/internal/say"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// placed handles the outcome of a fetched repo.
func (f *fetcher) placed(ctx context.Context, j *job, o batch.Outcome, records int, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		why := &failure{why: failInvalid, err: err}
		switch {
		case errors.Is(err, repo.ErrTooLarge):
			why = &failure{why: failTooLarge, err: f.tooLarge(err), final: true}
		case !errors.Is(err, repo.ErrMissing) && !errors.Is(err, repo.ErrTree): // the cause may be another repo in the same write
			if held, ok := f.seldom.Allow("indexing"); ok {
				f.o.Logger.Error("indexing fetched repos failed; retrying", "did", j.did, "error", err, "occurrences", held+1)
			}
			why.busy, why.wait = true, time.Minute
		}
		f.jobs.wg.Go(func() { f.failed(ctx, j, why) })
		return
	}
	f.o.Metrics.Repos.WithLabelValues(o.String()).Inc()
	switch o {
	case batch.Older:
		f.jobs.wg.Go(func() {
			f.failed(ctx, j, &failure{why: failOlder, err: errors.New("its PDS sent an older state than the stream")})
		})
		return
	case batch.Superseded:
		f.jobs.wg.Go(func() {
			_, _, row, err := f.o.account(ctx, j.did)
			if err != nil && ctx.Err() == nil {
				f.o.Logger.Error("reading the queue of repos failed", "did", j.did, "error", err)
			}
			f.queue.superseded(j, row, err)
		})
		return
	case batch.Placed:
		f.fetched.Add(1)
		f.records.Add(int64(records))
	default:
	}
	f.queue.done(j)
}

// failed records that a repo was not fetched, and when to retry, if at all; unless its account has moved.
func (f *fetcher) failed(ctx context.Context, j *job, err error) {
	why := failureOf(err)
	if slices.Contains(mayHaveMoved, why.why) && f.hasMoved(ctx, j) {
		return
	}
	if why.why == inactive {
		f.setInactive(ctx, j.did)
	}
	f.o.Metrics.Failed.WithLabelValues(why.why).Inc()
	if why.busy && f.queue.busy(j, why.wait) {
		if held, ok := f.seldom.Allow("busy " + why.why); ok && why.why == failIdentity { // a directory that is down fails thousands of repos a second
			_, err := f.o.Store.ChangeResync(ctx, j.did, func(r *graph.Resync) bool { r.Failure, r.Detail = why.why, say.Short(why.err.Error()); return true })
			f.o.Logger.Warn("an account's DID document or key could not be looked up, so its repo waits; retrying", "did", j.did, "error", say.Short(errors.Join(why.err, err).Error()), "occurrences", held+1)
		}
		return
	}
	var row graph.Resync
	isQueued, err := f.o.Store.ChangeResync(ctx, j.did, func(r *graph.Resync) bool {
		why.note(r, j.started, f.o)
		row = *r
		return true
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.o.Logger.Error("writing the queue of repos failed", "did", j.did, "error", err)
		row.Due = time.Now().Add(time.Minute)
	}
	f.queue.retry(j, &row, isQueued || err != nil, why.why == failHost || why.why == failRefused)
	if row.State != graph.ResyncFailed {
		return
	}
	f.o.Metrics.Repos.WithLabelValues(givenUp).Inc()
	if why.gone {
		f.setInactive(ctx, j.did) // not deleted: only the stream says that
	}
	if held, ok := f.seldom.Allow(why.why); ok {
		f.o.Logger.Warn("repo given up, its records are incomplete; skein resync retries", "did", j.did, "reason", why.why, "error", say.Short(why.err.Error()), "tries", row.Tries, "occurrences", held+1)
	}
}

// note writes the failure of a fetch into the repo's row. started is the generation of the row when
// the fetch began.
func (f *failure) note(r *graph.Resync, started uint64, o *Options) {
	r.Tries++
	most := o.Tries
	if f.why == failNoDID || f.why == failNotFound {
		most = min(most, 4)
	}
	outdated := r.Generation > started // more was missed since the fetch began, or the account became active
	if outdated && !f.final {
		r.Tries = min(r.Tries, most-1)
	}
	r.Failure, r.Detail = f.why, say.Short(f.err.Error())
	switch {
	case f.why == inactive && !outdated:
		r.State, r.Failure, r.Tries = graph.ResyncInactive, "", 0
	case f.final || r.Tries >= most:
		r.State = graph.ResyncFailed
	default:
		r.Due = time.Now().UTC().Add(max(backoff(r.Tries, o.Retry, 6*time.Hour), min(f.after, time.Hour)))
	}
}

// inactive is the outcome for an inactive account; it is not a failure. givenUp is that of a repo that is not retried.
const inactive, givenUp = "inactive", "given_up"

// setInactive records that an account is not active, as its host says.
func (f *fetcher) setInactive(ctx context.Context, did string) {
	var b batch.Batch
	b.AddStatus([]byte(did), false)
	if err := f.o.Store.Apply(ctx, "", &b); err != nil && ctx.Err() == nil {
		f.o.Logger.Error("writing the status of an account failed", "did", did, "error", err)
	}
}
