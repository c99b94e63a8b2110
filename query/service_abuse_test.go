package query_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/internal/identities"
	"skein.blue/internal/sim/harness"
)

// hangingDirectory counts look-ups. Those of evil hosts hang until they are given up, or the
// test ends.
type hangingDirectory struct {
	*identity.MockDirectory

	ended chan struct{}

	all, hanging, most atomic.Int64
}

func (d *hangingDirectory) LookupDID(ctx context.Context, did syntax.DID) (*identity.Identity, error) {
	d.all.Add(1)
	if !strings.Contains(did.String(), "evil") {
		return d.MockDirectory.LookupDID(ctx, did)
	}
	n := d.hanging.Add(1)
	defer d.hanging.Add(-1)
	for old := d.most.Load(); n > old && !d.most.CompareAndSwap(old, n); old = d.most.Load() {
	}
	select {
	case <-ctx.Done():
	case <-d.ended:
	}
	return nil, identity.ErrDIDResolutionFailed
}

// attack requests a feed with tokens of issuers whose hosts hang, and returns once atOnce look-ups
// hang. end waits for the requests to end.
func (w *feedWorld) attack(d *hangingDirectory, requests int, atOnce int64, issuer func(i int) string) (end func()) {
	w.t.Helper()
	tokens := make([]string, requests)
	for i := range tokens {
		tokens[i] = w.token(issuer(i), serviceDID, feedSkeleton, time.Minute, w.keys[w.history.Accounts()[0]])
	}
	var done sync.WaitGroup
	for _, token := range tokens {
		done.Go(func() { w.skeleton(url.Values{"feed": {feedURI("mine")}}, token) })
	}
	for until := time.Now().Add(4 * time.Second); d.hanging.Load() < atOnce; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			w.t.Errorf("%d look-ups hang, expected %d", d.hanging.Load(), atOnce)
			break
		}
	}
	return func() { close(d.ended); done.Wait() }
}

// Tokens whose issuers' hosts never answer delay only users of the same hosts.
func TestAbuseHangingIssuers(t *testing.T) {
	for _, c := range []struct {
		name     string
		requests int
		issuer   func(i int) string
		atOnce   int64
		others   []string // issuers whose keys are not kept
	}{
		{"one domain", harness.Size(100, 2000), func(i int) string { return fmt.Sprintf("did:web:h%d.evil.com", i) }, identities.ClientsOfDomain, []string{"did:plc:newaaaaaaaaaaaaaaaaaaaaa", "did:web:good.example.com"}},
		{"many domains", harness.Size(200, 2000), func(i int) string { return fmt.Sprintf("did:web:evil%d.com", i) }, identities.ClientsOfWeb, []string{"did:plc:newaaaaaaaaaaaaaaaaaaaaa"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFeedWorld(t, "mine = likes($viewer)\n")
			d := &hangingDirectory{MockDirectory: w.dir, ended: make(chan struct{})}
			w.serve(d)
			known := w.history.Accounts()[0]
			for _, did := range c.others {
				w.insert(did)
			}
			w.pages("mine", 50, known) // its key is kept from here on
			end := w.attack(d, c.requests, c.atOnce, c.issuer)
			defer end()
			began := time.Now()
			for _, viewer := range append(c.others, known) {
				w.pages("mine", 50, viewer) // fails the test unless it is answered
			}
			harness.Figure(t, c.name+": valid viewers answered beside hanging look-ups", "%d of %d in %d ms", len(c.others)+1, len(c.others)+1, time.Since(began).Milliseconds())
			if d.hanging.Load() == 0 {
				t.Error("nothing hung any more: the viewers were not answered beside it")
			}
			if n := d.most.Load(); n > c.atOnce {
				t.Errorf("%d look-ups hung at a time, at most %d may", n, c.atOnce)
			}
			harness.Figure(t, c.name+": look-ups that hang at a time", "%d for %d tokens", d.most.Load(), c.requests)
		})
	}
}

// A token that would be refused whatever its signature is costs nobody's host a look-up.
func TestAbuseRefusedTokens(t *testing.T) {
	w := newFeedWorld(t, "mine = likes($viewer)\n")
	d := &hangingDirectory{MockDirectory: w.dir, ended: make(chan struct{})}
	w.serve(d)
	key := w.keys[w.history.Accounts()[0]]
	n := harness.Size(100, 10_000)
	for i := range n {
		iss := fmt.Sprintf("did:plc:new%021d", i)
		iss = strings.NewReplacer("0", "a", "1", "b", "8", "c", "9", "d").Replace(iss)
		for _, token := range []string{
			w.token(iss, "did:web:other.example.com", feedSkeleton, time.Minute, key), w.token(iss, serviceDID, "app.bsky.feed.getTimeline", time.Minute, key), w.token(iss, serviceDID, feedSkeleton, -time.Minute, key),
		} {
			if status, s := w.skeleton(url.Values{"feed": {feedURI("mine")}}, token); status != 401 {
				t.Fatalf("%d %+v", status, s)
			}
		}
	}
	harness.Figure(t, "look-ups caused by tokens that are refused anyway", "%d for %d tokens", d.all.Load(), 3*n)
	if d.all.Load() > 0 {
		t.Errorf("%d look-ups", d.all.Load())
	}
	// A wrong signature of a known account has its key looked up again once, not each time.
	victim := w.history.Accounts()[1]
	for range n {
		if status, s := w.skeleton(url.Values{"feed": {feedURI("mine")}}, w.token(victim, serviceDID, feedSkeleton, time.Minute, key)); status != 401 {
			t.Fatalf("%d %+v", status, s)
		}
	}
	harness.Figure(t, "look-ups caused by wrong signatures of one account", "%d for %d tokens", d.all.Load(), n)
	if d.all.Load() > 2 {
		t.Errorf("%d look-ups for one account", d.all.Load())
	}
}
