package ask_test

import (
	"fmt"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A large set that is asked for often, and is larger than the cache keeps, is read whole
// once, and from then on only where it is asked about.
func TestSetTooLargeToKeep(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 64, Chunk: 64})})
	s, err := graph.Open(t.Context(), store, graph.Options{SetCache: 4 << 10})
	must(t, err)
	var b batch.Batch
	const followers = 20_000
	for i := range followers {
		b.AddCommit(format.Seq(i+1), &batch.Commit{DID: fmt.Appendf(nil, "did:web:u%d.example.com", i), Rev: []byte("3jzfcijpj2z2a"), Data: make([]byte, 32)})
		b.AddPut(1, []byte("3jzfcijpj2z2a"), []byte("did:web:subject.example.com"))
		b.Seen(format.Seq(i+1), nil)
		if i%5000 == 4999 {
			must(t, s.Apply(t.Context(), "relay", &b))
			b.Reset()
		}
	}
	loads := 0
	for range 10 {
		cost := 0
		must(t, s.ViewCharged(t.Context(), func(c int) error { cost += c; return nil }, func(sn *ask.View) error {
			var ids intern.Batch
			subject, follower := ids.Add(dict.DID, []byte("did:web:subject.example.com")), ids.Add(dict.DID, []byte("did:web:u7.example.com"))
			if err := sn.Lookup(&ids); err != nil {
				return err
			}
			set, err := sn.Actors(kinds.ByName("follow").Kind, ids.ID(subject))
			if err != nil {
				return err
			}
			if _, known := set.Known(); known {
				t.Error("the set is small, or kept")
			}
			both, err := set.And(sets.FromList([]uint64{uint64(ids.ID(follower))}))
			if both.Len() != 1 {
				t.Errorf("%d members, not the one asked for", both.Len())
			}
			return err
		}))
		if cost > followers { // a byte of each member's id
			loads++
		}
	}
	if loads > 1 {
		t.Errorf("the set was read whole %d times", loads)
	}
}

// Records that take a few bits of a packed chunk cost what others do.
func TestPackedRecordsCost(t *testing.T) {
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	must(t, err)
	var b batch.Batch
	b.AddCommit(1, &batch.Commit{DID: []byte("did:web:u.example.com"), Rev: []byte("3jzfcijpj2z2a"), Data: make([]byte, 32)})
	const records = 200
	for i := range records {
		b.AddPut(1, []byte(oracle.TID(1<<60+uint64(i)<<10)), []byte("did:web:subject.example.com"))
	}
	b.Seen(1, nil)
	must(t, s.Apply(t.Context(), "relay", &b))
	cost := 0
	must(t, s.ViewCharged(t.Context(), func(c int) error { cost += c; return nil }, func(sn *ask.View) error {
		var ids intern.Batch
		ids.Add(dict.DID, []byte("did:web:u.example.com"))
		if err := sn.Lookup(&ids); err != nil {
			return err
		}
		cost = 0
		subjects, err := sn.AppendSubjects(nil, kinds.ByName("follow").Kind, ids.ID(0), ask.Window{})
		if len(subjects) != records {
			t.Errorf("%d records", len(subjects))
		}
		return err
	}))
	if cost < 5*records {
		t.Errorf("%d records cost %d", records, cost)
	}
}
