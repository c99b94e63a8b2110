package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
	ports, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ports.Addr().String()
	if err := ports.Close(); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "store")
	_, endPast := simulate(t, address, relay.Options{Network: network, Events: int64(events)})
	flags := []string{"--store", store, "--relay", "ws://" + address, "--repair=false"}
	d := serveDaemon(t, nil, append(flags, "--cursor", "0")...)
	cursor := func() int { return d.cursor() }
	eventually(t, 20*time.Minute, "the past is indexed", func() bool { return cursor() >= events })
	at, err := strconv.ParseFloat(d.metric("skein_consumer_last_event_timestamp_seconds"), 64)
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	endPast()
	simulate(t, address, relay.Options{Network: network, Rate: float64(rate), From: int64(events), FromTime: time.UnixMilli(int64(math.Round(at * 1000)))})
	d = serveDaemon(t, nil, flags...)

	n := simulated.New(simulated.Options{Seed: 1, Accounts: accounts})
	did := func(i int) string { return string(n.AppendDID(nil, i)) }
	celebrity := func(rng *rand.Rand) string { return did(rng.IntN(40) * 1000) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()

	// A client that watches a busy set, and one that asks small questions.
	bystander := from("127.0.0.1", 4)
	var lastChange, longest atomic.Int64
	lastChange.Store(time.Now().UnixNano())
	popular := make([]string, 8)
	for i := range popular {
		popular[i] = fmt.Sprintf("followers(%s)", did(i*1000))
	}
	running.Go(func() { watch(ctx, bystander, d.api, "union("+strings.Join(popular, ",")+")", &lastChange, &longest) })
	measure := func(most time.Duration) (p99 time.Duration, indexed float64) {
		rng := rand.New(rand.NewPCG(1, uint64(most)))
		began, start := cursor(), time.Now()
		var took []time.Duration
		for time.Since(start) < most {
			begin := time.Now()
			if err := askSmall(ctx, bystander, d.api, fmt.Sprintf("follows(%s)", did(rng.IntN(accounts)))); err != nil {
				t.Fatalf("another client's query: %v", err)
			}
			took = append(took, time.Since(begin))
			<-time.After(10 * time.Millisecond)
		}
		indexed = float64(cursor()-began) / time.Since(start).Seconds()
		slices.Sort(took)
		return took[len(took)*99/100], indexed
	}
	eventually(t, time.Minute, "the stream goes on", func() bool { return cursor() > events })
	before, alone := measure(time.Duration(quiet) * time.Second)

	stranger := from("127.0.0.2", connections)
	var sent, refused atomic.Int64
	for i := range connections {
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		running.Go(func() {
			for ctx.Err() == nil {
				method, set := "query", ""
				switch rng.IntN(4) {
				case 0:
					parts := make([]string, 16)
					for i := range parts {
						parts[i] = fmt.Sprintf("followers(%s)", celebrity(rng))
					}
					set = "union(" + strings.Join(parts, ",") + ")"
				case 1:
					set = fmt.Sprintf("except(union(followers(%s),followers(%s)),intersect(followers(%s),followers(%s)))", celebrity(rng), celebrity(rng), celebrity(rng), celebrity(rng))
				case 2:
					method = "rank"
				case 3:
					method, set = "subscribe", fmt.Sprintf("union(followers(%s),followers(%s))", celebrity(rng), celebrity(rng))
				}
				address := d.api + "/xrpc/blue.skein.graph." + method + "?set=" + url.QueryEscape(set)
				if method == "query" {
					address += "&limit=1000"
				}
				if method == "rank" {
					address = d.api + "/xrpc/blue.skein.graph.rank?via=follows&by=share&of=" + url.QueryEscape(fmt.Sprintf("followers(%s)", celebrity(rng)))
				}
				some, stop := context.WithTimeout(ctx, 5*time.Second)
				req, err := http.NewRequestWithContext(some, http.MethodGet, address, nil)
				if err != nil {
					stop()
					return
				}
				sent.Add(1)
				if resp, err := stranger.Do(req); err == nil {
					switch {
					case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
						refused.Add(1)
					case resp.StatusCode != http.StatusOK:
						t.Errorf("the attack is not what it should be: %s for %s", resp.Status, address)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
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

// askSmall sends one small query.
func askSmall(ctx context.Context, c *http.Client, api, set string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/xrpc/blue.skein.graph.query?limit=50&set="+url.QueryEscape(set), nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return err
}

// watch subscribes to a set, and notes the longest time between two messages.
func watch(ctx context.Context, c *http.Client, api, set string, last, longest *atomic.Int64) {
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
			if !strings.HasPrefix(lines.Text(), "data:") {
				continue
			}
			now := time.Now().UnixNano()
			if gap := now - last.Swap(now); gap > longest.Load() {
				longest.Store(gap)
			}
		}
		_ = resp.Body.Close()
	}
}
