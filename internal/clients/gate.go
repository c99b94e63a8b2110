package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// BurstSeconds is how many seconds of its limit a client can save up: one that was silent for so long may ask as much as
// that time allows at once.
const BurstSeconds = 10

// remembered is for how many clients a gate remembers what they have used. A client that is
// forgotten, because so many others asked since, begins with a full burst.
const remembered = 1 << 16

// Options say how a gate tells clients apart, and what they may ask.
type Options struct {
	// Proxies may name the clients whose requests they forward.
	Proxies Proxies
	// Limit is how many requests a second each client without a token may send. 0 means no limit.
	Limit float64
	// Tokens may be nil: there are none.
	Tokens *Tokens
	// Refused, if set, is called for each request that is refused, with the client's name and
	// the reason: "rate", "token" or "expired".
	Refused func(client, why string)
}

// A Gate is the middleware that names clients and limits them.
type Gate struct {
	o    Options
	next http.Handler
	now  func() time.Time

	mu      sync.Mutex // guards clients
	clients *lru.Cache[string, *rate.Limiter]
}

// NewGate returns a gate in front of next.
func NewGate(next http.Handler, o Options) *Gate {
	c, err := lru.New[string, *rate.Limiter](remembered)
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
	if wait := g.admit(name, limit); wait > 0 {
		seconds := strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
		w.Header().Set("Retry-After", seconds)
		g.refuse(w, name, "rate", http.StatusTooManyRequests, "RateLimitExceeded", fmt.Sprintf("this client may ask for %g requests a second; try again in %s s", limit, seconds))
		return
	}
	g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nameKey{}, name)))
}

// admit takes a request from the client's limit. If there is none left, it returns for how long.
func (g *Gate) admit(name string, limit float64) (wait time.Duration) {
	if limit == 0 {
		return 0
	}
	used, at := g.usedBy(name, limit), g.now()
	if used.AllowN(at, 1) {
		return 0
	}
	return time.Duration((1 - used.TokensAt(at)) / limit * float64(time.Second))
}

// usedBy returns what a client has used. A reload of the tokens may have changed its limit.
func (g *Gate) usedBy(name string, limit float64) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if used, ok := g.clients.Get(name); ok && used.Limit() == rate.Limit(limit) {
		return used
	}
	used := rate.NewLimiter(rate.Limit(limit), max(1, int(limit*BurstSeconds)))
	g.clients.Add(name, used)
	return used
}

func (g *Gate) refuse(w http.ResponseWriter, client, why string, status int, name, message string) {
	if g.o.Refused != nil {
		g.o.Refused(client, why)
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "application/json")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": name, "message": message})
}
