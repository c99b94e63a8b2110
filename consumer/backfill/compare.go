package backfill

import (
	"context"
	"fmt"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// A comparison goes through the relay's list of repos, and has those fetched that the index
// does not have the newest state of: after a hole in the stream, and slowly once a week, since
// a relay that is killed loses events without a hole.
//
// A repo that is listed with another rev than the index has is not queued at once: the stream
// may be about to tell of it. It is looked at again when the stream has had time to, and only
// while all that the relay sends is applied. No clock is compared with a rev.
type comparison struct {
	slow     bool
	noted    uint64            // holes, when it began
	seen     *roaring64.Bitmap // the accounts that were listed; nil if it is gone on with
	rechecks []recheck
	listed   int64
}

// A recheck is a repo that was listed with another rev than the index had.
type recheck struct {
	did    string
	listed format.Rev
	index  format.Rev // what the index had then
	host   string     // that listed it, "" if it is the relay
	told   bool       // who listed it is to be believed
	since  time.Time  // by the monotonic clock
}

// mostRechecks is how many of them wait at a time: then the list does.
const mostRechecks = 50_000

// How long a hole may settle before the repos are compared, and how often it is looked whether
// there is one.
const (
	holeSettles = 15 * time.Second
	holeEvery   = 5 * time.Second
)

// watchHoles compares all repos after each hole in the stream, and in between once in
// Options.CompareEvery.
func (m *Manager) watchHoles(ctx context.Context) {
	ticker := time.NewTicker(holeEvery)
	defer ticker.Stop()
	began := time.Now()
	var hole uint64
	var since time.Time
	for m.o.Relay != "" {
		noted, compared := m.o.Store.Holes()
		switch {
		case noted <= compared:
			if due := m.o.CompareEvery > 0 && time.Since(began) > m.slowAfter() && m.roundDue(); due {
				m.compare(ctx, &comparison{slow: true, noted: noted})
			}
		case noted != hole:
			hole, since = noted, time.Now()
		case time.Since(since) > m.settle():
			m.log.Info("after a hole in the stream, what the index has of each repo is compared with the relay's list; until that has ended, answers say that they are incomplete", "holes", noted)
			if m.compare(ctx, &comparison{noted: noted}) {
				continue
			}
		}
		select {
		case <-ticker.C:
		case <-m.gaps:
		case <-ctx.Done():
			return
		}
	}
}

// lookForGaps has the holes looked at now.
func (m *Manager) lookForGaps() {
	select {
	case m.gaps <- struct{}{}:
	default:
	}
}

// settle is how long the stream has to tell what a list has told.
func (m *Manager) settle() time.Duration {
	if m.o.Settle > 0 {
		return m.o.Settle
	}
	return holeSettles
}

// slowAfter is how long a process runs before it begins a comparison of its own accord.
func (m *Manager) slowAfter() time.Duration { return min(10*time.Minute, m.o.CompareEvery) }

// roundDue reports whether the last comparison ended long enough ago. A time in the future is
// that of a clock that was wrong.
func (m *Manager) roundDue() bool {
	ago := time.Since(m.o.Store.Backfill().Round.Ended)
	return ago >= m.o.CompareEvery || ago < 0
}

// compare makes a comparison, and reports whether it came to its end.
func (m *Manager) compare(ctx context.Context, c *comparison) (ended bool) {
	m.mu.Lock()
	m.comparing = c
	m.mu.Unlock()
	err := m.compareAll(ctx, c)
	m.mu.Lock()
	m.comparing = nil
	if ctx.Err() == nil {
		m.ended["comparison"] = said(err)
	}
	m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		m.log.Warn("the index could not be compared with the relay's list of repos, and that is tried again", "relay", m.o.Relay, "error", shorten(err.Error()))
	default:
		m.log.Info("the index has been compared with the relay's list of repos", "listed", c.listed, "queued", m.WaitingNow())
	}
	m.poke()
	return err == nil && ctx.Err() == nil
}

