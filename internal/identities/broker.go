package identities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/time/rate"

	"skein.blue/internal/clients"
	"skein.blue/internal/outward"
)

// ErrBusy means that a look-up never started, because others are running, or because its upstream asked for a pause. It
// says nothing about the account.
var ErrBusy = errors.New("the look-up could not start in time")

var errResting = errors.New("it asked for a pause")

// A Broker admits look-ups of DID documents, keys and handles to their upstreams: the did:plc directory, the hosts under a
// registered domain, all hosts of did:web, and whatever answers for handles. A process has one. For each upstream it has two
// lanes, one for the writer, who verifies the stream and fetches repos, and one for clients. Each lane has a number of
// look-ups at once and a rate of its own, so whatever clients send, the writer has what is reserved for it. Within a lane,
// a look-up of the client that has used it the least lately is next (clients.Queue). An upstream that answers 429 or 503 is
// left alone by everybody.
//
// The zero value is ready to use.
type Broker struct {
	mu        sync.Mutex // guards upstreams
	upstreams *lru.Cache[string, *upstream]
}

// maxUpstreams bounds the upstreams that are remembered: many more than are used within the time of a look-up.
const maxUpstreams = 10_000

// lane is what one of the two lanes of an upstream admits.
type lane struct {
	atOnce int
	rate   rate.Limit // a second
	burst  int
}

// limit is what an upstream admits.
type limit struct {
	upstream        string
	writer, clients lane
}

// How many look-ups of clients run at once: at the did:plc directory, at the hosts under one registered domain, at all hosts
// of did:web, and of handles.
const (
	ClientsOfPLC     = 8
	ClientsOfDomain  = 4
	ClientsOfWeb     = 32
	ClientsOfHandles = 16
)

// PLCAtOnce is how many look-ups run at the did:plc directory at once.
const PLCAtOnce = ClientsOfPLC + 24

// plcLimit returns the limit of a did:plc directory. One in a private network is the operator's: nobody else rations it.
func plcLimit(public bool) limit {
	l := limit{"plc", lane{PLCAtOnce - ClientsOfPLC, 500, 500}, lane{ClientsOfPLC, 20, 40}}
	if !public {
		l.writer.rate = rate.Inf
	}
	return l
}

// webLimits returns the limits for a document of did:web.
func webLimits(did syntax.DID) []limit {
	return []limit{
		{"web " + PayerOf(did), lane{2, 10, 20}, lane{ClientsOfDomain, 5, 20}},
		{"web", lane{32, 100, 200}, lane{ClientsOfWeb, 50, 100}},
	}
}

// allHandles is the limit for handles.
var allHandles = limit{"handles", lane{4, 5, 20}, lane{ClientsOfHandles, 20, 80}}

// upstream is the state of an upstream.
type upstream struct {
	writer, clients gate

	mu       sync.Mutex // guards the fields below
	until    time.Time  // nobody asks before
	since    time.Time  // of the last 429 or 503
	refusals int        // without a success between them, and without a time
}

// gate is a lane's state.
type gate struct {
	turns *clients.Queue
	rate  *rate.Limiter
}

func (l lane) gate() gate { return gate{clients.NewQueue(l.atOnce), rate.NewLimiter(l.rate, l.burst)} }

// asker is on whose behalf something is looked up.
type asker struct {
	isClient bool
	name     string
}

type askerKey struct{}

// ForClient returns a context for look-ups that a client causes. Without it, the writer causes them.
func ForClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, askerKey{}, asker{true, client})
}

// ForRepos returns a context for the writer's look-ups for repos that it fetches. They and those for the stream take turns.
func ForRepos(ctx context.Context) context.Context {
	return context.WithValue(ctx, askerKey{}, asker{false, "repos"})
}

func askerOf(ctx context.Context) asker {
	a, ok := ctx.Value(askerKey{}).(asker)
	if !ok {
		a.name = "stream"
	}
	return a
}

// visit is an admitted look-up.
type visit struct {
	at      *upstream // the first of its upstreams, which answers
	began   time.Time
	refused bool // 429 or 503
	leave   func()
}

// enter waits until all upstreams of a look-up admit it, the narrowest first: a look-up that waits for its own host must not
// hold what others need. It returns ErrBusy if ctx ends first, or will have ended before an upstream's pause does.
func (b *Broker) enter(ctx context.Context, limits ...limit) (*visit, error) {
	v := &visit{leave: func() {}}
	for _, l := range limits {
		u := b.upstream(l)
		leave, err := u.enter(ctx, askerOf(ctx))
		if err != nil {
			v.leave()
			return nil, fmt.Errorf("%w: %s: %w", ErrBusy, l.upstream, err)
		}
		if v.at == nil {
			v.at = u
		}
		before := v.leave
		v.leave = func() { leave(); before() }
	}
	v.began = time.Now()
	return v, nil
}

// upstream returns the state of an upstream.
func (b *Broker) upstream(l limit) *upstream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.upstreams == nil {
		b.upstreams, _ = lru.New[string, *upstream](maxUpstreams) // fails for sizes below 1
	}
	u, ok := b.upstreams.Get(l.upstream)
	if !ok {
		u = &upstream{writer: l.writer.gate(), clients: l.clients.gate()}
		b.upstreams.Add(l.upstream, u)
	}
	return u
}

