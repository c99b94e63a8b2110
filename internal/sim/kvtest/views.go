package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/kv"
)

// testViewIsOneState reads in Views during writes. Each write sets all keys to the same
// value, so a View that mixed two states would see two values. It touches the store, so two states with the same stamp have the
// same value.
func testViewIsOneState(t *testing.T, s kv.Store) {
	const keys = 30
	key := func(i int) []byte { return fmt.Appendf(nil, "k%02d", i) }
	write := func(n int) {
		update(t, s, func(tx kv.Txn) {
			for i := range keys {
				tx.Set(key(i), fmt.Append(nil, n))
			}
			tx.Touch()
		})
	}
	write(0)
	stop := make(chan struct{})
	var written atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				write(n)
				written.Add(1)
			}
		}
	})
	all := make([][]byte, keys)
	for i := range all {
		all[i] = key(i)
	}
	for stamps := map[uint64]string{}; len(stamps) < 10 && written.Load() < 5000; {
		view(t, s, func(r kv.Reader) {
			value, of := get(t, r, "k00"), r.(kv.Stamped) //nolint:errcheck // all engines have it
			stamp := of.Stamp()
			if was, again := stamps[stamp]; again && was != value && stamp != 0 {
				t.Fatalf("values %s and %s have the stamp %d", was, value, stamp)
			}
			stamps[stamp] = value
		})
	}
	for seen, last := 0, ""; seen < 10; seen++ {
		view(t, s, func(r kv.Reader) {
			first := get(t, r, "k00")
			if seen > 0 && len(first) < len(last) {
				t.Errorf("a View of %s after one of %s", first, last)
			}
			last = first
			for from := written.Load(); written.Load() < from+3; { // during three writes
				err := r.MultiGet(all, func(i int, v []byte, _ bool) error {
					if string(v) != first {
						t.Errorf("key %d is %s, but the first was %s", i, v, first)
					}
					return nil
				})
				n := 0
				err = errors.Join(err, r.Scan(nil, nil, seen%2 == 0, func(k, v []byte) (bool, error) {
					if n++; string(v) != first {
						t.Errorf("key %s is %s, but the first was %s", k, v, first)
					}
					return true, nil
				}))
				if err != nil || n != keys {
					t.Fatalf("%d keys, %v", n, err)
				}
			}
		})
	}
	close(stop)
	wg.Wait()
}

// testViewAcross reads a store within its snapshot's lifetime: there are no crossings.
func testViewAcross(t *testing.T, s kv.Store) {
	h := NewHistory(9)
	for range 5 {
		h.Write(t, s, 40)
	}
	crossings, err := s.ViewAcross(context.Background(), func(r kv.Reader) error {
		h.Check(t, r, 10)
		h.state.Equal(t, r)
		return nil
	})
	if crossings != 0 || err != nil {
		t.Errorf("%d crossings, %v", crossings, err)
	}
}

// testCloseDuringViews closes a store during Views. Their reads stay correct, and later
// Views fail with ErrClosed.
func testCloseDuringViews(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for i := range 100 {
			tx.Set(fmt.Appendf(nil, "k%02d", i), fmt.Append(nil, i))
		}
	})
	began, closed := make(chan struct{}, 3), make(chan error, 1)
	go func() {
		for range cap(began) {
			<-began
		}
		closed <- s.Close()
	}()
	var wg sync.WaitGroup
	for w := range cap(began) {
		wg.Go(func() {
			view(t, s, func(r kv.Reader) {
				began <- struct{}{}
				for i := range 300 {
					i = (i*7 + w) % 100
					if got := get(t, r, fmt.Sprintf("k%02d", i)); got != fmt.Sprint(i) {
						t.Errorf("key %d is %q", i, got)
					}
					if got := scan(t, r, fmt.Sprintf("k%02d", i), "", false, 1); got != fmt.Sprintf("k%02d", i) {
						t.Errorf("a scan from key %d began at %q", i, got)
					}
				}
			})
		})
	}
	wg.Wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := s.View(context.Background(), func(kv.Reader) error { return nil }); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("View: %v", err)
	}
	if _, err := s.ViewAcross(context.Background(), func(kv.Reader) error { return nil }); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("ViewAcross: %v", err)
	}
}

