package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/identities"
	"skein.blue/internal/sim/harness"
)

// stateOf returns the index's state of an account.
func (x *index) stateOf(t *testing.T, did string) (st format.RepoState, row *format.Resync) {
	t.Helper()
	st, _, row, err := x.m.o.account(t.Context(), did)
	must(t, err)
	return st, row
}

// fetched fetches the repos of accounts.
func (w *world) fetched(x *index, accounts ...*account) {
	w.t.Helper()
	var dids []string
	for _, a := range accounts {
		dids = append(dids, a.did)
	}
	must(w.t, x.m.Resync(w.t.Context(), batch.Cause{Reason: "test"}, dids...))
	x.settle(w.t)
}

// awaitComparison waits until the repos have been compared after the last hole.
func (x *index) awaitComparison(t *testing.T) {
	t.Helper()
	await(t, "a comparison", func() bool { return !x.uncompared() })
}

// deliver applies a batch that fill has filled, as from the stream.
func (x *index) deliver(t *testing.T, fill func(b *batch.Batch)) {
	t.Helper()
	var b batch.Batch
	fill(&b)
	must(t, x.g.Apply(t.Context(), "stream", &b))
}

// An account that has moved is fetched from its new host, although the cached document is from
// before the move, and its old host says that it is inactive, or sends an older state; nor does the list
// of the old host hide it, even if an operator named that host.
func TestMoved(t *testing.T) {
	w := newWorld(t, 2)
	a, rng := w.add(0, 5), rand.New(rand.NewPCG(7, 7))
	old, now := w.hosts[0], w.hosts[1]
	x := w.index(newStore(), func(o *Options) { o.TrustHosts = false })
	if host, err := x.m.client.resolve(t.Context(), a.did); err != nil || host != old.srv.URL { // the document is cached now
		t.Fatalf("%s: %v", host, err)
	}
	w.mu.Lock()
	a.host = now
	old.left = append(old.left, a)
	w.mu.Unlock()
	w.fetched(x, a)
	if st, row := x.stateOf(t, a.did); !st.Complete() || st.Has(format.FlagHidden) {
		t.Errorf("after the move: %+v, queued: %+v", st, row)
	}
	must(t, x.m.Hosts(t.Context(), old.srv.URL))
	x.settle(t)
	if st, row := x.stateOf(t, a.did); !st.Complete() || st.Has(format.FlagHidden) {
		t.Errorf("after the list of its old host: %+v, queued: %+v", st, row)
	}
	before := w.sent(a)
	old.wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool {
		_, err := rw.Write(before)
		return err == nil
	}
	x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) })
	w.commit(rng, a, nil)
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test", Host: old.srv.URL}, a.did))
	x.settle(t)
	if st, row := x.stateOf(t, a.did); uint64(st.Rev) != a.rev || row != nil {
		t.Errorf("after an older state of its old host: %+v, queued: %+v", st, row)
	}
	// Its new host takes it down, which counts.
	w.change(func() { a.active = false })
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
	x.settle(t)
	if st, _ := x.stateOf(t, a.did); !st.Has(format.FlagHidden) {
		t.Errorf("its host says that it is inactive: %+v", st)
	}
}

