package proof

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/wire"
	"skein.blue/internal/identities"
	"skein.blue/internal/sim/synth"
)

// register is Keys of a directory whose answers a test decides.
type register struct {
	mu      sync.Mutex
	keys    map[string]atcrypto.PublicKey // what the directory has
	cached  map[syntax.DID]atcrypto.PublicKey
	lookUps map[string]int
	hangs   map[string]bool
	renewed map[syntax.DID]bool
	err     error
}

// Key implements Keys.
func (r *register) Key(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, error) {
	r.mu.Lock()
	r.lookUps[string(did)]++
	key, hangs, err := r.keys[string(did)], r.hangs[identities.PayerOf(did)], r.err
	r.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return nil, identities.ErrBusy
	case err != nil:
		return nil, err
	case key == nil:
		return nil, errors.New("no such account")
	}
	r.mu.Lock()
	r.cached[did] = key
	r.mu.Unlock()
	return key, nil
}

// Renew implements Keys.
func (r *register) Renew(ctx context.Context, did syntax.DID) (atcrypto.PublicKey, bool, error) {
	r.mu.Lock()
	lately := r.renewed[did]
	r.renewed[did] = true
	r.mu.Unlock()
	if lately {
		return nil, false, nil
	}
	key, err := r.Key(ctx, did)
	return key, true, err
}

// Cached implements Keys.
func (r *register) Cached(did syntax.DID) (atcrypto.PublicKey, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, ok := r.cached[did]
	return key, ok
}

// Forget implements Keys.
func (r *register) Forget(did syntax.DID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cached, did)
}

// signedBy returns a commit block of an account, and the key that signed it.
func signedBy(t *testing.T, did string) (block []byte, key atcrypto.PublicKey) {
	t.Helper()
	private, err := atcrypto.GeneratePrivateKeyP256()
	if err != nil {
		t.Fatal(err)
	}
	data := synth.NewBlock([]byte("\xa2\x61e\x80\x61l\xf6")).CID
	cid, rev := append([]byte(wire.CIDPrefix), data[:]...), "2222222222222"
	unsigned := append(text(cidLink(text(text(text(text([]byte{0xa5}, "did"), did), "rev"), rev), cid), "prev"), 0xf6)
	unsigned = append(text(unsigned, "version"), 3)
	sig, err := private.HashAndSign(unsigned)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = private.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return synth.AppendCommitBlock(nil, []byte(did), []byte(rev), sig, &data), key
}

func cidLink(b, link []byte) []byte { return cid(text(b, "data"), link) }

func newRegister() *register {
	return &register{keys: map[string]atcrypto.PublicKey{}, cached: map[syntax.DID]atcrypto.PublicKey{}, lookUps: map[string]int{}, hangs: map[string]bool{}, renewed: map[syntax.DID]bool{}}
}

