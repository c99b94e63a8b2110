package identities

import (
	"cmp"
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
	// ErrOff means that this server does not resolve handles.
	ErrOff = errors.New("handles are not resolved here (--resolver off); give the DID")
	// ErrNotFound means that a handle does not exist.
	ErrNotFound = errors.New("unknown handle")
	// ErrFailed means that resolving a handle failed.
	ErrFailed = errors.New("resolving the handle failed")
)

// Options say how to resolve handles.
type Options struct {
	// Resolver is "" or "dns" for DNS and HTTPS, "off", or the URL of a service.
	Resolver string
	// AllowPrivate also allows look-ups at private addresses.
	AllowPrivate bool
	// Broker admits look-ups. nil means one of the Resolver's own.
	Broker *Broker
	// Directory has the DID documents, which HandleOf reads.
	Directory identity.Directory
}

// keptHandles bounds the cached answers. They are cached for ten minutes, failures for one.
const keptHandles = 100_000

// A Resolver finds the DIDs of handles. Any goroutine may use it.
type Resolver struct {
	o       Options
	service string // address of the service
	client  http.Client
	direct  *identity.BaseDirectory
	found   *expirable.LRU[string, string]
	failed  *expirable.LRU[string, error]  // by handle, or the DID of a document
	names   *expirable.LRU[string, string] // what DID documents have
}

// New returns a Resolver.
func New(o Options) (*Resolver, error) {
	o.Broker = cmp.Or(o.Broker, new(Broker))
	r := &Resolver{
		o:     o,
		found: expirable.NewLRU[string, string](keptHandles, nil, 10*time.Minute), failed: expirable.NewLRU[string, error](keptHandles, nil, time.Minute),
		names: expirable.NewLRU[string, string](keptHandles, nil, 10*time.Minute),
	}
	const most = 16 << 10
	switch o.Resolver {
	case "", "dns":
		c := documents(outward.NewClient(outward.Options{AllowPrivate: o.AllowPrivate}), most, lookUpTimeout)
		r.direct = &identity.BaseDirectory{HTTPClient: c}
	case "off":
	default:
		u, err := url.Parse(o.Resolver)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("resolver %q is not dns, off, or the URL of a service with com.atproto.identity.resolveHandle", o.Resolver)
		}
		r.service = strings.TrimSuffix(o.Resolver, "/")
		r.client = documents(outward.NewClient(outward.Options{Trusted: []string{o.Resolver}, AllowPrivate: o.AllowPrivate}), most, lookUpTimeout)
	}
	return r, nil
}

// Kept returns the cached DID of a handle, or the cached failure.
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

// Resolve returns the DID of a valid handle. The error is ErrBusy if the look-up could not start.
func (r *Resolver) Resolve(ctx context.Context, handle string) (did string, err error) {
	handle = strings.ToLower(handle)
	if did, known, err := r.Kept(handle); known {
		return did, err
	}
	limits := []limit{allHandles}
	if r.direct != nil {
		limits = []limit{{"handles of " + registered(handle), lane{2, 5, 20}, lane{ClientsOfHandles / 2, 10, 40}}, allHandles} // of its host, too
	}
	v, err := r.o.Broker.enter(ctx, limits...)
	if err != nil {
		return "", err
	}
	defer v.leave()
	if did, known, err := r.Kept(handle); known { // by the resolution that we waited for
		return did, err
	}
	bounded, cancel := v.context(ctx)
	defer cancel()
	if r.direct != nil {
		did, err = r.resolveDirect(bounded, handle)
	} else {
		did, err = r.ask(bounded, handle)
	}
	if _, bad := syntax.ParseDID(did); err == nil && bad != nil {
		err = fmt.Errorf("%w: the answer %.80q is not a DID", ErrFailed, did)
	}
	if err != nil {
		if !errors.Is(bounded.Err(), context.Canceled) { // else it says nothing about the handle
			r.failed.Add(handle, err)
		}
		return "", err
	}
	r.found.Add(handle, did)
	return did, nil
}

// HandleOf returns the handle of an account: the one that its DID document has, if it resolves to the DID. That of the document is
// cached for ten minutes, and so is where it leads, so a handle that has moved is not returned for longer.
func (r *Resolver) HandleOf(ctx context.Context, did string) (string, error) {
	if r.service == "" && r.direct == nil {
		return "", ErrOff
	}
	if err, failed := r.failed.Get(did); failed {
		return "", err
	}
	handle, known := r.names.Get(did)
	if !known {
		var declared syntax.Handle
		document, err := r.o.Directory.LookupDID(ctx, syntax.DID(did))
		if err == nil {
			declared, err = document.DeclaredHandle()
		}
		if err != nil {
			err = fmt.Errorf("the handle of %s: %w", did, err)
			if !errors.Is(err, ErrBusy) {
				r.failed.Add(did, err)
			}
			return "", err
		}
		handle = declared.String()
		r.names.Add(did, handle)
	}
	leads, err := r.Resolve(ctx, handle)
	if err != nil || leads != did {
		return "", fmt.Errorf("the handle of %s: %w", did, cmp.Or(err, ErrNotFound))
	}
	return handle, nil
}

func (r *Resolver) resolveDirect(ctx context.Context, handle string) (string, error) {
	h, err := syntax.ParseHandle(handle)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	did, err := r.direct.ResolveHandle(ctx, h)
	switch {
	case err != nil && !outward.PublicHost(handle):
		return "", fmt.Errorf("%w on the public network; for names under .%s, --resolver takes the address of a PDS", ErrNotFound, h.TLD())
	case errors.Is(err, identity.ErrHandleNotFound), errors.Is(err, identity.ErrHandleReservedTLD):
		return "", ErrNotFound
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return did.String(), nil
}

// ask sends the request to the service.
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
		return "", fmt.Errorf("%w: the resolver answered HTTP %d %s", ErrFailed, resp.StatusCode, body.Error)
	}
	return "", fmt.Errorf("%w: the resolver answered HTTP %d: %w", ErrFailed, resp.StatusCode, err)
}
