package clients

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/sim/harness"
)

// A network whose clients keep the slots busy with long queries does not starve a newcomer: it is next, whatever the length of the queue.
func TestAbuseSlots(t *testing.T) {
	for what, address := range map[string]func(i, n int) string{
		"30 addresses":                       func(i, _ int) string { return fmt.Sprintf("192.0.%d.1/32", i) },
		"a network, each from a new address": func(i, n int) string { return fmt.Sprintf("2001:db8:0:%x::/64", i<<10|n) },
	} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(1)
			ctx, stop := context.WithCancel(t.Context())
			for i := range 30 {
				go func() {
					for n := 0; ctx.Err() == nil && q.Enter(ctx, address(i, n)) == nil; n++ {
						began := time.Now()
						time.Sleep(3 * time.Second)
						q.Leave(address(i, n), began)
					}
				}()
			}
			time.Sleep(200 * time.Second)
			longest, answered := time.Duration(0), 0
			for range 20 {
				began := time.Now()
				within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if q.Enter(within, "198.51.100.1/32") == nil {
					answered++
					longest = max(longest, time.Since(began))
					since := time.Now()
					time.Sleep(10 * time.Millisecond)
					q.Leave("198.51.100.1/32", since)
				}
				cancel()
				time.Sleep(time.Second)
			}
			harness.Figure(t, "small queries beside long ones of "+what, "%d of 20 had a slot within 10 s, after at most %s", answered, longest)
			if answered != 20 || longest > 3*time.Second {
				t.Errorf("%s: %d of 20 had a slot, after at most %s", what, answered, longest)
			}
			stop()
			time.Sleep(time.Minute) // until the last has left
		})
	}
}

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
			if r.q.free != slots || len(r.q.waiting) != 0 || r.granted < 80 {
				t.Errorf("after %d grants: %d of %d slots are free, %d queries wait", r.granted, r.q.free, slots, len(r.q.waiting))
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
	if q.free != slots || q.Waiting() != 0 {
		t.Errorf("%d of %d slots are free, %d queries wait", q.free, slots, q.Waiting())
	}
	if waits != 60*40 {
		t.Errorf("%d waits were measured, want %d", waits, 60*40)
	}
}
