package intern

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// asking notes the strings that transactions look up.
type asking struct {
	kv.Store
	mu    sync.Mutex
	asked map[string]bool
	begun func() // if set, called when a transaction that claims has begun
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

func (t askingTxn) Snapshot() kv.Reader {
	if t.of.begun != nil {
		t.of.begun()
	}
	return askingReader{t.Txn.Snapshot(), t.of}
}

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

// TestClaimsSideBySide: a transaction that began before another of its writer committed looks nothing up either.
func TestClaimsSideBySide(t *testing.T) {
	w := newClaimWorld(t).open(0)
	w.claim(0, 1) // draws ids
	claimed := func() (n uint64) {
		for _, of := range w.dids.known() {
			n += of
		}
		return n
	}
	var waiting atomic.Bool
	w.store.begun = func() {
		if !waiting.CompareAndSwap(false, true) {
			return
		}
		for deadline := time.Now().Add(20 * time.Second); claimed() < 2001; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("the others do not commit")
				return
			}
		}
	}
	if n := w.claim(1, 3001); n > 40 { // a filter errs once in a hundred times
		t.Errorf("%d look-ups, want at most 40", n)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGapsInTheLog: if the log lacks claims, or the counts do not fit it, other writers look up everything.
func TestGapsInTheLog(t *testing.T) {
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
				other.next = 0 // the same lane
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
		in.cache, in.next = newCache(1<<16), 0 // the same lane
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

// afterwards commits some transactions after their Update has returned an error, or perhaps not.
type afterwards struct {
	kv.Store
	rng *rand.Rand
	wg  *sync.WaitGroup
}

type afterwardsKey struct{}

func (s *afterwards) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if ctx.Value(afterwardsKey{}) == nil || s.rng.IntN(2) == 0 {
		return s.Store.Update(ctx, fn)
	}
	attempted, wait, errLater := make(chan error, 1), time.Duration(s.rng.IntN(300))*time.Microsecond, errors.New("later")
	s.wg.Go(func() {
		isFirst := true
		_ = s.Store.Update(context.WithoutCancel(ctx), func(tx kv.Txn) error {
			if !isFirst {
				return errLater
			}
			isFirst = false
			err := fn(tx)
			attempted <- err
			if err == nil {
				time.Sleep(wait)
			}
			return err
		})
	})
	if err := <-attempted; err != nil {
		return err
	}
	return context.Canceled
}

// TestClaimsCommittedLater: transactions that Claimers took for failed are committed later, while the same
// strings are claimed again, and two Claimers share a slot. Every DID has one id.
func TestClaimsCommittedLater(t *testing.T) {
	trusted := 0
	for seed := range uint64(8) {
		store := memkv.Open(memkv.Options{Merger: dict.Merger{}, Faults: memkv.Faults{Seed: seed, Conflict: 0.05, Unknown: 0.1}})
		w := newTwin()
		var mu sync.Mutex // guards w and trusted
		var wg, later sync.WaitGroup
		for number := range uint8(3) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(number)))
				var draws sync.Mutex // several lanes draw
				store := &afterwards{store, rand.New(lockedSource{&draws, rand.NewPCG(seed, 100+uint64(number))}), &later}
				in, err := Open(t.Context(), store, Options{Settings: dict.Settings{ShardBits: 10, LeaseSize: 256, Partitions: 4}, Slot: number % 2, CacheBytes: 4096})
				c, ok := in.(*Claimer)
				if err != nil || !ok {
					t.Error(in, err)
					return
				}
				c.size, c.dids.strings.fillAfter, c.dids.keep = 3, 20, uint64(20+rng.IntN(2)*400)
				for step := range 40 {
					for try := range 6 {
						var b Batch
						var dids []named
						var at []int
						for range 1 + rng.IntN(20) {
							did := base(step*10 + rng.IntN(60))
							dids, at = append(dids, named{dict.DID, string(did)}), append(at, b.Add(dict.DID, did))
						}
						ctx := t.Context()
						if try < 5 && rng.IntN(3) == 0 {
							ctx = context.WithValue(ctx, afterwardsKey{}, true)
						}
						if err := c.Prepare(ctx, &b, 0); errors.Is(err, context.Canceled) {
							continue
						} else if err != nil {
							t.Error(err)
							return
						}
						func() {
							mu.Lock()
							defer mu.Unlock()
							for i, did := range dids {
								w.note(t, did, b.ID(at[i]))
							}
						}()
						break
					}
					c.claiming.Lock()
					if c.dids.trusted {
						mu.Lock()
						trusted++
						mu.Unlock()
					}
					c.claiming.Unlock()
				}
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		later.Wait()
		err := store.View(t.Context(), func(r kv.Reader) error {
			ids, forms := map[dict.ID]bool{}, 0
			if err := EachID(r, dict.DID, func(id dict.ID) error { ids[id] = true; return nil }); err != nil {
				return err
			}
			if err := EachForm(r, dict.DID, func(dict.ID, []byte) error { forms++; return nil }); err != nil {
				return err
			}
			if n := count(t, store); forms != len(ids) || int(n) != len(ids) {
				t.Errorf("%d DIDs have %d ids, of %d claims", len(ids), forms, n)
			}
			return nil
		})
		if err != nil || t.Failed() {
			t.Fatal(err)
		}
	}
	if trusted < 100 {
		t.Errorf("filters were used for %d batches", trusted)
	}
}

