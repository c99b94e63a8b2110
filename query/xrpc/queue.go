package xrpc

import (
	"context"
	"errors"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/internal/clients"
)

// Queues are the queues of a server.
//
// Every query starts in the light queue, or in the queue of slow methods, and is charged for what
// it reads. Once it has spent lightCharge, it moves to the large queue, which has few slots, and
// starts again. So a small query gets a slot soon, whatever other clients send. A page of a
// thousand URIs costs two to four million, a set of a hundred thousand records half a million.
type Queues struct {
	Light, Slow, Large *clients.Queue
}

const lightCharge = 4 << 20

// Work returns the work of a query, without a slot. slow reports that the query calls a slow
// method, which may spend four times as much before it moves to the large queue.
func (q *Queues) Work(client string, slow bool) *Work {
	w := &Work{Client: client, first: q.Light, large: q.Large, may: lightCharge}
	if slow {
		w.first, w.may = q.Slow, 4*lightCharge
	}
	return w
}

// Work is a query's slot, and what it has spent.
type Work struct {
	// Client is the query's client.
	Client string

	first, large *clients.Queue
	in           *clients.Queue // where it holds a slot; nil if it holds none
	since        time.Time
	spent, may   int // may: before it moves to the large queue
	waited       time.Duration
}

// Enter takes a slot of the query's first queue, or waits for one until ctx ends.
func (w *Work) Enter(ctx context.Context) error { return w.enter(ctx, w.first) }

// enter takes a slot of a queue. It releases the slot that it holds first, so that waiting
// queries hold none.
func (w *Work) enter(ctx context.Context, q *clients.Queue) error {
	w.Leave()
	began := time.Now()
	if err := q.Enter(ctx, w.Client); err != nil {
		return err
	}
	w.in, w.since = q, time.Now()
	w.waited += w.since.Sub(began)
	return nil
}

// Late returns how many seconds the query has waited for its slots, at most 9. A nil Work has not waited.
func (w *Work) Late() uint64 {
	if w == nil {
		return 0
	}
	return min(uint64(w.waited/time.Second), 9)
}

// Leave releases the slot, if the query holds one.
func (w *Work) Leave() {
	if w.in != nil {
		w.in.Leave(w.Client, w.since)
		w.in = nil
	}
}

// errLarge ends the work on a query that turns out to be large. It starts again in the large
// queue.
var errLarge = errors.New("query: the query must continue in the large queue")

// Heavy implements algebra.Budget. Outside of the large queue it returns errLarge: only queries in
// the large queue may read large sets, or expand many members. A nil Work has no limit: it does
// not belong to a client's query.
func (w *Work) Heavy() error {
	if w == nil || w.in == w.large {
		return nil
	}
	return errLarge
}

// charge charges the query for what it has read. A nil Work has no limit.
func (w *Work) charge(cost int) error {
	if w == nil {
		return nil
	}
	if w.spent += cost; w.spent <= w.may {
		return nil
	}
	return w.Heavy()
}

// View calls fn with a state of the graph. If fn reads too much for its queue, it ends, and is
// called again with a slot of the large queue. While it waits, the query holds neither sets nor a
// state of the store.
func (q *Query) View(ctx context.Context, fn func(*ask.View) error) error {
	if q.err != nil {
		return q.err
	}
	err := q.Store.ViewCharged(ctx, q.Work.charge, fn)
	if !errors.Is(err, errLarge) {
		return err
	}
	if err := q.Work.enter(ctx, q.Work.large); err != nil {
		return err
	}
	return q.Store.ViewCharged(ctx, q.Work.charge, fn)
}