func (m *Manager) compareAll(ctx context.Context, c *comparison) error {
	cursor := ""
	if round := m.o.Store.Backfill().Round; c.slow && round.Cursor != "" {
		cursor, c.listed = round.Cursor, round.Listed // which accounts it has seen is not known
	} else {
		c.seen = roaring64.New()
	}
	for more := true; more; {
		page, err := m.page(ctx, m.o.Relay, cursor)
		if err != nil {
			return err
		}
		if err := m.comparePage(ctx, c, page.Repos); err != nil {
			return err
		}
		more = page.more(cursor)
		cursor = page.Cursor
		if err := m.confirm(ctx, &c.rechecks, !more || len(c.rechecks) >= mostRechecks); err != nil {
			return err
		}
		if c.slow && more {
			if err := m.pause(ctx, c, cursor); err != nil {
				return err
			}
		}
	}
	if err := m.queueUnlisted(ctx, c); err != nil {
		return err
	}
	err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) { b.Round = format.Round{Ended: time.Now().UTC()} })
	if err != nil {
		return err
	}
	return m.o.Store.SetCompared(ctx, c.noted)
}

// pause spreads a slow comparison over its time, and stores how far it is. It ends the
// comparison where the stream has a hole: that one is not slow.
func (m *Manager) pause(ctx context.Context, c *comparison, cursor string) error {
	var counts format.Counts
	if err := m.o.Store.View(ctx, func(s *ask.View) (err error) { counts, err = s.Counts(); return err }); err != nil {
		return fmt.Errorf("counting the accounts: %w", err)
	}
	if c.listed%100_000 < mostListed || ctx.Err() != nil {
		if err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) { b.Round.Cursor, b.Round.Listed = cursor, c.listed }); err != nil {
			return err
		}
	}
	pages := counts.Accounts/pageSize + 1
	timer := time.NewTimer(min(m.o.CompareEvery/2/time.Duration(pages), time.Minute))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if noted, _ := m.o.Store.Holes(); noted > c.noted {
		return fmt.Errorf("the stream had a hole meanwhile: all repos are compared at once")
	}
	return nil
}

// comparePage takes what a page of the relay's list says of the accounts that are indexed here.
func (m *Manager) comparePage(ctx context.Context, c *comparison, repos []listed) error {
	c.listed += int64(len(repos))
	whole := m.o.Store.Backfill().Whole()
	var b batch.Batch
	err := m.o.Store.View(ctx, func(s *ask.View) error {
		b.Reset()
		accounts, err := m.lookUp(s, repos)
		if err != nil {
			return err
		}
		for i := range accounts {
			a := &accounts[i]
			if c.seen != nil && a.id != dict.None {
				c.seen.Add(uint64(a.id))
			}
			if a.known && a.listed.Active != nil {
				b.AddStatus([]byte(a.listed.DID), *a.listed.Active)
			}
			if a.listed.Active != nil && !*a.listed.Active {
				continue
			}
			switch {
			case a.row != nil && a.row.State != format.ResyncWaiting: // its host may have come back since it was given up
				b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "listed", Told: a.rev})
			case a.known && a.state.Has(format.FlagHasRev) && a.rev != a.state.Rev, whole && !a.state.Has(format.FlagHasRev):
				c.rechecks = append(c.rechecks, recheck{did: a.listed.DID, listed: a.rev, index: a.state.Rev, told: true, since: time.Now()})
			case whole && a.row == nil && !a.state.Whole():
				b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "partial", Told: a.rev})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("comparing a page of the relay's list: %w", err)
	}
	if err := m.o.Store.Apply(ctx, "", &b); err != nil {
		return fmt.Errorf("queueing what is missing: %w", err)
	}
	return nil
}

// listedAccount is a repo of a list, and what the index has of it.
type listedAccount struct {
	listed *listed
	rev    format.Rev // 0: it is malformed
	id     dict.ID
	known  bool
	state  format.RepoState
	row    *format.Resync
}

// lookUp returns what the index has of the repos of a page that are indexed here.
func (m *Manager) lookUp(s *ask.View, repos []listed) (accounts []listedAccount, err error) {
	var ids intern.Batch
	var at []int
	for i := range repos {
		r := &repos[i]
		if !syntax.ValidDID([]byte(r.DID)) || !m.o.Store.Owns([]byte(r.DID)) {
			continue
		}
		a := listedAccount{listed: r}
		if rev, ok := syntax.ParseTID([]byte(r.Rev)); ok {
			a.rev = format.Rev(rev)
		}
		accounts = append(accounts, a)
		at = append(at, ids.Add(dict.DID, []byte(r.DID)))
	}
	if err := s.Lookup(&ids); err != nil {
		return nil, err
	}
	for i := range accounts {
		a := &accounts[i]
		if a.id = ids.ID(at[i]); a.id == dict.None {
			continue
		}
		if a.state, a.known, a.row, err = s.AccountAndQueue(a.id); err != nil {
			return nil, err
		}
	}
	return accounts, nil
}

