package xrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv/memkv"
	"skein.blue/query/algebra"
)

// queueRun is a random run of a queue, with what must hold of it.
type queueRun struct {
	t       *testing.T
	q       *Queue
	slots   int
	held    []string                // clients, one for each slot in use
	waiting map[string][]*oneWaiter // by client, in order
	passed  map[string]map[string]int
	granted int
}

type oneWaiter struct {
	client string
	cancel context.CancelFunc
	done   chan error
}

func (r *queueRun) enter(client string) {
	ctx, cancel := context.WithCancel(r.t.Context())
	w := &oneWaiter{client, cancel, make(chan error, 1)}
	if len(r.waiting[client]) == 0 {
		r.passed[client] = map[string]int{}
	}
	r.waiting[client] = append(r.waiting[client], w)
	go func() { w.done <- r.q.Enter(ctx, client) }()
	r.settle()
}

// settle waits until nothing changes, and checks the grants.
func (r *queueRun) settle() {
	r.t.Helper()
	synctest.Wait()
	for client, list := range r.waiting {
		var left []*oneWaiter
		for i, w := range list {
			select {
			case err := <-w.done:
				w.cancel()
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						r.t.Fatalf("%s: %v", client, err)
					}
					continue
				}
				if len(left) > 0 && i > 0 {
					r.t.Fatalf("%s was served out of order", client)
				}
				r.grant(client)
			default:
				left = append(left, w)
			}
		}
		if r.waiting[client] = left; len(left) == 0 {
			delete(r.waiting, client)
			delete(r.passed, client)
		}
	}
	n := 0
	for _, list := range r.waiting {
		n += len(list)
	}
	if got := r.q.Waiting(); got != n {
		r.t.Fatalf("%d queries wait, want %d", got, n)
	}
	if len(r.held) > r.slots || n > 0 && len(r.held) < r.slots {
		r.t.Fatalf("%d of %d slots are in use, and %d queries wait", len(r.held), r.slots, n)
	}
}

// grant notes that a client has got a slot. While a client waits, no other client gets two.
func (r *queueRun) grant(client string) {
	r.t.Helper()
	r.granted++
	r.held = append(r.held, client)
	r.passed[client] = map[string]int{}
	for other := range r.waiting {
		if other == client {
			continue
		}
		if r.passed[other][client]++; r.passed[other][client] > 1 {
			r.t.Fatalf("%s got two slots while %s waited", client, other)
		}
	}
}

// In random runs, a queue never has more slots than it was given, none is free while a query
// waits, clients take turns, and the queries of one client are served in order.
func TestQueueProperties(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			slots := 1 + rng.IntN(3)
			r := &queueRun{t: t, q: NewQueue(slots), slots: slots, waiting: map[string][]*oneWaiter{}, passed: map[string]map[string]int{}}
			for range 400 {
				switch n := rng.IntN(10); {
				case n < 5 && len(r.held)+r.q.Waiting() < 40:
					r.enter(fmt.Sprint("client", rng.IntN(5)))
				case n < 6 && len(r.waiting) > 0:
					for _, list := range r.waiting {
						list[rng.IntN(len(list))].cancel()
						break
					}
					r.settle()
				case len(r.held) > 0:
					i := rng.IntN(len(r.held))
					r.held = append(r.held[:i], r.held[i+1:]...)
					r.q.Leave("client", time.Now())
					r.settle()
				}
			}
			for len(r.held) > 0 {
				r.held = r.held[1:]
				r.q.Leave("client", time.Now())
				r.settle()
			}
			if r.q.free != slots || len(r.q.waiting) != 0 || len(r.q.turns) != 0 || r.granted < 80 {
				t.Errorf("after %d grants: %d of %d slots are free, %d clients wait, %d turns", r.granted, r.q.free, slots, len(r.q.waiting), len(r.q.turns))
			}
		})
	}
}

// A query that gives up in the moment of its turn passes the turn on. No slot is lost.
func TestQueueKeepsItsSlots(t *testing.T) {
	const slots = 3
	q := NewQueue(slots)
	var waits int
	var mu sync.Mutex
	q.Waited = func(time.Duration) { mu.Lock(); waits++; mu.Unlock() }
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			for n := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%3 == 0 {
					go cancel() // at any moment
				}
				if q.Enter(ctx, fmt.Sprint("client", i%7)) == nil {
					q.Leave("client", time.Now())
				}
				cancel()
			}
		})
	}
	all.Wait()
	if q.free != slots || q.Waiting() != 0 || len(q.turns) != 0 {
		t.Errorf("%d of %d slots are free, %d queries wait, %d turns", q.free, slots, q.Waiting(), len(q.turns))
	}
	if waits != 60*40 {
		t.Errorf("%d waits were measured, want %d", waits, 60*40)
	}
}

func TestQueueMeasuresTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1)
		var took []time.Duration
		q.Waited = func(d time.Duration) { took = append(took, d) }
		if err := q.Enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := q.Enter(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() { time.Sleep(5 * time.Second); q.Leave("client", time.Now()) }()
		if err := q.Enter(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(took) != "[0s 3s 5s]" {
			t.Error(took)
		}
	})
}

// queued returns a query, its queues, and its store with one record.
func queued(t *testing.T, slow bool) (*Query, *Queues) {
	t.Helper()
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	qs := &Queues{Light: NewQueue(2), Slow: NewQueue(1), Large: NewQueue(1)}
	return &Query{Store: s, Work: qs.Work("client", slow)}, qs
}

// read reads from the store, which costs something.
func read(sn *ask.View) error {
	_, err := algebra.Lookup(sn, []algebra.Literal{{S: "did:web:a.example.com", Is: dict.DID}})
	return err //nolint:wrapcheck // a test
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
			if f := qs.Work("client", slow).first; f.free != first || qs.Large.free != large || other.free != most {
				t.Errorf("slow %v, %s: %d, %d and %d slots are free", slow, when, f.free, qs.Large.free, other.free)
			}
		}
		if err := q.Work.Enter(t.Context()); err != nil {
			t.Fatal(err)
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
		if q.Work.in != qs.Large || first.free != slots {
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
	if err := q.Work.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	var in []*Queue
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
	if qs.Light.free != 2 || qs.Large.free != 1 {
		t.Errorf("%d and %d slots are free", qs.Light.free, qs.Large.free)
	}
}

// A query whose request ends while it waits for the large queue ends with its error, and holds
// nothing.
func TestWorkThatGivesUp(t *testing.T) {
	q, qs := queued(t, false)
	if err := qs.Large.Enter(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	if err := q.Work.Enter(t.Context()); err != nil {
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
	if qs.Light.free != 2 || qs.Large.free != 1 || qs.Large.Waiting() != 0 {
		t.Errorf("%d and %d slots are free", qs.Light.free, qs.Large.free)
	}
}

// Work that belongs to no client has no limit.
func TestNoWork(t *testing.T) {
	q, _ := queued(t, false)
	q.Work = nil
	calls := 0
	err := q.View(t.Context(), func(sn *ask.View) error {
		if calls++; q.Work.Heavy() != nil {
			t.Error("heavy work is refused")
		}
		return read(sn)
	})
	if err != nil || calls != 1 {
		t.Errorf("%d calls: %v", calls, err)
	}
}
