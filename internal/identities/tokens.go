package identities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	_ "github.com/bluesky-social/indigo/atproto/auth" // registers ES256 and ES256K as the protocol uses them
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"
)

// ErrToken means that a token proves nothing here; the wrapping error gives the reason.
var ErrToken = errors.New("the service auth token is not valid")

const (
	// maxTokenLife bounds the remaining life of a token. The reference PDS signs for a
	// minute, or for an hour if a client asks for that.
	maxTokenLife = time.Hour
	// tokenLeeway is the tolerated difference of clocks.
	tokenLeeway = 5 * time.Second
	// maxToken bounds the bytes of a token, and maxTokenID those of its nonce.
	maxToken, maxTokenID = 8 << 10, 512
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

// claims are the claims of a token.
type claims struct {
	jwt.RegisteredClaims

	Method string `json:"lxm"`
}

// Verify returns the account that a token proves. The token must be addressed to the
// service's entry fragment (such as #bsky_fg) or to the bare DID, be for the method, and not
// have been used before. Verify holds slot only while it checks a signature, which needs a
// processor, and not while it looks up a key.
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

// rules are the library's checks of a token: its algorithm, and that it is neither expired
// nor from the future.
func (t *Tokens) rules() []jwt.ParserOption {
	return []jwt.ParserOption{jwt.WithValidMethods([]string{"ES256", "ES256K"}), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(tokenLeeway), jwt.WithTimeFunc(t.now)}
}

// read parses a token, and makes all checks that need no key, so that invalid tokens cause
// no look-ups.
func (t *Tokens) read(text, fragment, method string) (*claims, syntax.DID, error) {
	if len(text) > maxToken {
		return nil, "", fmt.Errorf("it has %d bytes, and at most %d are allowed", len(text), maxToken) //nolint:err113 // for the client
	}
	c := &claims{}
	token, _, err := jwt.NewParser().ParseUnverified(text, c)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // Verify does
	}
	if typ, _ := token.Header["typ"].(string); slices.Contains(otherTypes, typ) {
		return nil, "", fmt.Errorf("its type %q is for another purpose", typ) //nolint:err113 // likewise
	}
	if kid, ok := token.Header["kid"]; ok && kid != "#atproto" {
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
		err = fmt.Errorf("exp is %s: a token may be valid for at most %v", c.ExpiresAt.UTC().Format(time.RFC3339), maxTokenLife)
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
