package main

import (
	"bufio"
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// from returns an HTTP client that connects from a loopback address: to the daemon, another client.
func from(address string, connections int) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}}
}

// One stranger opens a thousand connections and sends the most expensive queries and subscriptions
// that the limits allow. Other clients' small queries, their subscriptions, and indexing go on. At
// full size the stranger shares two cores with the daemon, the relay and the other clients.
func TestAbuseStranger(t *testing.T) {
	events, rate, connections, quiet := harness.Size(20_000, 12_000_000), harness.Size(500, 10_000), harness.Size(60, 1000), harness.Size(1, 20)
	const accounts = 1_000_000
	network := simulated.Options{Accounts: accounts}
	store := filepath.Join(t.TempDir(), "store")
	address, endPast := simulate(t, "", relay.Options{Network: network, Events: int64(events)})
	flags := []string{"--store", store, "--relay", address, "--repair=false"}
	d := serveDaemon(t, nil, append(flags, "--cursor", "0")...)
	d.indexes(events)
	at, err := strconv.ParseFloat(d.metric("skein_consumer_last_event_timestamp_seconds"), 64)
	must(t, err)
	d.stop()
	endPast()
	simulate(t, strings.TrimPrefix(address, "ws://"), relay.Options{Network: network, Rate: float64(rate), From: int64(events), FromTime: time.UnixMilli(int64(math.Round(at * 1000)))})
	d = serveDaemon(t, nil, flags...)

	n := simulated.New(simulated.Options{Seed: 1, Accounts: accounts})
	did := func(i int) string { return string(n.AppendDID(nil, i)) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()

	// A client that watches a busy set, and one that asks small questions.
	bystander := from("127.0.0.1", 4)
	var lastChange, longest atomic.Int64
	lastChange.Store(time.Now().UnixNano())
	running.Go(func() {
		watch(ctx, bystander, d.api, popular(n), func() {
			now := time.Now().UnixNano()
			longest.Store(max(longest.Load(), now-lastChange.Swap(now)))
		})
	})
	measure := func(most time.Duration) (p99 time.Duration, indexed float64) {
		rng := rand.New(rand.NewPCG(1, uint64(most)))
		began, start := d.cursor(), time.Now()
		var took []time.Duration
		for time.Since(start) < most {
			begin := time.Now()
			if code, err := fetch(ctx, bystander, d.api+"/xrpc/blue.skein.graph.query?limit=50&set=follows("+did(rng.IntN(accounts))+")"); code != http.StatusOK {
				t.Fatalf("another client's query: %d %v", code, err)
			}
			took = append(took, time.Since(begin))
			<-time.After(10 * time.Millisecond)
		}
		indexed = float64(d.cursor()-began) / time.Since(start).Seconds()
		slices.Sort(took)
		return took[len(took)*99/100], indexed
	}
	d.indexes(events + 1)
	before, alone := measure(time.Duration(quiet) * time.Second)

	stranger := from("127.0.0.2", connections)
	var sent, refused atomic.Int64
	for i := range connections {
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		running.Go(func() {
			for ctx.Err() == nil {
				some, stop := context.WithTimeout(ctx, 5*time.Second)
				sent.Add(1)
				attack := expensive(n, rng)
				switch code, _ := fetch(some, stranger, d.api+"/xrpc/blue.skein.graph."+attack); code {
				case http.StatusTooManyRequests, http.StatusServiceUnavailable:
					refused.Add(1)
				case 0, http.StatusOK:
				default:
					t.Errorf("the attack is not what it should be: %d for %s", code, attack)
				}
				stop()
			}
		})
	}
	eventually(t, time.Minute, "the stranger attacks", func() bool { return sent.Load() > int64(connections) })
	longest.Store(0)
	during, beside := measure(time.Duration(quiet) * time.Second)
	silent := time.Duration(longest.Load())
	cancel()
	running.Wait()
	harness.Figure(t, "others' small queries, p99", "%v; %v without the stranger", during.Round(100*time.Microsecond), before.Round(100*time.Microsecond))
	harness.Figure(t, "events indexed per second", "%.0f; %.0f without the stranger", beside, alone)
	harness.Figure(t, "longest silence of another's busy subscription", "%v", silent.Round(time.Millisecond))
	harness.Figure(t, "the stranger's requests", "%d, %d of them refused", sent.Load(), refused.Load())
	if beside <= 0 || sent.Load() == 0 {
		t.Errorf("indexing stopped (%v events/s), or there was no attack (%d requests)", beside, sent.Load())
	}
	if harness.Full() && (during > 50*time.Millisecond || beside < 0.9*alone || silent > 2*time.Second) {
		t.Error("a figure of docs/trust.md is exceeded")
	}
	d.stop()
}

// expensive returns a request that takes as much as the limits allow.
func expensive(n *simulated.Network, rng *rand.Rand) string {
	followers := func(celebrities int) string {
		all := make([]string, celebrities)
		for i := range all {
			all[i] = "followers(" + string(n.AppendDID(nil, rng.IntN(40)*1000)) + ")"
		}
		return strings.Join(all, ",")
	}
	switch rng.IntN(4) {
	case 0:
		return "query?limit=1000&set=union(" + followers(16) + ")"
	case 1:
		return "query?limit=1000&set=except(union(" + followers(2) + "),intersect(" + followers(2) + "))"
	case 2:
		return "rank?via=follows&by=share&of=" + followers(1)
	}
	return "subscribe?set=union(" + followers(2) + ")"
}

// popular returns the set of the followers of popular accounts.
func popular(n *simulated.Network) string {
	all := make([]string, 8)
	for i := range all {
		all[i] = "followers(" + string(n.AppendDID(nil, i*1000)) + ")"
	}
	return "union(" + strings.Join(all, ",") + ")"
}

// watch subscribes to a set by server-sent events until ctx ends, and calls fn for each change.
func watch(ctx context.Context, c *http.Client, api, set string, fn func()) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/xrpc/blue.skein.graph.subscribe?set="+url.QueryEscape(set), nil)
		if err != nil {
			return
		}
		resp, err := c.Do(req)
		if err != nil {
			<-time.After(100 * time.Millisecond)
			continue
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data:") {
				fn()
			}
		}
		_ = resp.Body.Close()
	}
}
