// Package kvtest is the conformance suite of package kv. Every engine must pass it.
package kvtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"skein.blue/internal/kv"
)

// LastByte is the suite's Merger: an operand is a list of (member, alive)
// pairs of bytes, and the newest pair of each member wins. Like the real Merger,
// it depends on the order of operands, and keeps tombstones until base is set.
type LastByte struct{}

// Name implements kv.Merger.
func (LastByte) Name() string { return "kvtest.lastbyte.v1" }

// Fold implements kv.Merger.
func (LastByte) Fold(dst, key []byte, values [][]byte, base bool) ([]byte, error) {
	last := map[byte]byte{}
	for _, v := range values {
		if len(v)%2 != 0 {
			return nil, fmt.Errorf("kvtest: value of odd length under %x", key)
		}
		for i := 0; i < len(v); i += 2 {
			last[v[i]] = v[i+1]
		}
	}
	for _, m := range slices.Sorted(maps.Keys(last)) {
		if last[m] != 0 || !base {
			dst = append(dst, m, last[m])
		}
	}
	return dst, nil
}

// An Engine describes an engine to the suite.
type Engine struct {
	// Open opens an empty store that folds with m.
	Open func(t *testing.T, m kv.Merger) kv.Store
	// Reopen closes a store and opens it again. nil means that data does not outlive
	// Close.
	Reopen func(t *testing.T, s kv.Store) kv.Store
	// OpenAs opens a closed store with another Merger, and returns the error. nil means
	// that data does not outlive Close.
	OpenAs func(t *testing.T, s kv.Store, m kv.Merger) error
	// Fits has sizes that the engine accepts, TooLarge sizes that it does not, or 0 for
	// no limit.
	Fits, TooLarge Sizes
	// Conflicts means that transactions run concurrently, and are retried only after a
	// conflict.
	Conflicts bool
	// Sizes means that RangeBytes is about right from a megabyte on.
	Sizes bool
}

// Sizes are the sizes of a key, a value and a transaction, in bytes.
type Sizes struct{ Key, Value, Txn int }

// Run runs the suite on an engine.
func Run(t *testing.T, e Engine) {
	for name, test := range map[string]func(t *testing.T, s kv.Store){
		"Counter":          testCounter,
		"ConcurrentMerges": testConcurrentMerges,
		"ViewIsOneState":   testViewIsOneState,
		"ViewAcross":       testViewAcross,
		"CloseDuringViews": testCloseDuringViews,
		"Names":            testNames,
		"RangeBytes":       testRangeBytes,
		"Ends":             testEnds,
	} {
		t.Run(name, func(t *testing.T) {
			s := e.Open(t, LastByte{})
			test(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, test := range map[string]func(t *testing.T, e Engine){
		"Histories":           testHistories,
		"LongKeysAndValues":   testLong,
		"TooLarge":            testTooLarge,
		"CloseDuringUpdates":  testCloseDuringUpdates,
		"Sizes":               testSizes,
		"MergerIsNamed":       testMergerIsNamed,
		"Conflicts":           testConflicts,
		"MergesDoNotConflict": testMergesDoNotConflict,
	} {
		t.Run(name, func(t *testing.T) { test(t, e) })
	}
}

func update(t *testing.T, s kv.Store, fn func(kv.Txn)) {
	t.Helper()
	if err := s.Update(context.Background(), func(tx kv.Txn) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func view(t *testing.T, s kv.Store, fn func(kv.Reader)) {
	t.Helper()
	if err := s.View(context.Background(), func(r kv.Reader) error { fn(r); return nil }); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, r kv.Reader, key string) string {
	t.Helper()
	v, ok, err := r.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "-"
	}
	return string(v)
}

func scan(t *testing.T, r kv.Reader, lo, hi string, reverse bool, limit int) string {
	t.Helper()
	var out []byte
	var h []byte
	if hi != "" {
		h = []byte(hi)
	}
	err := r.Scan([]byte(lo), h, reverse, func(k, _ []byte) (bool, error) {
		out = append(out, k...)
		limit--
		return limit != 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// testCounter increments one counter from several goroutines: no increment is lost.
// Each increment sets a mark, so an attempt with an unknown outcome counts once.
func testCounter(t *testing.T, s kv.Store) {
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				mark := fmt.Appendf(nil, "mark/%d/%d", w, i)
				err := s.Update(context.Background(), func(tx kv.Txn) error {
					if _, done, err := tx.Get(mark); done || err != nil {
						return err
					}
					v, _, err := tx.Get([]byte("n"))
					if err != nil {
						return err
					}
					n := 0
					if len(v) > 0 {
						if _, err := fmt.Sscan(string(v), &n); err != nil {
							return err
						}
					}
					tx.Set([]byte("n"), fmt.Append(nil, n+1))
					tx.Set(mark, nil)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	view(t, s, func(r kv.Reader) {
		if got := get(t, r, "n"); got != fmt.Sprint(writers*each) {
			t.Errorf("n = %s, want %d", got, writers*each)
		}
	})
}

func testConcurrentMerges(t *testing.T, s kv.Store) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 32 {
				update(t, s, func(tx kv.Txn) {
					tx.Merge([]byte("m"), []byte{byte(w*32 + i), 1})
					tx.Merge([]byte("m"), []byte{byte(w*32 + i), byte(i % 2)})
				})
			}
		})
	}
	wg.Wait()
	var want []byte
	for i := 1; i < 256; i += 2 {
		want = append(want, byte(i), 1)
	}
	view(t, s, func(r kv.Reader) {
		if got := get(t, r, "m"); got != string(want) {
			t.Errorf("m = %q", got)
		}
	})
}
