package identities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	_ "github.com/bluesky-social/indigo/atproto/auth" // registers ES256 and ES256K as the protocol has them
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"
)

// ErrToken is returned for a token that proves nothing here; what wraps it says why.
var ErrToken = errors.New("the service auth token is not valid")

const (
	// maxTokenLife is how long a token may still live. The reference PDS signs for a minute,
	// and for an hour where a client asks for that.
	maxTokenLife = time.Hour
	// tokenLeeway is how far clocks may differ.
	tokenLeeway = 5 * time.Second
	// maxToken bounds the bytes of a token, and maxTokenID those of its nonce.
	maxToken, maxTokenID = 8 << 10, 512
)

// otherTypes are the types of JWT that are made for something else, and must not pass for
// service auth tokens: access and refresh tokens of a PDS, and proofs of possession.
var otherTypes = []string{"at+jwt", "refresh+jwt", "dpop+jwt"}

// Tokens checks service auth tokens, by which an account's PDS says for whom it asks
// (https://atproto.com/specs/xrpc#inter-service-authentication-jwt). It may be used from any
// goroutine.
type Tokens struct {
	did     string // the service's own
	keys    *Keys
	replays replays
	now     func() time.Time
}

// NewTokens returns what checks tokens for the service with a DID.
func NewTokens(did string, keys *Keys) *Tokens { return &Tokens{did: did, keys: keys, now: time.Now} }

// claims are what a token says.
type claims struct {
	jwt.RegisteredClaims

	Method string `json:"lxm"`
}

// Verify returns who asks by a token. It must be addressed to the service's entry fragment
// (such as #bsky_fg) or to the bare DID, be for the method, and not have been used before.
// slot is taken while a signature is checked, which needs a processor, and not while a key
// is looked up.
//
// Errors are ErrToken, ErrReplayed, ErrTooMany, ErrBusy, ErrUnreachable, and those of slot.
func (t *Tokens) Verify(ctx context.Context, text, fragment, method string, slot func(context.Context) (leave func(), err error)) (syntax.DID, error) {
	c, issuer, err := t.read(text, fragment, method)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	key, err := t.keys.Key(ctx, issuer)
	if err == nil {
		err = t.signed(ctx, text, key, slot)
	}
	if errors.Is(err, jwt.ErrTokenSignatureInvalid) {
		fresh, renewed, failed := t.keys.Renew(ctx, issuer)
		switch {
		case failed != nil:
			err = failed
		case renewed && !fresh.Equal(key):
			err = t.signed(ctx, text, fresh, slot)
		}
	}
	switch {
	case errors.Is(err, ErrBusy), errors.Is(err, ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	return issuer, t.replays.add(issuer, c.ID, c.ExpiresAt.Add(tokenLeeway), t.now())
}

// rules are how the library checks a token: with which algorithms, and that it is neither
// expired nor from the future.
func (t *Tokens) rules() []jwt.ParserOption {
	return []jwt.ParserOption{jwt.WithValidMethods([]string{"ES256", "ES256K"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(tokenLeeway), jwt.WithTimeFunc(t.now)}
}

// read reads what a token says, and checks all that needs no key: nobody's key is looked up
// for a token that would be refused anyway.
func (t *Tokens) read(text, fragment, method string) (*claims, syntax.DID, error) {
	if len(text) > maxToken {
		return nil, "", fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxToken) //nolint:err113 // it is told to the client
	}
	c := &claims{}
	token, _, err := jwt.NewParser().ParseUnverified(text, c)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // Verify does
	}
	if typ, _ := token.Header["typ"].(string); slices.Contains(otherTypes, typ) {
		return nil, "", fmt.Errorf("it is of the type %q, which is for something else", typ) //nolint:err113 // likewise
	}
	if kid, given := token.Header["kid"]; given && kid != "#atproto" {
		return nil, "", fmt.Errorf("it is signed with the key %v; only #atproto is accepted", kid) //nolint:err113 // likewise
	}
	if err := jwt.NewValidator(t.rules()...).Validate(c); err != nil {
		return nil, "", err //nolint:wrapcheck // Verify does
	}
	issuer, err := syntax.ParseDID(c.Issuer)
	switch {
	case err != nil:
		err = fmt.Errorf("iss is %q: it must be a DID without a fragment", clip(c.Issuer))
	case issuer.Method() != "plc" && issuer.Method() != "web":
		err = fmt.Errorf("iss is %q: it must be a did:plc or a did:web", clip(c.Issuer))
	case len(c.Audience) != 1 || c.Audience[0] != t.did && c.Audience[0] != t.did+fragment:
		err = fmt.Errorf("aud is %q: it must be %s%s, or %s", c.Audience, t.did, fragment, t.did)
	case c.Method != method:
		err = fmt.Errorf("lxm is %q: it must be %s", clip(c.Method), method)
	case c.IssuedAt == nil:
		err = errors.New("iat is missing")
	case c.ID == "" || len(c.ID) > maxTokenID:
		err = fmt.Errorf("jti has %d bytes: it must be a nonce of 1 to %d", len(c.ID), maxTokenID)
	case c.ExpiresAt.After(t.now().Add(maxTokenLife + tokenLeeway)):
		err = fmt.Errorf("exp is %s: a token may be valid for %v at most", c.ExpiresAt.UTC().Format(time.RFC3339), maxTokenLife)
	}
	return c, issuer, err
}

func clip(s string) string { return fmt.Sprintf("%.100s", s) }

// signed checks a token's signature.
func (t *Tokens) signed(ctx context.Context, text string, key atcrypto.PublicKey, slot func(context.Context) (func(), error)) error {
	leave, err := slot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = jwt.NewParser(t.rules()...).ParseWithClaims(text, &claims{}, func(*jwt.Token) (any, error) { return key, nil })
	return err //nolint:wrapcheck // Verify does
}
