package xrpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/clients"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// freeOf counts the free slots of a queue.
func freeOf(q *clients.Queue) (n int) {
	ended, end := context.WithCancel(context.Background())
	end()
	for ; q.Enter(ended, "counting") == nil; n++ {
		defer q.Leave("counting", time.Now())
	}
	return n
}

// queued returns a query that has its first slot, and its queues.
func queued(t *testing.T, slow bool) (*Query, *Queues) {
	t.Helper()
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	qs := &Queues{Light: clients.NewQueue(2), Slow: clients.NewQueue(1), Large: clients.NewQueue(1)}
	q := &Query{Store: s, Work: qs.Work("client", slow)}
	if err := q.Work.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q, qs
}

// read reads from the store, which costs something.
func read(sn *ask.View) error {
	_, err := algebra.Lookup(sn, []language.Literal{{S: "did:web:a.example.com", Is: dict.DID}})
	return err
}

// A query that spends more than its queue allows starts again in the large queue, where it may
// spend anything. It holds one slot at a time, and none at the end.
func TestWorkMovesToTheLargeQueue(t *testing.T) {
	for _, slow := range []bool{false, true} {
		q, qs := queued(t, slow)
		first, slots, may := qs.Light, 2, lightCharge
		if slow {
			first, slots, may = qs.Slow, 1, 4*lightCharge
		}
		free := func(first, large int, when string) {
			t.Helper()
			other, most := qs.Slow, 1
			if slow {
				other, most = qs.Light, 2
			}
			if f := qs.Work("client", slow).first; freeOf(f) != first || freeOf(qs.Large) != large || freeOf(other) != most {
				t.Errorf("slow %v, %s: %d, %d and %d slots are free", slow, when, freeOf(f), freeOf(qs.Large), freeOf(other))
			}
		}
		free(slots-1, 1, "at first")
		for _, c := range []struct {
			spent, calls int
			what         string
		}{{0, 1, "little"}, {may - 1<<16, 1, "almost all"}, {may, 2, "all"}, {1 << 40, 1, "in the large queue"}} {
			q.Work.spent = c.spent
			calls := 0
			err := q.View(t.Context(), func(sn *ask.View) error {
				calls++
				return read(sn)
			})
			if err != nil || calls != c.calls {
				t.Errorf("slow %v, %s spent: %d calls, %v", slow, c.what, calls, err)
			}
		}
		free(slots, 0, "in the large queue")
		if q.Work.in != qs.Large || freeOf(first) != slots {
			t.Errorf("slow %v: %+v", slow, q.Work)
		}
		q.Work.Leave()
		q.Work.Leave() // a second time changes nothing
		free(slots, 1, "at the end")
	}
}

// Expensive reads are for the large queue only.
func TestHeavyWork(t *testing.T) {
	q, qs := queued(t, false)
	var in []*clients.Queue
	err := q.View(t.Context(), func(*ask.View) error {
		in = append(in, q.Work.in)
		if err := q.Work.Heavy(); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		return nil
	})
	if err != nil || len(in) != 2 || in[0] != qs.Light || in[1] != qs.Large {
		t.Errorf("in %v: %v", in, err)
	}
	failed := errors.New("failed")
	calls := 0
	if err := q.View(t.Context(), func(*ask.View) error { calls++; return failed }); !errors.Is(err, failed) || calls != 1 {
		t.Errorf("%d calls: %v", calls, err)
	}
	q.Work.Leave()
	if freeOf(qs.Light) != 2 || freeOf(qs.Large) != 1 {
		t.Errorf("%d and %d slots are free", freeOf(qs.Light), freeOf(qs.Large))
	}
}

// A query whose request ends while it waits for the large queue ends with its error, and holds
// nothing.
func TestWorkThatGivesUp(t *testing.T) {
	q, qs := queued(t, false)
	if err := qs.Large.Enter(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- q.View(ctx, func(*ask.View) error { return q.Work.Heavy() })
	}()
	for qs.Large.Waiting() == 0 {
		time.Sleep(time.Millisecond) // until it waits; there is no other sign
	}
	if qs.Light.Waiting() != 0 {
		t.Error("it waits in the light queue, too")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	q.Work.Leave()
	qs.Large.Leave("client", time.Now())
	if freeOf(qs.Light) != 2 || freeOf(qs.Large) != 1 || qs.Large.Waiting() != 0 {
		t.Errorf("%d and %d slots are free", freeOf(qs.Light), freeOf(qs.Large))
	}
}

// Late counts the seconds that a query waited for its slots, and not those that it held one.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := &Queues{Light: clients.NewQueue(1), Slow: clients.NewQueue(1), Large: clients.NewQueue(1)}
		w := qs.Work("client", true)
		for _, step := range []struct {
			q    *clients.Queue
			wait time.Duration
			late uint64
		}{{qs.Slow, 0, 0}, {qs.Large, 2500 * time.Millisecond, 2}, {qs.Slow, 600 * time.Millisecond, 3}, {qs.Large, time.Minute, 9}} {
			if err := step.q.Enter(t.Context(), "another"); err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(step.wait)
				step.q.Leave("another", time.Now())
			}()
			if err := w.enter(t.Context(), step.q); err != nil || w.Late() != step.late {
				t.Errorf("after %v more: %d, want %d: %v", step.wait, w.Late(), step.late, err)
			}
			time.Sleep(5 * time.Second)
		}
		w.Leave()
	})
}
