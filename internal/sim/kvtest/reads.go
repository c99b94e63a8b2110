package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/internal/kv"
)

// bound converts a bound from a test table: "-" means none.
func bound(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}

// testScanBounds tries every kind of bound: none, empty, a key, between keys, before and
// after all keys, and in the wrong order. Some keys have only bytes of 0x00 or 0xff.
func testScanBounds(t *testing.T, s kv.Store) {
	keys := []string{"\x00", "\x00\x00", "a", "a\x00", "a\xff", "b", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff"}
	update(t, s, func(tx kv.Txn) {
		for _, k := range slices.Backward(keys) {
			tx.Set([]byte(k), []byte("of "+k))
		}
	})
	for _, c := range []struct {
		lo, hi   string
		from, to int // of keys
	}{
		{"-", "-", 0, 11},
		{"", "-", 0, 11},
		{"-", "\x00", 0, 0},
		{"", "\x00", 0, 0},
		{"\x00", "\x00\x00", 0, 1},
		{"\x00", "\x01", 0, 2},
		{"a", "a", 2, 2},
		{"a", "a\x00", 2, 3},
		{"a", "b", 2, 5},
		{"a\x01", "a\xff", 4, 4},
		{"a\x01", "a\xff\x00", 4, 5},
		{"b", "a", 0, 0},
		{"\xff", "\x00", 0, 0},
		{"-", "a", 0, 2},
		{"b\x00", "-", 6, 11},
		{"\xff", "-", 7, 11},
		{"\xff\xff", "-", 9, 11},
		{"\xff\xff\xff", "-", 10, 11},
		{"\xff\xff\xff\x00", "-", 11, 11},
		{"\xfe", "\xff", 6, 7},
	} {
		want := keys[c.from:c.to]
		view(t, s, func(r kv.Reader) {
			for _, reverse := range []bool{false, true} {
				for limit := 1; limit <= len(want)+1; limit++ {
					var got []string
					err := r.Scan(bound(c.lo), bound(c.hi), reverse, func(k, v []byte) (bool, error) {
						if got = append(got, string(k)); string(v) != "of "+string(k) {
							t.Errorf("%q is %q", k, v)
						}
						return len(got) < limit, nil
					})
					want := slices.Clone(want)
					if reverse {
						slices.Reverse(want)
					}
					if want = want[:min(limit, len(want))]; err != nil || !slices.Equal(got, want) {
						t.Errorf("[%q, %q), reverse %v, %d keys: got %q, want %q: %v", c.lo, c.hi, reverse, limit, got, want, err)
					}
				}
			}
		})
	}
}

// testScanEnds ends Scans early at each key, with false and with an error. The callback
// is not called again, and the Reader still works.
func testScanEnds(t *testing.T, s kv.Store) {
	const n = 12
	update(t, s, func(tx kv.Txn) {
		for i := range n {
			tx.Set(fmt.Appendf(nil, "k%02d", i), nil)
		}
	})
	boom := errors.New("boom")
	end := func(r kv.Reader) {
		for stop := range n {
			for _, c := range []struct {
				more bool
				err  error
			}{{false, nil}, {false, boom}, {true, boom}} {
				for _, reverse := range []bool{false, true} {
					calls := 0
					err := r.Scan([]byte("k"), []byte("l"), reverse, func(_, _ []byte) (bool, error) {
						if calls++; calls == stop+1 {
							return c.more, c.err
						}
						return true, nil
					})
					if calls != stop+1 || !errors.Is(err, c.err) || c.err == nil && err != nil {
						t.Fatalf("%v, %v at call %d: %d calls, %v", c.more, c.err, stop+1, calls, err)
					}
				}
			}
		}
		if got := scan(t, r, "k1", "l", false, 0); got != "k10k11" {
			t.Errorf("afterwards: %q", got)
		}
	}
	view(t, s, end)
	update(t, s, func(tx kv.Txn) { end(tx); end(tx.Snapshot()) })
}

// testReadsWithinScans makes every kind of read within a Scan, and another Scan within
// those, forwards and backwards. They do not disturb each other.
func testReadsWithinScans(t *testing.T, s kv.Store) {
	const n = 40
	key := func(i int) []byte { return fmt.Appendf(nil, "k%02d", i) }
	update(t, s, func(tx kv.Txn) {
		for i := range n {
			tx.Set(key(i), fmt.Appendf(nil, "v%02d", i))
		}
	})
	reads := func(r kv.Reader) {
		for _, reverse := range []bool{false, true} {
			calls := 0
			err := r.Scan(nil, nil, reverse, func(k, v []byte) (bool, error) {
				at := calls
				if calls++; reverse {
					at = n - 1 - at
				}
				other := (at*7 + 3) % n
				if got := get(t, r, string(key(other))); got != fmt.Sprintf("v%02d", other) {
					t.Fatalf("key %d is %q", other, got)
				}
				keys := [][]byte{key(other), key(at), []byte("none"), key(0), key(1), key(2), key(3), key(4), key(5), key(other)}
				err := r.MultiGet(keys, func(i int, got []byte, ok bool) error {
					if i == 0 && string(got) != fmt.Sprintf("v%02d", other) || i == 1 && string(got) != string(v) || i == 2 && ok {
						t.Fatalf("key %q is %q, %v", keys[i], got, ok)
					}
					if i == 4 {
						if k := scan(t, r, string(key(other)), "l", false, 1); k != string(key(other)) {
							t.Fatalf("a scan from %d began at %q", other, k)
						}
					}
					return nil
				})
				if string(k) != string(key(at)) || string(v) != fmt.Sprintf("v%02d", at) {
					t.Fatalf("key %d is %q → %q", at, k, v)
				}
				return true, err
			})
			if err != nil || calls != n {
				t.Fatalf("%d keys, %v", calls, err)
			}
		}
	}
	view(t, s, reads)
	update(t, s, func(tx kv.Txn) { reads(tx); reads(tx.Snapshot()) })
}

// testScanPrefix scans prefixes, at the edges of the key space too.
func testScanPrefix(t *testing.T, s kv.Store) {
	keys := []string{"\x00", "a", "aa", "ab", "a\xff", "a\xff\xff", "b", "\xff", "\xff\x01", "\xff\xff"}
	update(t, s, func(tx kv.Txn) {
		for _, k := range keys {
			tx.Set([]byte(k), []byte(k))
		}
	})
	view(t, s, func(r kv.Reader) {
		for prefix, want := range map[string][]string{
			"":         keys,
			"\x00":     keys[0:1],
			"a":        keys[1:6],
			"aa":       keys[2:3],
			"a\xff":    keys[4:6],
			"b":        keys[6:7],
			"c":        nil,
			"\xff":     keys[7:],
			"\xff\xff": keys[9:],
		} {
			var got []string
			err := kv.ScanPrefix(r, []byte(prefix), func(k, v []byte) error {
				if got = append(got, string(k)); string(v) != string(k) {
					t.Errorf("%q is %q", k, v)
				}
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("prefix %q: got %q, want %q: %v", prefix, got, want, err)
			}
		}
		boom, calls := errors.New("boom"), 0
		err := kv.ScanPrefix(r, []byte("a"), func(_, _ []byte) error { calls++; return boom })
		if !errors.Is(err, boom) || calls != 1 {
			t.Errorf("after %d calls, the callback's error was returned as %v", calls, err)
		}
	})
}

// testMultiGetRepeated looks up from zero to thousands of keys, repeated, unordered and some
// of them missing. Each callback gets the value of its key.
func testMultiGetRepeated(t *testing.T, s kv.Store) {
	const stored = 500
	update(t, s, func(tx kv.Txn) {
		for i := range stored {
			tx.Set(fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "%0*d", 1+i%300, i))
		}
	})
	ask := func(r kv.Reader) {
		for _, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 511, 513, 1100, 4500} {
			keys := make([][]byte, n)
			ids := make([]int, n)
			for i := range keys {
				ids[i] = i * i % (2 * stored) // some are missing, and many repeat
				keys[i] = fmt.Appendf(nil, "k%d", ids[i])
			}
			next := 0
			err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
				want := ""
				if ids[i] < stored {
					want = fmt.Sprintf("%0*d", 1+ids[i]%300, ids[i])
				}
				if i != next || string(v) != want || ok != (ids[i] < stored) {
					t.Fatalf("%d keys: callback %d has key %d, %s = %q, %v", n, next, i, keys[i], v, ok)
				}
				_ = append(v, "must not overwrite the next value"...)
				next++
				return nil
			})
			if err != nil || next != n {
				t.Fatalf("%d of %d keys, %v", next, n, err)
			}
		}
	}
	view(t, s, ask)
	update(t, s, func(tx kv.Txn) { ask(tx); ask(tx.Snapshot()) })
}

