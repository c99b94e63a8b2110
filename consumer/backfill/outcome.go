package backfill

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// placed handles the outcome of a fetched repo.
func (m *Manager) placed(ctx context.Context, j *job, o batch.Outcome, records int, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		why, invalid := failInvalid, errors.Is(err, repo.ErrMissing) || errors.Is(err, repo.ErrTree)
		if errors.Is(err, repo.ErrTooLarge) {
			why, invalid, err = failTooLarge, true, m.tooLarge(err)
		}
		if !invalid && !j.alone { // the cause may be another repo in the same write
			m.mu.Lock()
			defer m.mu.Unlock()
			defer m.poke()
			m.sched.drop(j)
			m.sched.put(j.did, j.generation, time.Now().Add(time.Second), j.tries, cmp.Or(j.listed, j.host))
			if next := m.sched.jobs[j.did]; next != nil {
				next.alone = true
			}
			return
		}
		if !invalid {
			m.log.Error("indexing a fetched repo failed", "did", j.did, "error", err)
		}
		m.jobs.Go(func() {
			m.failedJob(ctx, j, &failure{why: why, err: err, final: why == failTooLarge})
		})
		return
	}
	m.o.Metrics.outcome(o)
	switch o {
	case batch.Older:
		m.jobs.Go(func() {
			m.failedJob(ctx, j, &failure{why: failOlder, err: errors.New("its PDS sent an older state than the stream")})
		})
		return
	case batch.Superseded:
		m.jobs.Go(func() { m.superseded(ctx, j) })
		return
	case batch.Placed:
		m.fetched.Add(1)
		m.records.Add(int64(records))
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.poke()
	if j.again {
		m.again(j)
		return
	}
	m.sched.drop(j)
}

// again queues a job again that has just run, because more was missed of its repo. m.mu is held.
func (m *Manager) again(j *job) {
	j.running, j.again, j.index = false, false, -1
	m.sched.drop(j)
	m.sched.put(j.did, j.generation, time.Now().Add(100*time.Millisecond), 0, cmp.Or(j.listed, j.host))
}

// superseded queues a repo again, because events were missed during its fetch. It reads the
// generation of the row in the store: a job that knew another one would be superseded forever.
func (m *Manager) superseded(ctx context.Context, j *job) {
	var row *graph.Resync
	err := m.o.Store.View(ctx, func(s *graph.View) (err error) { _, _, row, err = s.Account(j.did); return err })
	if err != nil && ctx.Err() == nil {
		m.log.Error("reading the queue of repos failed", "did", j.did, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.poke()
	switch {
	case err == nil && row == nil && !j.again: // someone removed it from the queue meanwhile
		m.sched.drop(j)
		return
	case row != nil && j.again: // perhaps since row was read
		j.generation = max(j.generation, row.Generation)
	case row != nil:
		j.generation = row.Generation
	}
	m.again(j)
}

// mostBusy is how often a host, the memory or the directory may be busy before that counts as a try.
const mostBusy = 100

// failedJob records that a repo was not fetched, and when to retry, if at all.
func (m *Manager) failedJob(ctx context.Context, j *job, err error) {
	f := &failure{}
	if !errors.As(err, &f) {
		f = &failure{why: failHost, err: err}
	}
	m.o.Metrics.failed(f.why)
	if f.busy && j.busy < mostBusy {
		m.mu.Lock()
		j.busy++
		busy := j.busy
		j.running, j.again, j.index = false, false, -1
		m.sched.drop(j)
		due := time.Now().Add(f.wait/2 + rand.N(f.wait/2+1)) // jitter
		m.sched.put(j.did, j.generation, due, j.tries, cmp.Or(j.listed, j.host))
		m.sched.jobs[j.did].busy = busy
		m.mu.Unlock()
		return
	}
	var row graph.Resync
	queued, werr := m.o.Store.ChangeResync(ctx, j.did, func(r *graph.Resync) bool {
		r.Tries++
		most := m.o.Tries
		if f.why == failNoDID || f.why == failNotFound {
			most = min(most, 4)
		}
		outdated := r.Generation > j.started // more was missed since the fetch began, or the account became active
		if outdated && !f.final {
			r.Tries = min(r.Tries, most-1)
		}
		r.Failure, r.Detail = f.why, shorten(f.err.Error())
		switch {
		case f.why == inactive && !outdated:
			r.State, r.Failure, r.Tries = graph.ResyncInactive, "", 0
		case f.final || r.Tries >= most:
			r.State = graph.ResyncFailed
		default:
			r.Due = time.Now().UTC().Add(max(backoff(r.Tries, m.o.Retry, 6*time.Hour), min(f.after, time.Hour)))
		}
		row = *r
		return true
	})
	if ctx.Err() != nil {
		return
	}
	if werr != nil {
		m.log.Error("writing the queue of repos failed", "did", j.did, "error", werr)
		row.Due = time.Now().Add(time.Minute)
	}
	state, due := row.State, row.Due
	m.mu.Lock()
	again := j.again
	j.running, j.again, j.index = false, false, -1
	m.sched.drop(j)
	switch {
	case !queued && werr == nil && !again: // someone removed it from the queue meanwhile
	case !queued && werr == nil: // and it was queued again
		m.sched.put(j.did, j.generation, j.due, 0, cmp.Or(j.listed, j.host))
	case state != graph.ResyncWaiting && !again:
		m.park(j.did, row.Failure)
	default:
		hint := j.host
		if !j.resolved && (f.why == failHost || f.why == failRefused) { // it may have moved
			m.sched.suspect(j.did, j.host)
			hint = ""
		}
		m.sched.put(j.did, max(row.Generation, j.generation), due, row.Tries, hint)
	}
	m.mu.Unlock()
	m.poke()
	if state == graph.ResyncFailed && f.gone {
		m.setStatus(ctx, j.did, false) // inactive, not deleted: only the stream says that
	}
	if state == graph.ResyncFailed {
		if held, ok := m.seldom.Allow(f.why); ok {
			m.log.Warn("repo given up, its records are incomplete; skein resync retries", "did", j.did, "reason", f.why, "error", shorten(f.err.Error()), "tries", row.Tries, "occurrences", held+1)
		}
	}
}

// inactive is the outcome for an inactive account; it is not a failure.
const inactive = "inactive"

func shorten(s string) string {
	const most = 300
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// setStatus records whether an account is active, as its host says.
func (m *Manager) setStatus(ctx context.Context, did string, isActive bool) {
	var b batch.Batch
	b.AddStatus([]byte(did), isActive)
	if err := m.o.Store.Apply(ctx, "", &b); err != nil && ctx.Err() == nil {
		m.log.Error("writing the status of an account failed", "did", did, "error", err)
	}
}
