package graph_test

import (
	"fmt"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
)

// A row of a shared store whose members come from several shards, with those of another partition
// between them, gains more members in one write than a row may have.
func TestOneRowInOneWrite(t *testing.T) {
	settings := dict.Settings{ShardBits: 4, LeaseSize: 256, Partitions: 2}
	store := memkv.Open(memkv.Options{Merger: merger()})
	seq := 0
	rkey := func(n int) []byte {
		return format.Path{TID: uint64(1_700_000_000_000_000+n*1_000_000) << format.ClockBits}.AppendRkey(nil)
	}
	follow := func(first, last, rev int, subject string, shards *dict.ShardRange) {
		s, err := graph.Open(t.Context(), store, graph.Options{
			Intern: intern.Options{Settings: settings, Owner: "test", Shards: shards}, Lanes: 1, Beat: 20 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		var b batch.Batch
		for i := first; i < last; i++ {
			seq++
			b.AddCommit(format.Seq(seq), &batch.Commit{DID: fmt.Appendf(nil, "did:web:u%d.example.com", i), Rev: rkey(rev), Data: make([]byte, 32)})
			b.AddPut(kindOf("follow"), rkey(i), []byte(subject))
			b.Seen(format.Seq(seq), nil)
		}
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
		if subject == "did:web:popular.example.com" {
			err := s.View(t.Context(), func(sn *ask.View) error {
				var ids intern.Batch
				of := ids.Add(dict.DID, []byte(subject))
				if err := sn.Lookup(&ids); err != nil {
					return err
				}
				var set sets.Set
				set, err := actors(sn, kindOf("follow"), ids.ID(of))
				if set.Len() != uint64(last-first) {
					t.Errorf("%d members of %d", set.Len(), last-first)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	follow(0, 8, 1, "did:web:other.example.com", &dict.ShardRange{First: 0, Last: 1})
	follow(8, 60, 1, "did:web:other.example.com", &dict.ShardRange{First: 2, Last: 3})
	follow(0, 60, 2, "did:web:popular.example.com", nil)
	verify(t, store)
}