type lockedSource struct {
	mu *sync.Mutex
	of rand.Source
}

func (s lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of.Uint64()
}

// failing is a store whose Views fail while err is set.
type failing struct {
	kv.Store
	err error
}

func (s *failing) View(ctx context.Context, fn func(kv.Reader) error) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.View(ctx, fn)
}

// TestClaimsWhileTheStoreIsAway: a Claimer that cannot read the log of claims goes on without.
func TestClaimsWhileTheStoreIsAway(t *testing.T) {
	c := newClaimWorld(t)
	store := &failing{Store: c.store}
	in, _ := openAs(t, store, Options{Settings: dict.SharedSettings}).(*Claimer)
	w := &claimWriter{in, c, &asking{asked: map[string]bool{}}}
	other := c.open(1)
	w.claim(0, 10)
	other.claim(10, 20)
	w.claim(20, 30) // is behind
	for n, err := range []error{kv.ErrUnavailable, kv.ErrUnavailable, kv.ErrTooOld, kv.ErrTooOld} {
		store.err = err
		w.claim(30+10*n, 40+10*n)
		if isOld := errors.Is(err, kv.ErrTooOld); in.dids.trusted == isOld {
			t.Errorf("%v: trusted %v", err, in.dids.trusted)
		}
	}
	if in.dids.givenUp != 1 {
		t.Errorf("given up %d times", in.dids.givenUp)
	}
	c.w.equals(t, c.store)
}

// filling calls during after it has read a dictionary.
type filling struct {
	kv.Store
	during func()
	fills  atomic.Int64
}

func (s *filling) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (int, error) {
	n, err := s.Store.ViewAcross(ctx, fn)
	s.fills.Add(1)
	s.during()
	return n, err
}

// TestFillOfABusyStore: while a Claimer fills its filter, others claim more than their logs keep. It catches up
// meanwhile, or else fills its filter less and less often.
func TestFillOfABusyStore(t *testing.T) {
	for _, catches := range []bool{true, false} {
		c := newClaimWorld(t)
		other := c.open(1)
		other.dids.keep, other.size = 100, 1000
		next := 0
		more := func(n int) {
			for range n {
				other.next = 0
				other.claim(next, next+20)
				next += 20
			}
		}
		more(20)
		store := &filling{Store: c.store}
		in, _ := openAs(t, store, Options{Settings: dict.SharedSettings}).(*Claimer)
		w := &claimWriter{in, c, &asking{asked: map[string]bool{}}}
		at := 1 << 20
		batch := func() {
			w.claim(at, at+10)
			at += 10
		}
		var turn sync.Mutex // of this goroutine, and of the one that fills
		store.during = func() {
			turn.Lock()
			defer turn.Unlock()
			for range 10 {
				more(1)
				if catches {
					in.claiming.Lock()
					in.dids.caughtUp = time.Time{}
					in.claiming.Unlock()
					batch()
				}
			}
		}
		in.dids.strings.fillAfter = 50
		for range 300 {
			turn.Lock()
			batch()
			turn.Unlock()
			for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
				in.claiming.Lock()
				under := in.dids.filling
				in.claiming.Unlock()
				if !under {
					break
				}
				if time.Since(begun) > 20*time.Second {
					t.Fatal("the fill does not end")
				}
			}
		}
		if fills := store.fills.Load(); catches && (!in.dids.trusted || fills != 1) || !catches && (in.dids.givenUp < 3 || fills > 6) {
			t.Errorf("catches up %v: %d fills, %d given up, trusted %v", catches, fills, in.dids.givenUp, in.dids.trusted)
		}
		c.w.equals(t, c.store)
	}
}

