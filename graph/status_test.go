package graph_test

import (
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/sim/memkv"
)

// A slow write does not block readers of the status.
func TestStatusDuringWrite(t *testing.T) {
	begun, goOn := make(chan struct{}, 99), make(chan struct{})
	var slow atomic.Bool
	store := memkv.Open(memkv.Options{Merger: merger(), OnCommit: func(int) error {
		if slow.Load() {
			begun <- struct{}{}
			<-goOn
		}
		return nil
	}})
	s, err := graph.Open(t.Context(), store, graph.Options{})
	must(t, err)
	slow.Store(true)
	written := make(chan error, 1)
	go func() {
		var b batch.Batch
		b.AddCommit(1, &batch.Commit{DID: []byte("did:web:a.example.com"), Rev: []byte("3kaaaaaaaaaaa"), Data: make([]byte, 32)})
		b.Seen(1, nil)
		written <- s.Apply(t.Context(), "relay", &b)
	}()
	<-begun
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
	close(goOn)
	must(t, <-written)
	if c, ok := s.Cursor("relay"); !ok || c.Seq != 1 {
		t.Errorf("the cursor is %+v, %v", c, ok)
	}
}
