package backfill

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/query/evidence"
)

// missing returns what the index lacks of everybody's records.
func (x *index) missing(t *testing.T) (m *evidence.Missing) {
	t.Helper()
	must(t, x.g.View(t.Context(), func(sn *ask.View) error {
		known := evidence.IndexOf(sn)
		m = known.All()
		return nil
	}))
	return m
}

// lacksRoster checks that the index says that it may not know every account.
func (x *index) lacksRoster(t *testing.T, why string) {
	t.Helper()
	if m := x.missing(t); m == nil || m.Roster != 1 || !strings.Contains(m.Reason, why) {
		t.Errorf("missing is %+v, want a roster, because %s", m, why)
	}
}

// proven checks that everybody's records are complete, and that they are.
func (x *index) proven(t *testing.T, w *world) {
	t.Helper()
	x.settle(t)
	if m := x.missing(t); m != nil {
		t.Errorf("all is known, and missing is %+v", m)
	}
	x.has(t, w)
}

// sites have the documents of did:web. The first look-up fails.
type sites struct {
	identity.Directory

	asked atomic.Int64
	pds   string
}

func (s *sites) LookupDID(context.Context, syntax.DID) (*identity.Identity, error) {
	if s.asked.Add(1) == 1 {
		return nil, identity.ErrDIDResolutionFailed
	}
	return &identity.Identity{Services: map[string]identity.ServiceEndpoint{"atproto_pds": {URL: s.pds}}}, nil
}

