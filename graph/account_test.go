package graph

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/syntax"
)

// A group under a key that is no group's is where nobody looks: the check says so.
func TestMisplacedGroup(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	h := newHostile(t, store)
	h.commit("did:plc:subject", "a")
	h.records(1)
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		return kv.ScanPrefix(tx.Snapshot(), []byte{format.KeyAccount}, func(k, v []byte) error {
			tx.Delete(k)
			moved := bytes.Clone(k)
			moved[len(moved)-1]++
			tx.Set(moved, v)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	said := ""
	if err := check.Store(t.Context(), store, func(p string) { said += p + "\n" }, nil); err != nil || !strings.Contains(said, "is not the key of a group") {
		t.Errorf("%v; the check says %q", err, said)
	}
}

// TestNeighboursAreKept reopens a store. Its first event reads a group of accounts, and the
// cached states of the account's neighbours are right.
func TestNeighboursAreKept(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	const accounts = 20
	did := func(i int) []byte { return fmt.Appendf(nil, "did:web:n%02d.example.com", i) }
	seq := format.Seq(0)
	apply := func(s *Store, i int, rev, since uint64) {
		seq++
		var b batch.Batch
		b.AddCommit(seq, &batch.Commit{DID: did(i), Rev: syntax.AppendTID(nil, rev), Since: syntax.AppendTID(nil, since), Data: make([]byte, 32)})
		b.AddPut(1, syntax.AppendTID(nil, rev), []byte("did:plc:subject"))
		b.Seen(seq, nil)
		if err := s.Apply(t.Context(), "test", &b); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(4) {
		s, err := Open(t.Context(), store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range accounts {
			apply(s, i, round+2, round+1)
		}
		if kept := s.lanes[0].states.YoungLen(); kept < accounts {
			t.Errorf("%d states are kept", kept)
		}
		if err := check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.View(t.Context(), func(sn *ask.View) error {
			c, err := sn.Counts()
			if want := int64(accounts * (round + 1)); c.Accounts != accounts || c.Desynchronized != 0 || c.Records["follow"] != want {
				t.Errorf("round %d: %+v, want %d records", round, c, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
