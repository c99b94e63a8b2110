package clients

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"

	"skein.blue/internal/sim/harness"
)

func request(remote string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = remote
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// Only trusted proxies name other clients, in the header that the operator names, and only what they appended is
// believed. A proxy is never the client.
func TestAddress(t *testing.T) {
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	const networks = "=10.0.0.0/8, 127.0.0.1,2001:db8:ffff::/48, ::1"
	for name, c := range map[string]struct {
		header string
		r      *http.Request
		want   string
	}{
		"direct":                       {xff, request("192.0.2.1:99"), "192.0.2.1/32"},
		"IPv6: its network of 64 bits": {xff, request("[2001:db8:1:2:3:4:5:6]:99"), "2001:db8:1:2::/64"},
		"IPv6 with a zone":             {xff, request("[fe80::1%eth0]:99"), "fe80::/64"},
		"IPv4 as IPv6":                 {xff, request("[::ffff:192.0.2.1]:99"), "192.0.2.1/32"},
		"a stranger's header":          {xff, request("192.0.2.1:99", xff, "198.51.100.7"), "192.0.2.1/32"},
		"a proxy's header":             {xff, request("10.1.1.1:99", xff, "198.51.100.7"), "198.51.100.7/32"},
		"in small letters":             {"x-forwarded-for", request("10.1.1.1:99", xff, "198.51.100.7"), "198.51.100.7/32"},
		"another header":               {"X-Real-IP", request("10.1.1.1:99", "X-Real-IP", "198.51.100.7", xff, "203.0.113.9"), "198.51.100.7/32"},
		"what the client forged":       {xff, request("10.1.1.1:99", xff, "203.0.113.9, 198.51.100.7"), "198.51.100.7/32"},
		"two proxies":                  {xff, request("10.1.1.1:99", xff, "203.0.113.9, 198.51.100.7, 127.0.0.1"), "198.51.100.7/32"},
		"in two headers":               {xff, request("10.1.1.1:99", xff, "203.0.113.9", xff, "198.51.100.7"), "198.51.100.7/32"},
		"with a port":                  {xff, request("10.1.1.1:99", xff, "198.51.100.7:4711"), "198.51.100.7/32"},
		"only proxies":                 {xff, request("10.1.1.1:99", xff, "10.2.2.2"), unnamed},
		"unreadable":                   {xff, request("10.1.1.1:99", xff, "unknown"), unnamed},
		"unreadable behind a proxy":    {xff, request("10.1.1.1:99", xff, "198.51.100.7, unknown, 127.0.0.1"), unnamed},
		"a proxy without a header":     {xff, request("10.1.1.1:99"), unnamed},
		"an empty header":              {xff, request("10.1.1.1:99", xff, ""), unnamed},
		"the other header":             {xff, request("10.1.1.1:99", fwd, "for=203.0.113.9"), unnamed},
		"both headers":                 {xff, request("10.1.1.1:99", xff, "198.51.100.7", fwd, "for=203.0.113.9"), "198.51.100.7/32"},
		"an IPv6 proxy":                {xff, request("[2001:db8:ffff:1::1]:99", xff, "2001:db8:1:2::9"), "2001:db8:1:2::/64"},
	} {
		proxies, err := ParseProxies(c.header + networks)
		if got := proxies.client(c.r); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/8", "10.0.0.0/8,127.0.0.1", "=10.0.0.0/8", "X Y=10.0.0.0/8", xff, xff + "=", xff + "=10.0.0.0/33", xff + "=example.com", xff + "=10.0.0.0/8,", fwd + "=10.0.0.0/8", xff + "=10.0.0.0/8," + fwd + "=::1"} {
		if _, err := ParseProxies(bad); err == nil {
			t.Errorf("--trusted-proxies %q is accepted", bad)
		}
	}
	if got := Of(request("[2001:db8:1:2:3:4:5:6]:99", xff, "192.0.2.1")); got != "2001:db8:1:2::/64" {
		t.Errorf("without a gate: %s", got)
	}
	proxies, err := ParseProxies(xff + networks)
	if at, proxy := proxies.ClientAt("192.0.2.1:99"), proxies.ClientAt("10.1.1.1:99"); err != nil || at != "192.0.2.1/32" || proxy != "" {
		t.Errorf("connections of %q and %q, %v", at, proxy, err)
	}
}

// Whatever a client sends, in whatever headers, it does not choose a name outside of its own address: not directly, and
// not behind a proxy that appends to one header and passes the others on.
func TestForgedHeaders(t *testing.T) {
	headers := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"}
	proxies, err := ParseProxies(headers[0] + "=10.0.0.1")
	must(t, err)
	err = quick.Check(func(forged [4]string, pick uint8) bool {
		text := []string{"", "10.0.0.1", "for=10.0.0.1", `for="`, "192.0.2.9", "unknown", ","}
		direct, proxied := request("192.0.2.1:99"), request("10.0.0.1:99")
		for i, h := range headers {
			if pick>>i&1 == 1 {
				forged[i] = text[int(pick>>4)%len(text)]
			}
			direct.Header.Add(h, forged[i])
			proxied.Header.Add(h, forged[i])
		}
		proxied.Header.Set(headers[0], forged[0]+", 192.0.2.1")
		return proxies.client(direct) == "192.0.2.1/32" && proxies.client(proxied) == "192.0.2.1/32"
	}, nil)
	must(t, err)
}

// A client behind a proxy with the usual lines cannot use up what the proxy's own requests need, and health checks are
// outside of all limits.
func TestHealthChecksBehindProxies(t *testing.T) {
	proxies, err := ParseProxies("X-Forwarded-For=10.0.0.1")
	must(t, err)
	refused := 0
	g, _ := newTestGate(Options{Proxies: proxies, Limit: Limit{Requests: 2, Bytes: 100}, Refused: func(string, string) { refused++ }}, nil)
	for i := range 60 {
		ask(g, request("10.0.0.1:9", "X-Forwarded-For", "unknown, 192.0.2.1", "Forwarded", "for=10.0.0.1"))
		r := request("10.0.0.1:9")
		if r.URL.Path = "/xrpc/_health"; i%2 == 1 {
			r.Header.Set("Authorization", "Bearer skein_unknown")
		}
		if w := ask(g, r); w.Code != http.StatusOK {
			t.Fatalf("health check %d: %d %s", i, w.Code, w.Body)
		}
	}
	if refused != 40 {
		t.Errorf("%d requests of the client were refused, want 40", refused)
	}
	for i := range 5 {
		if w := ask(g, request("10.0.0.1:9")); w.Code != http.StatusOK || w.Body.String() != unnamed {
			t.Errorf("request %d of the proxy itself: %d %s", i, w.Code, w.Body)
		}
	}
}

// must ends a test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lineOf(name, token, options string) string {
	return fmt.Sprintf("%s %x %s\n", name, sha256.Sum256([]byte(token)), options)
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	usual := Limit{Requests: 5}
	write("# the clients\n\n" + lineOf("app", "skein_a", "rate=7 bytes=100 expires=2027-01-02 # until new year") + lineOf("usual", "skein_b", ""))
	tokens, err := OpenTokens(path, usual)
	must(t, err)
	app := tokens.find("skein_a")
	if app == nil || app.Name != "app" || app.Limit != (Limit{7, 100}) || app.Expires.Format(time.DateOnly) != "2027-01-02" {
		t.Errorf("%+v", app)
	}
	if b := tokens.find("skein_b"); b == nil || b.Limit != usual || !b.Expires.IsZero() {
		t.Errorf("%+v", b)
	}
	if tokens.find("skein_c") != nil || tokens.find("") != nil {
		t.Error("a token that is not in the file is found")
	}
	for text, want := range map[string]string{
		lineOf("a b", "x", ""):                            "line 1: ",
		"app\n":                                           "expected NAME SHA256",
		"app 12\n":                                        "64 hex digits",
		"app " + strings.Repeat("zz", 32) + "\n":          "64 hex digits",
		"app " + strings.Repeat("ab", 33) + "\n":          "64 hex digits",
		lineOf("a/b", "x", ""):                            "letters, digits",
		"\n" + lineOf("app", "x", "rate=-1"):              "line 2: rate=-1: ",
		lineOf("app", "x", "rate=NaN"):                    "not a number",
		lineOf("app", "x", "rte=1"):                       "unknown option",
		lineOf("app", "x", "expires=soon"):                "neither a date",
		lineOf("app", "x", "") + lineOf("app", "y", ""):   "line 2: the name app is already used in line 1",
		lineOf("app", "x", "") + lineOf("other", "x", ""): "line 2: other has the token of app",
	} {
		write(text)
		if _, err := tokens.Reload(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if tokens.find("skein_a") == nil {
			t.Fatalf("%q: the tokens changed", text)
		}
	}
	token, line, err := NewToken("app", "rate=9 expires=2030-01-01")
	if err != nil || !strings.HasPrefix(token, TokenPrefix) || strings.Contains(line, token) {
		t.Fatal(token, line, err)
	}
	write(line)
	if n, err := tokens.Reload(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := tokens.find(token); got == nil || got.Limit.Requests != 9 || tokens.find("skein_a") != nil {
		t.Errorf("%+v", got)
	}
	if _, _, err := NewToken("app", "rate=x"); err == nil {
		t.Error("a token with a malformed rate is made")
	}
}

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }

func newTestGate(o Options, answer func(w http.ResponseWriter, r *http.Request)) (*Gate, *clock) {
	if answer == nil {
		answer = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, Of(r)) }
	}
	g := NewGate(http.HandlerFunc(answer), o)
	c := &clock{time.Unix(1_800_000_000, 0)}
	g.now = func() time.Time { return c.at }
	return g, c
}

