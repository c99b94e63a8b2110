package backfill

import (
	"context"
	"sync"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
)

// How much of repos is applied in one write, and how long a small one waits for others.
const (
	placeOps   = 20_000
	placeRepos = 1_000
	placeWait  = 50 * time.Millisecond
)

// placer gathers repos that were fetched, and has the graph put them in place.
type placer struct {
	store *graph.Store

	mu      sync.Mutex
	batch   graph.Batch
	then    []func(graph.Outcome, error) // by outcome
	numbers []int
	timer   *time.Timer
	wait    sync.WaitGroup
}

func newPlacer(store *graph.Store) *placer {
	return &placer{store: store}
}

// place puts a repo in place, which was read without a fault, and calls then when that is
// committed. A small one waits for others; then is called from another goroutine.
func (p *placer) place(ctx context.Context, r *repo.Reader, generation uint64, then func(o graph.Outcome, records int, err error)) {
	records := 0
	if err := r.Walk(func(kinds.Kind, []byte, []byte) { records++ }); err != nil {
		then(0, 0, err)
		return
	}
	sn := graph.RepoSnapshot{DID: r.DID, Rev: r.Rev, Data: r.Data, Generation: generation, First: true, Last: true}
	if records > placeOps {
		o, err := p.large(ctx, r, sn)
		then(o, records, err)
		return
	}
	p.mu.Lock()
	n := p.batch.AddSnapshot(&sn)
	_ = r.Walk(func(k kinds.Kind, rkey, subject []byte) { p.batch.AddPut(k, rkey, subject) })
	p.numbers = append(p.numbers, n)
	p.then = append(p.then, func(o graph.Outcome, err error) { then(o, records, err) })
	_, ops, _ := p.batch.Size()
	if ops >= placeOps || len(p.then) >= placeRepos {
		p.flushLocked(ctx)
	} else if p.timer == nil {
		p.wait.Add(1)
		p.timer = time.AfterFunc(placeWait, func() {
			defer p.wait.Done()
			p.flush(ctx)
		})
	}
	p.mu.Unlock()
}

// flush applies what has been gathered.
func (p *placer) flush(ctx context.Context) {
	p.mu.Lock()
	p.flushLocked(ctx)
	p.mu.Unlock()
}

// flushLocked applies the batch. While it is written, p.mu is held: who has read a repo
// waits, and with it the fetching.
func (p *placer) flushLocked(ctx context.Context) {
	if p.timer != nil && p.timer.Stop() {
		p.wait.Done()
	}
	p.timer = nil
	if len(p.then) == 0 {
		return
	}
	err := p.store.Apply(ctx, "", &p.batch)
	for i, then := range p.then {
		o := graph.NotQueued
		if err == nil {
			o = p.batch.Outcome(p.numbers[i])
		}
		then(o, err)
	}
	p.batch.Reset()
	clear(p.then)
	p.then, p.numbers = p.then[:0], p.numbers[:0]
}

// large puts a repo in place that takes several writes.
func (p *placer) large(ctx context.Context, r *repo.Reader, sn graph.RepoSnapshot) (o graph.Outcome, err error) {
	var b graph.Batch
	one := part{sn: sn}
	apply := func(to string, last bool) bool {
		one.fill(&b, to, last)
		if err = p.store.Apply(ctx, "", &b); err != nil {
			return false
		}
		o = b.Outcome(0)
		return o == graph.Placed
	}
	going := true
	walked := r.Walk(func(k kinds.Kind, rkey, subject []byte) {
		// A record that makes several edges is never divided.
		if going && len(one.kinds) >= placeOps && !one.isLast(rkey) {
			to := p.store.Kinds().Info(k).Collection + "/" + string(rkey)
			going = apply(to, false)
			one.next(to)
		}
		if going {
			one.put(k, rkey, subject)
		}
	})
	if walked != nil {
		return o, walked
	}
	if going {
		apply("", true)
	}
	return o, err
}

// part is a part of a large repo.
type part struct {
	sn    graph.RepoSnapshot
	kinds []kinds.Kind
	ends  []int // of rkey and subject, in text
	text  []byte
}

func (p *part) put(k kinds.Kind, rkey, subject []byte) {
	p.kinds = append(p.kinds, k)
	p.text = append(p.text, rkey...)
	p.ends = append(p.ends, len(p.text))
	p.text = append(p.text, subject...)
	p.ends = append(p.ends, len(p.text))
}

// isLast reports whether the record that was put last has this key.
func (p *part) isLast(rkey []byte) bool {
	n := len(p.ends)
	if n == 0 {
		return false
	}
	at := 0
	if n > 2 {
		at = p.ends[n-3]
	}
	return string(p.text[at:p.ends[n-2]]) == string(rkey)
}

// fill makes a batch of the part, which ends before a path.
func (p *part) fill(b *graph.Batch, to string, last bool) {
	b.Reset()
	p.sn.To, p.sn.Last = to, last
	b.AddSnapshot(&p.sn)
	at := 0
	for i, k := range p.kinds {
		rkey, subject := p.text[at:p.ends[2*i]], p.text[p.ends[2*i]:p.ends[2*i+1]]
		at = p.ends[2*i+1]
		b.AddPut(k, rkey, subject)
	}
}

// next begins the part from a path on.
func (p *part) next(from string) {
	p.sn.From, p.sn.First = from, false
	p.kinds, p.ends, p.text = p.kinds[:0], p.ends[:0], p.text[:0]
}

// close waits for what has been gathered.
func (p *placer) close(ctx context.Context) {
	p.flush(ctx)
	p.wait.Wait()
}
