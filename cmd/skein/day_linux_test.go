package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
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
	dayRate   = flag.Int("day.rate", 10_000, "events per second of TestDay; 0: as many as are indexed")
)

// usage is what a daemon uses at one moment.
type usage struct{ goroutines, descriptors, memory int }

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
	changes := 0
	watching.Go(func() { watch(ctx, http.DefaultClient, d.api, popular(n), func() { changes++ }) })

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
		cursor = d.cursor()
		p := &parts[min(cursor*3 / *dayEvents, 2)]
		p.goroutines = max(p.goroutines, d.count("go_goroutines"))
		p.descriptors = max(p.descriptors, d.count("process_open_fds"))
		p.memory = max(p.memory, d.count("process_resident_memory_bytes"))
		if *dayRate > 0 && time.Since(began) > time.Duration(float64(*dayEvents)/float64(*dayRate)*5)*time.Second+time.Minute {
			t.Fatalf("after %v only %d of %d events are indexed", time.Since(began), cursor, *dayEvents)
		}
	}
	took := time.Since(began)
	cancel()
	watching.Wait()
	for i, p := range parts {
		t.Logf("third %d: at most %d goroutines, %d descriptors, %d MiB", i+1, p.goroutines, p.descriptors, p.memory>>20)
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
