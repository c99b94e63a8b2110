package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// closingIn calls fn within a View once another goroutine's Close waits for that View.
// fn must return soon.
func closingIn(t *testing.T, fn func(s *Store)) {
	t.Helper()
	s, err := Open(Options{Dir: t.TempDir(), Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	update := func() error {
		return s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("1")); return nil })
	}
	if err := update(); err != nil {
		t.Fatal(err)
	}
	closed, called := make(chan error, 1), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- s.View(t.Context(), func(r kv.Reader) error {
			go func() { closed <- s.Close() }()
			<-s.gate.closing // Close waits for us
			fn(s)
			close(called)
			_, ok, err := r.Get([]byte("a")) // the open View still reads
			if !ok {
				err = errors.Join(err, kv.ErrNotFound)
			}
			return err
		})
	}()
	select {
	case <-called:
	case <-time.After(10 * time.Second):
		t.Fatal("a call hangs")
	}
	if err := errors.Join(<-ended, <-closed); err != nil {
		t.Error(err)
	}
}

// While a Close waits for a View, calls within that View fail with ErrClosed and do not wait
// for the Close.
func TestClosingWithinView(t *testing.T) {
	for name, call := range map[string]func(*Store) error{
		"View":   func(s *Store) error { return s.View(context.Background(), func(kv.Reader) error { return nil }) },
		"Update": func(s *Store) error { return s.Update(context.Background(), func(kv.Txn) error { return nil }) },
		"ViewAcross": func(s *Store) error {
			_, err := s.ViewAcross(context.Background(), func(kv.Reader) error { return nil })
			return err
		},
		"Update that writes": func(s *Store) error {
			return s.Update(context.Background(), func(tx kv.Txn) error { tx.Set([]byte("b"), nil); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			closingIn(t, func(s *Store) {
				for range 3 {
					if err := call(s); !errors.Is(err, kv.ErrClosed) {
						t.Errorf("%v", err)
					}
				}
			})
		})
	}
}

// Compact and RangeBytes of a closed store fail.
func TestClosedIsNotCompacted(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Errorf("while open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Compact(t.Context()); !errors.Is(err, kv.ErrClosed) {
			t.Errorf("Compact: %v", err)
		}
		if n, err := s.RangeBytes([]byte("a"), nil); !errors.Is(err, kv.ErrClosed) || n != 0 {
			t.Errorf("RangeBytes: %d, %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	}
}

// An empty range has zero bytes and is not an error, on disk as in memory.
func TestRangeBytesOfNothing(t *testing.T) {
	s := OpenForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 8 << 20})
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
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, lo := range [][]byte{nil, {0xff}, {0xff, 0}, {0xff, 0xff}} {
			if n, err := s.RangeBytes(lo, nil); n == 0 || err != nil {
				t.Errorf("from %x on: %d bytes, %v", lo, n, err)
			}
		}
	}
}

// anotherName is the suite's Merger under another name.
type anotherName struct {
	kvtest.LastByte

	name string
}

func (m anotherName) Name() string { return m.name }

// Opening with another Merger fails with ErrFormat, read-only or not, and changes nothing.
func TestAnotherMergerIsAnotherFormat(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Merge([]byte("a"), []byte{1, 1}); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"another", "kvtest.lastbyte.v2", "kvtest"} {
		for _, readOnly := range []bool{false, true} {
			other := o
			other.Merger, other.ReadOnly = anotherName{name: name}, readOnly
			if s, err := Open(other); !errors.Is(err, kv.ErrFormat) || errors.Is(err, kv.ErrDamaged) {
				t.Errorf("%s, read-only %v: %v", name, readOnly, err)
				if err == nil {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	s = OpenForTest(t, o)
	err = s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get([]byte("a"))
		if err == nil && string(v) != "\x01\x01" {
			err = fmt.Errorf("a is %x", v)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Nothing hangs, however calls within a View and Close interleave.
func TestClosingAtAnyMoment(t *testing.T) {
	for range 50 {
		s, err := Open(Options{Dir: t.TempDir(), Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		inside := make(chan struct{})
		go func() {
			ended <- s.View(t.Context(), func(kv.Reader) error {
				close(inside)
				for {
					err := errors.Join(
						s.View(t.Context(), func(kv.Reader) error { return nil }),
						s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("b"), nil); return nil }))
					if err != nil {
						if errors.Is(err, kv.ErrClosed) {
							err = nil
						}
						return err
					}
				}
			})
		}()
		<-inside
		go func() { ended <- s.Close() }()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("a call hangs")
			}
		}
	}
}