// The relay's list, and the hosts of accounts that it does not list, show how accounts changed
// in a hole of the stream: taken down, deactivated, deleted, restored and reactivated. Until
// then no account is called complete; afterwards the stream counts again.
func TestStatusInHole(t *testing.T) {
	w := newWorld(t, 2)
	var all []*account
	for i := range 8 {
		all = append(all, w.add(i, 3))
	}
	takenDown, deactivated, deleted, restored, reactivated := all[0], all[1], all[2], all[3], all[4]
	x := w.index(newStore(), nil)
	w.fetched(x, all...)
	status := func(b *batch.Batch, a *account, isActive bool) {
		w.seq++
		b.AddAccount(w.seq, []byte(a.did), isActive, false)
		b.Seen(w.seq, nil)
	}
	x.deliver(t, func(b *batch.Batch) {
		for _, a := range all {
			a.active = a != restored && a != reactivated
			status(b, a, a.active)
		}
	})
	w.mu.Lock()
	for _, a := range []*account{takenDown, deactivated} {
		a.active = false
	}
	restored.active, reactivated.active = true, true
	delete(w.repos, deleted.did)
	hold := make(chan struct{})
	w.hold = hold
	w.mu.Unlock()
	x.deliver(t, func(b *batch.Batch) {
		b.AddGap(format.Gap{Reason: "outdated_cursor", After: w.seq, Time: time.Now().Add(-48 * time.Hour), Suspect: true}) // the clock is behind
	})
	if !x.uncompared() {
		t.Error("the hole does not count")
	}
	w.change(func() { w.hides = map[string]bool{all[5].did: true} })
	x.deliver(t, func(b *batch.Batch) { status(b, all[5], false) }) // the list still says that it is active
	close(hold)
	x.awaitComparison(t)
	x.settle(t)
	await(t, "the deleted account to be hidden", func() bool { st, _ := x.stateOf(t, deleted.did); return st.Has(format.FlagHidden) })
	for i, a := range all {
		want := a == takenDown || a == deactivated || a == deleted || a == all[5]
		if st, row := x.stateOf(t, a.did); st.Has(format.FlagHidden) != want {
			t.Errorf("account %d: hidden %v, want %v; queued: %+v", i, st.Has(format.FlagHidden), want, row)
		}
	}
	// Another hole, noted while the clock is far ahead, and one after it.
	for _, ahead := range []time.Duration{1000 * time.Hour, 0} {
		rng := rand.New(rand.NewPCG(uint64(ahead), 1))
		w.commit(rng, all[6], nil)
		x.deliver(t, func(b *batch.Batch) {
			b.AddGap(format.Gap{Reason: "outdated_cursor", After: w.seq, Time: time.Now().Add(ahead), Suspect: true})
		})
		x.awaitComparison(t)
		x.settle(t)
		if st, _ := x.stateOf(t, all[6].did); uint64(st.Rev) != all[6].rev || !st.Complete() {
			t.Errorf("after a hole noted %v ahead: %+v", ahead, st)
		}
	}
}

// A listed repo is checked again though the stream never counts as live: this machine's clock may be fast. But a lower rev is then no
// evidence that the repo was put back: the relay may be hours behind.
func TestNeverLive(t *testing.T) {
	const newer, older = "did:web:a.example.com", "did:web:b.example.com"
	m := idle(t, Options{Live: func() bool { return false }})
	var b batch.Batch
	b.AddCommit(1, &batch.Commit{DID: []byte(older), Rev: []byte("222222222222d"), Data: make([]byte, 32)})
	must(t, m.o.Store.Apply(t.Context(), "relay", &b))
	ctx, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	since := time.Now().Add(-mostSettle)
	must(t, m.comparer.confirm(ctx, &[]recheck{
		{did: newer, listed: 7, trusted: true, since: since}, {did: older, listed: 7, index: 9, again: true, host: "http://127.0.0.1:1", trusted: true, since: since},
	}, true))
	if row, other := rowOf(t, m, newer), rowOf(t, m, older); row == nil || row.Told != 7 || other == nil || !other.Back.IsZero() {
		t.Errorf("queued: %+v, %+v", row, other)
	}
}

// A backfill by an operator also compares: it fetches complete repos whose commits the stream
// missed unnoticed, and no others.
func TestBackfillCompares(t *testing.T) {
	w := newWorld(t, 2)
	var all []*account
	for i := range 12 {
		all = append(all, w.add(i, 3))
	}
	x := w.index(newStore(), nil)
	w.fetched(x, all...)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, a := range all[:5] {
		w.commit(rng, a, nil)
	}
	before := x.m.fetcher.fetched.Load()
	must(t, x.m.Hosts(t.Context()))
	if st := x.settle(t); st.Complete != 12 || x.m.fetcher.fetched.Load()-before != 5 {
		t.Errorf("fetched %d repos, and 5 are behind: %+v", x.m.fetcher.fetched.Load()-before, st)
	}
	x.has(t, w)
}

