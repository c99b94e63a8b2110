package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// ErrBusy means that a job of the same type is already running.
var ErrBusy = errors.New("already running")

// The jobs beside the queue: lists of repos, an archive, and a comparison after a hole.
const (
	jobRepos      = "repos"
	jobArchive    = "archive"
	jobComparison = "comparison"
)

// jobs are the jobs of a Manager: one of each type at a time.
type jobs struct {
	wg sync.WaitGroup // the jobs, from their reservations on, and other goroutines of Run

	mu      sync.Mutex        // guards the fields below
	running context.Context   //nolint:containedctx // of Run; jobs that calls start run under it
	busy    map[string]bool   // the running ones
	ended   map[string]string // jobs that ended in this run, with their outcome
}

// run sets the context of Run.
func (j *jobs) run(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running = ctx
}

// reserve begins a job, unless one of its type is running. It returns the context of Run.
func (j *jobs) reserve(job string) (context.Context, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.running == nil || j.running.Err() != nil:
		return nil, errors.New("backfill is not running")
	case j.busy[job]:
		return nil, fmt.Errorf("%s: %w", map[string]string{jobRepos: "listing repos", jobArchive: "reading an archive"}[job], ErrBusy)
	}
	j.wg.Add(1)
	j.busy[job] = true
	delete(j.ended, job)
	return j.running, nil
}

// end ends a job. outcome is "" if the job could not begin, or continues in the next run.
func (j *jobs) end(job, outcome string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy[job] {
		j.wg.Done()
	}
	delete(j.busy, job)
	if outcome != "" {
		j.ended[job] = outcome
	}
}

// has reports whether a job is running.
func (j *jobs) has(job string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.busy[job]
}

// report adds the jobs to a Status.
func (j *jobs) report(st *Status) {
	j.mu.Lock()
	defer j.mu.Unlock()
	moves := j.running != nil && j.running.Err() != nil // the next run continues its jobs
	st.Busy, st.Ended = len(j.busy) > 0 || moves, maps.Clone(j.ended)
}

// outcomeOf returns the outcome of a job, "" if ctx ended it.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil:
		return ""
	case err != nil:
		return err.Error()
	}
	return "ok"
}

// apply applies what queues repos.
func (o *Options) apply(ctx context.Context, b *batch.Batch) error {
	if err := o.Store.Apply(ctx, "", b); err != nil {
		return fmt.Errorf("queueing repos: %w", err)
	}
	return nil
}

// resync queues repos for a fetch.
func (o *Options) resync(ctx context.Context, c batch.Cause, dids ...string) error {
	var b batch.Batch
	for some := range slices.Chunk(dids, 1000) {
		b.Reset()
		for _, did := range some {
			b.AddResync([]byte(did), c)
		}
		if err := o.apply(ctx, &b); err != nil {
			return fmt.Errorf("backfill: %w", err)
		}
	}
	return nil
}

// account returns what the index knows about an account, and its row in the queue.
func (o *Options) account(ctx context.Context, did string) (st graph.RepoState, known bool, row *graph.Resync, err error) {
	err = o.Store.View(ctx, func(s *graph.View) (err error) { st, known, row, err = s.Account(did); return err })
	return st, known, row, err
}
