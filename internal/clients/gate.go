package clients

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// A Limit is what a client may ask, 0 for no limit. A client that was silent for BurstSeconds may
// ask as much as that time allows at once.
type Limit struct {
	Requests float64 // a second
	Bytes    float64 // of answers, compressed as they are sent, a second
}

// BurstSeconds is how many seconds of its limit a client can save up.
const BurstSeconds = 10

// remembered is for how many clients a gate remembers what they have used. A client that is
// forgotten, because so many others asked since, begins with a full burst.
const remembered = 1 << 16

// Options say how a gate tells clients apart, and what they may ask.
type Options struct {
	// Proxies may name the clients whose requests they forward.
	Proxies Proxies
	// Limit applies to each client without a token.
	Limit Limit
	// Tokens may be nil: there are none.
	Tokens *Tokens
	// Refused, if set, is called for each request that is refused, with the client's name and
	// the reason: "rate", "bytes", "token" or "expired".
	Refused func(client, why string)
}

// A Gate is the middleware that names clients and limits them.
type Gate struct {
	o    Options
	next http.Handler
	now  func() time.Time

	mu      sync.Mutex // guards used
	clients *lru.Cache[string, *used]
}

// largeAnswer is about as large as an answer becomes, a page of half a megabyte. Until an answer of a client with a
// limit of bytes has been sent, it may be as large.
const largeAnswer = 512 << 10

// patience is how long a request waits for others of its client, whose answers may use up the limit.
// It looks every lookEvery whether they have been sent.
const patience, lookEvery = 10 * time.Second, 20 * time.Millisecond

// used is what a client has used of its limit.
type used struct {
	limit           Limit
	requests, bytes *rate.Limiter

	inFlight atomic.Int64 // requests whose answers have not been sent, with a limit of bytes
}

// NewGate returns a gate in front of next.
func NewGate(next http.Handler, o Options) *Gate {
	c, err := lru.New[string, *used](remembered)
	if err != nil {
		panic(err) // the size is wrong
	}
	return &Gate{o: o, next: next, now: time.Now, clients: c}
}

type nameKey struct{}

// Of returns the name of the client that sent a request, as its Gate found it. Without a gate, it
// is the address of the connection.
func Of(r *http.Request) string {
	if name, ok := r.Context().Value(nameKey{}).(string); ok {
		return name
	}
	return new(Proxies).client(r)
}

// TokenHeader carries a token of a client whose Authorization header carries something else: the
// service auth token of an account.
const TokenHeader = "Skein-Token"

// healthPath is where proxies and balancers ask whether the server lives.
const healthPath = "/xrpc/_health"

// token returns the operator's token that a request carries, "" if none, and removes it, so that
// nobody takes it for an account's.
func token(r *http.Request) string {
	if t := r.Header.Get(TokenHeader); t != "" {
		return t
	}
	t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "+TokenPrefix)
	if !ok {
		return ""
	}
	r.Header.Del("Authorization")
	return TokenPrefix + t
}

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions || r.URL.Path == healthPath { // a browser's question and a balancer's, which cost nothing
		g.next.ServeHTTP(w, r)
		return
	}
	name, limit := g.o.Proxies.client(r), g.o.Limit
	if sent := token(r); sent != "" {
		var t *Token
		if g.o.Tokens != nil {
			t = g.o.Tokens.find(sent)
		}
		switch {
		case t == nil:
			g.refuse(w, name, "token", http.StatusUnauthorized, "InvalidToken", "this server does not know the token; ask its operator")
			return
		case !t.Expires.IsZero() && !g.now().Before(t.Expires):
			g.refuse(w, t.Name, "expired", http.StatusUnauthorized, "ExpiredToken", "the token "+t.Name+" expired at "+t.Expires.UTC().Format(time.RFC3339)+"; ask the operator for another")
			return
		}
		name, limit = "token "+t.Name, t.Limit
	}
	u := g.usedBy(name, limit)
	if why, wait := u.admit(r.Context(), g.now); why != "" {
		seconds := strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
		w.Header().Set("Retry-After", seconds)
		what := fmt.Sprintf("%g requests", limit.Requests)
		if why == "bytes" {
			what = fmt.Sprintf("%g bytes", limit.Bytes)
		}
		g.refuse(w, name, why, http.StatusTooManyRequests, "RateLimitExceeded", "this client may ask for "+what+" a second; try again in "+seconds+" s")
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), nameKey{}, name))
	if u.bytes == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	counted := &countedWriter{ResponseWriter: w, g: g, u: u, sent: sync.OnceFunc(func() { u.inFlight.Add(-1) })}
	defer counted.sent()
	g.next.ServeHTTP(counted, r)
}