// testMultiGetErrors returns an error from the callback. It ends the read, and the
// Reader still works.
func testMultiGetErrors(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("k1"), []byte("v")) })
	boom := errors.New("boom")
	view(t, s, func(r kv.Reader) {
		for _, n := range []int{1, 5, 20, 1200} {
			for _, at := range []int{0, n / 2, n - 1} {
				keys := make([][]byte, n)
				for i := range keys {
					keys[i] = fmt.Appendf(nil, "k%d", i)
				}
				calls := 0
				err := r.MultiGet(keys, func(i int, _ []byte, _ bool) error {
					if calls++; i == at {
						return boom
					}
					return nil
				})
				if !errors.Is(err, boom) || calls != at+1 {
					t.Errorf("an error at %d of %d: %d calls, %v", at, n, calls, err)
				}
				if got := get(t, r, "k1"); got != "v" {
					t.Errorf("afterwards: %q", got)
				}
			}
		}
	})
}

// testEmptyValues checks that a key with an empty value exists.
func testEmptyValues(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		tx.Set([]byte("nil"), nil)
		tx.Set([]byte("empty"), []byte{})
		tx.Set([]byte("gone"), nil)
	})
	update(t, s, func(tx kv.Txn) { tx.Delete([]byte("gone")) })
	view(t, s, func(r kv.Reader) {
		for key, exists := range map[string]bool{"nil": true, "empty": true, "gone": false, "none": false, "": false} {
			v, ok, err := r.Get([]byte(key))
			if err != nil || ok != exists || len(v) != 0 {
				t.Errorf("%q: %q, %v, %v", key, v, ok, err)
			}
		}
		if got := scan(t, r, "", "", false, 0); got != "emptynil" {
			t.Errorf("the keys are %q", got)
		}
	})
}

