package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/internal/outward"
)

// listJob is a round over the lists of repos of hosts, which queues repos that the index
// does not have, or has in an older state than listed.
type listJob struct {
	from  time.Time                     // start of the job, even if a later process continues it
	hosts map[string]graph.HostBackfill // where to continue, by address
	named bool                          // an operator named the hosts
}

// listing is the progress in a host's list.
type listing struct {
	cursor   string
	listed   int64
	pages    int64
	foreign  int64 // listed repos that are not on the host
	own      int64 // repos that were unknown, and are on the host
	done     bool
	failed   string
	rechecks []recheck
}

// Reading of lists pauses while mostQueued repos are queued in all, or mostOfAHost of one host.
// pageSize is how many repos to request in a page, mostListed how many a page may have.
const (
	mostQueued  = 100_000
	mostOfAHost = 5_000
	pageSize    = 1_000
	mostListed  = 5_000
)

// Bounds for wrong entries in a host's list. Before the backfill stores anything of an unknown
// repo, it reads the repo's DID document, which costs the PLC directory a request. So it stops
// reading the list of a host that lists more foreign repos than mostForeign and than its own,
// or few repos on many pages.
const (
	mostForeign  = 1_000
	fewPages     = 1_000
	leastPerPage = 10
)

// hasRoom reports whether more repos of a host's list may be queued.
func (m *Manager) hasRoom(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sched.jobs) < mostQueued && (host == "" || m.sched.listed[host] < mostOfAHost)
}

// awaitRoom waits until more repos of a host's list may be queued.
func (m *Manager) awaitRoom(ctx context.Context, host string) error {
	for !m.hasRoom(host) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// listers is how many hosts' lists are read at once.
const listers = 16

// Hosts starts to fetch all repos of hosts, or of the relay's hosts if none is named.
func (m *Manager) Hosts(ctx context.Context, hosts ...string) error {
	if len(hosts) == 0 && m.o.Relay == "" {
		return errors.New("no relay to list the hosts; give --relay or --host")
	}
	job := &listJob{named: len(hosts) > 0, hosts: map[string]graph.HostBackfill{}, from: time.Now().UTC()}
	running, err := m.reserve(job)
	if err != nil {
		return err
	}
	if err := m.beginHosts(ctx, running, job, hosts); err != nil {
		m.mu.Lock()
		m.list = nil
		m.mu.Unlock()
		return err
	}
	return nil
}

// reserve makes job the running one, unless there is one.
func (m *Manager) reserve(job *listJob) (running context.Context, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.running == nil:
		return nil, errors.New("backfill is not running")
	case m.list != nil:
		return nil, fmt.Errorf("listing repos: %w", ErrBusy)
	}
	m.list = job
	return m.running, nil
}

// beginHosts starts a job over hosts, or over those of the relay.
func (m *Manager) beginHosts(ctx, running context.Context, job *listJob, hosts []string) (err error) {
	if len(hosts) == 0 {
		if hosts, err = m.hostsOfRelay(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, h := range hosts {
		h = HTTPAddress(h)
		job.hosts[h] = graph.HostBackfill{}
		if job.named {
			m.named[h] = true
		}
	}
	m.mu.Unlock()
	if err := m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Hosts, b.Named, b.ListingFrom = job.hosts, job.named, job.from }); err != nil {
		return err
	}
	m.beginList(running, job)
	return nil
}

// hostsOfRelay returns the addresses of the PDSes that the relay listens to, or the relay's
// own if it does not list them.
func (m *Manager) hostsOfRelay(ctx context.Context) (hosts []string, err error) {
	scheme := "https://"
	if strings.HasPrefix(m.o.Relay, "http://") && m.o.AllowPrivateHosts {
		scheme = "http://"
	}
	for cursor := ""; ; {
		var page struct {
			Cursor string
			Hosts  []struct{ Hostname, Status string }
		}
		err := m.ask(ctx, m.o.Relay, "com.atproto.sync.listHosts", pageQuery(cursor), &page)
		if a, ok := errors.AsType[*answer](err); ok && (a.code < 500 || a.code == 501) && a.code != 429 && len(hosts) == 0 {
			m.log.Info("the relay does not list its hosts; reading its own list of repos", "relay", m.o.Relay, "answer", a.Error())
			return []string{m.o.Relay}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the hosts of %s: %w", m.o.Relay, err)
		}
		for _, h := range page.Hosts {
			if h.Status != "banned" && h.Hostname != "" && !strings.ContainsAny(h.Hostname, "/@?# ") {
				hosts = append(hosts, scheme+h.Hostname)
			}
		}
		if page.Cursor == "" || len(page.Hosts) == 0 {
			return hosts, nil
		}
		cursor = page.Cursor
	}
}

