package query

import (
	"context"
	"errors"
	"sync"

	"skein.blue/graph/ask"
)

// A queue lets a number of questions be worked on at a time. The others wait, and
// their clients take turns: whoever asks much waits for itself.
type queue struct {
	mu      sync.Mutex
	free    int
	turns   []string                   // clients that wait, in the order of their turns
	waiting map[string][]chan struct{} // by client; each is closed with a slot for it
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
	case <-turn: // it came all the same
		l.pass()
	default:
		l.forget(client, turn)
	}
	return ctx.Err() //nolint:wrapcheck // it says what happened
}

// leave gives a slot back.
func (l *queue) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass()
}

// pass hands a slot on to the client whose turn it is. It is called with mu held.
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

// forget takes a question that waits no longer out. It is called with mu held.
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

// Every question begins in the light queue, or that of the dear methods, and is charged there for what it reads.
// One that has spent lightCharge goes over to the heavy queue, where few are worked
// on at a time, and begins again: so a small question always finds a slot soon,
// whatever the others ask. A page of a thousand URIs costs two to four million, a
// set of a hundred thousand records half of one.
const lightCharge = 4 << 20

// work is the slot that a question under way holds.
type work struct {
	light, heavyQueue *queue
	client            string

	// dear says that it is of a method of which few are worked on at a time: it may do four
	// times as much before it goes over to the heavy queue.
	dear bool

	in    *queue // where it holds a slot, nil if it holds none
	spent int
}

func (w *work) share() int {
	if w.dear {
		return 4
	}
	return 1
}

// enter takes a slot of a queue. The one held before, if any, is given back first:
// who waits keeps nobody else waiting.
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

// errHeavy ends the work on a question that turns out to be for the heavy queue. It
// is begun again there.
var errHeavy = errors.New("query: much is to be read")

// Heavy implements algebra.Budget. It reports, as errHeavy, that the question may not do what costs much: read
// large sets, or expand many. A nil work may: it is no client's question.
func (w *work) Heavy() error {
	if w == nil || w.in == w.heavyQueue {
		return nil
	}
	return errHeavy
}

// charge charges the question for what it has read.
func (w *work) charge(cost int) error {
	if w.spent += cost; w.spent <= lightCharge*w.share() {
		return nil
	}
	return w.Heavy()
}

// view calls fn with a state of the graph. If fn reads much it ends, and is called
// again when the question has a slot for that: who waits for one holds nothing,
// neither sets nor a state of the store.
func (s *Server) view(ctx context.Context, w *work, fn func(*ask.View) error) error {
	err := s.store.ViewCharged(ctx, w.charge, fn)
	if !errors.Is(err, errHeavy) {
		return err
	}
	if err := w.enter(ctx, w.heavyQueue); err != nil {
		return err
	}
	return s.store.ViewCharged(ctx, w.charge, fn)
}