func ask(g *Gate, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// In random histories no client gets more than its rate and one burst, and one that asks within
// its rate is never refused, whatever the others do. Retry-After is how long to wait.
func TestRateIsExact(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		perSecond := []float64{0.5, 1, 3, 50}[rng.IntN(4)]
		g, c := newTestGate(Options{Limit: Limit{Requests: perSecond}}, nil)
		begun := c.at
		greedy, modest, next := 0, 0, c.at
		for range 2000 {
			c.pass(time.Duration(rng.ExpFloat64() * 0.1 * float64(time.Second)))
			for range rng.IntN(4) {
				if w := ask(g, request("192.0.2.1:9")); w.Code == http.StatusOK {
					greedy++
				} else if wait, err := strconv.Atoi(w.Header().Get("Retry-After")); w.Code != http.StatusTooManyRequests || err != nil || wait < 1 || float64(wait) > 1/perSecond+1 {
					t.Fatalf("seed %d: %d, Retry-After %q", seed, w.Code, w.Header().Get("Retry-After"))
				}
			}
			if !c.at.Before(next) {
				if w := ask(g, request("[2001:db8::"+strconv.Itoa(rng.IntN(9999))+"]:9")); w.Code != http.StatusOK {
					t.Fatalf("seed %d: a client within its rate is refused after %d requests: %s", seed, modest, w.Body)
				}
				modest++
				next = c.at.Add(time.Duration(1.001 / perSecond * float64(time.Second)))
			}
		}
		most := int(math.Ceil(perSecond*c.at.Sub(begun).Seconds())) + max(1, int(perSecond*BurstSeconds))
		if greedy > most || float64(greedy) < 0.5*perSecond*c.at.Sub(begun).Seconds() && greedy < 2000 {
			t.Errorf("seed %d: %d requests in %v, at most %d are allowed", seed, greedy, c.at.Sub(begun), most)
		}
		w := ask(g, request("192.0.2.1:9"))
		for w.Code == http.StatusOK {
			w = ask(g, request("192.0.2.1:9"))
		}
		wait, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		c.pass(time.Duration(wait) * time.Second)
		if w := ask(g, request("192.0.2.1:9")); w.Code != http.StatusOK {
			t.Errorf("seed %d: after Retry-After: %d", seed, w.Code)
		}
	}
}

