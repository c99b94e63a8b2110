package backfill

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// After a failure, a repo is retried later and later, given up when retrying is useless or was tried
// often enough, and hidden where its host says so.
func TestRetries(t *testing.T) {
	const did = "did:web:a.example.com"
	for _, c := range []struct {
		name     string
		f        error
		tries    int // before this failure
		state    string
		failure  string
		least    time.Duration // the wait until the next try
		hidden   bool
		nextTry  bool
		countsAs int // tries afterwards
	}{
		{"a first failure", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 0, format.ResyncWaiting, failHost, time.Second, false, true, 1},
		{"the fifth", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 4, format.ResyncWaiting, failHost, 16 * time.Second, false, true, 5},
		{"the last", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 7, format.ResyncFailed, failHost, 0, false, false, 8},
		{"the host asks to wait", &failure{why: failRefused, err: io.EOF, after: 10 * time.Minute}, 0, format.ResyncWaiting, failRefused, 10 * time.Minute, false, true, 1},
		{"the host asks to wait for a year", &failure{why: failRefused, err: io.EOF, after: 365 * 24 * time.Hour}, 0, format.ResyncWaiting, failRefused, time.Hour, false, true, 1},
		{"not found", &failure{why: failNotFound, err: io.EOF}, 2, format.ResyncWaiting, failNotFound, 4 * time.Second, false, true, 3},
		{"not found four times", &failure{why: failNotFound, err: io.EOF}, 3, format.ResyncFailed, failNotFound, 0, false, false, 4},
		{"gone four times", &failure{why: failNotFound, err: io.EOF, gone: true}, 3, format.ResyncFailed, failNotFound, 0, true, false, 4},
		{"no document four times", &failure{why: failNoDID, err: io.EOF}, 3, format.ResyncFailed, failNoDID, 0, false, false, 4},
		{"too large", &failure{why: failTooLarge, err: io.EOF, final: true}, 0, format.ResyncFailed, failTooLarge, 0, false, false, 1},
		{"inactive", &failure{why: inactive, err: io.EOF}, 5, format.ResyncInactive, "", 0, true, false, 0},
		{"an error without a class", io.ErrClosedPipe, 0, format.ResyncWaiting, failHost, time.Second, false, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := idle(t, Options{Patience: Patience{Tries: 8, Retry: 2 * time.Second}})
			must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
			_, err := m.o.Store.ChangeResync(t.Context(), did, func(r *format.Resync) bool { r.Tries = c.tries; return true })
			must(t, err)
			j, _, _ := m.queue.sched.next(time.Now(), [methods]bool{true, true})
			if j == nil || j.did != did {
				t.Fatalf("the next job is %+v", j)
			}
			j.moves = mostMoves // it is not elsewhere
			before := time.Now()
			m.fetcher.failed(t.Context(), j, c.f)
			row := rowOf(t, m, did)
			if row == nil || row.State != c.state || row.Failure != c.failure || row.Tries != c.countsAs {
				t.Fatalf("%+v, want state %v, failure %q, %d tries", row, c.state, c.failure, c.countsAs)
			}
			if wait := row.Due.Sub(before); c.state == format.ResyncWaiting && (wait < c.least-time.Millisecond || wait > 2*c.least+time.Second) {
				t.Errorf("retried after %v, want %v to %v", wait, c.least, 2*c.least)
			}
			if next := m.queue.sched.jobs[did]; (next != nil) != c.nextTry || next != nil && !next.due.Equal(row.Due) {
				t.Errorf("in the queue in memory: %+v, stored: %+v", next, row)
			}
			if _, parked := m.queue.sched.parked[did]; parked == c.nextTry {
				t.Errorf("parked: %v", m.queue.sched.parked)
			}
			if st, _, _, err := m.o.account(t.Context(), did); err != nil || st.Has(format.FlagHidden) != c.hidden {
				t.Errorf("hidden: %v, want %v (%v)", st.Has(format.FlagHidden), c.hidden, err)
			}
		})
	}
}

// A host or the memory that is busy does not count as a try, unless it stays so.
func TestBusyIsNotATry(t *testing.T) {
	const did = "did:web:a.example.com"
	m := idle(t, Options{Patience: Patience{Tries: 8, Retry: time.Millisecond}})
	must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
	busy := &failure{why: failNoRoom, err: repo.ErrNoRoom, busy: true}
	for n := range mostBusy + 1 {
		j, _, _ := m.queue.sched.next(time.Now().Add(time.Second), [methods]bool{true, true})
		if j == nil {
			t.Fatalf("no job after %d failures", n)
		}
		m.fetcher.failed(t.Context(), j, busy)
		if tries := rowOf(t, m, did).Tries; (tries > 0) != (n == mostBusy) {
			t.Fatalf("%d tries after the host was busy %d times", tries, n+1)
		}
	}
}

