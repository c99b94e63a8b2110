package identities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/hashicorp/golang-lru/v2/expirable"
)

// ErrBusy is returned where a look-up was not begun, because too many of the same host are
// under way. It says nothing of who was to be looked up.
var ErrBusy = errors.New("too many look-ups of the same host are under way")

// ErrUnreachable is returned where a DID document could not be fetched.
var ErrUnreachable = errors.New("the DID document could not be fetched")

// How long a look-up may take, and how long its outcome is kept: a key, a definite answer
// that there is none, and a failure to reach the host.
const (
	lookUpTimeout   = 5 * time.Second
	keptKey         = time.Hour
	keptAbsence     = time.Minute
	keptUnreachable = 10 * time.Second
)

// How many keys, and how many failures, are kept.
const (
	maxKeys     = 100_000
	maxFailures = 10_000
)

// Keys finds the keys by which accounts sign (#atproto in their DID documents), and keeps
// them. A key that is kept costs nothing. The others are looked up, a bounded number at a
// time for each host (bounds), so that hosts which never answer delay only their own users.
// Keys may be used from any goroutine.
type Keys struct {
	directory identity.Directory
	found     *expirable.LRU[syntax.DID, atcrypto.PublicKey]
	failed    *expirable.LRU[syntax.DID, failure]
	renewed   *expirable.LRU[syntax.DID, bool] // looked up again in the last minute
	bounds    bounds

	mu       sync.Mutex // guards underWay
	underWay map[syntax.DID]*keyLookUp
}

// failure is why there is no key, and how long that is believed.
type failure struct {
	err   error
	until time.Time
}

// keyLookUp is a look-up under way, which others for the same key wait for. key and err are
// set before done is closed; both are nil if it was given up before it began.
type keyLookUp struct {
	done chan struct{}
	key  atcrypto.PublicKey
	err  error
}

// NewKeys returns Keys that are looked up in a directory, which need not keep anything.
func NewKeys(d identity.Directory) *Keys {
	return &Keys{
		directory: d,
		found:     expirable.NewLRU[syntax.DID, atcrypto.PublicKey](maxKeys, nil, keptKey),
		failed:    expirable.NewLRU[syntax.DID, failure](maxFailures, nil, keptAbsence),
		renewed:   expirable.NewLRU[syntax.DID, bool](maxFailures, nil, time.Minute),
		underWay:  map[syntax.DID]*keyLookUp{},
	}
}

// Key returns the signing key of an account. It returns ErrBusy if ctx ends before the
// look-up could begin, ErrUnreachable if the document could not be fetched, and other errors
// if there is no such key.
func (k *Keys) Key(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	return k.get(ctx, did, false)
}

// Renew looks an account's key up again, where a signature does not fit the key that is
// kept: it may have been changed. Anybody can make a wrong signature, so that is done once a
// minute for an account; renewed is false if it was done before.
func (k *Keys) Renew(ctx context.Context, did syntax.DID) (key atcrypto.PublicKey, renewed bool, err error) {
	k.mu.Lock()
	lately := k.renewed.Contains(did)
	k.renewed.Add(did, true)
	k.mu.Unlock()
	if lately {
		return nil, false, nil
	}
	key, err = k.get(ctx, did, true)
	if errors.Is(err, ErrBusy) {
		k.renewed.Remove(did)
	}
	return key, true, err
}

// get returns a key that is kept, unless it is to be fresh, or looks it up. Those who ask
// for the same key at the same time wait for one look-up.
func (k *Keys) get(ctx context.Context, did syntax.DID, fresh bool) (atcrypto.PublicKey, error) {
	for {
		k.mu.Lock()
		if key, err, known := k.kept(did); known && !fresh {
			k.mu.Unlock()
			return key, err
		}
		l, joined := k.underWay[did]
		if !joined {
			l = &keyLookUp{done: make(chan struct{})}
			k.underWay[did] = l
		}
		k.mu.Unlock()
		if !joined {
			return k.lookUp(ctx, did, l)
		}
		select {
		case <-l.done:
			if l.key != nil || l.err != nil {
				return l.key, l.err
			} // whoever began it has left: take its place
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s", ErrBusy, did)
		}
	}
}

// kept returns what is known of a key without a look-up.
func (k *Keys) kept(did syntax.DID) (key atcrypto.PublicKey, err error, known bool) {
	if key, ok := k.found.Get(did); ok {
		return key, nil, true
	}
	if f, ok := k.failed.Get(did); ok && time.Now().Before(f.until) {
		return nil, f.err, true
	}
	return nil, nil, false
}

// lookUp looks a key up as soon as the bounds of its host allow, and tells those who wait
// for it. A look-up that has begun ends by itself, not with ctx: a client that leaves must
// not make us believe that there is no key.
func (k *Keys) lookUp(ctx context.Context, did syntax.DID, l *keyLookUp) (atcrypto.PublicKey, error) {
	defer func() {
		k.mu.Lock()
		delete(k.underWay, did)
		k.mu.Unlock()
		close(l.done)
	}()
	leave, err := k.bounds.enter(ctx, did)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
	defer cancel()
	l.key, l.err = k.fetch(ctx, did)
	switch {
	case l.err == nil:
		k.found.Add(did, l.key)
	case errors.Is(l.err, ErrUnreachable): // a key that is kept stays
		k.failed.Add(did, failure{l.err, time.Now().Add(keptUnreachable)})
	default:
		k.found.Remove(did)
		k.failed.Add(did, failure{l.err, time.Now().Add(keptAbsence)})
	}
	return l.key, l.err
}

// fetch fetches the document of an account, and takes the key out of it.
func (k *Keys) fetch(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	ident, err := k.directory.LookupDID(ctx, did)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, identity.ErrDIDResolutionFailed)):
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, did, err)
	case err != nil:
		return nil, fmt.Errorf("looking up %s: %w", did, err)
	}
	key, err := ident.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("the DID document of %s: %w", did, err)
	}
	return key, nil
}
