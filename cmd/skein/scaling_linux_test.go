package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/internal/sim/load"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

var (
	scalingEvents  = flag.Int64("scaling.events", 0, "events that TestScaling indexes in each row of its table; 0: skip it")
	scalingServers = flag.Int("scaling.servers", 1, "FoundationDB servers of TestScaling; three keep two copies of the data")
)

// TestScaling measures 1, 2 and 4 writers, and then 1, 2 and 4 query nodes, of one cluster, and prints what each event
// and each answer costs the skein processes and the cluster. All run on this machine: what an event costs as writers
// are added says how far they scale on machines of their own.
//
//	go test -tags fdb ./cmd/skein -run TestScaling -scaling.events 200000 -v -timeout 30m
func TestScaling(t *testing.T) {
	if *scalingEvents == 0 {
		t.Skip("measures, with -scaling.events")
	}
	redundancy := "single"
	if *scalingServers >= 3 {
		redundancy = "double"
	}
	c := cluster(t, *scalingServers, redundancy)
	network := simulated.Options{Seed: 1, Accounts: 100_000}
	store := func(writers int) string { return fmt.Sprintf("fdb://%s?prefix=w%d", c.File, writers) }
	cluster := func() (cpu time.Duration) {
		for _, pid := range c.Processes() {
			used, _ := load.UsageOf(strconv.Itoa(pid))
			cpu += used
		}
		return cpu
	}
	used := func(all []*daemon) (cpu time.Duration) {
		for _, d := range all {
			one, _ := load.UsageOf(strconv.Itoa(d.cmd.Process.Pid))
			cpu += one
		}
		return cpu
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%d servers, %s, %d events\n\n| writers | events/s | CPU µs an event: all writers | the cluster |\n|--:|--:|--:|--:|\n", *scalingServers, redundancy, *scalingEvents)
	for _, n := range []int{1, 2, 4} {
		relay, _ := simulate(t, "", relay.Options{Network: network, Events: *scalingEvents})
		before := cluster()
		var writers []*daemon
		for range n {
			writers = append(writers, serveDaemon(t, nil, "--store", store(n), "--relay", relay, "--cursor", "0", "--repair=false"))
		}
		began := time.Now()
		eventually(t, 20*time.Minute, "all events are indexed", func() bool {
			st, err := writers[0].stats()
			return err == nil && st.Cursor >= *scalingEvents
		})
		took, events := time.Since(began).Seconds(), float64(*scalingEvents)
		fmt.Fprintf(&table, "| %d | %.0f | %.1f | %.1f |\n", n, events/took, used(writers).Seconds()/events*1e6, (cluster()-before).Seconds()/events*1e6)
		for _, w := range writers {
			w.stop()
		}
	}
	fmt.Fprint(&table, "\n| query nodes | answers/s, 64 clients | p50 / p99, ms | CPU µs an answer: all nodes | the cluster |\n|--:|--:|--:|--:|--:|\n")
	net := simulated.New(network)
	for _, m := range []int{1, 2, 4} {
		var nodes []*daemon
		for range m {
			nodes = append(nodes, serveDaemon(t, nil, "--store", store(1), "--consume=false"))
		}
		before, own := cluster(), used(nodes)
		const lasts = 15 * time.Second
		times := askNodes(t, net, nodes, lasts)
		answers := float64(len(times))
		fmt.Fprintf(&table, "| %d | %.0f | %.1f / %.1f | %.0f | %.0f |\n", m, answers/lasts.Seconds(),
			times[len(times)/2].Seconds()*1e3, times[len(times)*99/100].Seconds()*1e3, (used(nodes)-own).Seconds()/answers*1e6, (cluster()-before).Seconds()/answers*1e6)
		for _, d := range nodes {
			d.stop()
		}
	}
	t.Log(table.String())
}

// askNodes lets 64 clients ask nodes, in turn, whom two random accounts both follow, and returns how long the answers
// took, ascending.
func askNodes(t *testing.T, net *simulated.Network, nodes []*daemon, lasts time.Duration) (times []time.Duration) {
	t.Helper()
	const clients = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: time.Minute}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 25))
			did := func() string { return string(net.AppendDID(nil, rng.IntN(net.Accounts()))) }
			for end := time.Now().Add(lasts); time.Now().Before(end); {
				set := fmt.Sprintf("intersect(follows(%s),follows(%s))", did(), did())
				began := time.Now()
				resp, err := client.Get(nodes[i%len(nodes)].api + "/xrpc/blue.skein.graph.query?" + url.Values{"set": {set}, "limit": {"20"}}.Encode())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s %v", set, resp.Status, err)
					return
				}
				mu.Lock()
				times = append(times, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(times) == 0 {
		t.Fatal("no answers")
	}
	slices.Sort(times)
	return times
}
