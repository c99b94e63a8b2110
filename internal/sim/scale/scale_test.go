// Package scale measures an index of real size: a network with a hundred
// million edges or more, from package network, including three accounts with 10
// million, 1 million and 1 million followers.
//
//	export CGO_ENABLED=0 # like the released binary: less memory
//	go test ./internal/sim/scale -run Build -v -timeout 3h -scale.dir /var/tmp/skein-scale -scale.edges 100000000
//	go test ./internal/sim/scale -run xxx -bench . -timeout 1h -scale.dir /var/tmp/skein-scale
//
// The first command makes the store and shows where its bytes are, the second
// queries it.
package scale

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/kinds"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/network"
)

var (
	dir      = flag.String("scale.dir", "", "folder of the store; empty: a small one in a temporary folder")
	edges    = flag.Int64("scale.edges", 300_000, "edges of the network")
	accounts = flag.Int("scale.accounts", 0, "accounts of the network; 0: one per 20 edges")
	big      = flag.Int("scale.big", 0, "followers of the largest account; 0: 10 million, or a tenth of the edges if that is less")
	profile  = flag.String("scale.cpuprofile", "", "file for a CPU profile of indexing the network")
)

// feed turns a network's events into batches.
type feed struct {
	*load.Feeder

	n       *network.Network
	x       *app.Index
	b       batch.Batch
	started time.Time
	events  int64
	source  string
	offset  int64 // added to the sequence numbers
}

func newFeed(o network.Options, x *app.Index, source string) *feed {
	n := network.New(o)
	return &feed{Feeder: load.NewFeeder(n), n: n, x: x, started: time.Now(), source: source}
}

const batchEvents = 32_768

func (f *feed) add(tb testing.TB, e *network.Event) {
	f.Add(&f.b, e, f.offset)
	if f.events++; f.events%batchEvents == 0 {
		f.flush(tb)
	}
}

func (f *feed) flush(tb testing.TB) {
	tb.Helper()
	if err := f.x.Graph.Apply(tb.Context(), f.source, &f.b); err != nil {
		tb.Fatal(err)
	}
	f.b.Reset()
	if f.events%(batchEvents*61) == 0 {
		took := time.Since(f.started)
		tb.Logf("%d million events, %.0f/s, peak memory %d MiB", f.events/1e6, float64(f.events)/took.Seconds(), peakMemory()>>20)
	}
}

// peakMemory returns the peak resident memory of the process, in bytes.
func peakMemory() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

func records(tb testing.TB, x *app.Index) (n int64) {
	tb.Helper()
	err := x.Graph.View(tb.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		for _, v := range c.Records {
			n += v
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// population returns the options of the network, and the followers of the
// largest account: if the network has too few accounts, lurkers are added. The
// real network has more than a hundred edges per account; twenty are what a few
// days of the live stream have.
func population() (o network.Options, most int) {
	o.Seed = 1
	if o.Accounts = *accounts; o.Accounts == 0 {
		o.Accounts = max(int(*edges/20), 4096)
	}
	if most = *big; most == 0 {
		most = int(min(10_000_000, *edges/10))
	}
	o.Lurkers = max(0, most*6/5-o.Accounts)
	return o, most
}

// stars are the accounts with very many followers: A, and B and C with a tenth
// as many.
var stars = [...]int{1, 2, 3}

// reader is an account that follows the 300 most active ones.
const reader = 4

func TestBuild(t *testing.T) {
	where := *dir
	if where == "" {
		where = t.TempDir()
	} else if exists(where) {
		t.Skip("a store exists in", where)
	}
	build(t, where)
}

// exists reports whether there is a store in a folder.
func exists(where string) bool {
	found, err := filepath.Glob(filepath.Join(where, "*.sst"))
	return err == nil && len(found) > 0
}

// build makes the store, and prints its size, without and with the stars.
func build(tb testing.TB, where string) {
	tb.Helper()
	x := open(tb, where)
	o, most := population()
	f := newFeed(o, x, "network")
	if *profile != "" {
		out, err := os.Create(*profile)
		if err != nil {
			tb.Fatal(err)
		}
		if err := pprof.StartCPUProfile(out); err != nil {
			tb.Fatal(err)
		}
	}
	var e network.Event
	for target := *edges; records(tb, x) < target; {
		for range max(batchEvents, (target-records(tb, x))*10/9/batchEvents*batchEvents) {
			f.n.Next(&e)
			f.add(tb, &e)
		}
	}
	f.flush(tb)
	took := time.Since(f.started)
	if *profile != "" {
		pprof.StopCPUProfile()
	}
	tb.Logf("%d events in %v, %.0f/s", f.events, took.Round(time.Second), float64(f.events)/took.Seconds())
	x = settle(tb, x, where)
	f.x = x
	usage(tb, x, "the network alone")
	for i, star := range stars {
		n := most
		if i > 0 {
			n /= 10
		}
		step := f.n.Accounts() / n
		for a := range n {
			f.n.Plant(&e, a*step+i%step, star)
			f.add(tb, &e)
		}
	}
	for i := range 300 {
		f.n.Plant(&e, reader, i*network.Liveliest)
		f.add(tb, &e)
	}
	f.flush(tb)
	x = settle(tb, x, where)
	usage(tb, x, "with the stars")
	tb.Logf("peak memory %d MiB", peakMemory()>>20)
	if err := x.Close(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// settle compacts the store, and reopens it, so that no log duplicates its
// tables. (A running process has some 80 MB of logs, whatever the size of the
// store.)
func settle(tb testing.TB, x *app.Index, where string) *app.Index {
	tb.Helper()
	start := time.Now()
	if p, ok := x.KV.(*pebblekv.Store); ok {
		if err := p.Compact(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	if err := x.Close(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("settled in %v", time.Since(start).Round(time.Second))
	return open(tb, where)
}

func open(tb testing.TB, where string) *app.Index {
	tb.Helper()
	app.LimitMemory(app.StoreOptions{})
	x, err := app.OpenIndex(tb.Context(), app.StoreOptions{Store: where, Create: true})
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// usage prints the table of skein stats.
func usage(tb testing.TB, x *app.Index, title string) {
	tb.Helper()
	var spaces []check.Keyspace
	err := x.KV.View(tb.Context(), func(r kv.Reader) (err error) { spaces, err = check.Usage(r, kinds.BuiltIn, x.KV); return err })
	if err != nil {
		tb.Fatal(err)
	}
	fmt.Printf("\n%s: %d bytes on disk, %d records\n\n", title, x.KV.DiskBytes(), records(tb, x))
	for _, s := range spaces {
		fmt.Printf("%s: %d bytes\n", s.Name, s.Bytes)
	}
}
