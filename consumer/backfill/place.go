package backfill

import (
	"context"
	"runtime"
	"sync"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
)

// Bounds of the repos in one write, and how long a small repo waits for others.
const (
	placeOps   = 20_000
	placeBytes = 4 << 20 // of rkeys and subjects
	placeRepos = 1_000
	placeWait  = 50 * time.Millisecond
)

// placer gathers fetched repos, and applies them to the graph.
type placer struct {
	store *graph.Store
	// parts has one part per repo that is walked at a time. There are as many as
	// processors, because a walk waits for nothing else.
	parts chan *part

	mu      sync.Mutex // guards the fields below; held while the batch is written
	batch   batch.Batch
	then    []func(batch.Outcome, error) // by outcome
	numbers []int
	timer   *time.Timer
	wait    sync.WaitGroup
}

func newPlacer(store *graph.Store) *placer {
	p := &placer{store: store, parts: make(chan *part, max(2, runtime.GOMAXPROCS(0)))}
	for range cap(p.parts) {
		p.parts <- new(part)
	}
	return p
}

// place applies a repo that was read without an error. Once that is committed, place calls the
// function then; for a small repo, which waits for others, another goroutine calls it.
// isActive means that its host has just sent the repo, so the account is active; asked is the
// state of a hidden one whose host and relay said that it is active, else nil.
//
// place walks the repo before it locks p.mu, so that nothing waits for the walk.
func (p *placer) place(ctx context.Context, r *repo.Reader, generation uint64, isActive bool, asked *graph.RepoState, then func(o batch.Outcome, records int, err error)) {
	var one *part
	select {
	case one = <-p.parts:
		defer func() { one.clear(); p.parts <- one }()
	case <-ctx.Done():
		then(0, 0, ctx.Err())
		return
	}
	one.sn = batch.Snapshot{DID: r.DID, Rev: r.Rev, Data: r.Data, Generation: generation, First: true, Last: true}
	one.active, one.asked = isActive, asked
	records, isSmall := 0, true
	err := r.Walk(ctx, func(k kinds.Kind, rkey, subject []byte) {
		if records++; isSmall && !one.isFull() {
			one.put(k, rkey, subject)
		} else {
			isSmall = false // the walk continues to the end: the rest of the tree may be malformed
		}
	})
	if err != nil {
		then(0, 0, err)
		return
	}
	if !isSmall {
		one.clear()
		o, err := p.large(ctx, r, one)
		then(o, records, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.numbers = append(p.numbers, one.add(&p.batch))
	p.then = append(p.then, func(o batch.Outcome, err error) { then(o, records, err) })
	if _, ops, bytes := p.batch.Size(); ops >= placeOps || bytes >= placeBytes || len(p.then) >= placeRepos {
		p.flushLocked(ctx)
	} else if p.timer == nil {
		p.wait.Add(1)
		p.timer = time.AfterFunc(placeWait, func() {
			defer p.wait.Done()
			p.flush(ctx)
		})
	}
}

// flush applies the gathered repos.
func (p *placer) flush(ctx context.Context) {
	p.mu.Lock()
	p.flushLocked(ctx)
	p.mu.Unlock()
}

// flushLocked applies the batch, with p.mu held: fetchers that have read a repo wait for
// the write.
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
		o := batch.NotQueued
		if err == nil {
			o = p.batch.Outcome(p.numbers[i])
		}
		then(o, err)
	}
	p.batch.Reset()
	clear(p.then)
	p.then, p.numbers = p.then[:0], p.numbers[:0]
}

// large applies a repo that needs several writes. Its tree is sound: place has walked it.
func (p *placer) large(ctx context.Context, r *repo.Reader, one *part) (o batch.Outcome, err error) {
	walking, end := context.WithCancel(ctx)
	defer end()
	var b batch.Batch
	apply := func(to string, last bool) bool {
		b.Reset()
		one.sn.To, one.sn.Last = to, last
		one.add(&b)
		if err = p.store.Apply(ctx, "", &b); err != nil {
			return false
		}
		o = b.Outcome(0)
		return o == batch.Placed
	}
	going := true
	walked := r.Walk(walking, func(k kinds.Kind, rkey, subject []byte) {
		// A record that makes several edges is never divided.
		if going && one.isFull() && !one.isLast(rkey) {
			to := p.store.Kinds().Info(k).Collection + "/" + string(rkey)
			if going = apply(to, false); !going {
				end()
			}
			one.next(to)
		}
		if going {
			one.put(k, rkey, subject)
		}
	})
	switch {
	case !going:
		return o, err
	case walked != nil:
		return o, walked
	}
	apply("", true)
	return o, err
}

// part is a part of a repo, or a small repo as a whole.
type part struct {
	sn     batch.Snapshot
	active bool
	asked  *graph.RepoState // if its host and relay said that it is active, what the index had of it then
	puts   []put
	rkeys  []byte
	bytes  int // of rkeys and subjects
}

// put is a record of a part.
type put struct {
	kind    kinds.Kind
	end     int    // of its key in rkeys
	subject []byte // in the Reader's memory
}

func (p *part) put(k kinds.Kind, rkey, subject []byte) {
	p.rkeys = append(p.rkeys, rkey...)
	p.puts = append(p.puts, put{k, len(p.rkeys), subject})
	p.bytes += len(rkey) + len(subject)
}

// isFull reports whether the part is as large as a write may be.
func (p *part) isFull() bool { return len(p.puts) >= placeOps || p.bytes >= placeBytes }

// rkey returns the key of the i-th record.
func (p *part) rkey(i int) []byte {
	at := 0
	if i > 0 {
		at = p.puts[i-1].end
	}
	return p.rkeys[at:p.puts[i].end]
}

// isLast reports whether the last record has this key.
func (p *part) isLast(rkey []byte) bool {
	return len(p.puts) > 0 && string(p.rkey(len(p.puts)-1)) == string(rkey)
}

// add adds the part to a batch, and returns its number there.
func (p *part) add(b *batch.Batch) (n int) {
	switch {
	case !p.sn.First:
	case p.asked != nil:
		b.AddAnswer(p.sn.DID, true, p.asked)
	case p.active:
		b.AddStatus(p.sn.DID, true)
	}
	n = b.AddSnapshot(&p.sn)
	for i := range p.puts {
		b.AddPut(p.puts[i].kind, p.rkey(i), p.puts[i].subject)
	}
	return n
}

// next clears the part for the records from a path on.
func (p *part) next(from string) {
	p.sn.From, p.sn.First = from, false
	p.clear()
}

// clear removes the records.
func (p *part) clear() {
	clear(p.puts) // the subjects are in a Reader's memory
	p.puts, p.rkeys, p.bytes = p.puts[:0], p.rkeys[:0], 0
}

// close waits for the gathered repos.
func (p *placer) close(ctx context.Context) {
	p.flush(ctx)
	p.wait.Wait()
}
