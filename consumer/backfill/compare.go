package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skein.blue/internal/say"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// A comparer makes comparisons with the relay's list of repos, and checks repos again whose listed
// revs differ from the index.
type comparer struct {
	o      *Options
	queue  *Queue
	client *client
	jobs   *jobs
	grower *grower // nil unless the store holds a part of the network
}

// A comparison reads the relay's list of repos, and queues those whose newest state the index does not have: after a hole in the
// stream, and slowly once a week, because a relay that is killed loses events without a hole.
//
// A repo whose listed rev differs from the index is not queued at once, because the stream may be about to bring the commit. The
// comparison checks it again after the stream has had time for that: once everything that the relay sends is applied, or after
// mostSettle. A page whose revs are lower may have been made before the stream brought later commits, so the comparison requests it
// again before it believes that a repo was put back. It never compares a clock with a rev.
type comparison struct {
	slow     bool
	noted    uint64           // number of holes at the start
	seen     roaring64.Bitmap // the listed accounts
	rechecks []recheck
	listed   int64
}

// A recheck is a repo whose listed rev differed from the index.
type recheck struct {
	did     string
	listed  batch.Rev
	index   batch.Rev // the rev in the index then
	page    string    // the cursor that requested the page, if the relay listed the repo
	again   bool      // listed is from a page that was requested after the index had its rev
	host    string    // the host that listed it; "" for the relay
	trusted bool      // the lister is trusted
	since   time.Time // by the monotonic clock
}

// slowPage is how long a slow comparison waits between two pages: five hours in all for forty million repos.
const slowPage = 500 * time.Millisecond

// mostRechecks bounds the waiting rechecks: reading the list waits when there are so many, and mostSettle how long they wait for a stream
// that never counts as live, because this machine's clock is fast or the relay always late.
const mostRechecks, mostSettle = 50_000, time.Hour

// holeEvery is how often to look for holes, unless Options.Settle is less.
const holeEvery = 5 * time.Second

// watchHoles compares all repos after each hole in the stream, and otherwise once in
// Options.CompareEvery.
func (m *comparer) watchHoles(ctx context.Context) {
	began := time.Now()
	var hole uint64
	var since time.Time
	for m.o.Relay != "" || m.grower != nil {
		noted, compared := m.o.Store.Holes()
		switch {
		case noted <= compared && m.o.Store.Backfill().Roster.Unconfirmed:
			m.o.Logger.Info("an archive was read, or lists beside a hole or a did:web site that does not answer: comparing all repos with the relay's list; until the end, answers about everybody say that they are incomplete")
			m.compare(ctx, &comparison{noted: noted})
		case noted <= compared:
			every, ago := m.o.CompareEvery, time.Since(m.o.Store.Backfill().Round.Ended) // below 0: the clock was wrong
			if every > 0 && time.Since(began) > min(10*time.Minute, every) && (ago >= every || ago < 0) {
				m.compare(ctx, &comparison{slow: true, noted: noted})
			}
		case noted != hole:
			hole, since = noted, time.Now()
		case time.Since(since) <= m.o.Settle:
		case m.grower != nil:
			m.grower.heal(ctx, noted)
		default:
			m.o.Logger.Info("hole in the stream: comparing all repos with the relay's list; until the end, answers say that they are incomplete", "holes", noted)
			if m.compare(ctx, &comparison{noted: noted}) {
				continue
			}
		}
		if outward.Wait(ctx, min(holeEvery, m.o.Settle)) != nil {
			return
		}
	}
}

// compare makes a comparison, and reports whether it is complete.
func (m *comparer) compare(ctx context.Context, c *comparison) (ended bool) {
	if !c.slow {
		if _, err := m.jobs.reserve(jobComparison); err != nil { // Run has ended
			return false
		}
	}
	err := m.compareAll(ctx, c)
	m.jobs.end(jobComparison, outcomeOf(ctx, err))
	switch {
	case ctx.Err() != nil:
	case err != nil:
		m.o.Logger.Warn("comparison with the relay's list failed; retrying", "relay", m.o.Relay, "error", say.Short(err.Error()))
	default:
		m.o.Logger.Info("comparison with the relay's list complete", "listed", c.listed, "queued", m.queue.waiting())
	}
	return err == nil && ctx.Err() == nil
}