// Claims of completeness that nothing proved, each once seen beside the reference PDS.
func TestNothingProvesIt(t *testing.T) {
	hole := func(x *index) {
		x.deliver(t, func(b *batch.Batch) {
			b.AddGap(format.Gap{Reason: "outdated_cursor", Time: time.Now(), Suspect: true})
		})
	}
	status := func(w *world, x *index, a *account, active bool) {
		w.change(func() { a.active = active })
		x.deliver(t, func(b *batch.Batch) {
			w.seq++
			b.AddAccount(w.seq, []byte(a.did), active, false)
			b.Seen(w.seq, nil)
		})
	}
	rng := rand.New(rand.NewPCG(1, 49))
	const reads = "has not read a list of all accounts"

	t.Run("a file of one repo", func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.add(0, 9)
		w.add(1, 9)
		x := w.index(newStore(), nil)
		_, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(a.car()))
		must(t, err)
		x.lacksRoster(t, reads)
		must(t, x.m.Hosts(t.Context()))
		x.proven(t, w)
	})
	t.Run("a live stream without history", func(t *testing.T) {
		w := newWorld(t, 1)
		w.add(0, 9)
		quiet := w.add(1, 9)
		w.seq = 100 // the stream began before
		x := w.index(newStore(), nil)
		x.lacksRoster(t, "nothing is indexed")
		status(w, x, quiet, true)
		x.lacksRoster(t, reads)
	})
	t.Run("an account made in a hole", func(t *testing.T) {
		for _, lists := range []bool{true, false} {
			w := newWorld(t, 2)
			x := w.index(newStore(), nil)
			if lists {
				w.add(0, 9)
				must(t, x.m.Hosts(t.Context()))
			} else {
				x.deliver(t, func(b *batch.Batch) { b.Seen(1, nil) }) // the stream from its first event
			}
			x.proven(t, w)
			w.add(1, 9)
			hole(x)
			x.awaitComparison(t)
			x.proven(t, w)
		}
	})
	t.Run("an account that wrote in a hole and was inactive at the comparison", func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.add(0, 9)
		w.add(1, 9)
		x := w.index(newStore(), nil)
		must(t, x.m.Hosts(t.Context()))
		x.proven(t, w)
		status(w, x, a, false)
		w.commit(rng, a, nil)
		hole(x)
		x.awaitComparison(t)
		x.settle(t)
		if st, _ := x.stateOf(t, a.did); st.Complete() {
			t.Errorf("it is complete: %+v", st)
		}
		status(w, x, a, true)
		x.proven(t, w)
	})
	t.Run("an account made in a hole, on a host that was listed before", func(t *testing.T) {
		w := newWorld(t, 2)
		w.add(0, 9)
		w.add(1, 9)
		w.hosts[1].gate = make(chan struct{})
		x := w.index(newStore(), nil)
		must(t, x.m.Hosts(t.Context()))
		await(t, "the first list", func() bool { return x.m.StatusNow().HostsDone == 1 })
		w.add(2, 9)
		hole(x)
		x.awaitComparison(t) // which knows of no list of all accounts
		close(w.hosts[1].gate)
		x.proven(t, w)
	})
	t.Run("a comparison that began before the end of an archive", func(t *testing.T) {
		w := newWorld(t, 1)
		for i := range 12 { // two pages
			w.add(i, 3)
		}
		w.hold, w.holdsLater = make(chan struct{}), true
		x := w.index(newStore(), nil)
		hole(x)
		await(t, "the second page to be asked for", w.held.Load)
		must(t, x.g.ChangeBackfill(t.Context(), func(b *graph.Backfill) {
			b.Roster = graph.Roster{AsOf: time.Now(), Source: graph.RosterArchive, Unconfirmed: true}
		}))
		close(w.hold)
		x.awaitComparison(t)
		x.proven(t, w)
	})
	t.Run("an archive that ends while the list of a host that was down is read", func(t *testing.T) {
		w := newWorld(t, 2)
		w.add(0, 9)
		w.add(1, 9)
		w.hosts[1].down.Store(true)
		x := w.index(newStore(), func(o *Options) { o.Tries = 1 })
		must(t, x.m.Hosts(t.Context()))
		await(t, "the list that fails", func() bool { return len(x.g.Backfill().Roster.Unlisted) == 1 })
		w.add(2, 9) // the archive lacks it
		w.hosts[1].gate = make(chan struct{})
		w.hosts[1].down.Store(false)
		must(t, x.m.Hosts(t.Context()))
		must(t, x.g.ChangeBackfill(t.Context(), func(b *graph.Backfill) {
			b.Roster = graph.Roster{AsOf: time.Now(), Source: graph.RosterArchive, Unconfirmed: true}
		}))
		close(w.hosts[1].gate)
		x.proven(t, w)
	})
	t.Run("an archive that lacks the end of a history", func(t *testing.T) {
		w := newWorld(t, 1)
		w.add(0, 9)
		x := w.index(newStore(), nil)
		must(t, x.g.ChangeBackfill(t.Context(), func(b *graph.Backfill) {
			b.Roster = graph.Roster{AsOf: time.Now(), Source: graph.RosterArchive, Unconfirmed: true}
		}))
		if m := x.missing(t); m != nil {
			x.lacksRoster(t, "has not yet compared")
		}
		await(t, "the comparison", func() bool { return !x.g.Backfill().Roster.Unconfirmed })
		x.proven(t, w)
	})
	t.Run("a host that is down", func(t *testing.T) {
		w := newWorld(t, 3)
		for i := range 12 {
			w.add(i, 3)
		}
		w.hosts[1].down.Store(true)
		w.hosts[2].down.Store(true)
		x := w.index(newStore(), func(o *Options) { o.Tries = 1 })
		must(t, x.m.Hosts(t.Context()))
		x.lacksRoster(t, "is reading the lists")
		x.settle(t)
		if m := x.missing(t); m == nil || m.Roster != 2 || !strings.Contains(m.Reason, w.hosts[1].srv.URL) {
			t.Errorf("missing is %+v, want two hosts", m)
		}
		maps.DeleteFunc(w.repos, func(_ string, a *account) bool { return a.host == w.hosts[2] })
		w.hosts = w.hosts[:2] // the relay no longer lists the third
		must(t, x.m.Hosts(t.Context()))
		x.settle(t)
		x.lacksRoster(t, w.hosts[1].srv.URL)
		w.hosts[1].down.Store(false)
		must(t, x.m.Hosts(t.Context()))
		x.proven(t, w)
		w.add(13, 3) // nobody has read a list since; the relay, which did not list its hosts, failed to list their repos
		must(t, x.g.ChangeBackfill(t.Context(), func(b *graph.Backfill) { b.Roster.Unlisted = []string{x.m.o.Relay} }))
		must(t, x.m.Hosts(t.Context()))
		x.proven(t, w)
		must(t, x.g.ChangeBackfill(t.Context(), func(b *graph.Backfill) { // partitions moved here while a list was read
			b.Hosts, b.Roster.Unlisted = map[string]graph.HostBackfill{w.hosts[0].srv.URL: {}}, []string{w.hosts[0].srv.URL, w.hosts[1].srv.URL}
		}))
		x.end()
		x = w.index(x.store, nil)
		await(t, "the end of the list", func() bool { return len(x.g.Backfill().Hosts) == 0 })
		x.lacksRoster(t, "the accounts of 1 host may be unknown, because skein could not read all lists: "+w.hosts[1].srv.URL)
	})
	t.Run("a site of did:web that was down while lists were read", func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.add(0, 9)
		delete(w.repos, a.did)
		a.did, a.packed = "did:web:a.example.com", nil
		w.repos[a.did] = a
		x := w.index(newStore(), func(o *Options) { o.TrustHosts = false })
		x.m.client.directory = &sites{pds: w.hosts[0].srv.URL}
		must(t, x.m.Hosts(t.Context()))
		await(t, "the lists", func() bool { return x.g.Backfill().Roster.Known() })
		x.proven(t, w)
	})
	t.Run("an account that wrote while it was inactive", func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.add(0, 9)
		x := w.index(newStore(), nil)
		must(t, x.m.Hosts(t.Context()))
		x.proven(t, w)
		status(w, x, a, false)
		w.commit(rng, a, nil) // which relays drop
		status(w, x, a, true)
		if st, _ := x.stateOf(t, a.did); st.Complete() {
			t.Errorf("it is complete: %+v", st)
		}
		must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "now"}, a.did)) // without the wait for a #sync
		x.proven(t, w)
		status(w, x, a, false)
		status(w, x, a, true)
		x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) }) // it continues from what is indexed
		if m := x.missing(t); m != nil {
			t.Errorf("it went on from the state that the index has, and missing is %+v", m)
		}
		x.has(t, w)
	})
}
