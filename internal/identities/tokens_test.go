package identities

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	_ "github.com/bluesky-social/indigo/atproto/auth" // registers ES256 and ES256K as the protocol uses them
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/golang-lru/v2/expirable"

	"skein.blue/internal/sim/harness"
)

const (
	alice  = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	us     = "did:web:graph.example.com"
	entry  = "#skein_graph"
	method = "blue.skein.graph.query"
)

// keyDirectory is a directory of keys that counts look-ups.
type keyDirectory struct {
	mu      sync.Mutex
	keys    map[syntax.DID]string
	fail    error
	lookUps atomic.Int64
}

func (d *keyDirectory) LookupDID(_ context.Context, did syntax.DID) (*identity.Identity, error) {
	d.lookUps.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	key, ok := d.keys[did]
	if !ok {
		return nil, identity.ErrDIDNotFound
	}
	return &identity.Identity{DID: did, Keys: map[string]identity.VerificationMethod{"atproto": {Type: "Multikey", PublicKeyMultibase: key}}}, nil
}

func (d *keyDirectory) LookupHandle(context.Context, syntax.Handle) (*identity.Identity, error) {
	return nil, errors.ErrUnsupported
}

func (d *keyDirectory) Lookup(context.Context, syntax.AtIdentifier) (*identity.Identity, error) {
	return nil, errors.ErrUnsupported
}
func (d *keyDirectory) Purge(context.Context, syntax.AtIdentifier) error { return nil }