// A replaced key is looked up once a signature does not match the cached one; a wrong signature
// stays wrong.
func TestReplacedKey(t *testing.T) {
	const did = "did:web:a.example.com"
	r := newRegister()
	v := NewVerifier(r)
	first, firstKey := signedBy(t, did)
	second, secondKey := signedBy(t, did)
	for i, step := range []struct {
		key   atcrypto.PublicKey
		block []byte
		want  wire.Reason
		soon  bool // within a minute of the step before: no key is looked up again
	}{
		{nil, first, wire.NoKey, false},
		{firstKey, first, "", false},
		{firstKey, second, wire.BadSignature, false},
		{firstKey, second, wire.BadSignature, true},
		{secondKey, second, wire.BadSignature, true},
		{secondKey, second, "", false},
		{secondKey, first, wire.BadSignature, false},
		{secondKey, first, wire.BadSignature, true},
		{secondKey, []byte("\xa0"), wire.BadCommit, false},
	} {
		if r.keys[did] = step.key; !step.soon {
			clear(r.renewed)
		}
		if got := v.VerifyRepo(t.Context(), did, step.block); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if got := v.VerifyRepo(t.Context(), "did:web:b.example.com", first); got != wire.BadCommit {
		t.Errorf("a block of another account: %q", got)
	}
	if r.err = fmt.Errorf("%w: down", identities.ErrUnreachable); v.VerifyRepo(t.Context(), did, second) != "" {
		t.Error("a cached key needs no directory")
	}
	if v.Changed([]byte(did)); v.VerifyRepo(t.Context(), did, second) != wire.KeyUnreachable {
		t.Error("after #identity the key is looked up again")
	}
}

// A host of DID documents that never answers holds up the stream for one patience in each respite,
// however many of its accounts send events, and does not hold up accounts of other hosts.
func TestAbuseHangingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegister()
		r.hangs["hangs.example"] = true
		v := NewVerifier(r)
		block, _ := signedBy(t, "did:web:a.hangs.example")
		began := time.Now()
		for i := range 100 {
			did := fmt.Sprintf("did:web:%d.hangs.example", i)
			block, _ := signedBy(t, did)
			if got := v.VerifyRepo(t.Context(), did, block); got != wire.KeyUnreachable {
				t.Errorf("%q, want %q", got, wire.KeyUnreachable)
			}
			if !v.KeyUnreachable(t.Context(), did) {
				t.Errorf("%s has a key", did)
			}
		}
		if took := time.Since(began); took != patience {
			t.Errorf("100 accounts of a hanging host took %v, want %v", took, patience)
		}
		good, key := signedBy(t, "did:web:a.example.com")
		if r.keys["did:web:a.example.com"] = key; v.VerifyRepo(t.Context(), "did:web:a.example.com", good) != "" || time.Since(began) != patience {
			t.Errorf("another host's account is held up: %v", time.Since(began))
		}
		if v.KeyUnreachable(t.Context(), "did:web:a.example.com") || v.KeyUnreachable(t.Context(), "did:web:none.example.com") {
			t.Error("the key of an account is known, and that another has none, but they count as unreachable")
		}
		time.Sleep(respite + time.Second)
		delete(r.hangs, "hangs.example")
		_, r.keys["did:web:a.hangs.example"] = signedBy(t, "x")
		if got := v.VerifyRepo(t.Context(), "did:web:a.hangs.example", block); got != wire.BadSignature {
			t.Errorf("after the respite: %q, want a look-up", got)
		}
		if n := len(r.lookUps); n != 4 {
			t.Errorf("%d accounts were looked up, want 4", n)
		}
	})
}

// FuzzCheck looks for panics.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("\xa1atg#commitbop\x01"))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		var m wire.Message
		var c Checker
		if wire.Parse(frame, &m) != nil {
			return
		}
		if k, err := c.Commit(&m); err == nil {
			_ = c.Invert(&m, k)
		}
	})
}

// FuzzNode looks for panics, and checks that a node that can be read is encoded as it was.
func FuzzNode(f *testing.F) {
	n := &node{entries: []entry{{key: []byte("app.bsky.feed.like/3k")}, {key: []byte("app.bsky.feed.like/3m"), right: &node{}}}, left: &node{}}
	f.Add(n.append(nil))
	f.Fuzz(func(t *testing.T, block []byte) {
		var n node
		if !n.parse(block) {
			return
		}
		var again node
		if b := n.append(nil); !again.parse(b) || string(again.append(nil)) != string(b) {
			t.Errorf("%x is encoded as %x", block, b)
		}
	})
}

// treeOf returns a tree whose blocks are given.
func treeOf(t *testing.T, root []byte, more ...[]byte) (*tree, error) {
	t.Helper()
	all := map[digest][]byte{}
	for _, b := range append(more, root) {
		all[sha256.Sum256(b)] = b
	}
	x := &tree{block: func(d digest) []byte { return all[d] }}
	return x, x.open(sha256.Sum256(root))
}

