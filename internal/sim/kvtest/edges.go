package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/internal/kv"
)

// keysIn returns the keys that a Scan finds.
func keysIn(t *testing.T, r kv.Reader, lo, hi []byte, reverse bool) (keys []string) {
	t.Helper()
	if err := r.Scan(lo, hi, reverse, func(k, _ []byte) (bool, error) { keys = append(keys, string(k)); return true, nil }); err != nil {
		t.Fatal(err)
	}
	return keys
}

// readers calls look with every kind of Reader.
func readers(t *testing.T, s kv.Store, look func(r kv.Reader)) {
	t.Helper()
	view(t, s, look)
	update(t, s, func(tx kv.Txn) { look(tx) })
	update(t, s, func(tx kv.Txn) { look(tx.Snapshot()) })
	if _, err := s.ViewAcross(context.Background(), func(r kv.Reader) error { look(r); return nil }); err != nil {
		t.Fatal(err)
	}
}

// testWrongOrder scans ranges with random bounds, many of them equal or in the wrong order.
// Those are empty, and the next Scan of the same Reader finds all of its keys. It repeats
// that after opening the store again, since engines read files and memory differently.
func testWrongOrder(t *testing.T, e Engine) {
	s := e.Open(t, LastByte{})
	keys := []string{"\x00", "\x00\xff", "\x01\x00", "a", "a\x01z", "m", "m\x00\xffa", "m\x01a", "ma\x00", "mz", "z\x00", "z\x01z", "\xfd", "\xff"}
	rng := rand.New(rand.NewPCG(1, 3))
	at := func() string {
		b := make([]byte, 1+rng.IntN(3))
		for i := range b {
			b[i] = "\x00\x01\xffamz"[rng.IntN(6)]
		}
		return string(b)
	}
	update(t, s, func(tx kv.Txn) {
		for _, k := range keys {
			tx.Set([]byte(k), nil)
		}
	})
	look := func() {
		for _, first := range [][2]string{{"ma\x00z", "\x00\x00"}, {"n", "m"}, {"m", "m"}, {"\xff\xff", "\xff"}} {
			readers(t, s, func(r kv.Reader) {
				scans := [][2]string{first, {"m\x00\xff", "\xfe"}}
				for range 6 {
					scans = append(scans, [2]string{at(), at()})
				}
				for n, c := range scans {
					want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k < c[0] || k >= c[1] })
					reverse := n > 1 && rng.IntN(3) == 0
					if reverse {
						slices.Reverse(want)
					}
					if got := keysIn(t, r, []byte(c[0]), []byte(c[1]), reverse); !slices.Equal(got, want) {
						t.Fatalf("scans %q, the last one reverse %v: got %q, want %q", scans[:n+1], reverse, got, want)
					}
				}
			})
		}
	}
	for range 20 {
		look()
	}
	if e.Reopen != nil {
		s = e.Reopen(t, s)
	}
	for range 20 {
		look()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testEmptyEnd scans ranges with an empty upper bound. They end before all keys; ranges with a
// nil bound have no end.
func testEmptyEnd(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for _, k := range []string{"\x00", "a", "\xff"} {
			tx.Set([]byte(k), nil)
		}
	})
	readers(t, s, func(r kv.Reader) {
		for _, lo := range []string{"-", "", "\x00", "a", "\xff"} {
			for _, reverse := range []bool{false, true} {
				if got := keysIn(t, r, bound(lo), []byte{}, reverse); len(got) > 0 {
					t.Errorf("[%q, \"\"), reverse %v: got %q", lo, reverse, got)
				}
				if got := keysIn(t, r, nil, nil, reverse); len(got) != 3 {
					t.Errorf("after [%q, \"\"), reverse %v: got %q", lo, reverse, got)
				}
			}
		}
	})
}

// testEmptyRangeWithinScan scans an empty range within a Scan, which continues.
func testEmptyRangeWithinScan(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for i := range 20 {
			tx.Set(fmt.Appendf(nil, "k%02d", i), nil)
		}
	})
	readers(t, s, func(r kv.Reader) {
		for _, reverse := range []bool{false, true} {
			n := 0
			err := r.Scan([]byte("k"), []byte("l"), reverse, func(_, _ []byte) (bool, error) {
				n++
				for _, hi := range []string{"k05", "k15", ""} {
					if got := keysIn(t, r, []byte("k15"), []byte(hi), reverse); len(got) > 0 {
						t.Errorf("[k15, %q): got %q", hi, got)
					}
				}
				return true, nil
			})
			if err != nil || n != 20 {
				t.Errorf("reverse %v: %d keys, %v", reverse, n, err)
			}
		}
	})
}

