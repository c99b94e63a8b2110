package graph_test

import (
	"reflect"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A repo is put back to an older state, whose snapshot comes in two parts. Between them a commit writes
// a record, or deletes one, that the index still has from the newer state: the rev is lower than that record's key
// then, and the state of the account is no longer in the cache.
func TestCommitBetweenPartsOfARollback(t *testing.T) {
	const newest = 9 << 40 // the key and the rev of the newest state
	follow := kinds.ByName("follow").Kind
	for _, moved := range []bool{true, false} {
		store := memkv.Open(memkv.Options{Merger: merger()})
		open := func() *graph.Store {
			s, err := graph.Open(t.Context(), store, graph.Options{Embedded: true, Queued: func([]batch.Queued) {}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		c := &chain{t, open()}
		reopen := func() {
			if err := c.s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.s = open()
		}
		commit := func(seq format.Seq, rev, since uint64, prev, data byte) *batch.Batch {
			var b batch.Batch
			h := &batch.Commit{DID: []byte(chained), Rev: []byte(oracle.TID(rev)), Data: root(data)}
			if since > 0 {
				h.Since, h.PrevData = []byte(oracle.TID(since)), root(prev)
			}
			b.AddCommit(seq, h)
			return &b
		}
		b := commit(1, 1<<40, 0, 0, 1)
		b.AddPut(follow, []byte("self"), []byte("did:web:kept.example.com")) // a second record of the edge
		c.apply("pds", b)
		b = commit(2, newest, 1<<40, 1, 2)
		b.AddPut(follow, []byte(oracle.TID(newest)), []byte("did:web:kept.example.com"))
		c.apply("pds", b)

		reopen()
		b = new(batch.Batch)
		b.AddSync(3, &batch.Commit{DID: []byte(chained), Rev: []byte(oracle.TID(1 << 40)), Data: root(1), OtherRev: true})
		c.apply("pds", b)
		var generation uint64
		if err := c.s.View(t.Context(), func(v *ask.View) error {
			_, _, row, err := v.Account(chained)
			generation = row.Generation
			return err
		}); err != nil {
			t.Fatal(err)
		}
		part := func(from, to string) *batch.Batch {
			var b batch.Batch
			b.AddSnapshot(&batch.Snapshot{
				DID: []byte(chained), Rev: []byte(oracle.TID(1 << 40)), Data: root(1), Generation: generation,
				From: from, To: to, First: from == "", Last: to == "",
			})
			return &b
		}
		c.apply("", part("", "app.bsky.graph"))

		reopen()
		b = commit(4, newest+1, 1<<40, 1, 3)
		want := "did:web:kept.example.com"
		if moved { // the record names another account, and the edge to the first is gone with "self"
			b.AddPut(follow, []byte(oracle.TID(newest)), []byte("did:web:other.example.com"))
			b.AddDelete(follow, []byte("self"))
			want = "did:web:other.example.com"
		} else {
			b.AddDelete(follow, []byte(oracle.TID(newest)))
		}
		c.apply("pds", b)
		b = part("app.bsky.graph", "")
		b.AddPut(follow, []byte("self"), []byte("did:web:kept.example.com"))
		c.apply("", b)
		c.has("after the rollback", 1, 0)
		if got := views(t, c.s); !reflect.DeepEqual(got.Forward["follow"], map[string][]string{chained: {want}}) || !reflect.DeepEqual(got.Reverse["follow"], map[string][]string{want: {chained}}) {
			t.Errorf("moved %v: %v, want a follow of %s", moved, got, want)
		}
		verify(t, store)
	}
}