// admit takes a request from the client's limit. If there is none left, it returns which limit is
// exceeded, and for how long. After a request that it admits, inFlight must be lowered again if there is a limit of bytes.
func (u *used) admit(ctx context.Context, now func() time.Time) (why string, wait time.Duration) {
	if at := now(); u.requests != nil && !u.requests.AllowN(at, 1) {
		return "rate", time.Duration((1 - u.requests.TokensAt(at)) / float64(u.requests.Limit()) * float64(time.Second))
	}
	if u.bytes != nil {
		if left := u.enter(ctx, now); left < 0 {
			return "bytes", time.Duration(-left / float64(u.bytes.Limit()) * float64(time.Second))
		}
	}
	return "", 0
}

// enter waits until the answers that are in flight, and one more, fit into what is left of the limit of bytes, however
// large they become; one alone always may begin. If it returns less than 0, that much is missing.
func (u *used) enter(ctx context.Context, now func() time.Time) (left float64) {
	patient, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		n := u.inFlight.Load() // before left: an answer is paid before it leaves
		left = u.bytes.TokensAt(now())
		wanted := float64(n+1) * largeAnswer
		switch {
		case left < 0:
			return left
		case n == 0 || left >= wanted:
			if u.inFlight.CompareAndSwap(n, n+1) {
				return left
			}
			continue
		}
		select {
		case <-time.After(lookEvery):
		case <-patient.Done():
			return left - wanted
		}
	}
}

// usedBy returns what a client has used. A reload of the tokens may have changed its limit.
func (g *Gate) usedBy(name string, limit Limit) *used {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u, ok := g.clients.Get(name); ok && u.limit == limit {
		return u
	}
	u := &used{limit: limit}
	if limit.Requests > 0 {
		u.requests = rate.NewLimiter(rate.Limit(limit.Requests), max(1, int(limit.Requests*BurstSeconds)))
	}
	if limit.Bytes > 0 {
		u.bytes = rate.NewLimiter(rate.Limit(limit.Bytes), max(1, int(limit.Bytes*BurstSeconds)))
	}
	g.clients.Add(name, u)
	return u
}

func (g *Gate) refuse(w http.ResponseWriter, client, why string, status int, name, message string) {
	if g.o.Refused != nil {
		g.o.Refused(client, why)
	}
	h := w.Header()
	maps.Copy(h, http.Header{"Access-Control-Allow-Origin": {"*"}, "Access-Control-Expose-Headers": {"Retry-After"}, "Content-Type": {"application/json"}})
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": name, "message": message})
}

// countedWriter charges the client for the bytes of an answer, once they are sent: how many they
// are is not known before. So a client may owe some, and is refused until it has paid.
type countedWriter struct {
	http.ResponseWriter

	g    *Gate
	u    *used
	sent func() // called when the answer has been sent, or turns out to be a stream without an end
}

// Write implements http.ResponseWriter.
func (w *countedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	for left := n; left > 0; {
		some := min(left, w.u.bytes.Burst())
		w.u.bytes.ReserveN(w.g.now(), some)
		left -= some
	}
	return n, err
}

// Unwrap lets http.ResponseController set deadlines.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker. What is sent over a WebSocket afterwards is not counted:
// subscriptions have bounds of their own.
func (w *countedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.sent()
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Flush implements http.Flusher. Streams call it.
func (w *countedWriter) Flush() {
	w.sent()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// A Whole keeps an answer, with its status, until its handler has ended: while a slow client reads, nothing else is held, such as
// a compressor, which takes a megabyte.
type Whole struct {
	http.ResponseWriter
	Body bytes.Buffer

	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *Whole) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *Whole) Write(b []byte) (int, error) { return a.Body.Write(b) }

// Send sends the answer.
func (a *Whole) Send() {
	a.ResponseWriter.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = a.ResponseWriter.Write(a.Body.Bytes()) // it fails if the client is gone
}