// testCloseDuringUpdates closes a store during Updates. Each Update either succeeds and is
// found after reopening, or fails with ErrClosed.
func testCloseDuringUpdates(t *testing.T, e Engine) {
	s := e.Open(t, LastByte{})
	const writers = 4
	var done [writers]int
	var all atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for {
				err := s.Update(context.Background(), func(tx kv.Txn) error {
					tx.Set(fmt.Appendf(nil, "%d/%04d", w, done[w]), nil)
					return nil
				})
				if err != nil {
					if !errors.Is(err, kv.ErrClosed) {
						t.Errorf("Update: %v", err)
					}
					return
				}
				done[w]++
				all.Add(1)
			}
		})
	}
	for all.Load() < 40 {
		time.Sleep(time.Millisecond) //nolint:forbidigo // no event to wait for
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if e.Reopen == nil {
		return
	}
	s = e.Reopen(t, s)
	view(t, s, func(r kv.Reader) {
		for w, n := range done {
			got := 0
			err := kv.ScanPrefix(r, fmt.Appendf(nil, "%d/", w), func(k, _ []byte) error {
				if want := fmt.Sprintf("%d/%04d", w, got); string(k) != want {
					t.Errorf("got %s, want %s", k, want)
				}
				got++
				return nil
			})
			// With unknown outcomes, one more may have been committed.
			if err != nil || got != n && (got != n+1 || s.Engine() == "pebble") {
				t.Errorf("writer %d: %d Updates succeeded, found %d: %v", w, n, got, err)
			}
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testSizes compares RangeBytes and DiskBytes with the size of incompressible values.
func testSizes(t *testing.T, e Engine) {
	if !e.Sizes {
		return
	}
	s := e.Open(t, LastByte{})
	rng := rand.New(rand.NewPCG(5, 5))
	const rows, size = 1000, 1000
	for part := range 4 {
		update(t, s, func(tx kv.Txn) {
			value := make([]byte, size)
			for i := part * rows / 4; i < (part+1)*rows/4; i++ {
				for j := range value {
					value[j] = byte(rng.Uint32())
				}
				tx.Set(fmt.Appendf(nil, "k%03d", i), value)
			}
		})
	}
	if e.Reopen != nil {
		s = e.Reopen(t, s)
	}
	bytes := func(lo, hi string) uint64 {
		n, err := s.RangeBytes(bound(lo), bound(hi))
		if err != nil {
			t.Errorf("[%q, %q): %v", lo, hi, err)
		}
		return n
	}
	for _, c := range []struct {
		lo, hi string
		rows   int
	}{{"-", "-", rows}, {"k", "l", rows}, {"k", "k500", rows / 2}, {"k250", "k500", rows / 4}, {"k900", "-", rows / 10}, {"-", "k", 0}, {"l", "-", 0}, {"k500", "k500", 0}} {
		const slack = 80_000
		if got, want := int(bytes(c.lo, c.hi)), c.rows*(size+4); got < want*9/10-slack || got > want*11/10+slack {
			t.Errorf("[%q, %q): %d bytes, want about %d", c.lo, c.hi, got, want)
		}
	}
	if got := s.DiskBytes(); s.Engine() == "memory" && got != 0 || s.Engine() != "memory" && (got < rows*size*9/10 || got > 4*rows*size) {
		t.Errorf("DiskBytes = %d", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// otherMerger is LastByte under another name.
type otherMerger struct{ LastByte }

// Name implements kv.Merger.
func (otherMerger) Name() string { return "kvtest.another.v1" }

// testMergerIsNamed opens a store with another Merger: that fails with ErrFormat and changes
// nothing.
func testMergerIsNamed(t *testing.T, e Engine) {
	if e.OpenAs == nil {
		return
	}
	s := e.Open(t, LastByte{})
	h := NewHistory(3)
	h.Write(t, s, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.OpenAs(t, s, otherMerger{}); !errors.Is(err, kv.ErrFormat) {
		t.Errorf("opening with another Merger: %v", err)
	}
	s = e.Reopen(t, s)
	view(t, s, func(r kv.Reader) { h.state.Equal(t, r) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
