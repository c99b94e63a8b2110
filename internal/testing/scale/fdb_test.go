package scale

import (
	"errors"
	"flag"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv/fdbkv/fdbtest"
	"skein.blue/internal/network"
)

var lanes = flag.Int("scale.lanes", 0, "lanes of BenchmarkIndexFDB; 0: like the daemon")

// BenchmarkIndexFDB indexes a network on FoundationDB, and alternately writes
// the same keys and bytes blind, batch by batch.
//
//	go test -tags fdb ./internal/testing/scale -run xxx -bench IndexFDB -benchtime 1x
func BenchmarkIndexFDB(b *testing.B) {
	const batches, perBatch = 12, 16_384
	var rec fdbtest.Recorder
	o := fdbtest.Options(b, write.NewMerger(write.Limits{}))
	o.Wrote = rec.Wrote
	retries := 0
	o.Retried = func(string) { retries++ }
	store := fdbtest.Open(b, o)
	raw := fdbtest.Open(b, fdbtest.Options(b, write.NewMerger(write.Limits{})))
	g, err := graph.Open(b.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings, CacheBytes: 128 << 20}, Lanes: *lanes})
	if err != nil {
		b.Fatal(err)
	}
	f := newFeed(network.Options{Seed: 1, Accounts: 20_000}, &app.Index{KV: store, Graph: g}, "network")
	var index, blind time.Duration
	var keys, bytes, events int
	var e network.Event
	for b.Loop() {
		for n := range batches {
			for f.events = 0; f.events < perBatch; { // too few for add to flush
				f.n.Next(&e)
				f.add(b, &e)
			}
			rec.Reset()
			begun := time.Now()
			f.flush(b)
			took := time.Since(begun)
			wrote := rec.Blind(b, raw, 2000, 8)
			if n > 0 { // the first one takes the leases
				k, by := rec.Size()
				index, blind, keys, bytes, events = index+took, blind+wrote, keys+k, bytes+by, events+perBatch
			}
		}
	}
	tm := g.Timing()
	b.Logf("%d retries; intern %v, read %v, walk %v, commit %v", retries, tm.Intern, tm.Read, tm.Walk, tm.Commit)
	b.ReportMetric(float64(events)/index.Seconds(), "events/s")
	b.ReportMetric(float64(keys)/float64(events), "keys/event")
	b.ReportMetric(float64(bytes)/float64(events), "bytes/event")
	b.ReportMetric(float64(events)/blind.Seconds(), "blind/s")
	b.ReportMetric(100*blind.Seconds()/index.Seconds(), "%_of_blind")
	if err := errors.Join(g.Close(b.Context()), store.Close(), raw.Close()); err != nil {
		b.Fatal(err)
	}
}
