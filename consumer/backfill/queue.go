package backfill

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/outward"
)

// A Queue has the queued repos in memory: those that wait for their turn, and those that are not
// retried. Their rows are in the store; the graph passes each row that it writes to Add.
type Queue struct {
	o    Options
	wake chan struct{} // something may be due now; one token

	mu    sync.Mutex // guards the fields below
	sched *scheduler
	named map[string]bool // hosts that an operator named
}

// NewQueue returns the queue of a Manager.
func NewQueue(o Options) *Queue {
	o.defaults()
	q := &Queue{o: o, wake: make(chan struct{}, 1), named: map[string]bool{}}
	q.empty()
	return q
}

// empty removes all repos. q.mu is held, or nobody else has q.
func (q *Queue) empty() {
	q.sched = newScheduler(q.o.PerHost, q.o.Fetchers)
	q.sched.trusts = func(host string) bool { return q.o.TrustHosts || q.named[host] }
}

// Add takes over the repos that the graph has queued. It is graph.Options.Queued.
func (q *Queue) Add(all []batch.Queued) {
	defer q.locked()()
	for i := range all {
		q.sched.put(all[i].DID, all[i].Row.Generation, all[i].Row.Due, all[i].Row.Tries, all[i].Row.Host)
	}
}

// load replaces the queue by the rows of a store. It returns the repos that were given up and are tried again: all of a part; of a
// private network those that flags (--plc, --allow-private-hosts) decide. Of the public network, they are too many for every start.
func (q *Queue) load(ctx context.Context, store *graph.Store) (again []string, err error) {
	q.mu.Lock()
	q.empty()
	q.mu.Unlock()
	_, err = store.ViewAcross(ctx, func(s *graph.View) error {
		again = nil
		return s.Resyncs(func(did string, row graph.Resync) error {
			if !store.Owns([]byte(did)) {
				return nil
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			switch {
			case row.State == graph.ResyncWaiting:
				q.sched.put(did, row.Generation, row.Due, row.Tries, row.Host)
			case q.sched.jobs[did] == nil: // otherwise it was queued since the row was read
				q.sched.parked[did] = row.Failure
				flags := q.o.AllowPrivateHosts && slices.Contains([]string{failNoDID, failNoPDS, failPrivate, failIdentity}, row.Failure)
				if flags || q.o.Around != nil && row.State == graph.ResyncFailed {
					again = append(again, did)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("backfill: reading the queue: %w", err)
	}
	return again, nil
}

// locked locks the queue for a change, after which something may be due.
func (q *Queue) locked() (unlock func()) {
	q.mu.Lock()
	return func() {
		q.mu.Unlock()
		q.poke()
	}
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Reading of lists pauses while mostQueued repos are queued in all, or mostOfAHost of one host.
const (
	mostQueued  = 100_000
	mostOfAHost = 5_000
)

// hasRoom reports whether more repos of a host's list may be queued.
func (q *Queue) hasRoom(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.sched.jobs) < mostQueued && (host == "" || q.sched.listed[host] < mostOfAHost)
}

// isSlow reports whether a host that has no room is waited for: there is room for others, and fetchers are idle or ask it.
func (q *Queue) isSlow(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.sched.hosts[name]
	return len(q.sched.jobs) < mostQueued && (!q.sched.isFull || h != nil && h.inFlight > 0)
}

// awaitRoom waits until more repos of a host's list may be queued. It adds to own, which may be nil, how long that was up to this host alone,
// and fails once that is more than most.
func (q *Queue) awaitRoom(ctx context.Context, host string, own *time.Duration, most time.Duration) error {
	const step = 100 * time.Millisecond
	for !q.hasRoom(host) {
		if own != nil && q.isSlow(host) {
			if *own += step; *own > most {
				return fmt.Errorf("%d of its repos are waiting for it, for %v in all; not reading on", mostOfAHost, most.Round(time.Hour))
			}
		}
		if err := outward.Wait(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// waiting returns the number of queued repos.
func (q *Queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.sched.jobs)
}

// report adds the queue to a Status.
func (q *Queue) report(st *Status) {
	q.mu.Lock()
	defer q.mu.Unlock()
	st.Waiting, st.Failed = int64(len(q.sched.jobs)), map[string]int64{}
	st.Later = q.sched.later(time.Now().Add(time.Minute))
	for _, failure := range q.sched.parked {
		st.Failed[failure]++
	}
	st.Inactive = st.Failed[""]
	delete(st.Failed, "")
}

// next returns the next job, as scheduler.next does. isFull says that all fetchers are busy.
// Without a job, it returns how long to wait for one.
func (q *Queue) next(isFull bool, mayResolve [methods]bool) (j *job, resolve bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.sched.share(now, isFull, q.o.IdleTimeout)
	j, resolve, wait = q.sched.next(now, mayResolve)
	most := time.Minute
	if isFull {
		most = min(most, q.o.IdleTimeout)
	}
	if wait <= 0 || wait > most {
		wait = most
	}
	return j, resolve, wait
}

// leave ends a job's turn at a host that was not asked for the repo.
func (q *Queue) leave(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.at.leave()
}

// asks notes that its host is being asked for a job's repo; end ends the request.
func (q *Queue) asks(j *job, end context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.asked, j.end, q.sched.fetching[j] = time.Now(), end, j.at
}

// answered ends a job's turn at the host that was asked for the repo. lost are the other jobs of
// the host if it is given up.
func (q *Queue) answered(j *job, f *failure) (lost []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.sched.fetching, j)
	j.at.done(f.host && !f.busy, f.host && f.busy, f.after, q.o.HostRetry, time.Now())
	return q.sched.giveUp(j.at, q.o.HostTries)
}

// send lets a job wait for its turn at the host that its DID document names.
func (q *Queue) send(j *job, host string) {
	defer q.locked()()
	j.host, j.resolved, j.running, j.again = host, true, false, false // what was missed so far comes with the fetch
	q.sched.ready(j)
}

// again replaces a job by another for the same repo. q.mu is held.
func (q *Queue) again(j *job, due time.Time, tries int) *job {
	q.sched.drop(j)
	q.sched.put(j.did, j.generation, due, tries, cmp.Or(j.listed, j.host))
	return q.sched.jobs[j.did]
}

// soon is when to fetch a repo again if more of it was missed.
func soon() time.Time { return time.Now().Add(100 * time.Millisecond) }

// done ends a job whose repo is in place. If more was missed of the repo meanwhile, it is queued again.
func (q *Queue) done(j *job) {
	defer q.locked()()
	if j.again {
		q.again(j, soon(), 0)
		return
	}
	q.sched.drop(j)
}

// placedByHand removes a repo from the queue that an operator has put in place.
func (q *Queue) placedByHand(did string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.sched.parked, did)
	if j := q.sched.jobs[did]; j != nil && !j.running && j.index >= 0 {
		heap.Remove(&q.sched.waiting, j.index)
		q.sched.drop(j)
	}
}

// superseded queues a repo again, because events were missed during its fetch. row is its row in
// the store, nil if it has none or, with err, could not be read: a job that knew another
// generation than the row's would be superseded forever.
func (q *Queue) superseded(j *job, row *graph.Resync, err error) {
	defer q.locked()()
	switch {
	case err == nil && row == nil && !j.again: // someone removed it from the queue meanwhile
		q.sched.drop(j)
		return
	case row != nil && j.again: // perhaps since row was read
		j.generation = max(j.generation, row.Generation)
	case row != nil:
		j.generation = row.Generation
	}
	due := soon()
	if row != nil && row.Due.After(due) { // its records are being erased first
		due = row.Due
	}
	q.again(j, due, 0)
}

// mostBusy is how often a host, the memory or the directory may be busy before that counts as a try.
const mostBusy = 100

// busy queues a job's repo again within wait, and reports false if it was busy too often.
func (q *Queue) busy(j *job, wait time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.busy >= mostBusy {
		return false
	}
	due := time.Now().Add(wait/2 + rand.N(wait/2+1)) //nolint:gosec // jitter
	q.again(j, due, j.tries).busy = j.busy + 1
	return true
}

// retry queues a job's repo again after a failure, or parks it, as its row says. isQueued is false
// if it has none. mayHaveMoved says that its host did not answer for the repo.
func (q *Queue) retry(j *job, row *graph.Resync, isQueued, mayHaveMoved bool) {
	defer q.locked()()
	switch {
	case !isQueued && !j.again: // someone removed it from the queue meanwhile
		q.sched.drop(j)
	case !isQueued: // and it was queued again
		q.again(j, j.due, 0)
	case row.State != graph.ResyncWaiting && !j.again:
		q.sched.drop(j)
		q.sched.parked[j.did] = row.Failure
	default:
		hint := j.host
		if !j.resolved && mayHaveMoved && !q.o.TrustHosts {
			hint = "" // its DID document is read
		}
		q.sched.drop(j)
		q.sched.put(j.did, max(row.Generation, j.generation), row.Due, row.Tries, hint)
	}
}
