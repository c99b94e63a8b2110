package proof_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/synth"
)

// oneKey is a directory that has one key for all accounts, or an error.
type oneKey struct {
	key atcrypto.PublicKey
	err error
}

// Key implements proof.Keys.
func (k oneKey) Key(context.Context, syntax.DID) (atcrypto.PublicKey, error) { return k.key, k.err }

// Renew implements proof.Keys.
func (k oneKey) Renew(context.Context, syntax.DID) (atcrypto.PublicKey, bool, error) {
	return k.key, true, k.err
}

// Cached implements proof.Keys.
func (k oneKey) Cached(syntax.DID) (atcrypto.PublicKey, bool) { return k.key, k.err == nil }

// Forget implements proof.Keys.
func (oneKey) Forget(syntax.DID) {}

func cidText(l synth.Link) string { return cidOf(l).String() }

// The error beside a Reason says what is wrong in words that an operator can look for: the
// operation and its path, the CID of the missing node, both roots, both values, the key.
func TestDetails(t *testing.T) {
	other := synth.NewBlock([]byte("\xa0")).CID
	foreign := newAccount(t, 9).public(t)
	for _, c := range []struct {
		name    string
		change  func(a *account, p *parts)
		keys    func(a *account) proof.Keys
		reason  wire.Reason
		is      error
		details func(p *parts) []string
	}{
		{name: "a valid commit"},
		{name: "a missing node", change: func(_ *account, p *parts) {
			p.blocks = slices.DeleteFunc(p.blocks, func(b synth.Block) bool { return b.CID == p.data })
		}, reason: wire.Unproven, is: proof.ErrMissing, details: func(p *parts) []string { return []string{cidText(p.data)} }},
		{
			name: "another root before", change: func(_ *account, p *parts) { p.m.PrevData = &other },
			reason: wire.Unproven, is: proof.ErrRoot, details: func(*parts) []string { return []string{"prevData is " + cidText(other), "leads to bafyrei"} },
		},
		{name: "another value", change: func(_ *account, p *parts) {
			p.m.Ops = []synth.Op{{Action: "create", Collection: "app.bsky.feed.like", Rkey: p.m.Ops[0].Rkey, CID: &other}}
		}, reason: wire.Unproven, is: proof.ErrOp, details: func(p *parts) []string {
			return []string{"create", "app.bsky.feed.like/" + string(p.m.Ops[0].Rkey), "the operation says " + cidText(other)}
		}},
		{
			name: "an unknown action", change: func(_ *account, p *parts) { p.m.Ops[0].Action = "merge" },
			reason: wire.Unproven, is: proof.ErrOp, details: func(p *parts) []string {
				return []string{`"merge"`, string(p.m.Ops[0].Rkey), "unknown action"}
			},
		},
		{
			name: "a path twice", change: func(_ *account, p *parts) { p.m.Ops = append(p.m.Ops, p.m.Ops[0]) },
			reason: wire.Unproven, is: proof.ErrOp, details: func(p *parts) []string { return []string{string(p.m.Ops[0].Rkey), "twice"} },
		},
		{
			name: "another key", keys: func(*account) proof.Keys { return oneKey{key: foreign} },
			reason: wire.BadSignature, details: func(*parts) []string { return []string{foreign.DIDKey()} },
		},
		{
			name: "no document", keys: func(*account) proof.Keys { return oneKey{err: errors.New("the directory answers 404")} },
			reason: wire.NoKey, details: func(*parts) []string { return []string{"the directory answers 404"} },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAccount(t, 3)
			for range 3 {
				a.commit(t, 30)
			}
			p := a.commit(t, 0)
			for len(p.m.Ops) == 0 || p.m.Ops[0].Action == "delete" {
				p = a.commit(t, 1)
			}
			if c.change != nil {
				c.change(a, p)
			}
			var m wire.Message
			if err := wire.Parse(a.frame(t, p), &m); err != nil {
				t.Fatal(err)
			}
			var keys proof.Keys = oneKey{key: a.public(t)}
			if c.keys != nil {
				keys = c.keys(a)
			}
			reason, err := proof.NewVerifier(keys).Verify(t.Context(), &m)
			if reason != c.reason || (err == nil) != (reason == "") || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%q: %v, want %q: %v", reason, err, c.reason, c.is)
			}
			if c.details == nil {
				return
			}
			for _, want := range c.details(p) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}
