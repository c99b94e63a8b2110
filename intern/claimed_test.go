package intern

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/memkv"
)

// asking notes the strings that transactions look up.
type asking struct {
	kv.Store
	mu    sync.Mutex
	asked map[string]bool
}

func (a *asking) ask(key []byte) {
	if key[0] == dict.KeyID {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked[string(key)] = true
	}
}

func (a *asking) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return a.Store.Update(ctx, func(tx kv.Txn) error { return fn(askingTxn{tx, a}) })
}

type askingTxn struct {
	kv.Txn
	of *asking
}

func (t askingTxn) Snapshot() kv.Reader { return askingReader{t.Txn.Snapshot(), t.of} }

type askingReader struct {
	kv.Reader
	of *asking
}

func (r askingReader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	for _, key := range keys {
		r.of.ask(key)
	}
	return r.Reader.MultiGet(keys, each)
}

func (r askingReader) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	r.of.ask(lo)
	return r.Reader.Scan(lo, hi, reverse, each)
}

// claimWorld is a store with Claimers.
type claimWorld struct {
	t     *testing.T
	store *memkv.Store
	w     *twin
}

func newClaimWorld(t *testing.T) *claimWorld {
	return &claimWorld{t, memkv.Open(memkv.Options{Merger: dict.Merger{}}), newTwin()}
}

type claimWriter struct {
	*Claimer
	world *claimWorld
	store *asking
}

func (c *claimWorld) open(slot uint8) *claimWriter {
	c.t.Helper()
	store := &asking{Store: c.store, asked: map[string]bool{}}
	in, _ := openAs(c.t, store, Options{Settings: dict.SharedSettings, Slot: slot}).(*Claimer)
	return &claimWriter{in, c, store}
}

// claim claims DIDs, and returns how many were looked up.
func (c *claimWriter) claim(from, to int) (asked int) {
	t := c.world.t
	t.Helper()
	var b Batch
	for n := from; n < to; n++ {
		b.Add(dict.DID, base(n))
	}
	clear(c.store.asked)
	if err := c.Prepare(t.Context(), &b, 0); err != nil {
		t.Fatal(err)
	}
	for n := from; n < to; n++ {
		c.world.w.note(t, named{dict.DID, string(base(n))}, b.ID(n-from))
	}
	return len(c.store.asked)
}

func base(n int) []byte { return fmt.Appendf(nil, "did:plc:%s", base32Of(uint64(n))) }

// TestClaimsAreNotLookedUp: a Claimer looks up only DIDs that exist, or that others have claimed lately, while
// the log has all that others claimed.
func TestClaimsAreNotLookedUp(t *testing.T) {
	c := newClaimWorld(t)
	a, b := c.open(0), c.open(1)
	expect := func(what string, got, least, most int) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %d look-ups, want %d to %d", what, got, least, most)
		}
	}
	expect("new DIDs of an empty store", a.claim(0, 3000), 0, 40) // a filter errs once in a hundred times
	expect("DIDs that the other writer has just claimed, and new ones", b.claim(2900, 3100), 100, 104)
	expect("new ones, after catching up", b.claim(3100, 3300), 0, 8)
	expect("known ones, after catching up", b.claim(100, 200), 1, 100) // or one scan
	if b.dids.givenUp != 0 || !b.dids.trusted || a.dids.givenUp != 0 {
		t.Errorf("a filter was given up: %+v", b.dids)
	}
	a.dids.keep = 3
	for n := 4000; n < 5000; n += 50 {
		a.claim(n, n+50)
	}
	expect("the log is too short", b.claim(4900, 5100), 100, 200)
	expect("no filter", b.claim(5100, 5200), 1, 200)
	if b.dids.givenUp != 1 || b.dids.trusted {
		t.Errorf("the filter was not given up: %+v", b.dids)
	}
	b.dids.strings.fillAfter = 10
	b.claim(5200, 5300)
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		b.claiming.Lock()
		trusted := b.dids.trusted
		b.claiming.Unlock()
		if trusted {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the filter is not filled")
		}
	}
	expect("filled again", b.claim(5300, 5400), 0, 8)
	later := c.open(2)
	expect("opened later", later.claim(5400, 5500), 1, 200)
	if later.dids.trusted {
		t.Error("the filter of a store with DIDs is trusted before it is filled")
	}
	c.w.equals(t, c.store)
	for _, w := range []*claimWriter{a, b, later} {
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestClaimsOfUnloggedWriter: a writer of an earlier version counts its claims, and does not log them. Others
// then look up everything.
func TestClaimsOfUnloggedWriter(t *testing.T) {
	for name, damage := range map[string]func(tx kv.Txn) error{
		"no log": func(tx kv.Txn) error {
			tx.DeleteRange([]byte{dict.KeyClaimed}, []byte{dict.KeyClaimed + 1})
			return nil
		},
		"without its beginning": without(40),
		"without its middle":    without(60),
		"without its end":       without(80),
		"with smaller counts": func(tx kv.Txn) error {
			return kv.ScanPrefix(tx, []byte{dict.KeyClaims}, func(k, _ []byte) error { tx.Set(k, []byte{0, 0, 0, 0, 0, 0, 0, 1}); return nil })
		},
		"without counts": func(tx kv.Txn) error {
			tx.DeleteRange([]byte{dict.KeyClaims}, []byte{dict.KeyClaims + 1})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimWorld(t)
			other, in := c.open(1), c.open(0)
			other.claim(0, 20)
			in.claim(10, 30)
			in.claim(30, 40) // catches up
			for n := 100; n < 160; n += 20 {
				other.claim(n, n+20)
			}
			if err := c.store.Update(t.Context(), damage); err != nil {
				t.Fatal(err)
			}
			if asked := in.claim(90, 170); asked < 60 && asked != 1 {
				t.Errorf("%d look-ups", asked)
			}
			in.claim(170, 180)
			if in.dids.givenUp == 0 {
				t.Errorf("the filter is trusted: %+v", in.dids)
			}
		})
	}
}