// A relay that is killed loses events without a gap. The slow comparison of the daemon finds
// them.
func TestRounds(t *testing.T) {
	w := newWorld(t, 2)
	var all []*account
	for i := range 30 {
		all = append(all, w.add(i, 3))
	}
	store := newStore()
	x := w.index(store, nil)
	w.fetched(x, all...)
	x.end()
	rng := rand.New(rand.NewPCG(2, 2))
	for _, a := range []*account{all[1], all[20], all[29]} {
		w.commit(rng, a, nil)
	}
	x = w.index(store, func(o *Options) { o.CompareEvery = 50 * time.Millisecond })
	await(t, "the repos that were behind", func() bool {
		return !slices.ContainsFunc(all, func(a *account) bool {
			st, _ := x.stateOf(t, a.did)
			return uint64(st.Rev) != a.rev || !st.Complete()
		})
	})
	x.settle(t)
	x.has(t, w)
	if at := x.m.StatusNow().Compared; time.Since(at) > time.Minute {
		t.Errorf("the last comparison ended at %v", at)
	}
}

// A host lists repos without end. Nothing is stored of repos on other hosts, the number of
// requests to the PLC directory is bounded, and a comparison after a hole does not wait for the
// list.
func TestAbuseEndlessList(t *testing.T) {
	w := newWorld(t, 2)
	mine := w.add(1, 3)
	var pages, looked atomic.Int64
	w.lookedUp = &looked
	w.hosts[0].endless = func() []any {
		page := pages.Add(1)
		var list []any
		for i := range 1000 {
			list = append(list, map[string]any{"did": fmt.Sprintf("did:plc:%024s", strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(fmt.Sprint(1_000_000_000+page*1000+int64(i)))), "rev": "3mb2kxx5ts22a", "active": true})
			if s, _ := list[i].(map[string]any)["did"].(string); strings.Contains(s, " ") {
				list[i] = map[string]any{"did": strings.ReplaceAll(s, " ", "z"), "rev": "3mb2kxx5ts22a", "active": true}
			}
		}
		return list
	}
	x := w.index(newStore(), func(o *Options) { o.TrustHosts = false })
	w.fetched(x, mine)
	must(t, x.m.Hosts(t.Context()))
	rng := rand.New(rand.NewPCG(4, 4))
	w.commit(rng, mine, nil)
	x.deliver(t, func(b *batch.Batch) {
		b.AddGap(format.Gap{Reason: "outdated_cursor", Time: time.Now(), Suspect: true})
	})
	x.awaitComparison(t)
	x.settle(t)
	st := x.settle(t)
	if looks := looked.Load(); looks > mostForeign+100 || st.Accounts != 1 || st.Waiting != 0 || st.Ended["repos"] != "1 of 2 hosts could not be listed" {
		t.Errorf("%d requests to the directory; %+v", looks, st)
	}
	harness.Figure(t, "look-ups of an endless list", "%d (before: one for each DID, forever)", looked.Load())
	harness.Figure(t, "DIDs interned from it", "%d (before: all)", st.Accounts-1)
	x.has(t, w)
}

