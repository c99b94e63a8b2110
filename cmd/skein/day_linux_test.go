package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// A day of the network's mean traffic, a thousand events a second, in an hour or less:
// go test ./cmd/skein -run TestDay -v -timeout 3h -day.events 86400000 -day.rate 0
// With a rate above what the machine indexes, the relay drops its subscriber, as a real one does, and
// the store is then not the whole network.
var (
	dayEvents = flag.Int("day.events", 60_000, "events of TestDay")
	dayRate   = flag.Int("day.rate", 30_000, "events per second of TestDay; 0: as many as are indexed")
)

// usage is what a daemon uses at one moment.
type usage struct{ goroutines, descriptors, memory float64 }

// A daemon that indexes for a day, answers queries and has a subscriber, uses no more goroutines,
// descriptors and memory at the end than in the middle, and stays within its memory budget. The
// store is then exactly the network.
func TestDay(t *testing.T) {
	const memory, accounts = 256 << 20, 300_000
	store := filepath.Join(t.TempDir(), "store")
	t.Parallel()
	network := simulated.Options{Seed: 1, Accounts: accounts}
	relay, _ := simulate(t, "", relay.Options{Network: network, Rate: float64(*dayRate), Events: int64(*dayEvents)})
	d := serveDaemon(t, nil, "--store", store, "--relay", relay, "--cursor", "0", "--repair=false", "--memory", "256MiB")
	n := simulated.New(network)
	did := func(i int) string { return string(n.AppendDID(nil, i)) }

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	var changes int64
	popular := make([]string, 8)
	for i := range popular {
		popular[i] = fmt.Sprintf("followers(%s)", did(i*1000))
	}
	watching.Go(func() { changes = subscribeUntil(ctx, t, d.api, "union("+strings.Join(popular, ",")+")") })

	value := func(all, name string) float64 {
		for line := range strings.Lines(all) {
			if text, ok := strings.CutPrefix(line, name+" "); ok {
				v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		t.Fatalf("there is no metric %s", name)
		return 0
	}
	parts := [3]usage{} // the most in each third of the events
	began, queries := time.Now(), 0
	for cursor := 0; cursor < *dayEvents; time.Sleep(100 * time.Millisecond) {
		for range 5 {
			i := queries * 7919 % accounts
			if code, body := askAt(t, d.api+"/xrpc/blue.skein.graph.query?set="+url.QueryEscape(fmt.Sprintf("intersect(followers(%s),followers(%s))", did(i/1000*1000), did(i)))); code != http.StatusOK {
				t.Fatalf("a query: %d %s", code, body)
			}
			queries++
		}
		all := d.metrics()
		if strings.Contains(all, "\nskein_consumer_cursor ") {
			cursor = int(value(all, "skein_consumer_cursor"))
		}
		p := &parts[min(cursor*3 / *dayEvents, 2)]
		p.goroutines = max(p.goroutines, value(all, "go_goroutines"))
		p.descriptors = max(p.descriptors, value(all, "process_open_fds"))
		p.memory = max(p.memory, value(all, "process_resident_memory_bytes"))
		if *dayRate > 0 && time.Since(began) > time.Duration(float64(*dayEvents)/float64(*dayRate)*5)*time.Second+time.Minute {
			t.Fatalf("after %v only %d of %d events are indexed", time.Since(began), cursor, *dayEvents)
		}
	}
	took := time.Since(began)
	cancel()
	watching.Wait()
	for i, p := range parts {
		t.Logf("third %d: at most %.0f goroutines, %.0f descriptors, %.0f MiB", i+1, p.goroutines, p.descriptors, p.memory/(1<<20))
	}
	t.Logf("%d events in %v, %d queries, %d changes reported", *dayEvents, took.Round(time.Second), queries, changes)
	middle, last := parts[1], parts[2]
	if last.goroutines > middle.goroutines+20 || last.descriptors > middle.descriptors+100 || last.memory > 2*memory {
		t.Errorf("it grows: from %+v in the middle to %+v", middle, last)
	}
	if queries < 10 || changes == 0 {
		t.Errorf("%d queries and %d changes", queries, changes)
	}
	if _, log := d.stop(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log has errors:\n%.2000s", log)
	}
	verifyNetwork(t, store, network, 0)
}

// subscribeUntil subscribes to a set by server-sent events, and counts the changes until ctx ends.
func subscribeUntil(ctx context.Context, t *testing.T, api, set string) (changes int64) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/xrpc/blue.skein.graph.subscribe?set="+url.QueryEscape(set), nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			changes++
		}
	}
	if ctx.Err() == nil {
		t.Errorf("the subscription ended: %v", lines.Err())
	}
	return changes
}
