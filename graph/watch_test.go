package graph_test

import (
	"testing"

	"skein/graph"
	"skein/intern/dict"
	"skein/internal/kv/memkv"
)

// heard is what a Watcher was told.
type heard struct {
	edges  int
	hidden int
}

func (h *heard) Changed(edges []graph.Change, hidden []dict.ID) {
	h.edges += len(edges)
	h.hidden += len(hidden)
}

// A Watcher is told of what commits bring, of accounts that are hidden, and of what is
// erased.
func TestWatcher(t *testing.T) {
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: merger()}), graph.Options{Embedded: true, SliceSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	var h heard
	s.Watch(&h)
	step := func(want heard, fill func(b *graph.Batch)) {
		t.Helper()
		var b graph.Batch
		fill(&b)
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
		for s.Erasing() {
			if err := s.EraseSlice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if h != want {
			t.Errorf("told of %+v, want %+v", h, want)
		}
		h = heard{}
	}
	did := []byte("did:web:a.example.com")
	step(heard{edges: 2}, func(b *graph.Batch) {
		b.AddCommit(1, &graph.Commit{DID: did, Rev: []byte("3kaaaaaaaaaaa"), Data: make([]byte, 32)})
		b.AddPut(1, []byte("1"), []byte("did:web:b.example.com"))
		b.AddPut(1, []byte("2"), []byte("did:web:c.example.com"))
		b.Seen(1, nil)
	})
	step(heard{hidden: 1}, func(b *graph.Batch) { b.AddAccount(2, did, false, false); b.Seen(2, nil) })
	step(heard{edges: 2}, func(b *graph.Batch) { b.AddAccount(3, did, false, true); b.Seen(3, nil) })
	s.Watch(nil)
	step(heard{}, func(b *graph.Batch) { b.AddAccount(4, did, true, false); b.Seen(4, nil) })
}