// TestTooManyDIDs: a filter whose memory cannot have all DIDs is not filled.
func TestTooManyDIDs(t *testing.T) {
	c := newClaimWorld(t)
	a := c.open(0)
	a.claim(0, 50_000)
	store := &filling{Store: c.store, during: func() {}}
	in, _ := openAs(t, store, Options{Settings: dict.SharedSettings, Slot: 1, FilterBytes: 90_000}).(*Claimer)
	in.dids.strings.fillAfter = 10
	w := &claimWriter{in, c, &asking{asked: map[string]bool{}}}
	for n := range 50 {
		w.claim(100_000+10*n, 100_000+10*n+10)
	}
	in.leases.background.Wait()
	if n := store.fills.Load(); n != 0 || in.dids.trusted || !in.dids.strings.full {
		t.Errorf("%d fills, %+v", n, in.dids)
	}
	for _, n := range []uint64{0, 1, firstBlocks * keysPerBlock, firstBlocks*keysPerBlock + 1, 7 * firstBlocks * keysPerBlock, 1 << 20} {
		var f filter
		for i := range n {
			f.add(i * 0x9e3779b97f4a7c15)
		}
		if got := filterBytes(n); got != max(f.bytes(), firstBlocks*bytesPerBlock) {
			t.Errorf("a filter of %d keys takes %d bytes, want %d", n, got, f.bytes())
		}
	}
}

// logReads counts the rows of the log of claims that transactions read.
type logReads struct {
	kv.Store
	rows   atomic.Int64
	failed uint8 // the lane whose commits are reported as failed, if it is above 0
}

func (s *logReads) Update(ctx context.Context, fn func(kv.Txn) error) error {
	lane := uint8(0)
	err := s.Store.Update(ctx, func(tx kv.Txn) error { return fn(logTxn{tx, s, &lane}) })
	if err == nil && lane > 0 && lane == s.failed {
		return context.Canceled
	}
	return err
}

type logTxn struct {
	kv.Txn
	of   *logReads
	lane *uint8
}

func (t logTxn) Snapshot() kv.Reader { return logReader{t.Txn.Snapshot(), t.of} }

func (t logTxn) Set(k, v []byte) {
	if k[0] == dict.KeyClaims {
		*t.lane = k[3]
	}
	t.Txn.Set(k, v)
}

type logReader struct {
	kv.Reader
	of *logReads
}

func (r logReader) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	return r.Reader.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		if k[0] == dict.KeyClaimed {
			r.of.rows.Add(1)
		}
		return each(k, v)
	})
}

// TestClaimsAreReadOnce: what a lane claimed in a transaction of unknown outcome, or another writer claimed, is read
// from the log once.
func TestClaimsAreReadOnce(t *testing.T) {
	c := newClaimWorld(t)
	store := &logReads{Store: c.store}
	in, _ := openAs(t, store, Options{Settings: dict.SharedSettings}).(*Claimer)
	w := &claimWriter{in, c, &asking{asked: map[string]bool{}}}
	w.claim(0, 6000)
	var b Batch
	for n := range 3000 {
		b.Add(dict.DID, base(6000+n))
	}
	in.next, store.failed = 0, 1
	if err := in.Prepare(t.Context(), &b, 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	store.failed = 0
	for n := range 6 {
		if n == 3 {
			c.open(1).claim(9000, 9010)
		}
		store.rows.Store(0)
		in.next = 0
		w.claim(10_000+10*n, 10_010+10*n)
		if rows := store.rows.Load(); n != 3 && rows > 0 || n == 3 && rows == 0 {
			t.Errorf("batch %d: %d rows of the log were read", n, rows)
		}
	}
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
