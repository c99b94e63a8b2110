package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// readList reads the list of a host, page by page.
func (l *lister) readList(ctx context.Context, job *listJob, host string, list *listing) error {
	l.mu.Lock()
	cursor := list.Cursor
	l.mu.Unlock()
	for more := true; more; {
		if err := l.queue.awaitRoom(ctx, host, &list.waited, max(mostWaiting, time.Duration(list.Listed)*time.Second)); err != nil {
			return err
		}
		began := time.Now()
		page, err := l.client.page(ctx, host, cursor)
		took := time.Since(began)
		if err != nil {
			return err
		}
		if err := l.takePage(ctx, job, host, list, page.Repos); err != nil {
			return err
		}
		more = page.more(cursor)
		if err := l.comparer.confirm(ctx, &list.rechecks, !more || len(list.rechecks) >= mostRechecks/listers); err != nil {
			return err
		}
		l.mu.Lock()
		cursor = page.Cursor
		list.Cursor = cursor
		list.Listed += int64(len(page.Repos))
		list.pages++
		list.took += took
		l.mu.Unlock()
		if err := l.bound(list, host); err != nil {
			return err
		}
	}
	return nil
}

// bound returns an error if reading a list must stop.
func (l *lister) bound(list *listing, host string) error {
	switch {
	case host == l.o.Relay:
		return nil
	case list.foreign > mostForeign && list.foreign > list.own:
		return fmt.Errorf("the list has %d foreign repos and %d of this host; not reading on", list.foreign, list.own)
	case list.Listed > mostListedByHost:
		return fmt.Errorf("the list has more than %d repos", mostListedByHost)
	case list.pages > fewPages && list.Listed < list.pages*leastPerPage, list.took > time.Hour && list.Listed < 10*int64(list.took.Seconds()):
		return fmt.Errorf("the host sent only %d repos on %d pages in %v; not reading on", list.Listed, list.pages, list.took.Round(time.Minute))
	}
	return nil
}

// takePage queues the repos of a page that need a fetch. An entry about a repo that seems to be complete, or is unknown, has no effect
// before the DID document confirms that the repo is on the host, unless the list is trusted: the relay's,
// that of a host that an operator named, and all lists in a private network. Whether an account
// is active is always checked with the host in its document.
func (l *lister) takePage(ctx context.Context, job *listJob, host string, list *listing, repos []listed) error {
	var b batch.Batch
	var doubtful map[bool][]string // by whether the account is known
	var believed map[string]func() // what follows from an entry, if the repo is on the host
	trusted := l.o.TrustHosts || job.named || host == l.o.Relay
	at := host
	if host == l.o.Relay { // a relay hosts no repos
		at = ""
	}
	queue := func(r *listedAccount, reason string) {
		c := batch.Cause{Reason: reason, Host: at}
		if trusted {
			c.Told = r.rev
		}
		b.AddResync([]byte(r.listed.DID), c)
	}
	err := l.o.Store.View(ctx, func(s *graph.View) error {
		b.Reset()
		doubtful, believed = map[bool][]string{}, map[string]func(){}
		accounts, err := l.o.lookUp(s, repos)
		if err != nil {
			return err
		}
		for i := range accounts {
			a := &accounts[i]
			inactive := a.listed.Active != nil && !*a.listed.Active
			believe := func(then func()) {
				if believed[a.listed.DID] = then; trusted {
					then()
				} else {
					doubtful[a.known] = append(doubtful[a.known], a.listed.DID)
				}
			}
			switch {
			case host == l.o.Relay && inactive:
				b.AddStatus([]byte(a.listed.DID), false)
			case inactive && a.state.Has(graph.FlagHidden),
				a.row != nil && a.row.State == graph.ResyncWaiting:
			case a.known && inactive: // it may be active at the host in its document, so ask that host
				believe(func() { queue(a, "listed_inactive") })
			case a.known && a.listed.Active != nil && a.state.Has(graph.FlagHidden): // the fetch asks whether it is active
				believe(func() { queue(a, "listed_active") })
			case !a.known:
				believe(func() { queue(a, "backfill") })
			case !a.state.Whole() || a.row != nil:
				queue(a, "backfill")
			case a.rev > a.state.Rev:
				r := recheck{did: a.listed.DID, listed: a.rev, index: a.state.Rev, host: at, trusted: trusted, since: time.Now()}
				believe(func() { list.rechecks = append(list.rechecks, r) })
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("comparing a page of the list: %w", err)
	}
	for known, dids := range doubtful {
		counts := list
		if known { // a host lists accounts that have moved away, too
			counts = &listing{foreign: list.moved, own: list.stayed}
		}
		own, err := l.verify(ctx, counts, host, dids)
		if err != nil {
			return err
		}
		for _, did := range own {
			believed[did]()
		}
		if known {
			l.mu.Lock()
			list.moved, list.stayed = counts.foreign, counts.own
			list.Unread = list.Unread || counts.Unread || l.bound(counts, host) != nil // it stopped
			l.mu.Unlock()
		}
	}
	return l.o.apply(ctx, &b)
}

// verifiers is how many DID documents are resolved at once for one list.
const verifiers = 4

// verify returns the DIDs whose documents name the host. It stops after too many that do not.
func (l *lister) verify(ctx context.Context, list *listing, host string, dids []string) (own []string, err error) {
	for some := range slices.Chunk(dids, verifiers) {
		if ctx.Err() != nil || l.bound(list, host) != nil {
			break
		}
		var is [verifiers]bool
		var errs [verifiers]error
		var busy sync.WaitGroup
		for i, did := range some {
			busy.Go(func() {
				at, err := l.client.resolve(ctx, did)
				is[i] = err == nil && at == host
				switch unread := failureOf(err).why == failIdentity; {
				case unread && strings.HasPrefix(did, "did:plc:"): // unlike a site of did:web, the directory returns
					errs[i] = err
				case unread:
					l.mu.Lock()
					list.Unread = true
					l.mu.Unlock()
				}
			})
		}
		busy.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return own, err
		}
		for i, did := range some {
			if is[i] {
				list.own++
				own = append(own, did)
			} else {
				list.foreign++
			}
		}
	}
	return own, ctx.Err()
}
