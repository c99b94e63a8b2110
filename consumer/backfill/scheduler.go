package backfill

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// host is the state of a host in this process.
type host struct {
	ready    []*job // due now
	inFlight int
	failures int       // in a row; only those that were the host's fault, not a repo's
	refusing time.Time // since then it has only asked us to wait; zero if it has not
	resume   time.Time // no requests until then
	listed   bool      // is in scheduler.turn
	domain   *domain
}

// domain is a registered domain, whose owner may create any number of hosts.
type domain struct{ inFlight int }

// domainOf returns the registered domain of a host's address, or the address if it has none.
func domainOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !addr.IsLoopback() {
		return u.Hostname() // a machine has many ports
	}
	d, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(u.Hostname()))
	if err != nil {
		return u.Host
	}
	return d
}

// job is a queued repo in memory.
type job struct {
	did        string
	generation uint64 // of its row in the store, as far as known
	started    uint64 // generation when it was taken to be worked on; a later one means that more was missed since
	due        time.Time
	host       string // to fetch from; "" if unknown
	listed     string // host that listed it
	busy       int    // how often its host was busy
	at         *host  // that serves it
	resolved   bool   // its DID document was read
	moves      int    // how often it turned out to be elsewhere
	tries      int
	index      int                     // in waiting; -1 if not there
	running    bool                    // being fetched
	again      bool                    // queued again while being fetched
	asked      time.Time               // when its host was asked for it
	end        context.CancelCauseFunc // of that request
}

// methods is the number of methods of DIDs: did:plc, and did:web, whose documents are on servers of strangers, who may let us wait.
const methods = 2

func methodOf(did string) int {
	if strings.HasPrefix(did, "did:web:") {
		return 1
	}
	return 0
}

// backoff returns the wait after a number of failures, with jitter: base, doubled for each, up
// to most.
func backoff(failures int, base, most time.Duration) time.Duration {
	wait := min(most, base<<min(max(failures-1, 0), 18))
	return wait/2 + rand.N(wait/2+1) // jitter
}

// byDue is a heap of the waiting jobs.
type byDue []*job

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push implements heap.Interface.
func (h *byDue) Push(x any) { j, _ := x.(*job); j.index = len(*h); *h = append(*h, j) }

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	old := *h
	j := old[len(old)-1]
	*h, j.index = old[:len(old)-1], -1
	return j
}

// scheduler chooses the next repo to fetch. Hosts take turns, those first whose domains have
// the fewest fetches running; no host exceeds its share, and busy hosts are left alone. No
// domain gets all fetchers, so a slow one cannot block the others. Queue.mu guards it.
type scheduler struct {
	perHost   int
	perDomain int
	domains   map[string]*domain
	trusts    func(host string) bool // whether to fetch listed repos from the host without reading their DID documents
	jobs      map[string]*job        // all jobs, by DID
	waiting   byDue                  // not due yet
	hosts     map[string]*host       // by address, like https://pds.example.com
	turn      []*host                // hosts with ready jobs
	listed    map[string]int         // number of jobs by the host that listed them
	unknown   [methods][]*job        // due, but the host is unknown
	fetching  map[*job]*host         // repos that a host has been asked for
	parked    map[string]string      // DIDs that are not retried, with the reason: a Failure, or "" for inactive accounts
	isFull    bool                   // all fetchers are busy
	full      time.Time              // since then, or since share ended a request
}

func newScheduler(perHost, fetchers int) *scheduler {
	return &scheduler{
		perHost: perHost, perDomain: max(fetchers-max(fetchers/8, 1), 1), domains: map[string]*domain{}, jobs: map[string]*job{}, hosts: map[string]*host{},
		listed: map[string]int{}, fetching: map[*job]*host{}, parked: map[string]string{},
	}
}

// mostHosts is how many hosts there may be before idle ones are forgotten: a did:web may name another one each hour.
const mostHosts = 10_000

func (s *scheduler) host(name string) *host {
	h := s.hosts[name]
	if h == nil {
		if len(s.hosts)%mostHosts == mostHosts-1 {
			clear(s.domains)
			maps.DeleteFunc(s.hosts, func(name string, h *host) bool {
				s.domains[domainOf(name)] = h.domain
				return !h.listed && h.inFlight == 0 && h.resume.Before(time.Now())
			})
		}
		of := domainOf(name)
		if s.domains[of] == nil {
			s.domains[of] = &domain{}
		}
		h = &host{domain: s.domains[of]}
		s.hosts[name] = h
	}
	return h
}

// put queues a job, or changes when it is due.
func (s *scheduler) put(did string, generation uint64, due time.Time, tries int, hint string) {
	delete(s.parked, did)
	j, exists := s.jobs[did]
	if !exists {
		j = &job{did: did, index: -1}
		s.jobs[did] = j
	}
	j.generation = max(j.generation, generation)
	if hint != "" && j.listed == "" {
		j.listed = hint
		s.listed[hint]++
	}
	if j.host == "" && s.trusts != nil && s.trusts(hint) {
		j.host = hint
	}
	if j.running {
		j.again, j.due = true, due
		return
	}
	j.tries = tries
	switch {
	case !exists:
		j.due = due
		heap.Push(&s.waiting, j)
	case j.index >= 0:
		j.due = due
		heap.Fix(&s.waiting, j.index)
	default: // it is due, and waits for its turn
	}
}