// More was missed of a repo while its last fetch failed: it is not given up. The wait is as long as
// after any failure, so an account that loses events at will, on a host that always fails, costs
// no more than others.
func TestFailureOfAnOldFetch(t *testing.T) {
	const did = "did:web:a.example.com"
	m := idle(t, Options{Patience: Patience{Tries: 3, Retry: 2 * time.Second}})
	must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
	for n := range 8 {
		j, _, _ := m.queue.sched.next(time.Now().Add(time.Hour), [methods]bool{true, true})
		if j == nil {
			t.Fatal("no job")
		}
		must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, did)) // missed again, while the fetch runs
		m.fetcher.failed(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
		row := rowOf(t, m, did)
		if row == nil || row.State != format.ResyncWaiting || row.Tries != min(n+1, 2) || time.Until(row.Due) < 500*time.Millisecond {
			t.Fatalf("after %d failures: %+v", n+1, row)
		}
		if next := m.queue.sched.jobs[did]; next == nil || next.running || next.generation != row.Generation || !next.due.Equal(row.Due) {
			t.Fatalf("in memory: %+v, stored: %+v", next, row)
		}
	}
	j, _, _ := m.queue.sched.next(time.Now().Add(time.Hour), [methods]bool{true, true})
	m.fetcher.failed(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if row := rowOf(t, m, did); row.State != format.ResyncFailed {
		t.Errorf("nothing more was missed, but it is not given up: %+v", row)
	}
}

// A host answers that an account is inactive, while the stream announces that it is active again, or
// that it is not. Only the later answer counts: the account is not hidden, and its repo is fetched
// again; the next such answer parks it.
func TestAnnouncedDuringFetch(t *testing.T) {
	const did = "did:web:a.example.com"
	for _, c := range []struct {
		name      string
		announced []bool // while the repo is fetched: whether the account is active
		fetched   bool   // the repo is fetched again
	}{
		{"nothing", nil, false},
		{"inactive", []bool{false}, false},
		{"active", []bool{true}, true},
		{"active and inactive again", []bool{true, false}, true},
		{"inactive and active again", []bool{false, true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := idle(t, Options{Patience: Patience{Tries: 3, Retry: time.Second}})
			must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
			j, _, _ := m.queue.sched.next(time.Now(), [methods]bool{true, true})
			hidden := true
			for i, active := range c.announced {
				hidden = !active
				var b batch.Batch
				b.AddAccount(format.Seq(i+1), []byte(did), active, false)
				b.Seen(format.Seq(i+1), nil)
				must(t, m.o.Store.Apply(t.Context(), "stream", &b))
			}
			answer := &failure{why: inactive, err: io.EOF}
			j.moves = mostMoves // it is not elsewhere
			m.fetcher.failed(t.Context(), j, answer)
			row, next := rowOf(t, m, did), m.queue.sched.jobs[did]
			_, parked := m.queue.sched.parked[did]
			if waits := row.State == format.ResyncWaiting; waits != c.fetched || (next != nil) != c.fetched || parked == c.fetched || waits && (time.Until(row.Due) < 400*time.Millisecond || row.Tries != 1) {
				t.Errorf("stored: %+v, in memory: %+v, parked: %v", row, next, parked)
			}
			if st, _, _, err := m.o.account(t.Context(), did); err != nil || st.Has(format.FlagHidden) != hidden {
				t.Errorf("hidden: %v, want %v (%v)", st.Has(format.FlagHidden), hidden, err)
			}
			if !c.fetched {
				return
			}
			if j, _, _ = m.queue.sched.next(time.Now().Add(time.Minute), [methods]bool{true, true}); j == nil {
				t.Fatal("no job")
			}
			j.moves = mostMoves
			m.fetcher.failed(t.Context(), j, answer)
			if row := rowOf(t, m, did); row.State != format.ResyncInactive || m.queue.sched.jobs[did] != nil {
				t.Errorf("nothing was announced since, but it is not parked: %+v", row)
			}
		})
	}
}