// testValuesAreTheCallers overwrites a value that Get returned. The store does not change.
func testValuesAreTheCallers(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		tx.Set([]byte("a"), []byte("value of a"))
		tx.Merge([]byte("m"), []byte{1, 1})
	})
	scribble := func(r kv.Reader) {
		for range 2 {
			for key, want := range map[string]string{"a": "value of a", "m": "\x01\x01"} {
				v, ok, err := r.Get([]byte(key))
				if err != nil || !ok || string(v) != want {
					t.Errorf("%s = %q, %v, %v", key, v, ok, err)
				}
				clear(v)
			}
		}
	}
	view(t, s, scribble)
	update(t, s, func(tx kv.Txn) { scribble(tx); scribble(tx.Snapshot()); tx.Merge([]byte("m"), []byte{2, 1}) })
	view(t, s, func(r kv.Reader) {
		if got := get(t, r, "a") + get(t, r, "m"); got != "value of a\x01\x01\x02\x01" {
			t.Errorf("got %q", got)
		}
	})
}

// testNames checks Engine, Merger and Sync.
func testNames(t *testing.T, s kv.Store) {
	if name := s.Engine(); !slices.Contains([]string{"pebble", "memory", "fdb"}, name) {
		t.Errorf("the engine is %q", name)
	}
	if m := s.Merger(); m == nil || m.Name() != (LastByte{}).Name() {
		t.Errorf("the merger is %v", m)
	}
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("a"), nil) })
	if err := s.Sync(); err != nil {
		t.Errorf("Sync: %v", err)
	}
}

