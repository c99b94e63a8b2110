package scale

import (
	"errors"
	"flag"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/network"
)

var (
	lanes = flag.Int("scale.lanes", 0, "lanes of BenchmarkIndexFDB; 0: like the daemon")
	delay = flag.Duration("scale.delay", 0, "of each round trip of BenchmarkAskFDB's questions to its cluster, besides what it takes anyway")
)

// BenchmarkIndexFDB indexes a network on FoundationDB, and alternately writes
// the same keys and bytes blind, batch by batch.
//
//	go test -tags fdb ./internal/sim/scale -run xxx -bench IndexFDB -benchtime 1x
func BenchmarkIndexFDB(b *testing.B) {
	const batches, perBatch = 12, 16_384
	var rec kvtest.Recorder
	o := kvtest.Options(b, write.NewMerger(write.Limits{}))
	o.Wrote = rec.Wrote
	retries := 0
	o.Retried = func(string) { retries++ }
	store := kvtest.Open(b, o)
	raw := kvtest.Open(b, kvtest.Options(b, write.NewMerger(write.Limits{})))
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

// BenchmarkAskFDB asks the same questions of a store on FoundationDB and of an embedded one, with the same
// million edges. trips are the round trips of a question to the cluster. -scale.delay puts a proxy before the
// server, and asks a second time while each of them takes that much longer.
//
//	go test -tags fdb ./internal/sim/scale -run xxx -bench AskFDB -benchtime 40x
//	go test -tags fdb ./internal/sim/scale -run xxx -bench AskFDB -benchtime 40x -scale.delay 1ms
func BenchmarkAskFDB(b *testing.B) {
	const people, enough, followers = 40_000, 1_000_000, 10_000
	var trips atomic.Int64
	merger, setDelay := write.NewMerger(write.Limits{}), func(time.Duration) {}
	var o fdbkv.Options
	if *delay == 0 {
		o = kvtest.Options(b, merger)
	} else {
		c := kvtest.StartDelayed(b)
		b.Cleanup(func() {
			if err := c.Remove(); err != nil {
				b.Error(err)
			}
		})
		o = c.Options(merger)
		setDelay = c.SetDelay
	}
	o.Trips = func(n int) { trips.Add(int64(n)) }
	store := kvtest.Open(b, o)
	g, err := graph.Open(b.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings, CacheBytes: 128 << 20}})
	if err != nil {
		b.Fatal(err)
	}
	cluster, embedded := &app.Index{KV: store, Graph: g}, open(b, b.TempDir())
	name := network.New(network.Options{Seed: 1, Accounts: people})
	did := func(n int) string { return string(name.AppendDID(nil, n)) }
	for _, x := range []*app.Index{cluster, embedded} {
		f := newFeed(network.Options{Seed: 1, Accounts: people}, x, "network")
		var e network.Event
		for records(b, x) < enough {
			for range batchEvents {
				f.n.Next(&e)
				f.add(b, &e)
			}
		}
		for star := range 2 {
			for a := range followers {
				f.n.Plant(&e, 10+a*2+star*a%2, 1+star)
				f.add(b, &e)
			}
		}
		for i := range 300 {
			f.n.Plant(&e, reader, 10+i*100)
			f.add(b, &e)
		}
		f.flush(b)
	}
	others := func(n int) (all []string) {
		for i := range n {
			all = append(all, did(10+i*100))
		}
		return all
	}
	union := func(n int) string {
		var sets []string
		for _, other := range others(n) {
			sets = append(sets, "followers("+other+")")
		}
		return "union(" + strings.Join(sets, ",") + ")"
	}
	// The cluster is still writing what it has in memory.
	for begun := time.Now(); time.Since(begun) < 15*time.Second; {
		get(b, server(b, cluster), askKnown, url.Values{"actor": {did(reader)}, "edge": {"followers"}, "subject": {did(1)}})
	}
	for _, q := range []struct {
		what, method string
		p            url.Values
	}{
		{"intersection", askQuery, url.Values{"set": {"intersect(followers(" + did(1) + "),followers(" + did(2) + "))"}}},
		{"known", askKnown, url.Values{"actor": {did(reader)}, "edge": {"followers"}, "subject": {did(1)}}},
		{"rankFollows", askRank, url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {"follows"}, "limit": {"100"}}},
		{"rankLikes", askRank, url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {"likes"}, "limit": {"100"}}},
		{"relationships", "app.bsky.graph.getRelationships", url.Values{"actor": {did(reader)}, "others": others(30)}},
		{"contains", "blue.skein.graph.contains", url.Values{"set": {"followers(" + did(1) + ")"}, "member": others(100)}},
		{"union", askQuery, url.Values{"set": {union(30)}}},
	} {
		ask := func(x *app.Index, on string) {
			s := server(b, x)
			b.Run(q.what+"/"+on, func(b *testing.B) {
				get(b, s, q.method, q.p) // what it keeps in memory is not what is measured
				trips.Store(0)
				median(b, func() { get(b, s, q.method, q.p) })
				b.ReportMetric(float64(trips.Load())/float64(b.N), "trips")
			})
		}
		ask(cluster, "fdb")
		if *delay > 0 {
			setDelay(*delay)
			ask(cluster, "fdb+"+delay.String())
			setDelay(0)
		}
		ask(embedded, "embedded")
	}
	for _, x := range []*app.Index{cluster, embedded} { // as BenchmarkServe, without a network
		s := server(b, x)
		b.Run("small64/"+map[bool]string{true: "fdb", false: "embedded"}[x == cluster], func(b *testing.B) {
			trips.Store(0)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			begun := time.Now()
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					a, other := did(10+n%300*100), did(10+(n+7)%300*100)
					if n%2 == 0 {
						get(b, s, "blue.skein.graph.contains", url.Values{"set": {"followers(" + a + ")"}, "member": {other}})
					} else {
						get(b, s, askQuery, url.Values{"set": {"intersect(followers(" + a + "),followers(" + other + "))"}, "limit": {"10"}})
					}
				}
			})
			b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "questions/s")
			b.ReportMetric(float64(trips.Load())/float64(b.N), "trips")
		})
	}
	if err := errors.Join(g.Close(b.Context()), store.Close(), embedded.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
}
