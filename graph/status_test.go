package graph_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// stuck is a store whose writes take as long as the test wants.
type stuck struct {
	kv.Store

	armed       atomic.Bool // the next write takes long
	begun, goOn chan struct{}
}

func (s *stuck) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if s.armed.CompareAndSwap(true, false) {
		close(s.begun)
		<-s.goOn
	}
	return s.Store.Update(ctx, fn)
}

// A slow write does not block readers of the status.
func TestStatusDuringWrite(t *testing.T) {
	store := &stuck{Store: memkv.Open(memkv.Options{Merger: merger()}), begun: make(chan struct{}), goOn: make(chan struct{})}
	s, err := graph.Open(t.Context(), store, graph.Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	store.armed.Store(true)
	written := make(chan error, 1)
	go func() {
		var b batch.Batch
		b.AddCommit(1, &batch.Commit{DID: []byte("did:web:a.example.com"), Rev: []byte("3kaaaaaaaaaaa"), Data: make([]byte, 32)})
		b.Seen(1, nil)
		written <- s.Apply(t.Context(), "relay", &b)
	}()
	<-store.begun
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		s.Backfill()
		s.Cursor("relay")
		s.Cursors()
		s.LiveSince("relay")
		s.Erasing()
		s.Events()
		s.Incomplete()
	}()
	select {
	case <-asked:
	case <-time.After(5 * time.Second):
		t.Error("a reader of the status waits for the write")
	}
	close(store.goOn)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if c, ok := s.Cursor("relay"); !ok || c.Seq != 1 {
		t.Errorf("the cursor is %+v, %v", c, ok)
	}
}
