package query

import (
	"context"
	"errors"
	"sync"

	"skein.blue/graph/ask"
)

// A queue limits the number of queries that are answered at a time. Others wait, and their clients
// take turns, so a client with many queries delays only itself.
type queue struct {
	mu      sync.Mutex
	free    int
	turns   []string                   // waiting clients, in the order of their turns
	waiting map[string][]chan struct{} // by client; each is closed when it has a slot
}

func newQueue(slots int) *queue { return &queue{free: slots, waiting: map[string][]chan struct{}{}} }

// enter takes a slot, or waits for one until ctx ends.
func (l *queue) enter(ctx context.Context, client string) error {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(l.waiting[client]) == 0 {
		l.turns = append(l.turns, client)
	}
	l.waiting[client] = append(l.waiting[client], turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it got a slot at the same moment
		l.pass()
	default:
		l.forget(client, turn)
	}
	return ctx.Err() //nolint:wrapcheck // it says what happened
}

// leave releases a slot.
func (l *queue) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass()
}

// pass gives a slot to the next client. It is called with mu held.
func (l *queue) pass() {
	if len(l.turns) == 0 {
		l.free++
		return
	}
	client := l.turns[0]
	l.turns = l.turns[1:]
	queue := l.waiting[client]
	close(queue[0])
	if len(queue) == 1 {
		delete(l.waiting, client)
		return
	}
	l.waiting[client] = queue[1:]
	l.turns = append(l.turns, client)
}

// forget removes a query that stopped waiting. It is called with mu held.
func (l *queue) forget(client string, turn chan struct{}) {
	var left []chan struct{}
	for _, t := range l.waiting[client] {
		if t != turn {
			left = append(left, t)
		}
	}
	if len(left) > 0 {
		l.waiting[client] = left
		return
	}
	delete(l.waiting, client)
	for i, c := range l.turns {
		if c == client {
			l.turns = append(l.turns[:i:i], l.turns[i+1:]...)
			return
		}
	}
}

// Every query starts in the light queue, or in the queue of slow methods, and is charged for what
// it reads. Once it has spent lightCharge, it moves to the large queue, which has few slots, and
// starts again. So a small query gets a slot soon, whatever other clients send. A page of a
// thousand URIs costs two to four million, a set of a hundred thousand records half a million.
const lightCharge = 4 << 20

// work is a query's slot, and what it has spent.
type work struct {
	light, large *queue
	client       string

	// slow reports that the query calls a slow method. It may spend four times as much before
	// it moves to the large queue.
	slow bool

	in    *queue // where it holds a slot; nil if it holds none
	spent int
}

func (w *work) share() int {
	if w.slow {
		return 4
	}
	return 1
}

// enter takes a slot of a queue. It releases the slot that it holds first, so that waiting
// queries hold none.
func (w *work) enter(ctx context.Context, l *queue) error {
	w.end()
	if err := l.enter(ctx, w.client); err != nil {
		return err
	}
	w.in = l
	return nil
}

func (w *work) end() {
	if w.in != nil {
		w.in.leave()
		w.in = nil
	}
}

// errLarge ends the work on a query that turns out to be large. It starts again in the large
// queue.
var errLarge = errors.New("query: the query must continue in the large queue")

// Heavy implements algebra.Budget. Outside of the large queue it returns errLarge: only queries in
// the large queue may read large sets, or expand many members. A nil work has no limit: it does
// not belong to a client's query.
func (w *work) Heavy() error {
	if w == nil || w.in == w.large {
		return nil
	}
	return errLarge
}

// charge charges the query for what it has read.
func (w *work) charge(cost int) error {
	if w.spent += cost; w.spent <= lightCharge*w.share() {
		return nil
	}
	return w.Heavy()
}

// view calls fn with a state of the graph. If fn reads too much for its queue, it ends, and is
// called again with a slot of the large queue. While it waits, the query holds neither sets nor a
// state of the store.
func (s *Server) view(ctx context.Context, w *work, fn func(*ask.View) error) error {
	err := s.store.ViewCharged(ctx, w.charge, fn)
	if !errors.Is(err, errLarge) {
		return err
	}
	if err := w.enter(ctx, w.large); err != nil {
		return err
	}
	return s.store.ViewCharged(ctx, w.charge, fn)
}
