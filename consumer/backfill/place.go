package backfill

import (
	"bytes"
	"context"
	"sync"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
)

// Bounds of the repos in one write, and how long a small repo waits for others.
const (
	placeOps    = 20_000
	placeBytes  = 4 << 20 // of rkeys and subjects; of the CAR of a small repo
	placeBlocks = 50_000  // of the CAR of a small repo
	placeRepos  = 1_000
	placeWait   = 50 * time.Millisecond
)

// placer gathers fetched repos, and applies them to the graph.
type placer struct {
	store *graph.Store

	mu    sync.Mutex // guards the fields below; held while the batch is written
	batch batch.Batch
	then  []func(batch.Outcome, error) // by the number of the snapshot
	timer *time.Timer
	wait  sync.WaitGroup
}

// A fetchedRepo is a repo that was read without an error.
type fetchedRepo struct {
	*repo.Reader

	generation uint64           // of its row in the queue
	isActive   bool             // its host has just sent it, so the account is active
	asked      *graph.RepoState // the state of a hidden account whose host and relay said that it is active, else nil
}

// add adds the start of a repo's snapshot, or of the part of it from a path on, to a batch.
func (r *fetchedRepo) add(b *batch.Batch, from string) {
	switch {
	case from != "":
	case r.asked != nil:
		b.AddAnswer(r.DID, true, r.asked)
	case r.isActive:
		b.AddStatus(r.DID, true)
	}
	b.AddSnapshot(&batch.Snapshot{DID: r.DID, Rev: r.Rev, Data: r.Data, Generation: r.generation, From: from, First: from == "", Last: true})
}

// isFull reports whether a batch is as large as a write may be.
func isFull(b *batch.Batch) bool {
	_, ops, size := b.Size()
	return ops >= placeOps || size >= placeBytes
}

// place applies a repo. Once that is committed, place calls the function then; for a small repo, which waits for
// others, another goroutine calls it.
//
// place walks a repo before it locks p.mu: it may be malformed at its end. A small one is soon walked again.
func (p *placer) place(ctx context.Context, r *fetchedRepo, then func(o batch.Outcome, records int, err error)) {
	records, size := 0, 0
	err := r.Walk(ctx, func(_ kinds.Kind, rkey, subject []byte) {
		records++
		size += len(rkey) + len(subject)
	})
	if err != nil {
		then(0, 0, err)
		return
	}
	if records >= placeOps || size >= placeBytes || r.Blocks() > placeBlocks || r.Bytes() > placeBytes {
		o, err := p.large(ctx, r)
		then(o, records, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.add(&p.batch, "")
	_ = r.Walk(context.WithoutCancel(ctx), func(k kinds.Kind, rkey, subject []byte) { p.batch.AddPut(k, rkey, subject) }) // it had no error
	p.then = append(p.then, func(o batch.Outcome, err error) { then(o, records, err) })
	if isFull(&p.batch) || len(p.then) >= placeRepos {
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
			o = p.batch.Outcome(i)
		}
		then(o, err)
	}
	p.batch.Reset()
	clear(p.then)
	p.then = p.then[:0]
}

// large applies a repo in several writes, if it needs several. Its tree is sound: place has walked it.
func (p *placer) large(ctx context.Context, r *fetchedRepo) (o batch.Outcome, err error) {
	walking, end := context.WithCancel(ctx)
	defer end()
	var b batch.Batch
	apply := func() bool {
		if err = p.store.Apply(ctx, "", &b); err == nil {
			o = b.Outcome(0)
		}
		return err == nil && o == batch.Placed
	}
	r.add(&b, "")
	isGoing := true
	var last []byte // record key
	walked := r.Walk(walking, func(k kinds.Kind, rkey, subject []byte) {
		// A record that makes several edges is never divided.
		if isGoing && isFull(&b) && !bytes.Equal(rkey, last) {
			to := p.store.Kinds().Info(k).Collection + "/" + string(rkey)
			b.EndSnapshot(to, false)
			if isGoing = apply(); !isGoing {
				end()
			}
			b.Reset()
			r.add(&b, to)
		}
		if isGoing {
			b.AddPut(k, rkey, subject)
			last = append(last[:0], rkey...)
		}
	})
	switch {
	case !isGoing:
	case walked != nil:
		err = walked
	default:
		apply()
	}
	return o, err
}