// give gives an account a new key.
func (d *keyDirectory) give(t *testing.T, did string) atcrypto.PrivateKey {
	t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	must(t, err)
	public, err := key.PublicKey()
	must(t, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys[syntax.DID(did)] = public.Multibase()
	return key
}

func newTokens(t *testing.T) (*Tokens, *keyDirectory, atcrypto.PrivateKey) {
	t.Helper()
	d := &keyDirectory{keys: map[syntax.DID]string{}}
	return NewTokens(us, NewKeys(d)), d, d.give(t, alice)
}

var serial atomic.Int64

// sign makes a valid token with some claims changed; nil removes a claim.
func sign(t *testing.T, key atcrypto.PrivateKey, changed jwt.MapClaims, header map[string]any) string {
	t.Helper()
	now := time.Now()
	c := jwt.MapClaims{"iss": alice, "aud": us + entry, "lxm": method, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(), "jti": fmt.Sprint("n", serial.Add(1))}
	for name, v := range changed {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod("ES256K"), c)
	maps.Copy(token.Header, header)
	s, err := token.SignedString(key)
	must(t, err)
	return s
}

func free(context.Context) (func(), error) { return func() {}, nil }

func check(t *testing.T, tokens *Tokens, text string) error {
	t.Helper()
	did, err := tokens.Verify(t.Context(), text, entry, method, free)
	if (err == nil) != (did == alice) {
		t.Errorf("%q with the error %v", did, err)
	}
	return err
}

// Each claim is checked as the specification says, without a look-up unless all are valid.
func TestClaimsAreChecked(t *testing.T) {
	tokens, d, key := newTokens(t)
	now := time.Now()
	type claims = jwt.MapClaims
	for name, c := range map[string]struct {
		changed claims
		header  map[string]any
		says    string // the error; "" for valid tokens
	}{
		"good":                      {},
		"the bare DID":              {changed: claims{"aud": us}},
		"another entry":             {changed: claims{"aud": us + "#bsky_fg"}, says: "aud is"},
		"a longer entry":            {changed: claims{"aud": us + entry + "2"}, says: "aud is"},
		"another service":           {changed: claims{"aud": "did:web:other.example.com" + entry}, says: "aud is"},
		"two services":              {changed: claims{"aud": []string{us, "did:web:other.example.com"}}, says: "aud is"},
		"a list of one service":     {changed: claims{"aud": []string{us}}, says: "aud is"},
		"no audience":               {changed: claims{"aud": nil}, says: "aud is"},
		"another method":            {changed: claims{"lxm": "blue.skein.graph.list"}, says: "lxm is"},
		"no method":                 {changed: claims{"lxm": nil}, says: "lxm is"},
		"any method":                {changed: claims{"lxm": "*"}, says: "lxm is"},
		"an issuer with a fragment": {changed: claims{"iss": alice + "#atproto_labeler"}, says: "iss is"},
		"an issuer by did:key":      {changed: claims{"iss": "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"}, says: "iss is"},
		"no issuer":                 {changed: claims{"iss": nil}, says: "iss is"},
		"no nonce":                  {changed: claims{"jti": nil}},
		"a long nonce":              {changed: claims{"jti": strings.Repeat("x", 1000)}},
		"a number as the nonce":     {changed: claims{"jti": 7}},
		"no expiry":                 {changed: claims{"exp": nil}, says: "exp is missing"},
		"a text as the expiry":      {changed: claims{"exp": "tomorrow"}, says: "exp is missing"},
		"long expired":              {changed: claims{"exp": -1e300}, says: "expired"},
		"half a second":             {changed: claims{"exp": float64(now.UnixMilli())/1000 + 60.5}},
		"expired":                   {changed: claims{"exp": now.Add(-10 * time.Second).Unix()}, says: "expired"},
		"a slow clock":              {changed: claims{"exp": now.Add(-2 * time.Second).Unix()}},
		"an hour":                   {changed: claims{"exp": now.Add(time.Hour).Unix()}},
		"for ever":                  {changed: claims{"exp": 1e300}},
		"no time of issue":          {changed: claims{"iat": nil}},
		"neither time nor nonce":    {changed: claims{"iat": nil, "jti": nil}},
		"a fast clock":              {changed: claims{"iat": now.Add(8 * time.Second).Unix(), "nbf": now.Add(8 * time.Second).Unix()}},
		"a text as the time":        {changed: claims{"iat": "now", "nbf": "now"}},
		"the key named":             {header: map[string]any{"kid": "#atproto"}},
		"the key named in full":     {header: map[string]any{"kid": alice + "#atproto"}},
		"an access token":           {header: map[string]any{"typ": "at+jwt"}, says: `type "at+jwt"`},
		"a proof of possession":     {header: map[string]any{"typ": "dpop+jwt"}, says: `type "dpop+jwt"`},
	} {
		before := d.lookUps.Load()
		err := check(t, tokens, sign(t, key, c.changed, c.header))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrToken) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if c.says != "" && d.lookUps.Load() != before {
			t.Errorf("%s: an invalid token caused a look-up", name)
		}
	}
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": alice, "aud": us, "lxm": method, "iat": now.Unix(), "exp": now.Unix() + 60, "jti": "x"}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	must(t, err)
	good := sign(t, key, nil, nil)
	for name, text := range map[string]string{"without a signature": none, "cut": good[:len(good)-4], "empty": "", "huge": strings.Repeat("x", 20_000), "two parts": "a.b"} {
		if err := check(t, tokens, text); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := d.lookUps.Load(); n > 3 { // one, and one more after a wrong signature
		t.Errorf("%d look-ups of one key", n)
	}
}

// A token is valid once, as long as it lives; nonces belong to their issuer.
func TestReplay(t *testing.T) {
	tokens, d, key := newTokens(t)
	now := time.Now()
	tokens.now = func() time.Time { return now }
	text := sign(t, key, nil, nil)
	must(t, check(t, tokens, text))
	for _, later := range []time.Duration{0, 30 * time.Second, 64 * time.Second} {
		tokens.now = func() time.Time { return now.Add(later) }
		if _, err := tokens.Verify(t.Context(), text, entry, method, free); !errors.Is(err, ErrReplayed) {
			t.Errorf("after %v: %v", later, err)
		}
	}
	tokens.now = func() time.Time { return now.Add(70 * time.Second) }
	if err := check(t, tokens, text); !errors.Is(err, ErrToken) {
		t.Errorf("expired: %v", err)
	}
	// So is one without a nonce, whatever can be changed in it without the key, and another one is another.
	for _, bare := range []jwt.MapClaims{{"jti": nil}, {"jti": nil, "iat": nil}, {"jti": nil, "exp": now.Add(3 * time.Hour).Unix()}} {
		tokens.now = func() time.Time { return now }
		text := sign(t, key, bare, nil)
		must(t, check(t, tokens, text))
		tokens.now = func() time.Time { return now.Add(64 * time.Second) }
		if bare["exp"] != nil {
			tokens.now = func() time.Time { return now.Add(time.Hour) }
		}
		for name, again := range map[string]string{"itself": text, "with the other s": negated(t, text), "with other unused bits": text[:len(text)-1] + string(text[len(text)-1]+1)} {
			if _, err := tokens.Verify(t.Context(), again, entry, method, free); !errors.Is(err, ErrReplayed) {
				t.Errorf("%s, claims %v: %v", name, bare, err)
			}
		}
		tokens.now = func() time.Time { return now }
		bare["exp"] = now.Add(65 * time.Second).Unix()
		if err := check(t, tokens, sign(t, key, bare, nil)); err != nil {
			t.Errorf("another one, claims %v: %v", bare, err)
		}
	}
	tokens.now = time.Now
	// A forgery must not use up the nonce of a valid token.
	other := d.give(t, "did:web:bob.example.com")
	if err := check(t, tokens, sign(t, other, jwt.MapClaims{"jti": "same"}, nil)); !errors.Is(err, ErrToken) {
		t.Error(err)
	}
	if did, err := tokens.Verify(t.Context(), sign(t, other, jwt.MapClaims{"iss": "did:web:bob.example.com", "jti": "same"}, nil), entry, method, free); did != "did:web:bob.example.com" || err != nil {
		t.Error(did, err)
	}
	if err := check(t, tokens, sign(t, key, jwt.MapClaims{"jti": "same"}, nil)); err != nil {
		t.Errorf("the nonce of a forgery is used up: %v", err)
	}
}

// negated returns a token with the other valid s of its signature.
func negated(t *testing.T, text string) string {
	t.Helper()
	at := strings.LastIndexByte(text, '.') + 1
	sig, err := base64.RawURLEncoding.DecodeString(text[at:])
	must(t, err)
	n, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16) // the order of K-256
	n.Sub(n, new(big.Int).SetBytes(sig[32:])).FillBytes(sig[32:])
	return text[:at] + base64.RawURLEncoding.EncodeToString(sig)
}

