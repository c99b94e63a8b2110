package load

import (
	"context"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/internal/sim/network"
)

// prefillEvents is the number of events in one write of the prefill.
const prefillEvents = 65_536

// prefill writes edges, and returns the last event in the store.
func (r *run) prefill(ctx context.Context) (last int64, err error) {
	cursor, _ := r.x.Graph.Cursor(r.source)
	last = r.event(int64(cursor.Seq))
	counts, err := r.counts(ctx)
	if err != nil || edges(counts) >= r.o.Prefill {
		return last, err
	}
	n := network.New(r.o.Network)
	for n.Seq() < last && ctx.Err() == nil {
		n.Skip(min(last, n.Seq()+1_000_000))
	}
	f := NewFeeder(n)
	full, empty := make(chan *batch.Batch), make(chan *batch.Batch, 2)
	empty <- new(batch.Batch)
	empty <- new(batch.Batch)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(full)
		var e network.Event
		for {
			var b *batch.Batch
			select {
			case b = <-empty:
			case <-ctx.Done():
				return
			}
			b.Reset()
			for range prefillEvents {
				n.Next(&e)
				f.Add(b, &e, 0)
			}
			select {
			case full <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	begun, first, logged := time.Now(), last, time.Now()
	for edges(counts) < r.o.Prefill {
		b, ok := <-full
		if !ok {
			return last, ctx.Err()
		}
		if err := r.x.Graph.Apply(ctx, r.source, b); err != nil {
			return last, err
		}
		last = int64(b.Last())
		empty <- b
		if counts, err = r.counts(ctx); err != nil {
			return last, err
		}
		if r.o.Progress != nil {
			r.o.Progress(edges(counts), r.o.Prefill, "prefilling: edges")
			logged = time.Now()
		}
		if time.Since(logged) > 10*time.Second {
			logged = time.Now()
			r.say("prefilling: %d of %d edges, %.0f events/s, %d MiB", edges(counts), r.o.Prefill,
				float64(last-first)/time.Since(begun).Seconds(), peakMemory()>>20)
		}
	}
	r.say("prefilled %d edges with %d events in %v, %.0f events/s", edges(counts), last-first,
		time.Since(begun).Round(time.Second), float64(last-first)/time.Since(begun).Seconds())
	return last, r.erase(ctx)
}
