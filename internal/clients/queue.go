package clients

import (
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
	// Waited, if set before the first Enter, receives how long each query waited for its slot.
	Waited func(time.Duration)

	mu      sync.Mutex
	free    int
	used    map[string]usage           // by network and by client
	turns   []string                   // waiting clients, in the order of their turns
	waiting map[string][]chan struct{} // by client; each is closed when it has a slot
}

// NewQueue returns a Queue with a number of slots.
func NewQueue(slots int) *Queue {
	return &Queue{free: slots, used: map[string]usage{}, waiting: map[string][]chan struct{}{}}
}

// usage is how long slots were used, with a half-life of usageHalf.
type usage struct {
	seconds float64
	at      time.Time
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
	took := now.Sub(since).Seconds()
	if network := NetworkOf(client); network != client {
		q.used[network] = usage{q.used[network].lately(now) + took, now}
	}
	q.used[client] = usage{q.used[client].lately(now) + took, now}
}

// Enter takes a slot, or waits for one until ctx ends.
func (q *Queue) Enter(ctx context.Context, client string) error {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		q.waited(0)
		return nil
	}
	began := time.Now()
	turn := make(chan struct{})
	if len(q.waiting[client]) == 0 {
		q.turns = append(q.turns, client)
	}
	q.waiting[client] = append(q.waiting[client], turn)
	q.mu.Unlock()
	select {
	case <-turn:
		q.waited(time.Since(began))
		return nil
	case <-ctx.Done():
		q.waited(time.Since(began))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-turn: // it got a slot at the same moment
		q.pass()
	default:
		q.forget(client, turn)
	}
	return ctx.Err()
}

func (q *Queue) waited(took time.Duration) {
	if q.Waited != nil {
		q.Waited(took)
	}
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
	if len(q.turns) == 0 {
		q.free++
		return
	}
	now, next := time.Now(), 0
	lately := func(client string) (network, own float64) {
		return q.used[NetworkOf(client)].lately(now), q.used[client].lately(now)
	}
	leastNetwork, leastOwn := lately(q.turns[0])
	for i, client := range q.turns[1:] {
		if network, own := lately(client); network < leastNetwork || network == leastNetwork && own < leastOwn {
			next, leastNetwork, leastOwn = i+1, network, own
		}
	}
	client := q.turns[next]
	q.turns = slices.Delete(q.turns, next, next+1)
	queue := q.waiting[client]
	close(queue[0])
	if len(queue) == 1 {
		delete(q.waiting, client)
		return
	}
	q.waiting[client] = queue[1:]
	q.turns = append(q.turns, client)
}

// forget removes a query that stopped waiting. It is called with mu held.
func (q *Queue) forget(client string, turn chan struct{}) {
	var left []chan struct{}
	for _, t := range q.waiting[client] {
		if t != turn {
			left = append(left, t)
		}
	}
	if len(left) > 0 {
		q.waiting[client] = left
		return
	}
	delete(q.waiting, client)
	for i, c := range q.turns {
		if c == client {
			q.turns = append(q.turns[:i:i], q.turns[i+1:]...)
			return
		}
	}
}

// Waiting returns the number of queries that wait for a slot.
func (q *Queue) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, waiting := range q.waiting {
		n += len(waiting)
	}
	return n
}
