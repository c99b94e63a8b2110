package clients

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// A Queue limits the number of queries, or of what else takes a slot, at a time. Others wait. A slot goes to the client that has used slots the least
// lately, of the network that has; equal ones take turns. So neither a client with many queries nor a network with many clients
// delays a newcomer by more than the queries that are running.
type Queue struct {
	// Waited receives how long each query waited for its slot. It may be set before the first Enter.
	Waited func(time.Duration)

	mu      sync.Mutex // guards the fields below
	free    int
	used    map[string]usage // by network and by client
	waiting []*waiter        // in the order of arrival
	turns   uint64           // how many of them have got a slot
}

// NewQueue returns a Queue with a number of slots.
func NewQueue(slots int) *Queue {
	return &Queue{free: slots, used: map[string]usage{}, Waited: func(time.Duration) {}}
}

// waiter is a query that waits.
type waiter struct {
	client string
	turn   chan struct{} // closed when it has a slot
}

// usage is how long slots were used, with a half-life of usageHalf.
type usage struct {
	seconds float64
	at      time.Time
	turn    uint64 // when the client last got a slot after waiting
}

// usageHalf is how long it takes to forget half of what was used. A Queue remembers at most usagesKept names.
const (
	usageHalf  = 30 * time.Second
	usagesKept = 10_000
)

// lately returns what is left of a usage.
func (u usage) lately(now time.Time) float64 {
	return u.seconds * math.Exp2(-now.Sub(u.at).Seconds()/usageHalf.Seconds())
}

// charge notes that a client has used a slot since a time. It is called with mu held.
func (q *Queue) charge(client string, since time.Time) {
	now := time.Now()
	if len(q.used) > usagesKept {
		maps.DeleteFunc(q.used, func(_ string, u usage) bool { return u.lately(now) < 1 })
	}
	if len(q.used) > 2*usagesKept {
		clear(q.used)
	}
	for _, name := range slices.Compact([]string{NetworkOf(client), client}) {
		u := q.used[name]
		u.seconds, u.at = u.lately(now)+now.Sub(since).Seconds(), now
		q.used[name] = u
	}
}

// Enter takes a slot, or waits for one until ctx ends.
func (q *Queue) Enter(ctx context.Context, client string) error {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		q.Waited(0)
		return nil
	}
	began, w := time.Now(), &waiter{client, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		q.Waited(time.Since(began))
		return nil
	case <-ctx.Done():
		q.Waited(time.Since(began))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else { // it got a slot at the same moment
		q.pass()
	}
	return ctx.Err()
}

// Leave releases a slot that a client has held since a time.
func (q *Queue) Leave(client string, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.charge(client, since)
	q.pass()
}

// pass gives a slot to the next client. It is called with mu held.
func (q *Queue) pass() {
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	now := time.Now()
	lately := func(name string) float64 { return q.used[name].lately(now) }
	next := slices.MinFunc(q.waiting, func(x, y *waiter) int {
		return cmp.Or(
			cmp.Compare(lately(NetworkOf(x.client)), lately(NetworkOf(y.client))),
			cmp.Compare(lately(x.client), lately(y.client)),
			cmp.Compare(q.used[x.client].turn, q.used[y.client].turn))
	})
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool { return w == next })
	q.turns++
	u := q.used[next.client]
	u.turn = q.turns
	q.used[next.client] = u
	close(next.turn)
}

// Waiting returns the number of queries that wait for a slot.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