// confirm looks again at repos that were listed with another rev than the index had, once the
// stream has had time to tell of it, and queues those of which it has not. It waits until that
// is so of all, if it is to, else it looks at those that are due.
func (m *Manager) confirm(ctx context.Context, rechecks *[]recheck, all bool) error {
	for len(*rechecks) > 0 {
		due := 0
		for due < len(*rechecks) && time.Since((*rechecks)[due].since) >= m.settle() {
			due++
		}
		if due == 0 || !m.isLive() {
			if !all {
				return nil
			}
			select {
			case <-time.After(max(m.settle()/10, 5*time.Millisecond)):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		due = min(due, pageSize)
		if err := m.confirmDue(ctx, (*rechecks)[:due]); err != nil {
			return err
		}
		*rechecks = (*rechecks)[due:]
	}
	*rechecks = nil
	return nil
}

// isLive reports whether all that the relay has sent is applied, or nearly.
func (m *Manager) isLive() bool { return m.o.Live == nil || m.o.Live() }

func (m *Manager) confirmDue(ctx context.Context, due []recheck) error {
	var b batch.Batch
	err := m.o.Store.View(ctx, func(s *ask.View) error {
		b.Reset()
		for i := range due {
			c := &due[i]
			st, _, row, err := s.Account(c.did)
			if err != nil {
				return err
			}
			cause := batch.Cause{Host: c.host}
			switch {
			case st.DeletionSource != 0 && st.Has(format.FlagHidden):
				continue // the stream says that it was deleted
			case !st.Has(format.FlagHasRev):
				cause.Reason = "unknown"
			case c.listed > st.Rev:
				cause.Reason = "rev_differs"
			case c.listed < st.Rev && st.Rev == c.index && c.told && c.listed != 0:
				cause.Reason, cause.Back = "rev_lower", c.listed
			default:
				continue // the stream has told of it
			}
			if c.told && cause.Back == 0 {
				cause.Told = c.listed
			}
			if row != nil && row.State == format.ResyncWaiting && (row.Told >= c.listed || cause.Back != 0 && row.Back.Rev == cause.Back) {
				continue // it is queued for as much
			}
			b.AddResync([]byte(c.did), cause)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("comparing repos again: %w", err)
	}
	if err := m.o.Store.Apply(ctx, "", &b); err != nil {
		return fmt.Errorf("queueing what is missing: %w", err)
	}
	return nil
}

// queueUnlisted has the hosts of those accounts asked that the index shows and the relay does
// not list: their taking down, or their deletion, may have been in a hole.
func (m *Manager) queueUnlisted(ctx context.Context, c *comparison) error {
	if c.seen == nil {
		return nil
	}
	queued := 0
	for from := dict.ID(0); ; {
		var ids []dict.ID
		var b batch.Batch
		err := m.o.Store.View(ctx, func(s *ask.View) error {
			ids = ids[:0]
			next := dict.None
			if err := s.EachAccount(from, func(id dict.ID, st *format.RepoState) bool {
				if next = id; !st.Has(format.FlagHidden) && !st.Has(format.FlagResync) && !c.seen.Contains(uint64(id)) {
					ids = append(ids, id)
				}
				return len(ids) < pageSize
			}); err != nil {
				return err
			}
			from = next + 1
			return s.Strings(dict.DID, ids, func(_ int, did []byte) error {
				b.AddResync(did, batch.Cause{Reason: "not_listed"})
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("looking for accounts that are not listed: %w", err)
		}
		if err := m.o.Store.Apply(ctx, "", &b); err != nil {
			return fmt.Errorf("queueing accounts that are not listed: %w", err)
		}
		if queued += len(ids); len(ids) < pageSize {
			break
		}
		if err := m.awaitRoom(ctx, ""); err != nil {
			return err
		}
	}
	if queued > 0 {
		m.log.Info("accounts that the index shows are not in the relay's list: their hosts are asked", "accounts", queued)
	}
	return nil
}