// enter waits until the upstream admits a look-up.
func (u *upstream) enter(ctx context.Context, who asker) (leave func(), err error) {
	g := u.writer
	if who.isClient {
		g = u.clients
	}
	if err := u.rested(ctx); err != nil { // before it takes anything
		return nil, err
	}
	if err := g.turns.Enter(ctx, who.name); err != nil {
		return nil, err
	}
	began := time.Now()
	leave = func() { g.turns.Leave(who.name, began) }
	if err = g.rate.Wait(ctx); err == nil {
		err = u.rested(ctx)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// rested waits until the pause of an upstream has ended. It returns an error at once if ctx ends before that.
func (u *upstream) rested(ctx context.Context) error {
	for {
		u.mu.Lock()
		until := u.until
		u.mu.Unlock()
		wait := time.Until(until)
		if wait <= 0 {
			return nil
		}
		if end, ok := ctx.Deadline(); ok && end.Before(until) {
			return fmt.Errorf("%w, which ends in %v", errResting, wait.Round(time.Second))
		}
		if err := outward.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// How long an upstream is left alone that does not say how long, at first, and how long at most, whatever it says.
const (
	firstRest   = time.Second
	longestRest = 5 * time.Minute
)

// note notes what the upstream answers: everybody leaves it alone if it refuses.
func (v *visit) note(resp *http.Response) {
	u, now := v.at, time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		u.refusals = 0
		return
	}
	v.refused = true
	rest := outward.RetryAfter(resp.Header, now)
	if rest == 0 {
		if v.began.Before(u.since) { // it was sent before the last refusal came: no reason to wait longer
			return
		}
		rest = firstRest << min(u.refusals, 16)
		u.refusals++
	}
	u.since = now
	if until := now.Add(min(rest, longestRest)); until.After(u.until) {
		u.until = until
	}
}

type visitKey struct{}

// context returns a context for the requests of an admitted look-up. What a client has started does not end with its request:
// a client that leaves must not make us believe that there is no document or handle, nor let one be fetched and thrown away each time.
func (v *visit) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if askerOf(ctx).isClient {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(context.WithValue(ctx, visitKey{}, v), lookUpTimeout)
}

// noting tells the visit what the upstream answers. A document that is gone, like that of a did:plc with a tombstone, is not found:
// indigo takes any other status for a failure of the upstream.
type noting struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(req)
	if v, ok := req.Context().Value(visitKey{}).(*visit); ok && err == nil {
		v.note(resp)
	}
	if err == nil && resp.StatusCode == http.StatusGone {
		resp.StatusCode = http.StatusNotFound
	}
	return resp, err // a transport must not wrap
}

// documents returns a client for documents of upstreams.
func documents(c *http.Client, most int64, timeout time.Duration) http.Client {
	d := outward.Documents(c, most, timeout)
	d.Transport = noting{d.Transport}
	return *d
}

// Over returns a directory that asks another one as the Broker admits.
func (b *Broker) Over(d identity.Directory) identity.Directory {
	return brokered{d, b, plcLimit(true)}
}

type brokered struct {
	identity.Directory

	broker *Broker
	plc    limit
}

// LookupDID implements identity.Directory. If the upstream refuses, it is asked again after its pause, unless ctx ends before.
func (d brokered) LookupDID(ctx context.Context, did syntax.DID) (*identity.Identity, error) {
	limits := []limit{d.plc}
	if did.Method() != "plc" {
		limits = webLimits(did)
	}
	for {
		v, err := d.broker.enter(ctx, limits...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", did, err)
		}
		ident, err := d.fetch(ctx, v, did)
		if _, bounded := ctx.Deadline(); !v.refused || !bounded {
			return ident, err
		}
	}
}

// fetch fetches a document.
func (d brokered) fetch(ctx context.Context, v *visit, did syntax.DID) (*identity.Identity, error) {
	defer v.leave()
	ctx, cancel := v.context(ctx)
	defer cancel()
	ident, err := d.Directory.LookupDID(ctx, did)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", identity.ErrDIDResolutionFailed, err)
	}
	return ident, err
}

// PayerOf names what a DID cost its owner: of a did:plc the DID itself, which the directory
// rations, and of a did:web the registered domain. Names below such a domain are free,
// including those that a company gives away (pages.dev, github.io).
func PayerOf(did syntax.DID) string {
	if did.Method() != "web" {
		return did.String()
	}
	host, _, _ := strings.Cut(strings.ToLower(did.Identifier()), ":")
	return registered(host)
}

// registered returns the registered domain of a host.
func registered(host string) string {
	suffix, public := publicsuffix.PublicSuffix(host)
	for !public && strings.Contains(suffix, ".") {
		_, parent, _ := strings.Cut(suffix, ".")
		suffix, public = publicsuffix.PublicSuffix(parent)
	}
	below := strings.TrimSuffix(strings.TrimSuffix(host, suffix), ".")
	return below[strings.LastIndexByte(below, '.')+1:] + "." + suffix
}

// NewDirectory returns a directory that caches DID documents for an hour, over a client
// for addresses that come from strangers. plc is the address of the did:plc directory.
func (b *Broker) NewDirectory(plc string, c *http.Client) identity.Directory {
	return identity.NewCacheDirectory(b.NewSource(plc, c), 100_000, time.Hour, keptUnreachable, time.Minute)
}

// NewSource returns a directory like NewDirectory's but without a cache, for Keys.
func (b *Broker) NewSource(plc string, c *http.Client) identity.Directory {
	base := &identity.BaseDirectory{PLCURL: plc, HTTPClient: documents(c, 1<<20, lookUpTimeout), SkipHandleVerification: true}
	u, err := url.Parse(plc)
	return brokered{base, b, plcLimit(plc == "" || err != nil || outward.PublicHost(u.Host))}
}
