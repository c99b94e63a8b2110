package algebra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// BenchmarkBlockedBy evaluates blockedBy(…) of an account that is on 2,000 lists. Ten accounts block each list.
func BenchmarkBlockedBy(b *testing.B) {
	store, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir(), Create: true, Memory: 64 << 20, Merger: write.NewMerger(write.Limits{})})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	g := oracle.GraphOn(b, 1, 10, store)
	const lists = 2000
	target := g.Accounts[0]
	for i := range lists {
		author := oracle.Account(100 + i)
		list := fmt.Sprintf("at://%s/app.bsky.graph.list/%s", author, g.Key())
		g.PutListItem(author, list, target)
		for n := range 10 {
			g.Commit(oracle.Account(10_000+(i*7+n*131)%5000), oracle.Op{Kind: "listblock", Rkey: g.Key(), Subject: list})
		}
	}
	e, err := builtIn.Parse("blockedBy("+target+")", language.MaxExpr, noon)
	if err != nil {
		b.Fatal(err)
	}
	var times []time.Duration
	var total uint64
	for b.Loop() {
		start := time.Now()
		err := g.Store.View(b.Context(), func(sn *ask.View) error {
			v, err := NewEvaluation(b.Context(), sn, e, free())
			if err == nil {
				_, total, err = v.Result()
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(total), "blockers")
}
