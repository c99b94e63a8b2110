package proof

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"
	lru "github.com/hashicorp/golang-lru/v2"

	"skein.blue/consumer/wire"
	"skein.blue/internal/identities"
)

// Keys finds the keys by which accounts sign, as identities.Keys does.
type Keys interface {
	// Key returns an account's key. The error is identities.ErrUnreachable or
	// identities.ErrBusy if the key is not known now, else there is none.
	Key(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error)
	// Renew looks the key up again. renewed is false, and key nil, if that was done lately.
	Renew(ctx context.Context, did syntax.DID) (key atcrypto.PublicKey, renewed bool, err error)
	// Cached returns a key that needs no look-up.
	Cached(did syntax.DID) (key atcrypto.PublicKey, ok bool)
	// Forget makes the next Key look the key up again.
	Forget(did syntax.DID)
}

// A slow source of keys holds up the stream for at most patience, and then not again for respite:
// meanwhile, accounts whose key is not cached are unverifiable. A source is the did:plc directory,
// or a registered domain of did:web. While the directory answers others, a look-up that waits for its turn
// (identities.Broker) may take up to longest: fetching the repo instead would need the same key.
const (
	patience = 2 * time.Second
	longest  = 15 * time.Second
	respite  = 30 * time.Second

	directory = "plc"
)

// A Verifier checks messages and repos. Any goroutine may use it.
type Verifier struct {
	keys  Keys
	slots chan struct{} // one for each processor

	answered atomic.Int64 // when the directory answered last, in microseconds since 1970

	slow *lru.Cache[string, time.Time] // sources that were slow, until when
}

// NewVerifier returns a Verifier.
func NewVerifier(keys Keys) *Verifier {
	slow, _ := lru.New[string, time.Time](maxSlow) // fails for sizes below 1
	return &Verifier{keys: keys, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), slow: slow}
}

// Changed says that an account's DID document may have changed.
func (v *Verifier) Changed(did []byte) { v.keys.Forget(syntax.DID(did)) }

// Verify returns "" if the account made the Commit or Sync, else the reason to drop it, and an
// error with the details: it checks the signature, and of a Commit the operations, by inversion.
func (v *Verifier) Verify(ctx context.Context, m *wire.Message) (wire.Reason, error) {
	did, err := syntax.ParseDID(string(m.DID))
	switch {
	case err != nil:
		return "", nil //nolint:nilerr // the decoder drops it
	case m.TooBig:
		return wire.TooBig, errTooBig
	}
	k, reason, err := v.read(m)
	if reason != "" {
		return reason, err
	}
	return v.signed(ctx, did, &k)
}

var (
	errTooBig   = errors.New("the message says that the commit was too big to send")
	errSlow     = errors.New("the source of the account's DID document answers too slowly")
	errOtherKey = errors.New("the account's key did not make the signature")
)

// read makes the checks that need no key.
func (v *Verifier) read(m *wire.Message) (k Commit, reason wire.Reason, err error) {
	v.slots <- struct{}{}
	defer func() { <-v.slots }()
	var c Checker
	if k, err = c.Commit(m); err != nil {
		return k, wire.BadCommit, err
	}
	if m.Type == wire.Commit {
		if err := c.Invert(m, k); err != nil {
			return k, wire.Unproven, err
		}
	}
	return k, "", nil
}

// VerifyRepo returns "" if the account signed the commit block of its repo, else the reason not to
// believe the repo.
func (v *Verifier) VerifyRepo(ctx context.Context, did string, block []byte) wire.Reason {
	k, err := ParseCommit(block)
	if err != nil || string(k.DID) != did {
		return wire.BadCommit
	}
	reason, _ := v.signed(identities.ForRepos(ctx), syntax.DID(did), &k)
	return reason
}

// KeyUnreachable reports whether an account's key cannot be looked up now. A key that it finds needs
// no other look-up soon.
func (v *Verifier) KeyUnreachable(ctx context.Context, did string) bool {
	if _, cached := v.keys.Cached(syntax.DID(did)); cached {
		return false
	}
	_, reason, _ := v.key(identities.ForRepos(ctx), syntax.DID(did), v.keys.Key)
	return reason == wire.KeyUnreachable
}

// signed checks the signature of a commit. If it does not match the key, the key may have been
// replaced: it is looked up again.
func (v *Verifier) signed(ctx context.Context, did syntax.DID, k *Commit) (wire.Reason, error) {
	key, cached := v.keys.Cached(did)
	if !cached {
		var reason wire.Reason
		var err error
		if key, reason, err = v.key(ctx, did, v.keys.Key); reason != "" {
			return reason, err
		}
	}
	if v.matches(key, k) {
		return "", nil
	}
	renewed := false
	fresh, reason, err := v.key(ctx, did, func(ctx context.Context, did syntax.DID) (key atcrypto.PublicKey, err error) {
		key, renewed, err = v.keys.Renew(ctx, did)
		return key, err
	})
	switch {
	case reason != "":
		return reason, err
	case !renewed: // fresh is nil
	case !fresh.Equal(key) && v.matches(fresh, k):
		return "", nil
	default:
		key = fresh
	}
	return wire.BadSignature, fmt.Errorf("%w: the key is %s", errOtherKey, key.DIDKey())
}

func (v *Verifier) matches(key atcrypto.PublicKey, k *Commit) bool {
	v.slots <- struct{}{}
	defer func() { <-v.slots }()
	return key.HashAndVerify(k.Unsigned, k.Sig) == nil
}

// key gets a key, with patience. A look-up that takes longer goes on, and its key is cached. No
// look-up starts at a source that was slow a moment ago.
func (v *Verifier) key(ctx context.Context, did syntax.DID, get func(context.Context, syntax.DID) (atcrypto.PublicKey, error)) (atcrypto.PublicKey, wire.Reason, error) {
	source := directory
	if did.Method() != "plc" {
		source = identities.PayerOf(did)
	}
	if v.isSlow(source) {
		return nil, wire.KeyUnreachable, errSlow
	}
	type answer struct {
		key atcrypto.PublicKey
		err error
	}
	found := make(chan answer, 1)
	until := time.Now().Add(longest)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), respite)
		defer cancel()
		key, err := get(ctx, did)
		found <- answer{key, err}
	}()
	for wait := patience; wait > 0; wait = v.more(source, until) {
		select {
		case a := <-found:
			if errors.Is(a.err, identities.ErrUnreachable) || errors.Is(a.err, identities.ErrBusy) {
				return nil, wire.KeyUnreachable, a.err
			}
			if source == directory {
				v.answered.Store(time.Now().UnixMicro())
			}
			if a.err != nil {
				return nil, wire.NoKey, a.err
			}
			return a.key, "", nil
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, wire.KeyUnreachable, ctx.Err()
		}
	}
	v.slow.Add(source, time.Now().Add(respite))
	return nil, wire.KeyUnreachable, errSlow
}

// more returns how much longer to wait for a source: for a host that an account chose, no longer.
func (v *Verifier) more(source string, until time.Time) time.Duration {
	if source != directory {
		return 0
	}
	answered := time.UnixMicro(v.answered.Load())
	return min(time.Until(answered.Add(patience)), time.Until(until))
}

func (v *Verifier) isSlow(source string) bool {
	until, ok := v.slow.Get(source)
	return ok && time.Now().Before(until)
}

// maxSlow bounds the number of remembered slow sources.
const maxSlow = 10_000
