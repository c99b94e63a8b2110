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
	"golang.org/x/sync/singleflight"
)

// ErrUnreachable means that fetching a DID document failed.
var ErrUnreachable = errors.New("fetching the DID document failed")

// Time limits of a look-up, and of caching its outcome: a key, a definite answer that there
// is none, and a failure to reach the host.
const (
	lookUpTimeout   = 5 * time.Second
	keptKey         = time.Hour
	keptAbsence     = time.Minute
	keptUnreachable = 10 * time.Second
)

// Bounds on cached keys and failures.
const (
	maxKeys     = 100_000
	maxFailures = 10_000
)

// Keys finds the keys by which accounts sign (#atproto in their DID documents), and caches
// them. Cached keys cost nothing. Any goroutine may use Keys.
type Keys struct {
	directory identity.Directory
	found     *expirable.LRU[syntax.DID, atcrypto.PublicKey]
	failed    *expirable.LRU[syntax.DID, failure]
	renewed   *expirable.LRU[syntax.DID, bool] // renewed in the last minute

	underWay singleflight.Group // by account and asker: another client's may wait for its turn for long

	mu sync.Mutex // held while renewed is asked and changed
}

// failure is the reason why there is no key, and how long it is cached.
type failure struct {
	err   error
	until time.Time
}

// NewKeys returns Keys over a directory, which needs no cache, and is that of a Broker (Broker.Over).
func NewKeys(d identity.Directory) *Keys { return NewKeysKept(d, maxKeys, keptKey) }

// NewKeysKept is NewKeys with as many cached keys as given, for as long as given. A key takes some
// 500 bytes.
func NewKeysKept(d identity.Directory, most int, kept time.Duration) *Keys {
	return &Keys{
		directory: d,
		found:     expirable.NewLRU[syntax.DID, atcrypto.PublicKey](most, nil, kept),
		failed:    expirable.NewLRU[syntax.DID, failure](maxFailures, nil, keptAbsence),
		renewed:   expirable.NewLRU[syntax.DID, bool](maxFailures, nil, time.Minute),
	}
}

// Key returns the signing key of an account. It returns ErrBusy if ctx ends before the
// look-up could start, ErrUnreachable if fetching the document failed, and other errors if
// there is no such key.
func (k *Keys) Key(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	return k.get(ctx, did, false)
}

// Cached returns an account's key if no look-up is needed.
func (k *Keys) Cached(did syntax.DID) (key atcrypto.PublicKey, ok bool) { return k.found.Get(did) }

// Forget removes an account's key from the cache, because it may have been replaced.
func (k *Keys) Forget(did syntax.DID) {
	k.found.Remove(did)
	k.failed.Remove(did)
}

// Renew looks up an account's key again after a signature did not match the cached key,
// which may be outdated. Anybody can send a wrong signature, so it does that once a minute
// per account; renewed is false, and key nil, if it was done before.
func (k *Keys) Renew(ctx context.Context, did syntax.DID) (key atcrypto.PublicKey, renewed bool, err error) {
	k.mu.Lock()
	recent := k.renewed.Contains(did)
	if !recent { // else wrong signatures would extend the minute
		k.renewed.Add(did, true)
	}
	k.mu.Unlock()
	if recent {
		return nil, false, nil
	}
	key, err = k.get(ctx, did, true)
	if errors.Is(err, ErrBusy) {
		k.renewed.Remove(did)
	}
	return key, true, err
}

// get returns a cached key unless fresh, or looks it up. Concurrent requests for the same
// key share one look-up.
func (k *Keys) get(ctx context.Context, did syntax.DID, fresh bool) (atcrypto.PublicKey, error) {
	for {
		if key, err, known := k.kept(did); known && !fresh {
			return key, err
		}
		started := false
		result := k.underWay.DoChan(fmt.Sprint(did, " ", askerOf(ctx)), func() (any, error) {
			started = true
			return k.lookUp(ctx, did)
		})
		select {
		case r := <-result:
			if started || !errors.Is(r.Err, ErrBusy) { // else the request that started it has left: take its place
				key, _ := r.Val.(atcrypto.PublicKey)
				return key, r.Err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s", ErrBusy, did)
		}
	}
}

// kept returns the cached key or failure.
func (k *Keys) kept(did syntax.DID) (key atcrypto.PublicKey, err error, known bool) {
	if key, ok := k.found.Get(did); ok {
		return key, nil, true
	}
	if f, ok := k.failed.Get(did); ok && time.Now().Before(f.until) {
		return nil, f.err, true
	}
	return nil, nil, false
}

// lookUp looks up a key, and keeps the outcome.
func (k *Keys) lookUp(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	key, err := k.fetch(ctx, did)
	switch {
	case errors.Is(err, ErrBusy): // it says nothing of the account
	case err == nil:
		k.found.Add(did, key)
	case errors.Is(err, ErrUnreachable): // a cached key stays
		k.failed.Add(did, failure{err, time.Now().Add(keptUnreachable)})
	default:
		k.found.Remove(did)
		k.failed.Add(did, failure{err, time.Now().Add(keptAbsence)})
	}
	return key, err
}

// fetch fetches the document of an account, and returns its key.
func (k *Keys) fetch(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	ident, err := k.directory.LookupDID(ctx, did)
	switch {
	case errors.Is(err, ErrBusy):
		return nil, err
	case errors.Is(err, identity.ErrDIDResolutionFailed):
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