// removed returns a Manager with a running job whose repo has been removed from the queue.
func removed(t *testing.T) (m *Manager, j *job) {
	t.Helper()
	w := newWorld(t, 1)
	a := w.add(1, 5)
	m = idle(t, Options{})
	must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
	j, _, _ = m.queue.sched.next(time.Now(), [methods]bool{true, true})
	if p, err := m.PlaceCAR(t.Context(), bytes.NewReader(a.car())); err != nil || p.Outcome != batch.Placed.String() {
		t.Fatalf("%+v, %v", p, err)
	}
	return m, j
}

// A repo that was removed from the queue while its fetch failed does not return to it.
func TestFailureAfterRemoval(t *testing.T) {
	m, j := removed(t)
	m.fetcher.failed(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if row := rowOf(t, m, j.did); row != nil || m.queue.sched.jobs[j.did] != nil || len(m.queue.sched.parked) > 0 {
		t.Errorf("stored: %+v, in memory: %+v, parked: %v", row, m.queue.sched.jobs[j.did], m.queue.sched.parked)
	}
}

// A repo that was removed from the queue while its fetch failed, and then queued again, stays in the
// queue.
func TestFailureAfterRequeue(t *testing.T) {
	m, j := removed(t)
	due := time.Now().Add(time.Second)
	m.queue.sched.put(j.did, j.generation+7, due, 0, "") // between the removal and the end of failedJob
	m.fetcher.failed(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if next := m.queue.sched.jobs[j.did]; next == nil || next.running || next.again || next.generation != j.generation || !next.due.Equal(due) || len(m.queue.sched.parked) > 0 {
		t.Errorf("in memory: %+v, parked: %v", next, m.queue.sched.parked)
	}
}

// A superseded repo is fetched again for the generation that the store has, whatever its job knew,
// unless it has left the queue.
func TestSuperseded(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 5)
	for _, c := range []struct {
		name    string
		stored  int64  // generation in the store, above the job's
		again   uint64 // generation that the scheduler is given meanwhile, above the job's
		removed bool
		want    int64 // above the job's; 0: it is not queued
	}{
		{"a later generation", 5, 0, false, 5},
		{"an earlier one: the clock was put back", -5, 0, false, -5},
		{"queued again meanwhile", 5, 9, false, 9},
		{"removed", 0, 0, true, 0},
		{"removed and queued again", 0, 9, true, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := idle(t, Options{})
			must(t, m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
			j, _, _ := m.queue.sched.next(time.Now(), [methods]bool{true, true})
			before, due := j.generation, time.Now().Add(time.Minute)
			_, err := m.o.Store.ChangeResync(t.Context(), a.did, func(r *format.Resync) bool { r.Generation += uint64(c.stored); r.Due = due; return true })
			must(t, err)
			if c.removed {
				if p, err := m.PlaceCAR(t.Context(), bytes.NewReader(a.car())); err != nil || p.Outcome != batch.Placed.String() {
					t.Fatalf("%+v, %v", p, err)
				}
			}
			if c.again > 0 {
				m.queue.sched.put(a.did, before+c.again, time.Now(), 0, "")
			}
			m.fetcher.placed(t.Context(), j, batch.Superseded, 5, nil)
			m.jobs.wg.Wait()
			next := m.queue.sched.jobs[a.did]
			if (next != nil) != (c.want != 0) || next != nil && (next.generation != before+uint64(c.want) || next.running || next.again || next.index < 0) {
				t.Errorf("in memory: %+v, want generation %d", next, before+uint64(c.want))
			}
			if next != nil && !c.removed && next.due.Before(due.Add(-time.Second)) {
				t.Errorf("due %v, want %v", next.due, due)
			}
		})
	}
}

// An operator who knows that a repo was restored from a backup makes skein believe its host, which
// has an older state than the stream brought.
func TestBelieve(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(0, 6)
	x := w.index(newStore(), func(o *Options) { o.Tries = 2 })
	w.fetched(x, a)
	w.mu.Lock()
	records, rev := maps.Clone(a.records), a.rev
	w.mu.Unlock()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 4 {
		x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) })
	}
	w.mu.Lock()
	a.records, a.rev, a.packed = records, rev, nil // restored
	a.car()
	w.mu.Unlock()
	w.fetched(x, a)
	if st, row := x.stateOf(t, a.did); uint64(st.Rev) == rev || row == nil || row.Failure != failOlder {
		t.Fatalf("believed without being told: %+v, queued: %+v", st, row)
	}
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "operator", Trust: true}, a.did))
	x.settle(t)
	if st, row := x.stateOf(t, a.did); uint64(st.Rev) != rev || !st.Complete() || row != nil {
		t.Errorf("%+v, queued: %+v", st, row)
	}
	x.has(t, w)
}