// A client pays for the bytes of an answer after it is sent, and is refused until it has.
func TestBytes(t *testing.T) {
	g, c := newTestGate(Options{Limit: Limit{Bytes: 1000}}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 25_000))
	})
	if w := ask(g, request("192.0.2.1:9")); w.Code != http.StatusOK || w.Body.Len() != 25_000 {
		t.Fatal(w.Code, w.Body.Len())
	}
	w := ask(g, request("192.0.2.1:9"))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "15" || w.Header().Get("Access-Control-Expose-Headers") != "Retry-After" || !strings.Contains(w.Body.String(), "1000 bytes a second") {
		t.Errorf("%d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	if w := ask(g, request("192.0.2.2:9")); w.Code != http.StatusOK {
		t.Errorf("another client: %d", w.Code)
	}
	c.pass(14 * time.Second)
	if w := ask(g, request("192.0.2.1:9")); w.Code != http.StatusTooManyRequests {
		t.Errorf("a second too early: %d", w.Code)
	}
	c.pass(time.Second)
	if w := ask(g, request("192.0.2.1:9")); w.Code != http.StatusOK {
		t.Errorf("after Retry-After: %d", w.Code)
	}
}

// Answers that are in flight count as large as they may become: a client gets no more by asking in parallel. One with
// streams open can still ask.
func TestAbuseParallelBytes(t *testing.T) {
	for _, perSecond := range []float64{10_000, 200_000, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			rng, mu := rand.New(rand.NewPCG(1, uint64(perSecond))), sync.Mutex{}
			answers, refused := 0, 0
			g := NewGate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				n, took := rng.IntN(largeAnswer), time.Duration(rng.IntN(500))*time.Millisecond
				mu.Unlock()
				if r.URL.Path == "/stream" {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					return
				}
				time.Sleep(took)
				_, _ = w.Write(make([]byte, n))
			}), Options{Limit: Limit{Bytes: perSecond}})
			ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
			defer end()
			stream := request("192.0.2.1:9").WithContext(ctx)
			stream.URL.Path = "/stream"
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { ask(g, stream) })
			}
			time.Sleep(time.Second) // they are open
			sent, start := 0, time.Now()
			for range harness.Size(64, 500) {
				all.Go(func() {
					for ctx.Err() == nil {
						w := ask(g, request("192.0.2.1:9").WithContext(ctx))
						mu.Lock()
						if w.Code == http.StatusOK {
							sent += w.Body.Len()
							answers++
						} else {
							refused++
						}
						mu.Unlock()
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			all.Wait()
			allowed := perSecond * (time.Since(start).Seconds() + BurstSeconds)
			harness.Figure(t, "bytes of a client that asks in parallel", "%.0f per second allowed, %d of %.0f received in a minute, %d answers, %d refused", perSecond, sent, allowed, answers, refused)
			if float64(sent) > allowed+largeAnswer || float64(sent) < allowed/2 || answers == 0 || refused == 0 {
				t.Errorf("%.0f bytes a second: %d bytes in a minute, at most %.0f and one answer are allowed; %d answers, %d refused", perSecond, sent, allowed, answers, refused)
			}
		})
	}
}

