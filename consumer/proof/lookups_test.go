package proof

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/wire"
	"skein.blue/internal/identities"
	"skein.blue/internal/sim/harness"
)

// plcOver is a did:plc directory in memory, whose answers come after 30 ms.
type plcOver struct {
	mu      sync.Mutex
	keys    map[string]atcrypto.PublicKey
	refuses func(asked int) bool
	after   string // Retry-After
	asked   int
}

// refuse sets when the directory answers 429, and with which Retry-After. It returns the number of requests so far.
func (p *plcOver) refuse(after string, when func(asked int) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses, p.after = when, after
	return p.asked
}

// RoundTrip implements http.RoundTripper.
func (p *plcOver) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(30 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	resp := &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}
	did := strings.TrimPrefix(req.URL.Path, "/")
	switch key := p.keys[did]; {
	case p.refuses(p.asked):
		resp.StatusCode = http.StatusTooManyRequests
		if p.after != "" {
			resp.Header.Set("Retry-After", p.after)
		}
	case key != nil:
		resp.StatusCode = http.StatusOK
		resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"id":%q,"verificationMethod":[{"id":"#atproto","type":"Multikey","controller":%[1]q,"publicKeyMultibase":%q}]}`, did, key.Multibase())))
	}
	return resp, nil
}

// The commits of accounts whose keys are not known wait for their turns at the directory, longer than the patience with a
// directory that does not answer, and for a short pause that it asks for. When it refuses for longer, they end as unreachable,
// after a bounded time and with few requests, and are verified once it is back.
func TestAbuseRationedKeys(t *testing.T) {
	const accounts = 2000
	never := func(int) bool { return false }
	p := &plcOver{keys: map[string]atcrypto.PublicKey{}, refuses: never}
	did := func(i int) string {
		return "did:plc:" + strings.NewReplacer("0", "w", "1", "x", "8", "y", "9", "z").Replace(fmt.Sprintf("%024d", i))
	}
	var blocks [][]byte
	for i := range accounts {
		block, key := signedBy(t, did(i))
		blocks, p.keys[did(i)] = append(blocks, block), key
	}
	fresh := func() *Verifier { // its caches' goroutines never end
		return NewVerifier(identities.NewKeys(new(identities.Broker).NewSource("https://plc.example.com", &http.Client{Transport: p})))
	}
	cold, paused, slow, out := fresh(), fresh(), fresh(), fresh()
	synctest.Test(t, func(t *testing.T) {
		verify := func(v *Verifier, n int) (reasons map[wire.Reason]int, took time.Duration) {
			reasons = map[wire.Reason]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			began := time.Now()
			for i := range n {
				all.Go(func() {
					k, err := ParseCommit(blocks[i])
					if err != nil {
						t.Error(err)
						return
					}
					reason, _ := v.signed(t.Context(), syntax.DID(did(i)), &k)
					mu.Lock()
					defer mu.Unlock()
					reasons[reason]++
				})
			}
			all.Wait()
			return reasons, time.Since(began)
		}
		got, took := verify(cold, accounts)
		harness.Figure(t, "commits of 2,000 accounts without a cached key", "%d verified in %v", got[""], took)
		if got[""] != accounts || took < patience || took > longest {
			t.Errorf("%v in %v", got, took)
		}

		until := time.Now().Add(900 * time.Millisecond)
		p.refuse("", func(int) bool { return time.Now().Before(until) })
		if got, took = verify(paused, 20); got[""] != 20 {
			t.Errorf("a short pause: %v in %v", got, took)
		}

		p.refuse("", func(int) bool { return true })
		if got, took = verify(slow, 200); got[wire.KeyUnreachable] != 200 || took > longest {
			t.Errorf("refused again and again: %v in %v", got, took)
		}

		p.refuse("", never)
		time.Sleep(time.Minute) // until nothing of that runs
		before := p.refuse("", never)
		p.refuse("60", func(asked int) bool { return asked > before+20 })
		got, took = verify(out, 200)
		asked := p.refuse("60", func(int) bool { return true }) - before
		harness.Figure(t, "200 commits at a directory that answers 20 times", "%d verified, the repos of %d queued, %d requests in %v", got[""], got[wire.KeyUnreachable], asked, took)
		if got[""] != 20 || got[wire.KeyUnreachable] != 180 || took > patience || asked > 20+identities.PLCAtOnce {
			t.Errorf("%v, %d requests in %v", got, asked, took)
		}
		if !out.KeyUnreachable(t.Context(), did(199)) && !out.KeyUnreachable(t.Context(), did(198)) {
			t.Error("their keys are known")
		}
		p.refuse("", never)
		time.Sleep(time.Minute + time.Second)
		if got, _ = verify(out, 200); got[""] != 200 {
			t.Errorf("once the directory is back: %v", got)
		}
	})
}
