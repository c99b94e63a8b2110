package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// applier notes the numbers of the events that a feed hands over, in order.
type applier struct {
	mu      sync.Mutex
	seqs    []format.Seq
	batches int
	most    int           // events in one batch
	takes   time.Duration // one apply
	fails   int           // the n-th apply fails; 0: none does
	err     error
}

func (a *applier) apply(ctx context.Context, q *queued) error {
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.batches++; a.batches == a.fails {
		return a.err
	}
	n, _, _ := q.batch.Size()
	a.most = max(a.most, n)
	marked := 0
	q.eachMark(func(_ time.Time, messages int) { marked += messages })
	if marked != q.added {
		return fmt.Errorf("the marks stand for %d messages of %d", marked, q.added)
	}
	for _, d := range q.batch.DeadLetters() {
		a.seqs = append(a.seqs, d.Seq)
	}
	return nil
}

// noIdle is no background work.
func noIdle(context.Context) (bool, error) { return false, nil }

// note adds an event that applier recognizes.
func note(seq format.Seq) func(*batch.Batch) {
	return func(b *batch.Batch) {
		b.Seen(seq, nil)
		b.AddDeadLetter(format.DeadLetter{Seq: seq, Reason: "test"})
	}
}

func inOrder(t *testing.T, seqs []format.Seq, n int) {
	t.Helper()
	if len(seqs) != n {
		t.Errorf("%d events were applied, want %d", len(seqs), n)
	}
	for i, seq := range seqs {
		if seq != format.Seq(i+1) {
			t.Fatalf("event %d was applied in place of %d", seq, i+1)
		}
	}
}

// However events and writes are spread over time, each event is applied once, in order, and none
// waits longer than the writes before it and linger.
func TestFeedAppliesAllOnce(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f, a := newFeed(), &applier{takes: time.Duration(rng.IntN(300)) * time.Millisecond}
			done := make(chan error, 1)
			go func() { done <- f.run(t.Context(), a.apply, noIdle) }()
			const n = 3000
			for i := range n {
				must(t, f.add(note(format.Seq(i+1))))
				switch rng.IntN(50) {
				case 0:
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
				case 1:
					if rng.IntN(10) == 0 {
						if err := f.drain(); err != nil || !f.empty() {
							t.Fatal(err, f.empty())
						}
						a.mu.Lock()
						inOrder(t, a.seqs, i+1)
						a.mu.Unlock()
					}
				}
			}
			began := time.Now()
			f.close()
			must(t, <-done)
			if took := time.Since(began); took > 2*a.takes+linger {
				t.Errorf("the last events took %v, a write %v", took, a.takes)
			}
			inOrder(t, a.seqs, n)
			if a.most > batch.MaxNotes {
				t.Errorf("a batch of %d notes", a.most)
			}
		})
	}
}

// A batch lingers, so that few events make one write; a full one does not.
func TestFeedLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFeed(), &applier{}
		done := make(chan error, 1)
		go func() { done <- f.run(t.Context(), a.apply, noIdle) }()
		for i := range 10 {
			_ = f.add(note(format.Seq(i + 1)))
			time.Sleep(linger / 20)
		}
		time.Sleep(linger)
		synctest.Wait()
		if a.batches != 1 || !f.empty() {
			t.Errorf("ten events within half of linger took %d writes", a.batches)
		}
		began := time.Now()
		for i := range batch.MaxNotes {
			_ = f.add(note(format.Seq(i + 11)))
		}
		synctest.Wait()
		if a.batches != 2 || time.Since(began) != 0 {
			t.Errorf("a full batch waits: %d writes after %v", a.batches, time.Since(began))
		}
		f.close()
		must(t, <-done)
		inOrder(t, a.seqs, 10+batch.MaxNotes)
	})
}

// While both batches are full, the reader waits: memory stays bounded however slow the store is.
func TestFeedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFeed(), &applier{takes: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.run(ctx, a.apply, noIdle) }()
		added, stopped := 0, make(chan error, 1)
		go func() {
			for {
				if err := f.add(note(format.Seq(added + 1))); err != nil {
					stopped <- err
					return
				}
				added++
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if added != 2*batch.MaxNotes {
			t.Errorf("%d events are in memory, want %d", added, 2*batch.MaxNotes)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		if err := <-stopped; !errors.Is(err, context.Canceled) { // the reader does not wait forever
			t.Errorf("add: %v", err)
		}
	})
}

// The error of a write reaches everybody who adds or waits, and nothing is applied after it.
func TestFeedFails(t *testing.T) {
	for n := 1; n <= 3; n++ {
		synctest.Test(t, func(t *testing.T) {
			broken := errors.New("the disk is gone")
			f, a := newFeed(), &applier{fails: n, err: broken}
			done := make(chan error, 1)
			go func() { done <- f.run(t.Context(), a.apply, noIdle) }()
			applied := 0
			for i := range format.Seq(10) {
				if err := f.add(note(i + 1)); err != nil {
					if !errors.Is(err, broken) {
						t.Errorf("add: %v", err)
					}
					break
				}
				if err := f.drain(); err != nil {
					if !errors.Is(err, broken) {
						t.Errorf("drain: %v", err)
					}
					break
				}
				applied++
			}
			if err := <-done; !errors.Is(err, broken) || applied != n-1 {
				t.Errorf("%v after %d writes, want %v after %d", err, applied, broken, n-1)
			}
			if err := f.add(note(99)); !errors.Is(err, broken) {
				t.Errorf("add after the end: %v", err)
			}
			inOrder(t, a.seqs, n-1)
		})
	}
}

// Background work runs between writes, delays none by more than one slice, and its error ends the
// feed.
func TestFeedWorksBetweenWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFeed(), &applier{}
		var slices atomic.Int64
		broken := errors.New("erasing failed")
		idle := func(context.Context) (bool, error) {
			time.Sleep(10 * time.Millisecond)
			if slices.Add(1) == 200 {
				return false, broken
			}
			return true, nil
		}
		done := make(chan error, 1)
		go func() { done <- f.run(t.Context(), a.apply, idle) }()
		for i := range 5 {
			began := time.Now()
			_ = f.add(note(format.Seq(i + 1)))
			must(t, f.drain())
			if took := time.Since(began); took > linger+20*time.Millisecond {
				t.Errorf("event %d took %v", i+1, took)
			}
		}
		if n := slices.Load(); n < 5 {
			t.Errorf("%d slices of work between five writes", n)
		}
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("%v, want %v", err, broken)
		}
		inOrder(t, a.seqs, 5)
	})
}

// A closed feed ends although background work is left.
func TestFeedClosesDuringWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a := newFeed(), &applier{}
		endless := func(context.Context) (bool, error) { time.Sleep(time.Millisecond); return true, nil }
		done := make(chan error, 1)
		go func() { done <- f.run(t.Context(), a.apply, endless) }()
		_ = f.add(note(1))
		f.close()
		must(t, <-done)
		inOrder(t, a.seqs, 1)
	})
}