// leaf encodes a node of keys at level 0.
func leaf(keys ...string) []byte {
	n := &node{}
	for _, k := range keys {
		n.entries = append(n.entries, entry{key: []byte(k)})
	}
	return n.append(nil)
}

// keysAt returns n keys at a level, in order.
func keysAt(level, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Sprintf("app.bsky.feed.like/%06d", i); levelOf([]byte(k)) == level {
			keys = append(keys, k)
		}
	}
	return keys
}

// A block that does not hash to its CID is missing.
func TestForgedNode(t *testing.T) {
	x := &tree{block: func(digest) []byte { return leaf(keysAt(0, 3)...) }}
	if err := x.open(digest{1}); !errors.Is(err, ErrMissing) {
		t.Errorf("%v, want %v", err, ErrMissing)
	}
}

// A record that the tree does not have cannot be removed, nor one with another value, and one that
// it has cannot be inserted.
func TestOps(t *testing.T) {
	keys := keysAt(0, 4)
	for name, change := range map[string]func(*tree) error{
		"remove another value": func(x *tree) error { return x.remove([]byte(keys[0]), digest{1}) },
		"remove no record":     func(x *tree) error { return x.remove([]byte(keys[3]), digest{}) },
		"remove above":         func(x *tree) error { return x.remove([]byte(keysAt(2, 1)[0]), digest{}) },
		"insert a record":      func(x *tree) error { return x.insert([]byte(keys[1]), digest{}) },
		"replace no record":    func(x *tree) error { return x.replace([]byte(keys[3]), digest{}, digest{1}) },
		"replace another":      func(x *tree) error { return x.replace([]byte(keys[0]), digest{1}, digest{2}) },
	} {
		x, err := treeOf(t, leaf(keys[:3]...))
		if err != nil {
			t.Fatal(err)
		}
		if err := change(x); !errors.Is(err, ErrOp) {
			t.Errorf("%s: %v, want %v", name, err, ErrOp)
		}
	}
}

// A node is malformed if a key is at another level than its node, if keys are out of order, or if
// a leaf has a subtree.
func TestMalformedNodes(t *testing.T) {
	keys := keysAt(0, 3)
	child := &node{sum: digest{9}}
	for name, block := range map[string][]byte{
		"a key of another level": leaf(keys[0], keysAt(1, 1)[0]+"x"),
		"keys out of order":      leaf(keys[1], keys[0]),
		"a key twice":            leaf(keys[0], keys[0]),
		"a leaf with a subtree":  (&node{left: child, entries: []entry{{key: []byte(keys[0])}}}).append(nil),
		"not a node":             []byte("\xa0\x00"),
		"a long key":             leaf(strings.Repeat("a", maxKey+1)),
	} {
		if _, err := treeOf(t, block); !errors.Is(err, ErrNode) {
			t.Errorf("%s: %v, want %v", name, err, ErrNode)
		}
	}
}

// A small node may not expand to keys without end.
func TestSharedKeys(t *testing.T) {
	n := &node{}
	long := strings.Repeat("a", maxKey-8)
	for i := range 4000 {
		n.entries = append(n.entries, entry{key: fmt.Appendf(nil, "%s%08d", long, i)})
	}
	block := n.append(nil)
	if again := new(node); again.parse(block) {
		t.Errorf("a node of %d bytes expands to %d bytes of keys", len(block), 4000*maxKey)
	}
}

// A tree below levels without entries, which indigo's tree leaves behind, is the same tree.
func TestRaised(t *testing.T) {
	keys := keysAt(0, 3)
	bottom := leaf(keys...)
	top := (&node{left: &node{sum: sha256.Sum256(bottom)}}).append(nil)
	x, err := treeOf(t, top, bottom)
	if err != nil || x.level != 0 || !x.leadsTo(sha256.Sum256(bottom)) || !x.leadsTo(sha256.Sum256(top)) || x.leadsTo(digest{1}) {
		t.Errorf("level %d: %v", x.level, err)
	}
}
