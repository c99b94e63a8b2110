package ask_test

import (
	"fmt"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// Accounts that are not active are in no count, asked about few subjects or about many.
func TestActorCounts(t *testing.T) {
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: graph.Merger()}), graph.Options{})
	must(t, err)
	const subjects = 100
	subject := func(i int) []byte { return fmt.Appendf(nil, "did:web:subject%d.example.com", i) }
	var b batch.Batch
	for i := range 3 {
		did := fmt.Appendf(nil, "did:web:actor%d.example.com", i)
		b.Seen(format.Seq(i+1), nil)
		b.AddCommit(format.Seq(i+1), &batch.Commit{DID: did, Rev: []byte("3kaaaaaaaaaaa"), Data: make([]byte, 32)})
		for j := range subjects {
			b.AddPut(1, fmt.Appendf(nil, "k%d", j), subject(j))
		}
	}
	b.AddAccount(4, []byte("did:web:actor1.example.com"), false, false)
	b.Seen(4, nil)
	must(t, s.Apply(t.Context(), "relay", &b))
	for _, asked := range []int{3, subjects} {
		var names intern.Batch
		for i := range asked {
			names.Add(dict.DID, subject(i))
		}
		told := 0
		err := s.View(t.Context(), func(sn *ask.View) error {
			if err := sn.Lookup(&names); err != nil {
				return err
			}
			ids := make([]dict.ID, asked)
			for i := range ids {
				ids[i] = names.ID(i)
			}
			return sn.ActorCounts(1, ids, nil, func(i int, total uint64) error {
				told++
				if total != 2 {
					t.Errorf("asked about %d: %d have an edge to subject %d, want 2", asked, total, i)
				}
				return nil
			})
		})
		if err != nil || told != asked {
			t.Fatalf("asked about %d, told of %d: %v", asked, told, err)
		}
	}
}