// drip sends an account's repo byte after byte, until its client leaves or end is closed.
func (w *world) drip(rw http.ResponseWriter, r *http.Request, a *account, end chan struct{}) {
	for _, c := range w.sent(a) {
		if _, err := rw.Write([]byte{c}); err != nil {
			return
		}
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// Hosts of several domains that send their repos as slowly as is allowed hold all fetchers only until another domain's repo
// has waited for one for IdleTimeout.
func TestAbuseSharedFetchers(t *testing.T) {
	w := newWorld(t, 3)
	var others []*account
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	var held atomic.Int64
	for host := range 2 {
		for i := range 20 {
			w.add(3*i+host, 20)
		}
		w.hosts[host].wrong = func(rw http.ResponseWriter, r *http.Request, a *account) bool {
			held.Add(1)
			defer held.Add(-1)
			w.drip(rw, r, a, end)
			return true
		}
	}
	x := w.index(newStore(), func(o *Options) {
		o.Fetchers, o.PerHost, o.MinRate, o.IdleTimeout, o.RepoTimeout = 8, 8, 1, time.Second, time.Hour
	})
	must(t, x.m.Hosts(t.Context()))
	await(t, "the slow hosts to hold all fetchers", func() bool { return held.Load() >= 8 })
	for i := range 30 {
		others = append(others, w.add(3*i+2, 3))
	}
	began := time.Now()
	await(t, "the first lists to be read", func() bool { return x.m.Hosts(t.Context()) == nil })
	await(t, "the repos of another host", func() bool {
		return !slices.ContainsFunc(others, func(a *account) bool { st, _ := x.stateOf(t, a.did); return !st.Complete() })
	})
	harness.Figure(t, "30 repos of a host beside two slow domains with all fetchers", "fetched after %v", time.Since(began).Round(100*time.Millisecond))
	if held.Load() < 5 {
		t.Errorf("the slow hosts hold only %d of 8 fetchers; one of them was enough", held.Load())
	}
	x.end()
}

// writeJSON answers with JSON.
func writeJSON(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// strangers are the keys of accounts that did not sign their repos.
type strangers struct{ key atcrypto.PublicKey }

// Key implements proof.Keys.
func (s strangers) Key(context.Context, indigo.DID) (atcrypto.PublicKey, error) { return s.key, nil }

// Renew implements proof.Keys.
func (s strangers) Renew(context.Context, indigo.DID) (atcrypto.PublicKey, bool, error) {
	return nil, false, nil // it was looked up lately
}

// Cached implements proof.Keys.
func (s strangers) Cached(indigo.DID) (atcrypto.PublicKey, bool) { return nil, false }

// Forget implements proof.Keys.
func (s strangers) Forget(indigo.DID) {}

// unreachable are keys that cannot be looked up now.
type unreachable struct{ strangers }

// Key implements proof.Keys.
func (unreachable) Key(context.Context, indigo.DID) (atcrypto.PublicKey, error) {
	return nil, identities.ErrUnreachable
}

// A directory that does not answer takes no tries from the repos, which wait for it and are not
// fetched before it answers.
func TestUnreachableKeys(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(0, 4)
	var fetched atomic.Int64
	a.host.wrong = func(http.ResponseWriter, *http.Request, *account) bool { fetched.Add(1); return false }
	x := w.index(newStore(), func(o *Options) { o.Tries, o.Verifier = 2, proof.NewVerifier(unreachable{}) })
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
	waiting := func() (due time.Time, ok bool) {
		x.m.queue.mu.Lock()
		defer x.m.queue.mu.Unlock()
		j := x.m.queue.sched.jobs[a.did]
		if j == nil {
			return due, false
		}
		return j.due, j.busy == 1 && !j.running
	}
	var due time.Time
	await(t, "the repo to wait for the directory", func() (ok bool) { due, ok = waiting(); return ok })
	if wait := time.Until(due); wait < keyWait/3 || wait > keyWait {
		t.Errorf("fetched again after %v", wait)
	}
	if row := rowOf(t, x.m, a.did); row == nil || row.Tries != 0 || row.State != format.ResyncWaiting || fetched.Load() > 0 {
		t.Errorf("%+v, fetched %d times", row, fetched.Load())
	}
	x.m.queue.mu.Lock()
	defer x.m.queue.mu.Unlock()
	if h := x.m.queue.sched.hosts[a.host.srv.URL]; h == nil || h.inFlight != 0 || h.domain.inFlight != 0 {
		t.Errorf("fetches of its host: %+v", h)
	}
}

// A directory that refuses for long, or fails, takes no tries from the repos either, which wait.
func TestRefusedDocuments(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError} {
		w := newWorld(t, 1)
		a := w.add(0, 4)
		w.dir.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "60")
			rw.WriteHeader(status)
		})
		x := w.index(newStore(), func(o *Options) { o.Tries, o.Relay = 1, "" })
		must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
		waits := func() bool {
			x.m.queue.mu.Lock()
			defer x.m.queue.mu.Unlock()
			j := x.m.queue.sched.jobs[a.did]
			return j != nil && j.busy == 1 && !j.running
		}
		await(t, "the repo to wait for the directory", waits)
		if row := rowOf(t, x.m, a.did); row.State != format.ResyncWaiting || row.Tries > 0 {
			t.Errorf("%d: %+v", status, row)
		}
	}
}