// without returns a function that deletes a row of the log of slot 1.
func without(count uint64) func(kv.Txn) error {
	return func(tx kv.Txn) error {
		key := dict.AppendClaimedKey(nil, dict.DID, 1, 0, count)
		if _, ok, err := tx.Get(key); !ok || err != nil {
			return fmt.Errorf("the log has no row %d: %w", count, err)
		}
		tx.Delete(key)
		return nil
	}
}

// committing commits, and then says that its context has ended.
type committing struct {
	kv.Store
	ended bool
}

func (c *committing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	err := c.Store.Update(ctx, fn)
	if c.ended && err == nil {
		return context.Canceled
	}
	return err
}

// TestClaimsOfUnknownOutcome: a claim was committed, and the Claimer does not know. It finds the strings
// later, although it has claimed others since.
func TestClaimsOfUnknownOutcome(t *testing.T) {
	c := newClaimWorld(t)
	store := &committing{Store: c.store}
	in, _ := openAs(t, store, Options{Settings: dict.SharedSettings}).(*Claimer)
	claim := func(from, to int) error {
		in.cache = newCache(1 << 16)
		var b Batch
		for n := from; n < to; n++ {
			b.Add(dict.DID, base(n))
		}
		if err := in.Prepare(t.Context(), &b, 0); err != nil {
			return err
		}
		for n := from; n < to; n++ {
			c.w.note(t, named{dict.DID, string(base(n))}, b.ID(n-from))
		}
		return nil
	}
	if err := claim(0, 3000); err != nil { // takes leases for all partitions
		t.Fatal(err)
	}
	store.ended = true
	if err := claim(3000, 3100); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	store.ended = false
	if n := count(t, c.store); n != 3100 {
		t.Fatalf("%d strings are claimed", n)
	}
	if err := errors.Join(claim(4000, 4100), claim(4100, 4200), claim(2900, 4300)); err != nil {
		t.Fatal(err)
	}
	if !in.dids.trusted || in.dids.givenUp > 0 {
		t.Errorf("the filter was given up: %+v", in.dids)
	}
	if n := count(t, c.store); n != 4300 {
		t.Errorf("%d strings are claimed, some twice", n)
	}
	c.w.equals(t, c.store)
}

func count(t *testing.T, store kv.Store) int64 {
	t.Helper()
	var n [len(dict.Namespaces) + 1]int64
	if err := store.View(t.Context(), func(r kv.Reader) (err error) { n, err = Claimed(r); return err }); err != nil {
		t.Fatal(err)
	}
	return n[dict.DID]
}

// TestMalformedClaims: a malformed row of the log of claims, or a malformed count, is an error.
func TestMalformedClaims(t *testing.T) {
	for name, row := range map[string]struct{ key, value []byte }{
		"a row": {dict.AppendClaimedKey(nil, dict.DID, 1, 0, 20), []byte{5, 1}},
		"count": {[]byte{dict.KeyClaims, byte(dict.DID), 1, 0}, make([]byte, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimWorld(t)
			in, other := c.open(0), c.open(1)
			in.claim(0, 10)
			other.claim(10, 30)
			if err := c.store.Update(t.Context(), func(tx kv.Txn) error { tx.Set(row.key, row.value); return nil }); err != nil {
				t.Fatal(err)
			}
			var b Batch
			b.Add(dict.DID, base(77))
			if err := in.Prepare(t.Context(), &b, 0); err == nil || errors.Is(err, errNotLogged) {
				t.Errorf("%v", err)
			}
		})
	}
}