// drop removes a job from the index by DID.
func (s *scheduler) drop(j *job) {
	if s.jobs[j.did] != j {
		return
	}
	delete(s.jobs, j.did)
	if s.listed[j.listed]--; s.listed[j.listed] <= 0 {
		delete(s.listed, j.listed)
	}
}

// next returns the next job, or nil. Without a job, wait is the time until there may be one; 0
// means that something else must happen first. resolve means that the job's host is unknown;
// next returns such jobs only if mayResolve for their method, and others only if not isFull.
func (s *scheduler) next(now time.Time, mayResolve [methods]bool) (j *job, resolve bool, wait time.Duration) {
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		j, _ := heap.Pop(&s.waiting).(*job)
		s.ready(j)
	}
	if len(s.waiting) > 0 {
		wait = s.waiting[0].due.Sub(now)
	}
	for m, jobs := range s.unknown {
		if len(jobs) > 0 && mayResolve[m] {
			j, s.unknown[m] = jobs[0], jobs[1:]
			j.running, j.started = true, j.generation
			return j, true, 0
		}
	}
	if s.isFull {
		return nil, false, wait
	}
	h, until := s.turns(now)
	if h == nil {
		if wait == 0 || until > 0 && until < wait {
			wait = until
		}
		return nil, false, wait
	}
	j, h.ready = h.ready[0], h.ready[1:]
	j.running, j.started, j.at = true, j.generation, h
	h.inFlight++
	h.domain.inFlight++
	return j, false, 0
}

// mostTurns bounds the hosts that turns compares.
const mostTurns = 64

// turns returns the host whose turn it is, or nil. Without a host, wait is the time until there
// may be one; 0 means that something else must happen first.
func (s *scheduler) turns(now time.Time) (next *host, wait time.Duration) {
	at, candidates := 0, 0
	for i := 0; i < len(s.turn) && candidates < mostTurns; i++ {
		h := s.turn[i]
		if len(h.ready) == 0 {
			h.listed = false
			s.turn = slices.Delete(s.turn, i, i+1)
			i--
			continue
		}
		if left := h.resume.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		most := s.perHost
		if h.failures > 0 { // one request at a time until it answers
			most = 1
		}
		if h.inFlight >= most || h.domain.inFlight >= s.perDomain {
			continue
		}
		candidates++
		if next == nil || h.domain.inFlight < next.domain.inFlight {
			next, at = h, i
		}
	}
	if next != nil {
		s.turn = append(slices.Delete(s.turn, at, at+1), next)
	}
	return next, wait
}

// errOthersWait is why a request for a repo ends that took a fetcher too long from another domain's.
var errOthersWait = errors.New("other hosts' repos have waited for it")

// share ends the longest request of the domain with the most fetches if all fetchers have been busy for so long, and the next
// repo's domain has fewer than that without it. So a domain holds several fetchers only while nobody waits long for one.
func (s *scheduler) share(now time.Time, isFull bool, wait time.Duration) {
	if isFull && !s.isFull {
		s.full = now
	}
	if s.isFull = isFull; !s.isFull || now.Sub(s.full) < wait {
		return
	}
	next, _ := s.turns(now)
	if next == nil {
		return
	}
	var longest *job
	most := next.domain.inFlight + 1
	for j, h := range s.fetching {
		if n := h.domain.inFlight; n > most || n == most && longest != nil && j.asked.Before(longest.asked) {
			longest, most = j, n
		}
	}
	if longest != nil && now.Sub(longest.asked) >= wait {
		s.full = now
		longest.end(errOthersWait)
	}
}

// later returns how many jobs are not due by a time.
func (s *scheduler) later(by time.Time) (n int64) {
	for _, j := range s.waiting {
		if j.due.After(by) {
			n++
		}
	}
	for _, h := range s.hosts {
		if h.resume.After(by) {
			n += int64(len(h.ready))
		}
	}
	return n
}

// giveUp removes and returns the ready jobs of a host after too many failures in a row.
func (s *scheduler) giveUp(h *host, failures int) (jobs []*job) {
	if h.failures < failures {
		return nil
	}
	jobs, h.ready = h.ready, nil
	for _, j := range jobs {
		j.running, j.started = true, j.generation
	}
	return jobs
}

// ready moves a due job to where next finds it.
func (s *scheduler) ready(j *job) {
	if j.host == "" {
		m := methodOf(j.did)
		s.unknown[m] = append(s.unknown[m], j)
		return
	}
	h := s.host(j.host)
	h.ready = append(h.ready, j)
	if !h.listed {
		h.listed = true
		s.turn = append(s.turn, h)
	}
}

// leave ends a turn of the host.
func (h *host) leave() {
	h.inFlight--
	h.domain.inFlight--
}

// mostRefusing is how long a host may do nothing but ask us to wait before that counts as failures.
const mostRefusing = time.Hour

// done records the end of a request to the host. busy says that it asked us to wait.
func (h *host) done(failed, busy bool, after, base time.Duration, now time.Time) {
	h.leave()
	if !busy {
		h.refusing = time.Time{}
	} else if h.refusing.IsZero() {
		h.refusing = now
	}
	if failed || busy && now.Sub(h.refusing) > mostRefusing {
		h.failures++
		after = max(after, backoff(h.failures, base, 10*time.Minute))
	} else if !busy {
		h.failures = 0
	}
	if after > 0 {
		if until := now.Add(min(after, time.Hour)); until.After(h.resume) {
			h.resume = until
		}
	}
}
