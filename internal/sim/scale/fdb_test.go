package scale

import (
	"errors"
	"flag"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/network"
	"skein.blue/query"
)

var lanes = flag.Int("scale.lanes", 0, "lanes of BenchmarkIndexFDB; 0: like the daemon")

// BenchmarkIndexFDB indexes a network on FoundationDB.
//
//	go test -tags fdb ./internal/sim/scale -run xxx -bench IndexFDB -benchtime 1x
func BenchmarkIndexFDB(b *testing.B) {
	const batches, perBatch = 12, 16_384
	o := kvtest.Options(b, write.NewMerger(write.Limits{}))
	retries := counting(b, &o, "skein_store_retries_total")
	store := kvtest.Open(b, o)
	g, err := graph.Open(b.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings, CacheBytes: 128 << 20}, Lanes: *lanes})
	if err != nil {
		b.Fatal(err)
	}
	f := newFeed(network.Options{Seed: 1, Accounts: 20_000}, &app.Index{KV: store, Graph: g}, "network")
	var took time.Duration
	events := 0
	var e network.Event
	for b.Loop() {
		for n := range batches {
			for f.events = 0; f.events < perBatch; { // too few for add to flush
				f.n.Next(&e)
				f.add(b, &e)
			}
			begun := time.Now()
			f.flush(b)
			if n > 0 { // the first one takes the leases
				took, events = took+time.Since(begun), events+perBatch
			}
		}
	}
	b.Logf("%v retries", retries())
	b.ReportMetric(float64(events)/took.Seconds(), "events/s")
	if err := errors.Join(g.Close(b.Context()), store.Close()); err != nil {
		b.Fatal(err)
	}
}

// counting returns a function that reads a metric of a store.
func counting(tb testing.TB, o *fdbkv.Options, name string) func() float64 {
	reg := prometheus.NewRegistry()
	o.Metrics = kv.NewMetrics(reg, func([]byte) string { return "" })
	return func() (sum float64) {
		families, err := reg.Gather()
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
}

// BenchmarkAskFDB asks the same questions of a store on FoundationDB and of an embedded one, with the same
// million edges. trips are the round trips of a question to the cluster.
//
//	go test -tags fdb ./internal/sim/scale -run xxx -bench AskFDB -benchtime 40x
func BenchmarkAskFDB(b *testing.B) {
	const people, enough, followers = 40_000, 1_000_000, 10_000
	o := kvtest.Options(b, write.NewMerger(write.Limits{}))
	trips := counting(b, &o, "skein_store_round_trips_total")
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
		get(b, query.New(cluster.Graph, query.Options{}), askKnown, url.Values{"actor": {did(reader)}, "edge": {"followers"}, "subject": {did(1)}})
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
			s := query.New(x.Graph, query.Options{})
			b.Run(q.what+"/"+on, func(b *testing.B) {
				get(b, s, q.method, q.p) // what it keeps in memory is not what is measured
				before := trips()
				median(b, func() { get(b, s, q.method, q.p) })
				b.ReportMetric((trips()-before)/float64(b.N), "trips")
			})
		}
		ask(cluster, "fdb")
		ask(embedded, "embedded")
	}
	for _, x := range []*app.Index{cluster, embedded} { // as BenchmarkServe, without a network
		s := query.New(x.Graph, query.Options{})
		b.Run("small64/"+map[bool]string{true: "fdb", false: "embedded"}[x == cluster], func(b *testing.B) {
			before := trips()
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
			b.ReportMetric((trips()-before)/float64(b.N), "trips")
		})
	}
	if err := errors.Join(g.Close(b.Context()), store.Close(), embedded.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
}
