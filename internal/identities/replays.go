package identities

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Errors of used tokens.
var (
	// ErrReplayed means that a token was used before.
	ErrReplayed = errors.New("the token was used before; each request needs a new one")
	// ErrTooMany means that an issuer has too many live tokens.
	ErrTooMany = errors.New("too many tokens of the same issuer are still valid")
)

// Bounds on remembered tokens, in all and per issuer (PayerOf).
const (
	MaxRemembered = 64 << 10
	MaxOfIssuer   = 1024
)

// replays remembers used tokens until they expire. Its memory is bounded: an issuer with
// MaxOfIssuer live tokens gets ErrTooMany, and above MaxRemembered tokens in all, those that
// expire last are forgotten first, because a PDS signs for a minute, and an attacker who
// wants to fill this memory for an hour. Each process remembers its own tokens.
type replays struct {
	mu    sync.Mutex // guards the fields below
	used  map[[16]byte]use
	of    map[string]int // number of used tokens by issuer
	swept time.Time
}

// use is a used token.
type use struct {
	expires time.Time
	issuer  string // PayerOf
}

// sweepEvery is how often expired tokens are forgotten.
const sweepEvery = 10 * time.Second

// add remembers a token, and returns ErrReplayed if it is known already.
func (r *replays) add(issuer syntax.DID, id string, expires, now time.Time) error {
	sum := sha256.Sum256([]byte(issuer.String() + "\x00" + id))
	key, payer := [16]byte(sum[:16]), PayerOf(issuer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		r.used, r.of = map[[16]byte]use{}, map[string]int{}
	}
	if now.Sub(r.swept) >= sweepEvery {
		r.sweep(now)
	}
	if u, ok := r.used[key]; ok && now.Before(u.expires) {
		return ErrReplayed
	}
	if r.of[payer] >= MaxOfIssuer {
		return ErrTooMany
	}
	if len(r.used) >= MaxRemembered {
		r.forget(now)
	}
	if _, ok := r.used[key]; !ok {
		r.of[payer]++
	}
	r.used[key] = use{expires, payer}
	return nil
}

// sweep forgets expired tokens. mu is held.
func (r *replays) sweep(now time.Time) {
	for key, u := range r.used {
		if !now.Before(u.expires) {
			r.remove(key, u)
		}
	}
	r.swept = now
}

// forget forgets expired tokens and, if that is not enough, those that expire last: after half of an hour from now, a quarter, and so on. mu is held.
func (r *replays) forget(now time.Time) {
	r.sweep(now)
	for within := longestUse / 2; len(r.used) >= MaxRemembered; within /= 2 {
		for key, u := range r.used {
			if u.expires.Sub(now) > within {
				r.remove(key, u)
			}
		}
	}
}

func (r *replays) remove(key [16]byte, u use) {
	delete(r.used, key)
	if r.of[u.issuer]--; r.of[u.issuer] <= 0 {
		delete(r.of, u.issuer)
	}
}