func pageQuery(cursor string) url.Values {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

// ask requests a small answer, and retries.
func (m *Manager) ask(ctx context.Context, host, method string, query url.Values, into any) error {
	defer m.setTrouble(host, "")
	for n := 1; ; n++ {
		err := m.askOnce(ctx, host, method, query, into)
		a, isAnswer := errors.AsType[*answer](err)
		if err == nil || ctx.Err() != nil || n == m.o.Tries || isAnswer && (a.code < 500 || a.code == 501) && a.code != 429 || errors.Is(err, outward.ErrPrivate) {
			return err
		}
		m.setTrouble(host, fmt.Sprintf("%s does not answer; retrying (%d of %d tries): %s", host, n, m.o.Tries, shorten(err.Error())))
		wait := backoff(n, time.Second, time.Minute)
		if isAnswer {
			wait = max(wait, min(a.after, 10*time.Minute))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setTrouble notes why requests to a host are being retried, "" if they are not.
func (m *Manager) setTrouble(host, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why == "" {
		delete(m.trouble, host)
		return
	}
	if m.trouble == nil {
		m.trouble = map[string]string{}
	}
	m.trouble[host] = why
}

func (m *Manager) askOnce(ctx context.Context, host, method string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := m.get(ctx, host, method, query, "application/json")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", host, method, err)
	}
	return nil
}

// beginList reads the lists of a reserved job in the background.
func (m *Manager) beginList(ctx context.Context, job *listJob) {
	m.mu.Lock()
	clear(m.lists)
	for host, at := range job.hosts {
		m.lists[host] = &listing{cursor: at.Cursor, listed: at.Listed, done: at.Done, failed: at.Failed}
	}
	delete(m.ended, graph.DoneRepos)
	m.mu.Unlock()
	m.jobs.Go(func() {
		err := m.sweep(ctx, job)
		if err == nil {
			m.readLists(ctx, job)
		}
		if ctx.Err() == nil {
			m.endList(ctx, job, err)
		}
	})
}

// endList records that the lists of a job were read.
func (m *Manager) endList(ctx context.Context, job *listJob, failure error) {
	failed := 0
	m.mu.Lock()
	for _, l := range m.lists {
		if l.failed != "" {
			failed++
		}
	}
	hosts := len(m.lists)
	m.list = nil
	m.mu.Unlock()
	err := failure
	if err == nil {
		err = m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
			b.Hosts, b.Named = nil, false
			if job.named {
				return
			}
			if b.Done == nil {
				b.Done = map[string]time.Time{}
			}
			b.Done[graph.DoneRepos] = time.Now().UTC()
			b.ReposFrom = job.from
		})
	}
	outcome := outcomeOf(err)
	if err == nil && failed > 0 {
		outcome = fmt.Sprintf("%d of %d hosts could not be listed", failed, hosts)
	}
	m.mu.Lock()
	m.ended[graph.DoneRepos] = outcome
	m.mu.Unlock()
	if err != nil {
		m.log.Error("reading the lists of repos failed; start again with skein backfill", "error", err)
	} else {
		m.log.Info("lists of repos read completely", "hosts", hosts, "hosts_failed", failed, "queued", m.WaitingNow())
	}
	m.poke()
}

func (m *Manager) readLists(ctx context.Context, job *listJob) {
	slots := make(chan struct{}, listers)
	var busy sync.WaitGroup
	defer busy.Wait()
	stop := m.saveLists(ctx)
	defer stop()
	m.mu.Lock()
	var todo []string
	for host, l := range m.lists {
		if !l.done {
			todo = append(todo, host)
		}
	}
	m.mu.Unlock()
	for _, host := range todo {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		busy.Go(func() {
			defer func() { <-slots }()
			err := m.readList(ctx, job, host)
			m.mu.Lock()
			l := m.lists[host]
			if l.done = ctx.Err() == nil; l.done && err != nil {
				l.failed = shorten(err.Error())
			}
			m.mu.Unlock()
			if err != nil && ctx.Err() == nil {
				m.log.Warn("listing the repos of a host failed", "host", host, "error", shorten(err.Error()))
			}
		})
	}
	busy.Wait()
}

// saveLists stores the progress of the lists now and then. After a kill, repos listed since
// then are listed again, and skipped.
func (m *Manager) saveLists(ctx context.Context) (stop func()) {
	save := func() {
		hosts := map[string]graph.HostBackfill{}
		m.mu.Lock()
		for host, l := range m.lists {
			hosts[host] = graph.HostBackfill{Cursor: l.cursor, Done: l.done, Listed: l.listed, Failed: l.failed}
		}
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Hosts = hosts }); err != nil {
			m.log.Error("storing the progress of the lists failed", "error", err)
		}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(5 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				save()
			case <-ended:
				save()
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// listed is an entry of a list of repos.
type listed struct {
	DID    string
	Rev    string
	Active *bool
	Status string
}
