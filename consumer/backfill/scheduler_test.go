package backfill

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The registered domain of a host's address counts, because its owner may create any number of
// hosts below it; an IP address and a name without a public suffix stand for themselves.
func TestDomainOf(t *testing.T) {
	for address, want := range map[string]string{
		"https://pds.example.com":                   "example.com",
		"https://a.b.c.example.co.uk:8443":          "example.co.uk",
		"https://PDS.Example.COM":                   "example.com",
		"https://morel.us-east.host.bsky.network":   "bsky.network",
		"https://alice.github.io":                   "alice.github.io", // a public suffix of private owners
		"http://127.0.0.1:2583":                     "127.0.0.1:2583",
		"http://[::1]:2583":                         "[::1]:2583",
		"http://localhost:2583":                     "localhost:2583",
		"https://com":                               "com",
		"http://exa mple.com":                       "http://exa mple.com", // not an address
		"https://xn--bcher-kva.example.com/ignored": "example.com",
	} {
		if got := domainOf(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// The places that a job can be in, in the twin of the scheduler.
const (
	inWaiting = iota
	inUnknown
	inReady
	inRunning
)

// twinJob is a job in the twin.
type twinJob struct {
	at    int
	due   time.Time
	host  string // "" if unknown
	by    string // the host that listed it
	again bool
	job   *job // while it runs
}

// twinHost is a host in the twin.
type twinHost struct {
	inFlight, failures int
	resume             time.Time
}

// schedulerTwin models the scheduler in plain maps.
type schedulerTwin struct {
	t         *testing.T
	s         *scheduler
	perHost   int
	perDomain int
	now       time.Time
	jobs      map[string]*twinJob
	hosts     map[string]*twinHost
	trusted   map[string]bool
}

func (w *schedulerTwin) host(name string) *twinHost {
	if w.hosts[name] == nil {
		w.hosts[name] = &twinHost{}
	}
	return w.hosts[name]
}

// place moves due jobs on, as next does.
func (w *schedulerTwin) place() {
	for _, j := range w.jobs {
		if j.at != inWaiting || j.due.After(w.now) {
			continue
		}
		if j.at = inReady; j.host == "" {
			j.at = inUnknown
		}
	}
}

// inDomain returns the number of fetches from the hosts of a domain.
func (w *schedulerTwin) inDomain(domain string) (n int) {
	for name, h := range w.hosts {
		if domainOf(name) == domain {
			n += h.inFlight
		}
	}
	return n
}

// eligible returns the hosts with a ready job that may be asked now.
func (w *schedulerTwin) eligible() map[string]bool {
	hosts := map[string]bool{}
	for _, j := range w.jobs {
		if j.at != inReady {
			continue
		}
		h := w.host(j.host)
		most := w.perHost
		if h.failures > 0 {
			most = 1
		}
		if !h.resume.After(w.now) && h.inFlight < most && w.inDomain(domainOf(j.host)) < w.perDomain {
			hosts[j.host] = true
		}
	}
	return hosts
}

// next asks the scheduler for a job, and checks the answer.
func (w *schedulerTwin) next(mayResolve [methods]bool) {
	w.t.Helper()
	w.place()
	eligible := w.eligible()
	unknown := 0
	var soonest time.Time // when a job becomes due, or a host with ready jobs may be asked again
	note := func(at time.Time) {
		if at.After(w.now) && (soonest.IsZero() || at.Before(soonest)) {
			soonest = at
		}
	}
	for did, j := range w.jobs {
		switch j.at {
		case inUnknown:
			if mayResolve[methodOf(did)] {
				unknown++
			}
		case inWaiting:
			note(j.due)
		case inReady:
			note(w.host(j.host).resume)
		}
	}
	j, resolve, wait := w.s.next(w.now, mayResolve)
	switch {
	case j == nil:
		if len(eligible) > 0 || unknown > 0 {
			w.t.Fatalf("no job, but %d hosts may be asked and %d jobs resolved", len(eligible), unknown)
		}
		want := time.Duration(0)
		if !soonest.IsZero() {
			want = soonest.Sub(w.now)
		}
		if wait != want {
			w.t.Fatalf("wait %v, want %v", wait, want)
		}
		return
	case resolve:
		if !mayResolve[methodOf(j.did)] || w.jobs[j.did] == nil || w.jobs[j.did].at != inUnknown {
			w.t.Fatalf("%s to be resolved: %+v", j.did, w.jobs[j.did])
		}
	default:
		tw := w.jobs[j.did]
		if tw == nil || tw.at != inReady || !eligible[j.host] || j.host != tw.host {
			w.t.Fatalf("%s from %s: %+v; may be asked: %v", j.did, j.host, tw, eligible)
		}
		if unknown > 0 {
			w.t.Fatal("a fetch, although a job could be resolved")
		}
		for other := range eligible { // domains with the fewest fetches come first
			if w.inDomain(domainOf(other)) < w.inDomain(domainOf(j.host)) {
				w.t.Fatalf("from %s with %d fetches; %s has %d", j.host, w.inDomain(domainOf(j.host)), other, w.inDomain(domainOf(other)))
			}
		}
		w.host(j.host).inFlight++
	}
	tw := w.jobs[j.did]
	tw.at, tw.job = inRunning, j
}

// end ends a running fetch or resolution, as the Manager does.
func (w *schedulerTwin) end(rng *rand.Rand, did string) {
	tw := w.jobs[did]
	j := tw.job
	if tw.host == "" { // resolved
		tw.host = fmt.Sprintf("https://h%d.d%d.example.com", rng.IntN(3), rng.IntN(3))
		tw.at, tw.job = inReady, nil
		j.host, j.resolved, j.running = tw.host, true, false
		w.s.ready(j)
		return
	}
	h, failed := w.host(tw.host), rng.IntN(4) == 0
	after := time.Duration(rng.IntN(3)) * time.Second * time.Duration(rng.IntN(2))
	sh := w.s.host(tw.host)
	before := sh.resume
	sh.done(failed, false, after, time.Second, w.now)
	h.inFlight--
	if h.failures++; !failed {
		h.failures = 0
	}
	least := w.now.Add(after)
	switch {
	case failed && !sh.resume.After(w.now), sh.resume.Before(least) && after > 0, sh.resume.Before(before):
		w.t.Fatalf("%s may be asked again at %v, after a failure: %v, it asked to wait %v", tw.host, sh.resume.Sub(w.now), failed, after)
	}
	h.resume = sh.resume // the jitter is random
	if gone := w.s.giveUp(sh, 5); gone != nil {
		if h.failures < 5 {
			w.t.Fatalf("given up after %d failures", h.failures)
		}
		for _, g := range gone {
			if w.jobs[g.did].at != inReady || w.jobs[g.did].host != tw.host {
				w.t.Fatalf("%s given up with %s: %+v", g.did, tw.host, w.jobs[g.did])
			}
			delete(w.jobs, g.did)
			w.s.drop(g)
		}
	}
	for name, other := range w.jobs {
		if h.failures >= 5 && other.at == inReady && other.host == tw.host {
			w.t.Fatalf("%s is still ready at a host that was given up", name)
		}
	}
	j.running, j.index = false, -1
	w.s.drop(j)
	delete(w.jobs, did)
	if tw.again || rng.IntN(3) == 0 { // queued again, or retried
		j.again = false
		w.put(did, w.now.Add(time.Duration(rng.IntN(5))*time.Second), tw.by)
	}
}

// put queues a job, or one that exists again.
func (w *schedulerTwin) put(did string, due time.Time, hint string) {
	w.s.put(did, 1, due, 0, hint)
	tw := w.jobs[did]
	if tw == nil {
		tw = &twinJob{at: inWaiting}
		w.jobs[did] = tw
	}
	if tw.by == "" {
		tw.by = hint
	}
	if tw.host == "" && w.trusted[hint] && tw.at != inUnknown && tw.at != inRunning {
		tw.host = hint
	}
	switch tw.at {
	case inWaiting:
		tw.due = due
	case inRunning:
		tw.again = true
	}
}

// check compares the scheduler's counts with the twin.
func (w *schedulerTwin) check() {
	w.t.Helper()
	if len(w.s.jobs) != len(w.jobs) {
		w.t.Fatalf("%d jobs, want %d", len(w.s.jobs), len(w.jobs))
	}
	by := map[string]int{}
	for _, j := range w.jobs {
		if j.by != "" {
			by[j.by]++
		}
	}
	if !maps.Equal(by, w.s.listed) {
		w.t.Fatalf("jobs by the host that listed them: %v, want %v", w.s.listed, by)
	}
	for name, h := range w.hosts {
		if h.inFlight > w.perHost || w.s.host(name).inFlight != h.inFlight {
			w.t.Fatalf("%s: %d fetches, counted %d, at most %d", name, h.inFlight, w.s.host(name).inFlight, w.perHost)
		}
		if n := w.inDomain(domainOf(name)); n > w.perDomain {
			w.t.Fatalf("%s: %d fetches, at most %d", domainOf(name), n, w.perDomain)
		}
	}
	limit := w.now.Add(2 * time.Second)
	later := int64(0)
	for _, j := range w.jobs {
		if j.at == inWaiting && j.due.After(limit) || j.at == inReady && w.host(j.host).resume.After(limit) {
			later++
		}
	}
	if got := w.s.later(limit); got != later {
		w.t.Fatalf("%d jobs are later than two seconds, want %d", got, later)
	}
}

// Random queues, fetches, failures and waits: the scheduler keeps every job exactly once, never asks
// a host too often or too early, prefers the domains with the fewest fetches, and always has a job
// when one can run.
func TestScheduler(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		const fetchers = 9
		w := &schedulerTwin{
			t: t, s: newScheduler(3, fetchers), perHost: 3, perDomain: fetchers - fetchers/8, now: time.Unix(1_800_000_000, 0),
			jobs: map[string]*twinJob{}, hosts: map[string]*twinHost{}, trusted: map[string]bool{"https://h0.d0.example.com": true, "https://h1.d1.example.org": true},
		}
		w.s.trusts = func(host string) bool { return w.trusted[host] }
		hints := []string{"", "https://h0.d0.example.com", "https://h1.d1.example.org", "https://liar.example.net"}
		for range 1500 {
			running := slices.DeleteFunc(slices.Sorted(maps.Keys(w.jobs)), func(did string) bool { return w.jobs[did].at != inRunning })
			switch rng.IntN(8) {
			case 0, 1:
				due := w.now.Add(time.Duration(rng.IntN(6)-2) * time.Second)
				if rng.IntN(8) == 0 { // a row whose Due was never set
					due = time.Time{}
				}
				w.put(fmt.Sprintf([]string{"did:web:a%d.example.com", "did:plc:a%d"}[rng.IntN(2)], rng.IntN(30)), due, hints[rng.IntN(len(hints))])
			case 2:
				w.now = w.now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			case 3:
				if waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(w.jobs)), func(did string) bool { return w.jobs[did].at != inWaiting }); len(waiting) > 0 && rng.IntN(4) == 0 {
					w.s.remove(w.s.jobs[waiting[0]])
					delete(w.jobs, waiting[0])
				}
			case 4, 5:
				if len(running) > 0 {
					w.end(rng, running[rng.IntN(len(running))])
				}
			default:
				w.next([methods]bool{rng.IntN(3) > 0 && len(running) < fetchers, rng.IntN(3) > 0})
			}
			w.check()
		}
	}
}

