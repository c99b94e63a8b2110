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

	"skein.blue/graph/format"
	"skein.blue/internal/outward"
)

// listJob is a round over the lists of repos of hosts, which has all fetched that the index
// does not have, or not in the state that is listed.
type listJob struct {
	from  time.Time                      // when it was begun, also if it is gone on with
	hosts map[string]format.HostBackfill // where to go on, by address
	named bool                           // the hosts are those that an operator named
}

// listing is how far a host's list is.
type listing struct {
	cursor   string
	listed   int64
	pages    int64
	foreign  int64 // repos that the host lists and that are not on it
	own      int64 // repos that were not known, and are on it
	done     bool
	failed   string
	rechecks []recheck
}

// How many repos lists put in the queue: they wait while there are more, of one host or in
// all. How many are asked for in a page, and how many one may name.
const (
	mostQueued  = 100_000
	mostOfAHost = 5_000
	pageSize    = 1_000
	mostListed  = 5_000
)

// What a host may list that is not there. A repo that the index does not know is looked up
// before anything is kept of it, which costs the directory of DIDs a request: a host that
// lists more strangers' repos than this, and more than its own, is not listed on. One that
// names few repos on many pages is not either.
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

// Hosts begins to fetch all repos of hosts, of those of the relay if none is named.
func (m *Manager) Hosts(ctx context.Context, hosts ...string) error {
	if len(hosts) == 0 && m.o.Relay == "" {
		return errors.New("there is no relay to ask for its hosts: name one with --relay, or hosts with --host")
	}
	job := &listJob{named: len(hosts) > 0, hosts: map[string]format.HostBackfill{}, from: time.Now().UTC()}
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

// reserve makes a job the one that is under way, if there is none.
func (m *Manager) reserve(job *listJob) (running context.Context, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.running == nil:
		return nil, errors.New("backfill: it does not run")
	case m.list != nil:
		return nil, fmt.Errorf("listing repos: %w", ErrBusy)
	}
	m.list = job
	return m.running, nil
}

// beginHosts begins a job over hosts, or those of the relay.
func (m *Manager) beginHosts(ctx, running context.Context, job *listJob, hosts []string) (err error) {
	if len(hosts) == 0 {
		if hosts, err = m.hostsOfRelay(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, h := range hosts {
		h = HTTPAddress(h)
		job.hosts[h] = format.HostBackfill{}
		if job.named {
			m.named[h] = true
		}
	}
	m.mu.Unlock()
	if err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) { b.Hosts, b.Named, b.ListingFrom = job.hosts, job.named, job.from }); err != nil {
		return err
	}
	m.beginList(running, job)
	return nil
}

// hostsOfRelay returns the addresses of the PDSes that the relay listens to; of the relay
// itself, if it does not say.
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
			m.log.Info("the relay does not list its hosts; its own list of repos is read", "relay", m.o.Relay, "answer", a.Error())
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

// ask reads a small answer, and asks again if it is no answer.
func (m *Manager) ask(ctx context.Context, host, method string, query url.Values, into any) error {
	defer m.setTrouble(host, "")
	for n := 1; ; n++ {
		err := m.askOnce(ctx, host, method, query, into)
		a, isAnswer := errors.AsType[*answer](err)
		if err == nil || ctx.Err() != nil || n == m.o.Tries || isAnswer && (a.code < 500 || a.code == 501) && a.code != 429 || errors.Is(err, outward.ErrPrivate) {
			return err
		}
		m.setTrouble(host, fmt.Sprintf("%s does not answer, and is asked again (%d of %d tries): %s", host, n, m.o.Tries, shorten(err.Error())))
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

// setTrouble notes why a host is asked again, "" if it is not.
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
		return fmt.Errorf("the answer of %s to %s: %w", host, method, err)
	}
	return nil
}

// beginList reads the lists of a job, which is reserved, in the background.
func (m *Manager) beginList(ctx context.Context, job *listJob) {
	m.mu.Lock()
	clear(m.lists)
	for host, at := range job.hosts {
		m.lists[host] = &listing{cursor: at.Cursor, listed: at.Listed, done: at.Done, failed: at.Failed}
	}
	delete(m.ended, format.DoneRepos)
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

// endList notes that the lists of a job have been read.
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
		err = m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) {
			b.Hosts, b.Named = nil, false
			if job.named {
				return
			}
			if b.Done == nil {
				b.Done = map[string]time.Time{}
			}
			b.Done[format.DoneRepos] = time.Now().UTC()
			b.ReposFrom = job.from
		})
	}
	outcome := said(err)
	if err == nil && failed > 0 {
		outcome = fmt.Sprintf("%d of %d hosts could not be listed", failed, hosts)
	}
	m.mu.Lock()
	m.ended[format.DoneRepos] = outcome
	m.mu.Unlock()
	if err != nil {
		m.log.Error("the lists of repos were not read to their end; skein backfill begins again", "error", err)
	} else {
		m.log.Info("the lists of repos have been read", "hosts", hosts, "hosts_failed", failed, "queued", m.WaitingNow())
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
				m.log.Warn("the repos of a host could not be listed", "host", host, "error", shorten(err.Error()))
			}
		})
	}
	busy.Wait()
}

// saveLists stores now and then how far the lists of a backfill are. What was listed since
// is listed again after a kill, and passed over then.
func (m *Manager) saveLists(ctx context.Context) (stop func()) {
	save := func() {
		hosts := map[string]format.HostBackfill{}
		m.mu.Lock()
		for host, l := range m.lists {
			hosts[host] = format.HostBackfill{Cursor: l.cursor, Done: l.done, Listed: l.listed, Failed: l.failed}
		}
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) { b.Hosts = hosts }); err != nil {
			m.log.Error("how far the lists of repos are could not be written", "error", err)
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

// listed is a repo of a list.
type listed struct {
	DID    string
	Rev    string
	Active *bool
	Status string
}
