package graph_test

import (
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// heard is what a Watcher received.
type heard struct {
	edges  int
	lists  int
	hidden int
}

func (h *heard) Changed(edges []graph.Change, lists []write.ListChange, hidden []dict.ID) {
	h.edges += len(edges)
	h.lists += len(lists)
	h.hidden += len(hidden)
}

// A Watcher receives committed changes, hidden accounts, and erased edges, with their account.
func TestWatcher(t *testing.T) {
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: merger()}), graph.Options{SliceSize: 1})
	must(t, err)
	var h heard
	s.Watch(&h)
	step := func(want heard, fill func(b *batch.Batch)) {
		t.Helper()
		var b batch.Batch
		fill(&b)
		must(t, s.Apply(t.Context(), "relay", &b))
		eraseAll(t, s)
		if h != want {
			t.Errorf("told of %+v, want %+v", h, want)
		}
		h = heard{}
	}
	did := []byte("did:web:a.example.com")
	step(heard{edges: 2}, func(b *batch.Batch) {
		b.AddCommit(1, &batch.Commit{DID: did, Rev: []byte("3kaaaaaaaaaaa"), Data: make([]byte, 32)})
		b.AddPut(1, []byte("1"), []byte("did:web:b.example.com"))
		b.AddPut(1, []byte("2"), []byte("did:web:c.example.com"))
		b.Seen(1, nil)
	})
	step(heard{hidden: 1}, func(b *batch.Batch) { b.AddAccount(2, did, false, false); b.Seen(2, nil) })
	step(heard{edges: 2, hidden: 2}, func(b *batch.Batch) { b.AddAccount(3, did, false, true); b.Seen(3, nil) })
	item := func(seq format.Seq, rev, rkey, list string) func(b *batch.Batch) {
		return func(b *batch.Batch) {
			b.AddCommit(seq, &batch.Commit{DID: []byte("did:web:d.example.com"), Rev: []byte(rev), Data: make([]byte, 32)})
			b.AddPut(kinds.ListMember, []byte(rkey), []byte("did:web:b.example.com"))
			b.AddPut(kinds.ListItem, []byte(rkey), []byte("at://did:web:d.example.com/app.bsky.graph.list/"+list))
			b.Seen(seq, nil)
		}
	}
	step(heard{edges: 2, lists: 1}, item(4, "3kaaaaaaaaaac", "1", "x"))
	step(heard{edges: 2, lists: 1}, item(5, "3kaaaaaaaaaad", "2", "x")) // the edges are there already
	step(heard{edges: 1, lists: 2}, item(6, "3kaaaaaaaaaae", "2", "y")) // it may be on either list now
	step(heard{lists: 1}, item(7, "3kaaaaaaaaaaf", "2", "y"))           // the same again
	s.Unwatch(&h)
	step(heard{}, func(b *batch.Batch) { b.AddAccount(8, did, true, false); b.Seen(8, nil) })
}