func (m *comparer) compareAll(ctx context.Context, c *comparison) error {
	cursor, began := "", m.o.Store.Backfill().Roster
	for more := true; more; {
		if err := m.queue.awaitRoom(ctx, "", nil, 0); err != nil {
			return err
		}
		page, err := m.client.page(ctx, m.o.Relay, cursor)
		if err != nil {
			return err
		}
		if err := m.comparePage(ctx, c, cursor, page.Repos); err != nil {
			return err
		}
		more = page.more(cursor)
		cursor = page.Cursor
		if err := m.confirm(ctx, &c.rechecks, !more || len(c.rechecks) >= mostRechecks); err != nil {
			return err
		}
		if c.slow && more {
			if err := outward.Wait(ctx, min(m.o.CompareEvery/1000, slowPage)); err != nil {
				return err
			}
			if noted, _ := m.o.Store.Holes(); noted > c.noted {
				return errors.New("a hole in the stream interrupted the slow comparison; comparing all repos now")
			}
		}
	}
	// The stream may have missed the takedown or deletion of an account that the relay does not list in a hole, or of an
	// inactive one what it wrote before, so its host is asked.
	unlisted, err := m.queue.addAccounts(ctx, m.o, dict.None, batch.Cause{Reason: "not_listed"}, func(id dict.ID, st *graph.RepoState) bool {
		return !st.Has(graph.FlagResync) && !c.seen.Contains(uint64(id)) && (st.DeletionSource == 0 || !st.Has(graph.FlagHidden))
	}, nil)
	if unlisted > 0 {
		m.o.Logger.Info("accounts missing from the relay's list; asking their hosts", "accounts", unlisted)
	}
	if err != nil {
		return err
	}
	confirms := false
	err = m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if r := &b.Roster; !r.Known() || began.Known() && (!r.Unconfirmed || began.Unconfirmed) {
			b.Round.Ended, r.Unconfirmed, r.Archived, confirms = time.Now().UTC(), false, false, true
		}
	})
	if err == nil && !confirms {
		err = errors.New("a list of all accounts was read meanwhile, which another comparison has to confirm")
	}
	if err != nil {
		return err
	}
	return m.o.Store.SetCompared(ctx, c.noted)
}

// comparePage compares one page of the relay's list, which cursor requested, with the accounts that
// are indexed here.
func (m *comparer) comparePage(ctx context.Context, c *comparison, cursor string, repos []listed) error {
	c.listed += int64(len(repos))
	roster := m.o.Store.Backfill().Roster // of accounts that it lacks, the hole may have hidden the beginning
	var b batch.Batch
	err := m.o.Store.View(ctx, func(s *graph.View) error {
		b.Reset()
		accounts, err := m.o.lookUp(s, repos)
		if err != nil {
			return err
		}
		for i := range accounts {
			a := &accounts[i]
			if a.id != dict.None {
				c.seen.Add(uint64(a.id))
			}
			if a.known && a.listed.Active != nil {
				b.AddStatus([]byte(a.listed.DID), *a.listed.Active)
			}
			inactive := a.listed.Active != nil && !*a.listed.Active
			switch {
			case inactive && !a.state.Has(graph.FlagHasRev) && (!roster.Known() || a.state.DeletionSource != 0):
			case inactive && (a.rev == 0 || !a.state.Has(graph.FlagHasRev)): // once it is back, it is fetched
				if a.row == nil || a.row.Told < a.rev {
					b.AddStatus([]byte(a.listed.DID), false)
					b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "listed_inactive", Told: a.rev})
				}
			case !inactive && a.row != nil && a.row.State != graph.ResyncWaiting: // its host may be back since the repo was given up
				b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "listed", Told: a.rev})
			case !inactive && a.row == nil && a.listed.Active != nil && a.state.Has(graph.FlagHidden): // the fetch asks whether it is active
				b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "listed_active"})
			case a.known && a.state.Has(graph.FlagHasRev) && a.rev != a.state.Rev,
				// A repo without a rev that is queued learns the listed rev, so that an older
				// snapshot is not accepted: its first commits may be in the hole.
				!a.state.Has(graph.FlagHasRev) && (roster.Known() || a.row != nil):
				c.rechecks = append(c.rechecks, recheck{did: a.listed.DID, listed: a.rev, index: a.state.Rev, page: cursor, trusted: true, since: time.Now()})
			case !inactive && roster.Known() && a.row == nil && !a.state.Whole():
				b.AddResync([]byte(a.listed.DID), batch.Cause{Reason: "partial", Told: a.rev})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("comparing a page of the relay's list: %w", err)
	}
	return m.o.apply(ctx, &b)
}