// testMultiGetWithinMultiGet calls MultiGet in the callback of a MultiGet, several levels
// deep. They do not disturb each other.
func testMultiGetWithinMultiGet(t *testing.T, s kv.Store) {
	const stored = 1600
	value := func(i int) string { return strings.Repeat(fmt.Sprint(i, " "), 1+i%40) }
	for part := range 4 {
		update(t, s, func(tx kv.Txn) {
			for i := part * stored / 4; i < (part+1)*stored/4; i++ {
				tx.Set(fmt.Appendf(nil, "k%d", i), []byte(value(i)))
			}
		})
	}
	var ask func(r kv.Reader, from int, sizes []int) error
	ask = func(r kv.Reader, from int, sizes []int) error {
		if len(sizes) == 0 {
			return nil
		}
		keys, ids := make([][]byte, sizes[0]), make([]int, sizes[0])
		for i := range keys {
			ids[i] = (from + i*7) % (stored * 3 / 2) // a third is missing
			keys[i] = fmt.Appendf(nil, "k%d", ids[i])
		}
		next := 0
		err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
			want := ""
			if ids[i] < stored {
				want = value(ids[i])
			}
			if i != next || ok != (ids[i] < stored) || string(v) != want {
				return fmt.Errorf("%d keys: callback %d has key %d, %s = %.20q, %v", len(keys), next, i, keys[i], v, ok)
			}
			next++
			if i%(1+len(keys)/5) > 0 { // only some callbacks read
				return nil
			}
			return ask(r, from+i+1, sizes[1:])
		})
		if err == nil && next != len(keys) {
			err = fmt.Errorf("%d of %d keys", next, len(keys))
		}
		return err
	}
	readers(t, s, func(r kv.Reader) {
		for n, sizes := range [][]int{{20, 9}, {9, 20}, {20, 20, 20}, {3, 20, 3, 20}, {1200, 30}, {30, 1200}, {1100, 1100}, {20, 0, 20}, {8, 8, 8, 8}} {
			if err := ask(r, 13*n, sizes); err != nil {
				t.Errorf("%v: %v", sizes, err)
			}
		}
		boom := errors.New("boom")
		keys := make([][]byte, 20)
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "k%d", i)
		}
		err := r.MultiGet(keys, func(int, []byte, bool) error {
			return r.MultiGet(keys, func(int, []byte, bool) error { return boom })
		})
		if !errors.Is(err, boom) {
			t.Errorf("error of the inner callback: %v", err)
		}
		if err := ask(r, 1, []int{20, 20}); err != nil {
			t.Errorf("after the error: %v", err)
		}
	})
}

// testDeleteRangeBounds deletes ranges without an upper bound, which delete to the end, and
// empty ones: with bounds in the wrong order, or an end before all keys.
func testDeleteRangeBounds(t *testing.T, s kv.Store) {
	keys := []string{"\x00", "a", "b", "c", "m", "z", "\xfe", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff"}
	for _, c := range []struct {
		lo, hi string
		left   int // how many keys remain, the lowest ones
	}{
		{"-", "-", 0},
		{"", "-", 0},
		{"b", "-", 2},
		{"z\x00", "-", 6},
		{"\xff", "-", 7},
		{"\xff\xff", "-", 9},
		{"\xff\xff\xff\x00", "-", 11},
		{"c", "a", 11},
		{"z", "\x00", 11},
		{"\xff\xff", "\xff", 11},
		{"a", "", 11},
		{"-", "", 11},
		{"", "", 11},
		{"m", "m", 11},
	} {
		update(t, s, func(tx kv.Txn) {
			for _, k := range keys {
				tx.Set([]byte(k), nil)
			}
		})
		update(t, s, func(tx kv.Txn) {
			tx.Set([]byte("b1"), nil) // is deleted like older keys
			tx.DeleteRange(bound(c.lo), bound(c.hi))
			tx.Set([]byte("after"), nil)
		})
		want := slices.Clone(keys[:c.left])
		if deleted := c.hi == "-" && string(bound(c.lo)) <= "b1"; !deleted {
			want = append(want, "b1")
		}
		want = append(want, "after")
		slices.Sort(want)
		view(t, s, func(r kv.Reader) {
			if got := keysIn(t, r, nil, nil, false); !slices.Equal(got, want) {
				t.Errorf("after deleting [%q, %q): %q, want %q", c.lo, c.hi, got, want)
			}
		})
		update(t, s, func(tx kv.Txn) { tx.DeleteRange(nil, nil) })
	}
	// Deleting an empty range does not change a chain of merges; deleting a range without
	// an end does.
	update(t, s, func(tx kv.Txn) {
		tx.Merge([]byte("m"), []byte{1, 1})
		tx.DeleteRange([]byte("n"), []byte("a"))
		tx.Merge([]byte("m"), []byte{2, 1})
		tx.Merge([]byte("q"), []byte{3, 1})
		tx.DeleteRange([]byte("n"), nil)
		tx.Merge([]byte("q"), []byte{4, 1})
	})
	view(t, s, func(r kv.Reader) {
		if got := get(t, r, "m") + get(t, r, "q"); got != "\x01\x01\x02\x01\x04\x01" {
			t.Errorf("got %q", got)
		}
	})
}

// testErrorsAreTheSame checks that View, ViewAcross and Update return the error of their
// function unwrapped, whatever the function read before.
func testErrorsAreTheSame(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("a"), nil); tx.Set([]byte("b"), nil) })
	boom := errors.New("boom")
	keys := make([][]byte, 12)
	for i := range keys {
		keys[i] = []byte("a")
	}
	for _, e := range []error{boom, fmt.Errorf("within: %w", boom), errors.Join(boom, kv.ErrTooLarge), kv.ErrClosed, context.Canceled} {
		fails := map[string]func(r kv.Reader) error{
			"at once": func(kv.Reader) error { return e },
			"after a Get": func(r kv.Reader) error {
				if _, _, err := r.Get([]byte("a")); err != nil {
					return err
				}
				return e
			},
			"after a Scan": func(r kv.Reader) error {
				if err := r.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { return true, nil }); err != nil {
					return err
				}
				return e
			},
			"in a Scan": func(r kv.Reader) error {
				return r.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { return true, e })
			},
			"in a small MultiGet": func(r kv.Reader) error { return r.MultiGet(keys[:1], func(int, []byte, bool) error { return e }) },
			"in a large MultiGet": func(r kv.Reader) error { return r.MultiGet(keys, func(int, []byte, bool) error { return e }) },
		}
		for name, fail := range fails {
			_, across := s.ViewAcross(context.Background(), fail)
			for call, err := range map[string]error{
				"View":       s.View(context.Background(), fail),
				"ViewAcross": across,
				"Update": s.Update(context.Background(), func(tx kv.Txn) error {
					tx.Set([]byte("c"), nil)
					return fail(tx)
				}),
				"Update, Snapshot": s.Update(context.Background(), func(tx kv.Txn) error { return fail(tx.Snapshot()) }),
			} {
				if err != e { //nolint:errorlint // it must not be wrapped
					t.Errorf("%s %s: %q was returned as %v, a %T", call, name, e, err, err)
				}
			}
		}
	}
}

