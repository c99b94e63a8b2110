package graph_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// Accounts that are deleted, and heard of again, in all lanes at once. The race
// detector is to see it.
func TestErasingInLanes(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	s, err := graph.Open(t.Context(), store, graph.Options{
		Intern: intern.Options{Settings: dict.SharedSettings}, Metrics: graph.NewMetrics(prometheus.NewRegistry()), Lanes: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	seq := format.Seq(0)
	for round := range 3 {
		for i := range 40 {
			seq++
			did := fmt.Appendf(nil, "did:plc:a%d", i)
			b.AddCommit(seq, &batch.Commit{DID: did, Rev: dict.AppendTID(nil, uint64(seq)<<40), Data: make([]byte, 32)})
			b.AddPut(1, fmt.Appendf(nil, "x%d", round), []byte("did:plc:s"))
			seq++
			b.AddAccount(seq, did, false, true)
			b.Seen(seq, nil)
		}
	}
	if err := s.Apply(t.Context(), "relay", &b); err != nil {
		t.Fatal(err)
	}
	eraseAll(t, s)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	verify(t, store)
}