// testErrors returns errors from the functions of View, ViewAcross and Update. They
// return the same error, and nothing is written.
func testErrors(t *testing.T, s kv.Store) {
	boom := errors.New("boom")
	for name, call := range map[string]func(error) (int, error){
		"View": func(e error) (n int, err error) {
			return n, s.View(context.Background(), func(kv.Reader) error { n++; return e })
		},
		"ViewAcross": func(e error) (n int, err error) {
			_, err = s.ViewAcross(context.Background(), func(kv.Reader) error { n++; return e })
			return n, err
		},
		"Update": func(e error) (n int, err error) {
			err = s.Update(context.Background(), func(tx kv.Txn) error {
				n++
				tx.Set([]byte("a"), nil)
				tx.Merge([]byte("m"), []byte{1, 1})
				tx.DeleteRange([]byte("a"), []byte("z"))
				return e
			})
			return n, err
		},
	} {
		// An error that the engine also uses gets no special treatment.
		for _, e := range []error{boom, fmt.Errorf("within: %w", boom), errors.Join(boom, kv.ErrTooLarge), context.Canceled} {
			if _, err := call(e); !errors.Is(err, errors.Unwrap(e)) && !errors.Is(err, e) || err.Error() != e.Error() {
				t.Errorf("%s: %q was returned as %v", name, e, err)
			}
		}
	}
	view(t, s, func(r kv.Reader) {
		if got := scan(t, r, "", "", false, 0); got != "" {
			t.Errorf("%q was written", got)
		}
	})
}

// testPrefetch begins random reads early, some of them for nothing, and writes meanwhile. All reads are as
// without that, whether they are repeated, ended early, or change the bytes that they get.
func testPrefetch(t *testing.T, s kv.Store) {
	const n = 60
	key := func(i int) []byte { return fmt.Appendf(nil, "p%02d", i) }
	update(t, s, func(tx kv.Txn) {
		for i := 0; i < n; i += 2 {
			tx.Set(key(i), fmt.Appendf(nil, "v%02d", i))
		}
	})
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 20 {
		view(t, s, func(r kv.Reader) {
			begin := func(lo, hi int) {
				if p, ok := r.(kv.Prefetcher); ok {
					if hi < 0 {
						p.PrefetchGet(key(lo))
					} else {
						p.PrefetchScan(key(lo), key(hi))
					}
				}
			}
			update(t, s, func(tx kv.Txn) { tx.Set(key(n+1), []byte("x")) }) // another state
			for range 40 {
				lo, hi, i := rng.IntN(n), rng.IntN(n), rng.IntN(n)
				for range rng.IntN(3) {
					begin(lo, hi)
					begin(i, -1)
					begin(rng.IntN(n), rng.IntN(n))
				}
				for range 1 + rng.IntN(2) {
					want := "-"
					if i%2 == 0 {
						want = fmt.Sprintf("v%02d", i)
					}
					v, ok, err := r.Get(key(i))
					if got := string(v); err != nil || ok != (want != "-") || ok && got != want {
						t.Fatalf("round %d: key %d is %q, %v, %v", round, i, got, ok, err)
					}
					clear(v)
					limit, at := 1+rng.IntN(n), lo+lo%2
					calls := 0
					err = r.Scan(key(lo), key(hi), false, func(k, v []byte) (bool, error) {
						if string(k) != string(key(at)) || string(v) != fmt.Sprintf("v%02d", at) {
							t.Fatalf("round %d: [%d, %d): %s is %q, want key %d", round, lo, hi, k, v, at)
						}
						at += 2
						calls++
						return calls < limit, nil
					})
					if want := max(0, min(limit, (hi+1)/2-(lo+1)/2)); err != nil || calls != want {
						t.Fatalf("round %d: [%d, %d) has %d keys, want %d: %v", round, lo, hi, calls, want, err)
					}
				}
			}
		})
	}
}
