package backfill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// A listPage is a page of a list of repos.
type listPage struct {
	Cursor string
	Repos  []listed
}

// more reports whether another page follows the one that cursor requested.
func (p *listPage) more(cursor string) bool {
	return p.Cursor != "" && len(p.Repos) > 0 && p.Cursor != cursor
}

// page requests a page of a host's list of repos.
func (m *Manager) page(ctx context.Context, host, cursor string) (p listPage, err error) {
	if err := m.ask(ctx, host, "com.atproto.sync.listRepos", pageQuery(cursor), &p); err != nil {
		return p, err
	}
	if len(p.Repos) > mostListed {
		return p, fmt.Errorf("a page has %d repos, requested were %d", len(p.Repos), pageSize)
	}
	return p, nil
}

// readList reads the list of a host, page by page.
func (m *Manager) readList(ctx context.Context, job *listJob, host string) error {
	m.mu.Lock()
	l := m.lists[host] // m.mu guards it, except its rechecks
	cursor := l.cursor
	m.mu.Unlock()
	for more := true; more; {
		if err := m.awaitRoom(ctx, host); err != nil {
			return err
		}
		page, err := m.page(ctx, host, cursor)
		if err != nil {
			return err
		}
		if err := m.takePage(ctx, job, host, l, page.Repos); err != nil {
			return err
		}
		more = page.more(cursor)
		if err := m.confirm(ctx, &l.rechecks, !more || len(l.rechecks) >= mostRechecks/listers); err != nil {
			return err
		}
		m.mu.Lock()
		cursor = page.Cursor
		l.cursor = cursor
		l.listed += int64(len(page.Repos))
		l.pages++
		m.mu.Unlock()
		if err := m.bound(l, host); err != nil {
			return err
		}
	}
	return nil
}

// bound returns an error if reading a list must stop.
func (m *Manager) bound(l *listing, host string) error {
	switch {
	case host == m.o.Relay:
		return nil
	case l.foreign > mostForeign && l.foreign > l.own:
		return fmt.Errorf("the list has %d foreign repos and %d of this host; not reading on", l.foreign, l.own)
	case l.listed > m.o.MaxHostRepos:
		return fmt.Errorf("the list has more than %d repos", m.o.MaxHostRepos)
	case l.pages > fewPages && l.listed < l.pages*leastPerPage:
		return fmt.Errorf("the list has only %d repos on %d pages; not reading on", l.listed, l.pages)
	}
	return nil
}

// takePage queues the repos of a page that need a fetch. It stores nothing of an unknown repo
// before its DID document, or an operator, confirms that the repo is on the host.
func (m *Manager) takePage(ctx context.Context, job *listJob, host string, l *listing, repos []listed) error {
	var b batch.Batch
	var unknown []string
	trusted := m.trusts(job, host)
	at := host
	if host == m.o.Relay { // a relay hosts no repos
		at = ""
	}
	queue := func(r *listedAccount, reason string) {
		c := batch.Cause{Reason: reason, Host: at}
		if trusted {
			c.Told = r.rev
		}
		b.AddResync([]byte(r.listed.DID), c)
	}
	err := m.o.Store.View(ctx, func(s *graph.View) error {
		b.Reset()
		unknown = unknown[:0]
		accounts, err := m.lookUp(s, repos)
		if err != nil {
			return err
		}
		for i := range accounts {
			a := &accounts[i]
			inactive := a.listed.Active != nil && !*a.listed.Active
			switch {
			case host == m.o.Relay && inactive:
				b.AddStatus([]byte(a.listed.DID), false)
			case inactive && a.state.Has(graph.FlagHidden),
				a.row != nil && a.row.State == graph.ResyncWaiting:
			case !a.known && !trusted:
				unknown = append(unknown, a.listed.DID)
			case inactive: // it may be active at the host in its document, so ask that host
				queue(a, "listed_inactive")
			case a.listed.Active != nil && a.state.Has(graph.FlagHidden): // the fetch asks whether it is active
				queue(a, "listed_active")
			case !a.state.Whole() || a.row != nil:
				queue(a, "backfill")
			case a.rev > a.state.Rev:
				l.rechecks = append(l.rechecks, recheck{did: a.listed.DID, listed: a.rev, index: a.state.Rev, host: at, trusted: trusted, since: time.Now()})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("comparing a page of the list: %w", err)
	}
	own, err := m.verify(ctx, l, host, unknown)
	if err != nil {
		return err
	}
	for _, did := range own {
		b.AddResync([]byte(did), batch.Cause{Reason: "backfill", Host: at})
	}
	if err := m.o.Store.Apply(ctx, "", &b); err != nil {
		return fmt.Errorf("queueing repos: %w", err)
	}
	return nil
}

// verifiers is how many DID documents are resolved at once for one list.
const verifiers = 4

// verify returns the DIDs whose documents name the host. It stops after too many that do not.
func (m *Manager) verify(ctx context.Context, l *listing, host string, dids []string) (own []string, err error) {
	for len(dids) > 0 && ctx.Err() == nil && m.bound(l, host) == nil {
		some := dids[:min(len(dids), verifiers)]
		dids = dids[len(some):]
		var is [verifiers]bool
		var busy sync.WaitGroup
		for i, did := range some {
			busy.Go(func() {
				at, err := m.resolve(ctx, did)
				is[i] = err == nil && at == host
			})
		}
		busy.Wait()
		m.mu.Lock()
		for i, did := range some {
			if is[i] {
				l.own++
				own = append(own, did)
			} else {
				l.foreign++
			}
		}
		m.mu.Unlock()
	}
	return own, ctx.Err()
}

// trusts reports whether to believe a host's list without reading DID documents: the relay's,
// that of a host that an operator named, and all lists in a private network. Whether an account
// is active is always checked with the host in its document.
func (m *Manager) trusts(job *listJob, host string) bool {
	return m.o.TrustHosts || job.named || host == m.o.Relay
}