// listedAccount is a listed repo with its state in the index.
type listedAccount struct {
	listed *listed
	rev    batch.Rev // 0: malformed
	id     dict.ID
	known  bool
	state  graph.RepoState
	row    *graph.Resync
}

// lookUp returns the state of those repos of a page that are indexed here.
func (o *Options) lookUp(s *graph.View, repos []listed) (accounts []listedAccount, err error) {
	var ids intern.Batch
	var at []int
	for i := range repos {
		r := &repos[i]
		if !dict.ValidDID([]byte(r.DID)) || !o.Store.Owns([]byte(r.DID)) {
			continue
		}
		a := listedAccount{listed: r}
		if rev, ok := dict.ParseTID([]byte(r.Rev)); ok {
			a.rev = batch.Rev(rev)
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

// confirm checks repos again whose listed rev differed from the index, once the stream has had
// time to bring their commits, and queues those that still differ. With all it waits until
// every recheck is due, else it handles those that are due now.
func (m *comparer) confirm(ctx context.Context, rechecks *[]recheck, all bool) error {
	for len(*rechecks) > 0 {
		due := 0
		for due < len(*rechecks) && time.Since((*rechecks)[due].since) >= m.o.Settle {
			due++
		}
		if due == 0 || !m.o.Live() && time.Since((*rechecks)[0].since) < mostSettle {
			if !all {
				return nil
			}
			if err := outward.Wait(ctx, max(m.o.Settle/10, 5*time.Millisecond)); err != nil {
				return err
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

func (m *comparer) confirmDue(ctx context.Context, due []recheck) error {
	if err := m.listAgain(ctx, due); err != nil {
		return err
	}
	var b batch.Batch
	err := m.o.Store.View(ctx, func(s *graph.View) error {
		b.Reset()
		for i := range due {
			c := &due[i]
			st, _, row, err := s.Account(c.did)
			if err != nil {
				return err
			}
			cause := batch.Cause{Host: c.host}
			switch {
			case st.DeletionSource != 0 && st.Has(graph.FlagHidden):
				continue // the stream says that it was deleted
			case !st.Has(graph.FlagHasRev):
				cause.Reason = graph.NeverHeard
			case c.listed > st.Rev:
				cause.Reason = "rev_differs"
			case c.listed < st.Rev && st.Rev == c.index && c.trusted && c.listed != 0 && c.again:
				cause.Reason = "rev_lower"
				if m.o.Live() { // else the stream may yet bring what the index has
					cause.Back = c.listed
				}
			default:
				continue // the stream has brought the state
			}
			if c.trusted && cause.Back == 0 {
				cause.Told = c.listed
			}
			if row != nil && row.State == graph.ResyncWaiting && (row.Told >= c.listed || cause.Back != 0 && row.Back.Rev == cause.Back) {
				continue // already queued for the same reason
			}
			b.AddResync([]byte(c.did), cause)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rechecking repos: %w", err)
	}
	return m.o.apply(ctx, &b)
}

// listAgain requests the relay's pages again that list lower revs than the index has, and notes
// what they list now.
func (m *comparer) listAgain(ctx context.Context, due []recheck) error {
	revs := map[string]batch.Rev{}
	requested, isRequested := "", false
	for i := range due {
		c := &due[i]
		if c.host != "" || !c.trusted || c.listed == 0 || c.listed >= c.index {
			continue
		}
		if !isRequested || c.page != requested {
			page, err := m.client.page(ctx, m.o.Relay, c.page)
			if err != nil {
				return err
			}
			clear(revs)
			for _, r := range page.Repos {
				if rev, ok := dict.ParseTID([]byte(r.Rev)); ok {
					revs[r.DID] = batch.Rev(rev)
				}
			}
			requested, isRequested = c.page, true
		}
		c.listed, c.again = revs[c.did], true
		if c.listed >= c.index { // the first page was older than the index; the stream brings what is newer
			c.listed = 0
		}
	}
	return nil
}
