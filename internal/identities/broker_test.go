package identities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"

	"skein.blue/internal/sim/harness"
)

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

// network answers requests after 50 ms, as a test says.
type network struct {
	mu     sync.Mutex
	asked  []time.Time
	answer func(path string) (status int, header, body string) // with mu held
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, time.Now())
	status, after, body := n.answer(strings.TrimPrefix(req.URL.Path, "/"))
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}
	if after != "" {
		resp.Header.Set("Retry-After", after)
	}
	return resp, nil
}

func (n *network) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.asked)
}

const public = "https://plc.example.com"

// madeUp returns a DID of nobody.
func madeUp(kind byte, i int) string {
	digits := strings.NewReplacer("0", "w", "1", "x", "8", "y", "9", "z").Replace(fmt.Sprintf("%022d", i))
	return "did:plc:" + string(kind) + "a" + digits
}

// Tokens that name made-up accounts take a part of the look-ups at the directory that is for clients, and of that part a
// share like any other client's: neither the writer nor a viewer notices. Nor does it hold up a viewer that somebody else
// named the viewer first.
func TestAbuseLookUps(t *testing.T) {
	const (
		attackers = 100
		allowed   = 300 // requests a second that the directory answers
	)
	seconds := harness.Size(10, 60)
	var window, end time.Time
	inWindow, refused := 0, 0
	of := map[byte]int{} // requests by the kind of account
	var document string
	n := &network{}
	n.answer = func(did string) (int, string, string) {
		if now := time.Now().Truncate(time.Second); !now.Equal(window) {
			window, inWindow = now, 0
		}
		if time.Now().Before(end) {
			of[did[len("did:plc:")]]++
		}
		if inWindow++; inWindow > allowed {
			refused++
			return http.StatusTooManyRequests, "1", ""
		}
		if did[len("did:plc:")] == 'n' {
			return http.StatusNotFound, "", ""
		}
		return http.StatusOK, "", strings.ReplaceAll(document, "DID", did)
	}
	d := &keyDirectory{keys: map[syntax.DID]string{}}
	key := d.give(t, alice)
	document = fmt.Sprintf(`{"id":"DID","verificationMethod":[{"id":"DID#atproto","type":"Multikey","controller":"DID","publicKeyMultibase":%q}]}`, d.keys[alice])
	var b Broker
	source := func() identity.Directory { return b.NewSource(public, &http.Client{Transport: n}) }
	tokens, writer := NewTokens(us, NewKeys(source())), NewKeys(source()) // their caches' goroutines never end
	var verified, had, inVain int
	var longestViewer, longestWriter time.Duration
	synctest.Test(t, func(t *testing.T) {
		tokens.now = time.Now
		verify := func(client, did string) error {
			ctx, cancel := context.WithTimeout(ForClient(t.Context(), client), 5*time.Second)
			defer cancel()
			_, err := tokens.Verify(ctx, sign(t, key, jwt.MapClaims{"iss": did}, nil), entry, method, free)
			return err
		}
		var running sync.WaitGroup
		end = time.Now().Add(time.Duration(seconds) * time.Second)
		for a := range attackers {
			running.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					if verify(fmt.Sprintf("198.51.100.%d/32", a%2), madeUp('n', a<<16|i)) == nil {
						t.Error("a token of nobody proves something")
					}
				}
			})
		}
		running.Go(func() { // a viewer a second, from another network; the attacker names each just before
			time.Sleep(500 * time.Millisecond)
			for i := range seconds - 1 {
				running.Go(func() { _ = verify("198.51.100.0/32", madeUp('v', i)) })
				time.Sleep(10 * time.Millisecond)
				running.Go(func() {
					asked := time.Now()
					err := verify("203.0.113.1/32", madeUp('v', i))
					n.mu.Lock()
					defer n.mu.Unlock()
					if longestViewer = max(longestViewer, time.Since(asked)); err == nil {
						verified++
					}
				})
				time.Sleep(990 * time.Millisecond)
			}
		})
		running.Go(func() { // the writer meets a new account each 10 ms
			for i := 0; time.Now().Before(end); i++ {
				running.Go(func() {
					asked := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					_, err := writer.Key(ctx, syntax.DID(madeUp('w', i)))
					n.mu.Lock()
					defer n.mu.Unlock()
					if longestWriter = max(longestWriter, time.Since(asked)); err == nil {
						had++
					} else {
						inVain++
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
		})
		running.Wait()
		time.Sleep(lookUpTimeout) // a look-up outlives those who left it
	})
	rate := float64(of['n']) / float64(seconds)
	harness.Figure(t, "made-up tokens that reach the directory", "%.0f/s", rate)
	harness.Figure(t, "viewers beside them", "%d of %d, after at most %v", verified, seconds-1, longestViewer)
	harness.Figure(t, "the writer's look-ups beside them", "%d of %d, after at most %v", had, had+inVain, longestWriter)
	harness.Figure(t, "answers 429", "%d", refused)
	if l := plcLimit(true).clients; rate > float64(l.rate)+float64(l.burst)/float64(seconds)+1 || rate < float64(l.rate)/2 {
		t.Errorf("%.0f/s", rate)
	}
	if verified != seconds-1 || longestViewer > time.Second || inVain > 0 || longestWriter > 200*time.Millisecond || refused > 0 {
		t.Error("somebody else notices")
	}
}

// An upstream that answers 429 or 503 is left alone by everybody for as long as it says, or else for a second, two, four …,
// and for five minutes at most. A look-up that can wait for that waits, any other fails at once.
func TestPauses(t *testing.T) {
	status, after, none := http.StatusTooManyRequests, "7", http.StatusNotFound
	n := &network{}
	n.answer = func(string) (int, string, string) {
		if status == http.StatusOK {
			return none, "", ""
		}
		return status, after, ""
	}
	var b Broker
	keys := NewKeys(b.NewSource(public, &http.Client{Transport: n}))
	r, err := New(Options{Resolver: "https://resolver.example.com", Broker: &b})
	must(t, err)
	r.client.Transport = noting{n}
	synctest.Test(t, func(t *testing.T) {
		next := 0
		look := func(ctx context.Context, patience time.Duration) (took time.Duration, err error) {
			next++
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			began := time.Now()
			_, err = keys.Key(ctx, syntax.DID(madeUp('n', next)))
			return time.Since(began), err
		}
		client := ForClient(t.Context(), "192.0.2.1/32")
		if took, err := look(client, 5*time.Second); !errors.Is(err, ErrBusy) || took > 100*time.Millisecond {
			t.Errorf("refused: %v after %v", err, took)
		}
		for _, ctx := range []context.Context{client, t.Context()} {
			before := n.requests()
			if took, err := look(ctx, 5*time.Second); !errors.Is(err, ErrBusy) || took > 0 || n.requests() != before {
				t.Errorf("in the pause: %v after %v", err, took)
			}
		}
		status = http.StatusOK
		if took, err := look(t.Context(), 30*time.Second); !errors.Is(err, identity.ErrDIDNotFound) || took < 6*time.Second || took > 8*time.Second {
			t.Errorf("who can wait: %v after %v", err, took)
		}
		for _, c := range []struct {
			status int
			after  string
			pauses []time.Duration
		}{
			{http.StatusServiceUnavailable, "", []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
			{http.StatusTooManyRequests, "", []time.Duration{16 * time.Second}},
			{http.StatusTooManyRequests, "86400", []time.Duration{5 * time.Minute, 5 * time.Minute}},
		} {
			status, after = c.status, c.after
			for _, pause := range c.pauses {
				var all sync.WaitGroup
				for range 10 { // side by side: they count once
					next++
					did := syntax.DID(madeUp('n', next))
					all.Go(func() { _, _ = keys.Key(deadline(t, 100*time.Millisecond), did) })
				}
				all.Wait()
				u := b.upstream(plcLimit(true))
				if wait := time.Until(u.until); wait > pause || wait < pause-time.Second/2 {
					t.Errorf("%+v: a pause of %v, want %v", c, wait, pause)
				}
				time.Sleep(pause)
			}
		}
		status, none = http.StatusOK, http.StatusGone // likewise of an account with a tombstone
		if _, err := look(t.Context(), time.Second); !errors.Is(err, identity.ErrDIDNotFound) || b.upstream(plcLimit(true)).refusals != 0 {
			t.Errorf("once it answers: %v", err)
		}

		status, after = http.StatusTooManyRequests, "60" // and so for handles
		if _, err := r.Resolve(client, "a.example.com"); !errors.Is(err, ErrFailed) {
			t.Error(err)
		}
		before := n.requests()
		if _, err := r.Resolve(deadline(t, time.Second), "b.example.com"); !errors.Is(err, ErrBusy) || n.requests() != before {
			t.Errorf("a handle in the pause: %v, %d requests", err, n.requests()-before)
		}
	})
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// In random runs, in which askers leave early and upstreams refuse, no lane admits more than its number at once and its rate,
// none is admitted in a pause, and nothing is left at the end.
func TestBrokerProperties(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			var b Broker
			var mu sync.Mutex
			running, admitted := map[string]int{}, map[string]int{}
			begun := time.Now()
			var refused, pause time.Time // when "plc" refused, and until when it rests
			all := append(webLimits("did:web:a.com"), plcLimit(true))
			check := func(l limit, who asker, more int) {
				mu.Lock()
				defer mu.Unlock()
				name, of := l.upstream+" writer", l.writer
				if who.isClient {
					name, of = l.upstream+" clients", l.clients
				}
				running[name] += more
				admitted[name] += max(more, 0)
				if most := float64(of.burst) + float64(of.rate)*time.Since(begun).Seconds() + 1; running[name] > of.atOnce || float64(admitted[name]) > most {
					t.Errorf("seed %d: %s: %d at once, %d admitted in %v", seed, name, running[name], admitted[name], time.Since(begun))
				}
				if now := time.Now(); l.upstream == "plc" && more > 0 && now.After(refused) && now.Before(pause) {
					t.Errorf("seed %d: admitted %v before the pause ends", seed, time.Until(pause))
				}
			}
			var looking sync.WaitGroup
			for range 3000 {
				ctx, limits := t.Context(), all[2:]
				if rng.IntN(2) == 0 {
					limits = all[:2]
				}
				if rng.IntN(3) > 0 {
					ctx = ForClient(ctx, fmt.Sprintf("192.0.%d.1/32", rng.IntN(4)))
				}
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(5000))*time.Millisecond)
				takes, refuses := time.Duration(rng.IntN(400))*time.Millisecond, rng.IntN(40) == 0
				leaves := time.Duration(1+rng.IntN(20000)) * time.Millisecond
				looking.Go(func() {
					defer cancel()
					defer time.AfterFunc(leaves, cancel).Stop()
					v, err := b.enter(ctx, limits...)
					if err != nil {
						if !errors.Is(err, ErrBusy) {
							t.Error(err)
						}
						return
					}
					for _, l := range limits {
						check(l, askerOf(ctx), 1)
					}
					time.Sleep(takes)
					if refuses && limits[0].upstream == "plc" {
						mu.Lock()
						v.note(&http.Response{StatusCode: http.StatusTooManyRequests})
						refused, pause = time.Now(), v.at.until
						mu.Unlock()
					}
					for _, l := range limits {
						check(l, askerOf(ctx), -1)
					}
					v.leave()
				})
				time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
			}
			looking.Wait()
			if admitted["plc writer"] < 100 || admitted["plc clients"] < 25 || admitted["web clients"] < 25 {
				t.Errorf("seed %d: %v", seed, admitted)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			for _, l := range all {
				u, free := b.upstream(l), 0
				for u.clients.turns.Enter(ended, "") == nil {
					free++
				}
				if free != l.clients.atOnce {
					t.Errorf("seed %d: %s: %d of %d free", seed, l.upstream, free, l.clients.atOnce)
				}
			}
		})
	}
}