// A changed key is looked up again; a key that cannot be looked up now stays valid.
func TestRenewedKey(t *testing.T) {
	tokens, d, old := newTokens(t)
	must(t, check(t, tokens, sign(t, old, nil, nil)))
	changed := d.give(t, alice)
	if err := check(t, tokens, sign(t, changed, nil, nil)); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if err := check(t, tokens, sign(t, old, nil, nil)); !errors.Is(err, ErrToken) {
		t.Errorf("with the old key: %v", err)
	}
	bob := "did:web:bob.example.com"
	key := d.give(t, bob)
	good := func() error {
		_, err := tokens.Verify(t.Context(), sign(t, key, jwt.MapClaims{"iss": bob}, nil), entry, method, free)
		return err
	}
	must(t, good())
	d.fail = identity.ErrDIDResolutionFailed
	if _, err := tokens.Verify(t.Context(), sign(t, old, jwt.MapClaims{"iss": bob}, nil), entry, method, free); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a forgery whose key is unreachable: %v", err)
	}
	if err := good(); err != nil {
		t.Errorf("a forgery removed a valid key: %v", err)
	}
}

// The memory of replays is bounded, and an attacker who fills it does not make it forget
// other tokens.
func TestAbuseReplays(t *testing.T) {
	var r replays
	now := time.Now()
	const victim = syntax.DID(alice)
	must(t, r.add(victim, "stolen", now.Add(time.Minute), now))
	refused, n := 0, harness.Size(2, 30)*MaxRemembered
	for i := range n {
		iss := syntax.DID(fmt.Sprintf("did:web:h%d.evil%d.com", i, min(i%200, 99))) // half of them from one domain
		if errors.Is(r.add(iss, fmt.Sprint(i), now.Add(time.Hour), now), ErrTooMany) {
			refused++
		}
		if len(r.used) > MaxRemembered {
			t.Fatalf("%d tokens remembered", len(r.used))
		}
	}
	harness.Figure(t, "tokens remembered of those used within their hour", "%d of %d, %d rejected", len(r.used), n, refused)
	if refused == 0 {
		t.Error("no issuer exceeded its limit")
	}
	if err := r.add(victim, "stolen", now.Add(time.Minute), now.Add(30*time.Second)); !errors.Is(err, ErrReplayed) {
		t.Errorf("a stolen token, after filling the memory: %v", err)
	}
	if err := r.add(victim, "next", now.Add(2*time.Hour), now.Add(61*time.Minute)); err != nil || len(r.used) != 1 || len(r.of) != 1 {
		t.Errorf("an hour later %d tokens of %d issuers remembered, %v", len(r.used), len(r.of), err)
	}
}

