package write_test

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
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A row of a shared store whose members come from several shards, with those of another partition
// between them, gains more members in one write than a row may have.
func TestOneRowInOneWrite(t *testing.T) {
	settings := dict.Settings{ShardBits: 4, LeaseSize: 256, Partitions: 2}
	store := memory(smallLimits)
	seq := 0
	rkey := func(n int) []byte { return rkeyAt(uint64(1_700_000_000_000_000 + n*1_000_000)) }
	follow := func(first, last, rev int, subject string, homes ...byte) {
		for part, home := range homes {
			must(t, store.Update(t.Context(), func(tx kv.Txn) error {
				tx.Set([]byte{dict.KeyHome, byte(dict.DID), byte(part), 0}, []byte{0, 0, 0, home})
				return nil
			}))
		}
		s := open(t, store, graph.Options{Intern: intern.Options{Settings: settings, Owner: "test"}, Lanes: 1, Beat: 20 * time.Millisecond})
		var b batch.Batch
		for i := first; i < last; i++ {
			seq++
			b.AddCommit(format.Seq(seq), &batch.Commit{DID: fmt.Appendf(nil, "did:web:u%d.example.com", i), Rev: rkey(rev), Data: make([]byte, 32)})
			b.AddPut(kindOf("follow"), rkey(i), []byte(subject))
			b.Seen(format.Seq(seq), nil)
		}
		apply(t, s, "relay", &b)
		if subject == "did:web:popular.example.com" {
			must(t, s.View(t.Context(), func(sn *ask.View) error {
				all, err := members(sn, dict.DID, func(id dict.ID) (sets.Set, error) { return actors(sn, kindOf("follow"), id) }, dict.DID, subject)
				if len(all) != last-first {
					t.Errorf("%d members of %d", len(all), last-first)
				}
				return err
			}))
		}
		must(t, s.Close(t.Context()))
	}
	follow(0, 8, 1, "did:web:other.example.com", 0, 1)
	follow(8, 60, 1, "did:web:other.example.com", 2, 3)
	follow(0, 60, 2, "did:web:popular.example.com")
	verify(t, store)
}
