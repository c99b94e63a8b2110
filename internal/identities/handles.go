// Package identities finds who is behind a name that a stranger gave: the DID of a handle,
// by DNS and HTTPS, as the specification says (atproto.com/specs/handle), or by asking a
// service that does it (com.atproto.identity.resolveHandle); and the document of a DID.
// The work is done by indigo's atproto/identity.
//
// What is resolved at a time is bounded, answers are kept, and addresses that are none of
// the public internet are not asked (package outward).
package identities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/hashicorp/golang-lru/v2/expirable"

	"skein.blue/internal/outward"
)

// Errors of Resolve.
var (
	// ErrOff is returned where handles are not resolved.
	ErrOff = errors.New("handles are not resolved here (--resolver off): give the DID")
	// ErrNotFound is returned for a handle that nobody has.
	ErrNotFound = errors.New("nobody has this handle")
	// ErrFailed is returned where it could not be found out.
	ErrFailed = errors.New("the handle could not be resolved")
)

// Options say how handles are resolved.
type Options struct {
	// Resolver is "" or "dns" for DNS and HTTPS, "off", or the URL of a service.
	Resolver string
	// AllowPrivate has handles looked up at private addresses, too.
	AllowPrivate bool
	// Timeout bounds one resolution. 0 means five seconds.
	Timeout time.Duration
	// AtOnce is how many are resolved at a time. 0 means 16.
	AtOnce int
	// Kept is how many answers are kept, for ten minutes, or for one if there was none.
	// 0 means 100,000.
	Kept int
}

// A Resolver finds the DIDs of handles. It may be used from any goroutine.
type Resolver struct {
	o       Options
	service string // the address of one
	client  *http.Client
	direct  *identity.BaseDirectory
	slots   chan struct{}
	found   *expirable.LRU[string, string]
	failed  *expirable.LRU[string, error]
}

// New returns a Resolver.
func New(o Options) (*Resolver, error) {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.AtOnce <= 0 {
		o.AtOnce = 16
	}
	if o.Kept <= 0 {
		o.Kept = 100_000
	}
	r := &Resolver{
		o: o, slots: make(chan struct{}, o.AtOnce),
		found: expirable.NewLRU[string, string](o.Kept, nil, 10*time.Minute), failed: expirable.NewLRU[string, error](o.Kept, nil, time.Minute),
	}
	const most = 16 << 10
	switch o.Resolver {
	case "", "dns":
		c := outward.Documents(outward.NewClient(outward.Options{AllowPrivate: o.AllowPrivate}), most, o.Timeout)
		r.direct = &identity.BaseDirectory{HTTPClient: *c, UserAgent: "skein"}
	case "off":
	default:
		u, err := url.Parse(o.Resolver)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("the resolver %q is none of dns, off, and the URL of a service that answers com.atproto.identity.resolveHandle", o.Resolver) //nolint:err113 // it is told to the operator
		}
		r.service = strings.TrimSuffix(o.Resolver, "/")
		r.client = outward.Documents(outward.NewClient(outward.Options{Trusted: []string{o.Resolver}, AllowPrivate: o.AllowPrivate}), most, o.Timeout)
	}
	return r, nil
}

// Kept returns the DID of a handle, or why there is none, if that is known.
func (r *Resolver) Kept(handle string) (did string, known bool, err error) {
	handle = strings.ToLower(handle)
	if did, ok := r.found.Get(handle); ok {
		return did, true, nil
	}
	if r.service == "" && r.direct == nil {
		return "", true, ErrOff
	}
	err, known = r.failed.Get(handle)
	return "", known, err
}

// Resolve returns the DID of a handle, which is valid.
func (r *Resolver) Resolve(ctx context.Context, handle string) (did string, err error) {
	handle = strings.ToLower(handle)
	if did, known, err := r.Kept(handle); known {
		return did, err
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrFailed, ctx.Err())
	}
	if did, known, err := r.Kept(handle); known { // by the one that we waited for
		return did, err
	}
	bounded, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if r.direct != nil {
		did, err = r.resolveDirect(bounded, handle)
	} else {
		did, err = r.ask(bounded, handle)
	}
	if err == nil {
		if _, bad := syntax.ParseDID(did); bad != nil {
			err = fmt.Errorf("%w: its answer %.80q is no DID", ErrFailed, did)
		}
	}
	if err != nil {
		if ctx.Err() == nil { // else it says nothing of the handle
			r.failed.Add(handle, err)
		}
		return "", err
	}
	r.found.Add(handle, did)
	return did, nil
}

func (r *Resolver) resolveDirect(ctx context.Context, handle string) (string, error) {
	h, err := syntax.ParseHandle(handle)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	did, err := r.direct.ResolveHandle(ctx, h)
	switch {
	case errors.Is(err, identity.ErrHandleNotFound), errors.Is(err, identity.ErrHandleReservedTLD):
		return "", ErrNotFound
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return did.String(), nil
}

// ask asks the service.
func (r *Resolver) ask(ctx context.Context, handle string) (string, error) {
	u := r.service + "/xrpc/com.atproto.identity.resolveHandle?" + url.Values{"handle": {handle}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFailed, err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFailed, err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct{ DID, Error, Message string }
	err = json.NewDecoder(resp.Body).Decode(&body)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil:
		return body.DID, nil
	case resp.StatusCode == http.StatusBadRequest && (body.Error == "HandleNotFound" || strings.Contains(body.Message, "Unable to resolve")):
		return "", ErrNotFound
	case err == nil:
		return "", fmt.Errorf("%w: the resolver answers HTTP %d %s", ErrFailed, resp.StatusCode, body.Error)
	}
	return "", fmt.Errorf("%w: the resolver answers HTTP %d: %w", ErrFailed, resp.StatusCode, err)
}
