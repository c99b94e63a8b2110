package kvtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"skein.blue/internal/kv"
)

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
