package pebblekv

import (
	"context"
	"errors"
	"testing"
	"time"

	"skein.blue/internal/kv"
)

// While a Close waits for a View, calls within that View fail with ErrClosed and do not wait for the
// Close; the View still reads. They fail after the Close, too, but for another Close. A View that panics leaves nothing open.
func TestClosing(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 8 << 20})
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("1")); return nil }), s.Compact(t.Context()))
	ctx := context.Background()
	func() {
		defer func() { _ = recover() }()
		_ = s.View(ctx, func(r kv.Reader) error {
			return kv.ScanPrefix(r, nil, func(_, _ []byte) error {
				return kv.ScanPrefix(r, nil, func(_, _ []byte) error { panic("a question") })
			})
		})
	}()
	fail := func() {
		for name, call := range map[string]func() error{
			"View":               func() error { return s.View(ctx, func(kv.Reader) error { return nil }) },
			"ViewAcross":         func() error { _, err := s.ViewAcross(ctx, func(kv.Reader) error { return nil }); return err },
			"Update":             func() error { return s.Update(ctx, func(kv.Txn) error { return nil }) },
			"Update that writes": func() error { return s.Update(ctx, func(tx kv.Txn) error { tx.Set([]byte("b"), nil); return nil }) },
			"Compact":            func() error { return s.Compact(ctx) },
			"RangeBytes":         func() error { _, err := s.RangeBytes([]byte("a"), nil); return err },
		} {
			if err := call(); !errors.Is(err, kv.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	ended, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- s.View(ctx, func(r kv.Reader) error {
			go func() { closed <- s.Close() }()
			<-s.gate.closing // Close waits for us
			fail()
			_, ok, err := r.Get([]byte("a"))
			if !ok {
				err = errors.Join(err, kv.ErrNotFound)
			}
			return err
		})
	}()
	for _, end := range []chan error{ended, closed} {
		select {
		case err := <-end:
			must(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("a call hangs")
		}
	}
	fail()
	must(t, s.Close())
}
