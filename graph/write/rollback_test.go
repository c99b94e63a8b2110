package write_test

import (
	"slices"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/oracle"
)

// A repo is put back to an older state, whose snapshot comes in two parts. Between them a commit writes
// a record, or deletes one, that the index still has from the newer state: the rev is lower than that record's key
// then, and the state of the account is no longer in the cache.
func TestCommitBetweenPartsOfARollback(t *testing.T) {
	const oldest, newest = 1 << 20, 9 << 20 // revs and keys, for header and follow
	const kept, other = "did:web:kept.example.com", "did:web:other.example.com"
	for _, moved := range []bool{true, false} {
		store := memory(smallLimits)
		s := open(t, store, queues)
		put := func(b *batch.Batch, rkey, subject string) { b.AddPut(kindOf("follow"), []byte(rkey), []byte(subject)) }
		step := func(source string, fill func(b *batch.Batch)) {
			t.Helper()
			var b batch.Batch
			fill(&b)
			apply(t, s, source, &b)
		}
		reopen := func() {
			must(t, s.Close(t.Context()))
			s = open(t, store, queues)
		}
		step("pds", func(b *batch.Batch) {
			b.AddCommit(1, header(oldest, 0, 0, 1))
			put(b, "self", kept) // a second record of the edge
		})
		step("pds", func(b *batch.Batch) {
			b.AddCommit(2, header(newest, oldest, 1, 2))
			put(b, oracle.TID(newest<<20), kept)
		})
		reopen()
		step("pds", func(b *batch.Batch) { imported(true, oldest, 1)(b, 3) })
		_, row := account(t, s, chained)
		part := func(from, to string) func(b *batch.Batch) {
			return func(b *batch.Batch) {
				h := header(oldest, 0, 0, 1)
				b.AddSnapshot(&batch.Snapshot{DID: h.DID, Rev: h.Rev, Data: h.Data, Generation: row.Generation, From: from, To: to, First: from == "", Last: to == ""})
				if to == "" {
					put(b, "self", kept)
				}
			}
		}
		step("", part("", "app.bsky.graph"))
		reopen()
		want := kept
		step("pds", func(b *batch.Batch) {
			b.AddCommit(4, header(newest+1, oldest, 1, 3))
			if !moved {
				b.AddDelete(kindOf("follow"), []byte(oracle.TID(newest<<20)))
				return
			}
			want = other // and the edge to the first is gone with "self"
			put(b, oracle.TID(newest<<20), other)
			b.AddDelete(kindOf("follow"), []byte("self"))
		})
		step("", part("app.bsky.graph", ""))
		if n := counts(t, s); n.Records["follow"] != 1 || n.Desynchronized != 0 {
			t.Errorf("after the rollback: %+v", n)
		}
		must(t, s.View(t.Context(), func(v *ask.View) error {
			subjects, err := members(v, dict.DID, func(id dict.ID) (sets.Set, error) { return v.Subjects(kindOf("follow"), id, ask.Window{}) }, dict.DID, chained)
			if !slices.Equal(subjects, []string{want}) {
				t.Errorf("moved %v: a follow of %v, want %s", moved, subjects, want)
			}
			return err
		}))
		verify(t, store)
	}
}

// A list shows that a repo was put back. A rev that was announced before, and that the index has reached, does not hide that; a
// newer one does. The stream's announcements of a queued repo count without a queue, too.
func TestListedRollback(t *testing.T) {
	for told, want := range map[uint64]uint64{2: 3, 7: 0} {
		store := memory(smallLimits)
		s := open(t, store, graph.Options{})
		var b batch.Batch
		b.AddCommit(1, header(5, 0, 0, 1))
		b.Seen(1, nil)
		apply(t, s, "pds", &b)
		b.Reset()
		b.AddResync([]byte(chained), batch.Cause{Reason: "listed", Told: batch.Rev(told << 20)})
		b.AddResync([]byte(chained), batch.Cause{Reason: "rev_lower", Back: batch.Rev(3 << 20)})
		apply(t, s, "", &b)
		st, row := account(t, s, chained)
		if row == nil || uint64(row.Back.Rev) != want<<20 || st.Rev != 5<<20 {
			t.Errorf("told of %d: %+v of %+v, want the rev %d", told, row, st, want)
		}
		b.Reset()
		sync(9, 9)(&b, 2)
		apply(t, s, "pds", &b)
		if _, row := account(t, s, chained); row.Told != 9<<20 {
			t.Errorf("told of %d, then of 9: %+v", told, row)
		}
		closeAll(t, s, store)
	}
}

// A repo is put back to an older state than the one that a damaged commit announced: that one no longer counts.
func TestRollbackOfAnUnknownState(t *testing.T) {
	for _, first := range []uint64{0, 2} { // the rev that the index has
		store := memory(smallLimits)
		s := open(t, store, queues)
		var b batch.Batch
		if first > 0 {
			commit(first, 0, 0, 1)(&b, 1)
		}
		damaged := header(5, first, 0, 0)
		damaged.Data = nil
		b.AddCommit(2, damaged)
		imported(true, 3, 3)(&b, 3)
		apply(t, s, "pds", &b)
		if st, row := account(t, s, chained); row == nil || row.Back.Rev != 3<<20 || row.Back.Above != 5<<20 {
			t.Errorf("%+v of %+v, want a state put back to 3", row, st)
		}
		closeAll(t, s, store)
	}
}