// testInterruptsNothing ends the context of a View. Reads without keys or results then fail
// like all others.
func testInterruptsNothing(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("b"), nil) })
	never := func(_, _ []byte) (bool, error) { return false, errors.New("found a key in an empty range") }
	for name, read := range map[string]func(kv.Reader) error{
		"no keys":                   func(r kv.Reader) error { return r.MultiGet(nil, func(int, []byte, bool) error { return nil }) },
		"an empty range":            func(r kv.Reader) error { return r.Scan([]byte("x"), []byte("y"), false, never) },
		"an empty range, backwards": func(r kv.Reader) error { return r.Scan([]byte("x"), []byte("y"), true, never) },
		"bounds in the wrong order": func(r kv.Reader) error { return r.Scan([]byte("y"), []byte("a"), false, never) },
		"an empty end":              func(r kv.Reader) error { return r.Scan(nil, []byte{}, false, never) },
		"equal bounds":              func(r kv.Reader) error { return r.Scan([]byte("b"), []byte("b"), true, never) },
	} {
		for _, across := range []bool{false, true} {
			ctx, cancel := context.WithCancel(context.Background())
			fn := func(r kv.Reader) error {
				if err := read(r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				cancel()
				err := read(r)
				if err == nil {
					t.Errorf("%s: no error after the context has ended", name)
				}
				return err
			}
			var err error
			if across {
				_, err = s.ViewAcross(ctx, fn)
			} else {
				err = s.View(ctx, fn)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	}
}

// testRangeBytes measures ranges with any bounds, even above all keys, and after Close. The
// contract leaves the size of empty ranges open, so they are not tested.
func testRangeBytes(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for _, k := range []string{"\x00", "a", "b", "\xff", "\xff\x01", "\xff\xff", "\xff\xff\xff\xff"} {
			tx.Set([]byte(k), make([]byte, 100))
		}
	})
	for _, lo := range []string{"-", "", "\x00", "a", "b", "\xfe", "\xff", "\xff\x00", "\xff\x01", "\xff\xff", "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff"} {
		for _, hi := range []string{"-", "", "\x00", "a", "b", "\xff", "\xff\xff"} {
			if hi != "-" && string(bound(lo)) >= hi {
				continue
			}
			if _, err := s.RangeBytes(bound(lo), bound(hi)); err != nil {
				t.Errorf("[%q, %q): %v", lo, hi, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"-", "-"}, {"a", "b"}, {"\xff\x01", "-"}} {
		if _, err := s.RangeBytes(bound(c[0]), bound(c[1])); !errors.Is(err, kv.ErrClosed) {
			t.Errorf("[%q, %q) after Close: %v", c[0], c[1], err)
		}
	}
}
