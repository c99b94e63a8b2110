package kvtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"skein.blue/internal/kv"
)

// testEnds ends Views and Updates in every way but success: by their context, before, between and within reads of
// every kind, and by an error of their function, which is returned unwrapped.
func testEnds(t *testing.T, s kv.Store) {
	var keys [][]byte
	update(t, s, func(tx kv.Txn) {
		for i := range 1500 {
			keys = append(keys, fmt.Appendf(nil, "k%04d", i))
			tx.Set(keys[i], []byte("v"))
		}
	})
	get := func(key string) func(kv.Reader) error {
		return func(r kv.Reader) error { _, _, err := r.Get([]byte(key)); return err }
	}
	multi := func(keys [][]byte, end error) func(kv.Reader) error {
		return func(r kv.Reader) error { return r.MultiGet(keys, func(int, []byte, bool) error { return end }) }
	}
	scan := func(lo, hi []byte, reverse, more bool, end error) func(kv.Reader) error {
		return func(r kv.Reader) error {
			return r.Scan(lo, hi, reverse, func(_, _ []byte) (bool, error) { return more, end })
		}
	}
	never := errors.New("found a key in an empty range, or called although the context had ended")
	reads := map[string]func(kv.Reader) error{
		"Get": get("k0000"), "Get of none": get("none"), "a small MultiGet": multi(keys[:3], nil), "a large MultiGet": multi(keys, nil), "no keys": multi(nil, never),
		"a Scan": scan(nil, nil, false, true, nil), "a Scan backwards": scan(nil, nil, true, true, nil), "a Scan of one": scan(keys[0], keys[1], false, false, nil),
		"an empty range": scan([]byte("x"), []byte("y"), false, true, never), "an empty range, backwards": scan([]byte("x"), []byte("y"), true, true, never),
		"bounds in the wrong order": scan([]byte("y"), []byte("a"), false, true, never), "an empty end": scan(nil, []byte{}, false, true, never), "equal bounds": scan(keys[0], keys[0], true, true, never),
	}
	calls := map[string]func(context.Context, func(kv.Reader) error) error{
		"View":       s.View,
		"ViewAcross": func(ctx context.Context, fn func(kv.Reader) error) error { _, err := s.ViewAcross(ctx, fn); return err },
		"Update": func(ctx context.Context, fn func(kv.Reader) error) error {
			return s.Update(ctx, func(tx kv.Txn) error { tx.Set([]byte("c"), nil); return fn(tx) })
		},
		"Update, Snapshot": func(ctx context.Context, fn func(kv.Reader) error) error {
			return s.Update(ctx, func(tx kv.Txn) error { tx.Set([]byte("c"), nil); return fn(tx.Snapshot()) })
		},
	}
	for name, call := range calls {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := call(ended, func(kv.Reader) error { return never }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v", name, err)
		}
		if name == "View" || name == "ViewAcross" {
			testInterrupts(t, name, call, reads)
		}
		boom := errors.New("boom")
		for _, e := range []error{boom, fmt.Errorf("within: %w", boom), errors.Join(boom, kv.ErrTooLarge), kv.ErrClosed, context.Canceled} {
			fails := map[string]func(kv.Reader) error{
				"at once": func(kv.Reader) error { return e }, "in a Scan": scan(nil, nil, false, true, e),
				"in a small MultiGet": multi(keys[:1], e), "in a large MultiGet": multi(keys[:12], e),
			}
			for what, read := range reads {
				fails["after "+what] = func(r kv.Reader) error {
					if err := read(r); err != nil {
						return err
					}
					return e
				}
			}
			for what, fail := range fails {
				if err := call(context.Background(), fail); err != e { //nolint:errorlint // it must not be wrapped
					t.Errorf("%s %s: %q was returned as %v, a %T", name, what, e, err, err)
				}
			}
		}
	}
}

// testInterrupts ends the context of a View: later reads fail, and a Scan under way ends. Other Views are not affected.
func testInterrupts(t *testing.T, name string, call func(context.Context, func(kv.Reader) error) error, reads map[string]func(kv.Reader) error) {
	t.Helper()
	for what, read := range reads {
		ctx, cancel := context.WithCancel(context.Background())
		err := call(ctx, func(r kv.Reader) error {
			if err := read(r); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			cancel()
			if err := read(r); err == nil {
				t.Errorf("%s, %s: no error after the context has ended", name, what)
			}
			return read(r)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s, %s: %v", name, what, err)
		}
		deadline, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		if err := call(deadline, func(r kv.Reader) error { <-deadline.Done(); return read(r) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, %s after a deadline: %v", name, what, err)
		}
		cancel()
		if err := call(context.Background(), read); err != nil {
			t.Errorf("%s, %s in another View: %v", name, what, err)
		}
	}
	for _, reverse := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		err := call(ctx, func(r kv.Reader) error {
			return r.Scan(nil, nil, reverse, func(_, _ []byte) (bool, error) {
				if n++; n == 3 {
					cancel()
				}
				return true, nil
			})
		})
		if n != 3 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a scan interrupted at the third key read %d: %v", name, n, err)
		}
		cancel()
	}
}