// With a Verifier, a repo that the account's key did not sign is not indexed, wherever it comes
// from, and an archive is not read.
func TestUnsignedRepo(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 12)
	w.lookedUp = new(atomic.Int64)
	private, err := atcrypto.GeneratePrivateKeyK256()
	must(t, err)
	public, err := private.PublicKey()
	must(t, err)
	x := w.index(newStore(), func(o *Options) {
		o.Relay, o.Tries, o.Retry = "", 2, time.Millisecond
		o.Verifier = proof.NewVerifier(strangers{public})
	})
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
	if st := x.settle(t); st.Failed[failUnsigned] != 1 || st.Fetched != 0 || w.lookedUp.Load() != 3 { // it may have moved
		t.Errorf("%+v, its document was read %d times", st, w.lookedUp.Load())
	}
	if st, row := x.stateOf(t, a.did); st.Has(format.FlagHasRev) || row == nil || row.Failure != failUnsigned || !strings.Contains(row.Detail, "("+string(wire.BadSignature)+")") {
		t.Errorf("%+v, %+v", st, row)
	}
	if p, err := x.m.PlaceCAR(t.Context(), strings.NewReader(string(a.car()))); err == nil || !strings.Contains(err.Error(), "--verify full") {
		t.Errorf("a file: %+v, %v", p, err)
	}
	if err := x.m.Archive(t.Context(), "https://archive.example.com"); !errors.Is(err, errUnsigned) {
		t.Errorf("an archive: %v", err)
	}
}

// A relay may repair an account's status without an #account. A commit of a hidden account, a list, or an operator
// is a reason to ask its host and the relay; it is shown if neither says that it is inactive.
func TestHiddenAccountIsAskedAbout(t *testing.T) {
	w := newWorld(t, 1)
	x := w.index(newStore(), nil)
	var all []*account
	for i := range 9 {
		all = append(all, w.add(i, 3))
	}
	w.fetched(x, all...)
	begun := w.seq
	x.deliver(t, func(b *batch.Batch) {
		for i, a := range all {
			w.seq++
			b.AddAccount(w.seq, []byte(a.did), false, i == 4 || i == 5)
			b.Seen(w.seq, nil)
		}
	})
	for x.g.Erasing() {
		must(t, x.g.EraseSlice(t.Context()))
	}
	w.hosts[0].wrong = func(rw http.ResponseWriter, r *http.Request, a *account) bool { // it sends the repo anyway
		if a != all[1] || !strings.HasSuffix(r.URL.Path, "getRepoStatus") {
			return false
		}
		writeJSON(rw, map[string]any{"did": a.did, "active": false, "status": "deactivated"})
		return true
	}
	w.mu.Lock()
	w.hides = map[string]bool{all[2].did: true}
	delete(w.repos, all[5].did)
	w.mu.Unlock()
	rng := rand.New(rand.NewPCG(4, 4))
	commit := func(source string, seq format.Seq, a *account) {
		last := w.seq
		w.seq = seq - 1
		var b batch.Batch
		w.commit(rng, a, &b)
		w.seq = max(w.seq, last)
		must(t, x.g.Apply(t.Context(), source, &b))
	}
	shown := func(what string, want bool, a *account) {
		t.Helper()
		x.settle(t)
		if st, row := x.stateOf(t, a.did); st.Has(format.FlagHidden) == want || want && !st.Complete() {
			t.Errorf("%s: %+v, queued: %+v; want shown %v", what, st, row, want)
		}
	}
	for i, c := range []struct {
		what string
		want bool
	}{
		{"host and relay say that it is active", true},
		{"its host says inactive", false},
		{"the relay says inactive", false},
		{"a repeated commit", false},
		{"deleted, and there again", true},
		{"deleted", false},
		{"a commit from another source", false},
	} {
		switch i {
		case 3:
			commit("stream", begun, all[i])
		case 6:
			commit("other", w.seq+1, all[i])
		default:
			commit("stream", w.seq+1, all[i])
		}
		shown(c.what, c.want, all[i])
	}
	if st := x.m.StatusNow(); len(st.Failed) > 0 {
		t.Errorf("given up: %v", st.Failed)
	}
	w.fetched(x, all[7])
	shown("an operator asks", true, all[7])
	x.m.comparer.compare(t.Context(), &comparison{})
	shown("listed", true, all[8])
	shown("listed, and the relay says inactive", false, all[2])
}