func TestPayerOf(t *testing.T) {
	for did, want := range map[string]string{
		alice: alice, "did:web:example.com": "example.com", "did:web:a.b.example.com": "example.com", "did:web:A.Example.co.uk": "example.co.uk",
		"did:web:user.pages.dev": "pages.dev", "did:web:x.user.github.io": "github.io", "did:web:localhost%3A3210": "localhost%3a3210", "did:web:b.s3.us-east-1.amazonaws.com": "amazonaws.com",
	} {
		if got := PayerOf(syntax.DID(did)); strings.TrimPrefix(got, ".") != want {
			t.Errorf("%s: %q, expected %q", did, got, want)
		}
	}
}

// A key is looked up again a minute after the last time, however many wrong signatures come meanwhile.
func TestRenewedOnceAMinute(t *testing.T) {
	d := &keyDirectory{keys: map[syntax.DID]string{}}
	d.give(t, alice)
	k := NewKeys(d)
	k.renewed = expirable.NewLRU[syntax.DID, bool](10, nil, 200*time.Millisecond)
	renewals := 0
	for began := time.Now(); time.Since(began) < 900*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		if _, renewed, err := k.Renew(t.Context(), alice); err != nil {
			t.Fatal(err)
		} else if renewed {
			renewals++
		}
	}
	if renewals < 2 || renewals > 5 {
		t.Errorf("looked up %d times in 0.9 s, want one each 0.2 s", renewals)
	}
}

// A look-up that cannot start says nothing about the key, and holds no slot that others
// need.
func TestBusy(t *testing.T) {
	var b Broker
	k := NewKeys(b.Over(&keyDirectory{keys: map[syntax.DID]string{}}))
	var leave []func()
	ctx := ForClient(t.Context(), "192.0.2.1/32")
	for range ClientsOfDomain {
		v, err := b.enter(ctx, webLimits("did:web:a.evil.com")...)
		must(t, err)
		leave = append(leave, v.leave)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := k.Key(ended, "did:web:b.evil.com"); !errors.Is(err, ErrBusy) {
		t.Errorf("without a free slot: %v", err)
	}
	if _, err := k.Key(t.Context(), "did:web:b.evil.com"); !errors.Is(err, identity.ErrDIDNotFound) {
		t.Errorf("of the writer: %v", err)
	}
	k.Forget("did:web:b.evil.com")
	for _, l := range leave {
		l()
	}
	if _, err := k.Key(ctx, "did:web:b.evil.com"); !errors.Is(err, identity.ErrDIDNotFound) {
		t.Errorf("later: %v", err)
	}
}
