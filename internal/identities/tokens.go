package identities

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// ErrToken means that a token proves nothing here; the wrapping error gives the reason.
var ErrToken = errors.New("the service auth token is not valid")

// errSignature means that the issuer's key did not sign a token.
var errSignature = errors.New("the signature is not the issuer's")

const (
	// tokenLeeway is the tolerated difference of clocks.
	tokenLeeway = 5 * time.Second
	// longestUse is how long a used token is remembered. The reference PDS signs for a minute, or for an hour if a client
	// asks for that.
	longestUse = time.Hour
	// maxToken bounds the bytes of a token.
	maxToken = 8 << 10
)

// otherTypes are types of JWT with other purposes, which must not pass as service auth
// tokens: access and refresh tokens of a PDS, and proofs of possession.
var otherTypes = []string{"at+jwt", "refresh+jwt", "dpop+jwt"}

// Tokens checks service auth tokens, by which an account's PDS proves on whose behalf it
// asks (https://atproto.com/specs/xrpc#inter-service-authentication-jwt). Any goroutine may
// use it.
type Tokens struct {
	did     string // of this service
	keys    *Keys
	replays replays
	now     func() time.Time
}

// NewTokens returns Tokens for the service with a DID.
func NewTokens(did string, keys *Keys) *Tokens { return &Tokens{did: did, keys: keys, now: time.Now} }

// Verify returns the account that a token proves. The token must be addressed to the
// service's entry fragment (such as #bsky_fg) or to the bare DID, be for the method, and not
// have been used in the last hour. The rest is as in the reference, verifyJwt of @atproto/xrpc-server: iat, nbf, jti
// and kid are not required, nor checked. Verify holds slot only while it checks a signature, which needs a
// processor, and not while it looks up a key.
func (t *Tokens) Verify(ctx context.Context, text, fragment, method string, slot func(context.Context) (leave func(), err error)) (syntax.DID, error) {
	c, err := t.read(text, fragment, method)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	key, err := t.keys.Key(ctx, c.issuer)
	if err == nil {
		err = c.signed(ctx, key, slot)
	}
	if errors.Is(err, errSignature) {
		fresh, renewed, failed := t.keys.Renew(ctx, c.issuer)
		switch {
		case failed != nil:
			err = failed
		case renewed && !fresh.Equal(key):
			err = c.signed(ctx, fresh, slot)
		}
	}
	switch {
	case errors.Is(err, ErrBusy), errors.Is(err, ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	return c.issuer, t.replays.add(c.issuer, c.once, c.expires, t.now())
}

// claim is a token whose signature has not been checked.
type claim struct {
	text      string // what is signed
	signature []byte
	issuer    syntax.DID
	once      string // differs from that of the issuer's other tokens
	expires   time.Time
}

// algorithms are those of the protocol's keys.
var algorithms = []string{"ES256", "ES256K"}

// parse decodes a token: two JSON objects and a signature (RFC 7519, RFC 7515).
func parse(text string) (header, claims map[string]any, signature []byte, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, nil, nil, fmt.Errorf("a token has 3 parts, and it has %d", len(parts))
	}
	for i, into := range []*map[string]any{&header, &claims} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("its part %d is malformed: %w", i+1, err)
		}
	}
	if signature, err = base64.RawURLEncoding.DecodeString(parts[2]); err != nil {
		err = fmt.Errorf("its signature is malformed: %w", err)
	}
	return header, claims, signature, err
}

// read parses a token, and makes all checks that need no key, so that invalid tokens cause
// no look-ups.
func (t *Tokens) read(text, fragment, method string) (c claim, err error) {
	if len(text) > maxToken {
		return c, fmt.Errorf("it has %d bytes, and at most %d are allowed", len(text), maxToken)
	}
	header, claims, signature, err := parse(text)
	if err != nil {
		return c, err
	}
	named := func(name string) string { s, _ := claims[name].(string); return s }
	typ, _ := header["typ"].(string)
	alg, _ := header["alg"].(string)
	exp, hasExp := claims["exp"].(float64)
	seconds := min(exp-float64(t.now().UnixMilli())/1000, longestUse.Seconds())
	issuer, invalid := syntax.ParseDID(named("iss"))
	switch {
	case !slices.Contains(algorithms, alg):
		err = fmt.Errorf("alg is %.100q: it must be ES256 or ES256K", alg)
	case slices.Contains(otherTypes, typ):
		err = fmt.Errorf("its type %q is for another purpose", typ)
	case !hasExp:
		err = errors.New("exp is missing, or is not a number")
	case seconds < -tokenLeeway.Seconds():
		err = fmt.Errorf("it expired %.0f seconds ago, by this server's clock", -seconds)
	case invalid != nil:
		err = fmt.Errorf("iss is %.100q: it must be a DID without a fragment", named("iss"))
	case issuer.Method() != "plc" && issuer.Method() != "web":
		err = fmt.Errorf("iss is %.100q: it must be a did:plc or a did:web", named("iss"))
	case named("aud") != t.did && named("aud") != t.did+fragment:
		err = fmt.Errorf("aud is %.100q: it must be %s%s, or %s", named("aud"), t.did, fragment, t.did)
	case named("lxm") != method:
		err = fmt.Errorf("lxm is %.100q: it must be %s", named("lxm"), method)
	}
	if err != nil {
		return c, err
	}
	c = claim{text: text[:strings.LastIndexByte(text, '.')], signature: signature, issuer: issuer, once: "jti " + named("jti")}
	if named("jti") == "" {
		// Those of its bytes that nobody can change without the key: what is signed, and of the signature (r, s) only r,
		// because (r, -s) is valid, too.
		c.once = c.text + string(signature[:min(len(signature), 32)])
	}
	c.expires = t.now().Add(time.Duration(seconds*float64(time.Second)) + tokenLeeway)
	return c, nil
}

// signed checks the signature.
func (c *claim) signed(ctx context.Context, key atcrypto.PublicKey, slot func(context.Context) (func(), error)) error {
	leave, err := slot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	// As in the reference, (r, -s) is valid beside (r, s).
	if err := key.HashAndVerifyLenient([]byte(c.text), c.signature); err != nil || len(c.signature) != 64 {
		return errors.Join(errSignature, err)
	}
	return nil
}