// A token names the client, wherever it asks from, and has limits of its own. An account's service
// auth token is none, and reaches the API.
func TestGateTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(path, []byte(lineOf("app", "skein_a", "rate=0")+lineOf("old", "skein_o", "expires=2027-01-15T08:00:10Z")), 0o600))
	tokens, err := OpenTokens(path, Limit{Requests: 0.1})
	must(t, err)
	refused := map[string]int{}
	g, c := newTestGate(Options{Limit: Limit{Requests: 0.1}, Tokens: tokens, Refused: func(_, why string) { refused[why]++ }}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, Of(r)+" "+r.Header.Get("Authorization"))
	})
	for i := range 50 {
		w := ask(g, request(fmt.Sprintf("192.0.2.%d:9", i), "Authorization", "Bearer skein_a"))
		if w.Code != http.StatusOK || w.Body.String() != "token app " {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	if w := ask(g, request("192.0.2.1:9", "Authorization", "Bearer eyJ", TokenHeader, "skein_a")); w.Body.String() != "token app Bearer eyJ" {
		t.Errorf("beside a service auth token: %s", w.Body)
	}
	if w := ask(g, request("192.0.2.1:9", "Authorization", "Bearer eyJ")); w.Body.String() != "192.0.2.1/32 Bearer eyJ" {
		t.Errorf("a service auth token: %s", w.Body)
	}
	for token, name := range map[string]string{"skein_x": "InvalidToken", "skein_": "InvalidToken"} {
		w := ask(g, request("192.0.2.3:9", "Authorization", "Bearer "+token))
		var e struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != http.StatusUnauthorized || e.Error != name || w.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d %s", token, w.Code, w.Body)
		}
	}
	if w := ask(g, request("192.0.2.3:9", "Authorization", "Bearer skein_o")); w.Code != http.StatusOK {
		t.Errorf("before it expires: %d %s", w.Code, w.Body)
	}
	c.pass(10 * time.Second)
	if w := ask(g, request("192.0.2.3:9", "Authorization", "Bearer skein_o")); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "expired at 2027-01-15T08:00:10Z") {
		t.Errorf("expired: %d %s", w.Code, w.Body)
	}
	if refused["token"] != 2 || refused["expired"] != 1 || refused["rate"] != 0 {
		t.Errorf("%v", refused)
	}
	// A reload that changes a limit takes effect at once.
	must(t, os.WriteFile(path, []byte(lineOf("app", "skein_a", "rate=0.1")), 0o600))
	_, err = tokens.Reload()
	must(t, err)
	ask(g, request("192.0.2.3:9", "Authorization", "Bearer skein_a"))
	if w := ask(g, request("192.0.2.3:9", "Authorization", "Bearer skein_a")); w.Code != http.StatusTooManyRequests {
		t.Errorf("after the reload: %d", w.Code)
	}
	if w := ask(g, httptest.NewRequest(http.MethodOptions, "/", nil)); w.Code != http.StatusOK {
		t.Errorf("a browser's preflight is counted: %d", w.Code)
	}
}

// Any number of clients costs bounded memory.
func TestAbuseManyClients(t *testing.T) {
	g, _ := newTestGate(Options{Limit: Limit{Requests: 1, Bytes: 1000}}, nil)
	for i := range 2 * remembered {
		ask(g, request(fmt.Sprintf("[2001:db8:%x:%x::1]:9", i>>16, i&0xffff)))
	}
	if n := g.clients.Len(); n > remembered {
		t.Errorf("%d clients are remembered", n)
	}
}
