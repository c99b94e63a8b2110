package pebblekv

import (
	"context"
	"errors"
	"testing"
	"time"

	"skein.blue/internal/kv"
)

// While a Close waits for a View, calls within that View fail with ErrClosed and do not wait for the
// Close; the View still reads. They fail after the Close, too, but for another Close.
func TestClosing(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 8 << 20})
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("1")); return nil }), s.Compact(t.Context()))
	ctx := context.Background()
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

// An empty range has zero bytes and is not an error, on disk as in memory.
func TestRangeBytesOfNothing(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 8 << 20})
	for range 2 {
		if err := s.Update(t.Context(), func(tx kv.Txn) error {
			for i := range 256 {
				tx.Set([]byte{byte(i), byte(i)}, make([]byte, 1000))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range [][2][]byte{
			{{'b'}, {'a'}}, {{'a'}, {'a'}}, {{'a'}, {}}, {nil, {}}, {{0xff, 1}, {0xff}}, {{0xff, 0xff}, {0xff, 0xfe}},
		} {
			if n, err := s.RangeBytes(c[0], c[1]); n != 0 || err != nil {
				t.Errorf("[%x, %x) takes %d bytes: %v", c[0], c[1], n, err)
			}
		}
		must(t, s.Compact(t.Context()))
		for _, lo := range [][]byte{nil, {0xff}, {0xff, 0}, {0xff, 0xff}} {
			if n, err := s.RangeBytes(lo, nil); n == 0 || err != nil {
				t.Errorf("from %x on: %d bytes, %v", lo, n, err)
			}
		}
	}
}