// A host that for an hour does nothing but ask us to wait has failed, until it does something else.
func TestRefusingHosts(t *testing.T) {
	h, now := newScheduler(1, 1).host("https://pds.example.com"), time.Now()
	for _, c := range []struct {
		at       time.Duration
		busy     bool
		failures int
	}{{0, true, 0}, {time.Hour, true, 0}, {time.Hour + 1, true, 1}, {2 * time.Hour, true, 2}, {2 * time.Hour, false, 0}, {3 * time.Hour, true, 0}, {4 * time.Hour, true, 0}} {
		if h.done(false, c.busy, 0, time.Second, now.Add(c.at)); h.failures != c.failures {
			t.Errorf("after %v: %d failures, want %d", c.at, h.failures, c.failures)
		}
	}
}

// Hosts are forgotten unless something is known of them, however many names there are, and those of one domain share it.
func TestManyHosts(t *testing.T) {
	s := newScheduler(1, 1)
	asked, resting, waiting := s.host("https://asked.example.com"), s.host("https://resting.example.com"), s.host("https://waiting.example.com")
	asked.inFlight, resting.resume, waiting.listed = 1, time.Now().Add(time.Hour), true
	for i := range 3 * mostHosts {
		s.host(fmt.Sprintf("https://pds.h%d.example", i))
	}
	if len(s.hosts) > mostHosts || len(s.domains) > 2*mostHosts {
		t.Errorf("%d hosts, %d domains", len(s.hosts), len(s.domains))
	}
	if s.host("https://asked.example.com") != asked || s.host("https://resting.example.com") != resting || s.host("https://waiting.example.com") != waiting || s.host("https://new.example.com").domain != asked.domain {
		t.Error("a host that is in use was forgotten")
	}
}

// remove removes a waiting job, as Queue.placedByHand does.
func (s *scheduler) remove(j *job) {
	heap.Remove(&s.waiting, j.index)
	s.drop(j)
}
