package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/events"
	"github.com/bluesky-social/indigo/events/schedulers/parallel"
	"github.com/gorilla/websocket"
)

var (
	peersFor       = flag.Duration("peers.for", 15*time.Second, "how long BenchmarkPeers runs each consumer")
	peersJetstream = flag.String("peers.jetstream", "", "path of a Jetstream program (v2) for BenchmarkPeers to run as well")
)

// peerVariable makes the test binary run indigo's consumer.
const peerVariable = "SKEIN_TEST_PEER"

// indigoConsumer consumes a relay with indigo's consumer for -peers.for. It decodes and drops
// every event, and finally prints their number.
func indigoConsumer(address string) error {
	conn, resp, err := websocket.DefaultDialer.Dial("ws://"+address+"/xrpc/com.atproto.sync.subscribeRepos?cursor=0", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var n atomic.Int64
	count := func(context.Context, *events.XRPCStreamEvent) error { n.Add(1); return nil }
	ctx, stop := context.WithTimeout(context.Background(), *peersFor)
	defer stop()
	context.AfterFunc(ctx, func() { fmt.Println(n.Load()); os.Exit(0) })
	return events.HandleRepoStream(ctx, conn, parallel.NewScheduler(16, 1000, "skein", count), slog.New(slog.DiscardHandler))
}

// BenchmarkPeers feeds the same stream to skein and to its peers, as fast as they can take it,
// each from its own relay process on the same cores. skein serve indexes it; indigo's consumer
// decodes the messages' envelopes and drops them. With -peers.jetstream, skein and Jetstream
// consume a stream with full proofs; Jetstream checks every signature and archives all records.
// The relay then spends most of the time on signing, so compare cpu-s/million.
//
//	go test ./cmd/skein -run xxx -bench Peers -benchtime 1x
func BenchmarkPeers(b *testing.B) {
	b.Run("skein", func(b *testing.B) { benchmarkServe(b) })
	b.Run("indigo", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "xxx", "-peers.for", peersFor.String())
			cmd.Env = append(os.Environ(), peerVariable+"="+startMadeUp(b))
			out, err := cmd.Output()
			if err != nil {
				b.Fatal(err)
			}
			var n int64
			if _, err := fmt.Sscan(strings.TrimSpace(string(out)), &n); err != nil {
				b.Fatalf("%q: %v", out, err)
			}
			reportPeer(b, cmd, n)
		}
	})
	if *peersJetstream == "" {
		return
	}
	whole := []string{"--proofs", "full", "--accounts", "4096"}
	b.Run("proofs/skein", func(b *testing.B) { benchmarkServe(b, whole...) })
	b.Run("proofs/jetstream", func(b *testing.B) {
		for b.Loop() {
			relay := "http://" + startMadeUp(b, whole...)
			const metrics = "127.0.0.1:32179"
			// It starts with a backfill, here of one account that does not exist.
			cmd := exec.CommandContext(b.Context(), *peersJetstream, "serve", "--relay-url", relay, "--plc-url", relay,
				"--data-dir", b.TempDir(), "--addr", "127.0.0.1:0", "--debug-addr", metrics, "--backfill-repos", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			time.Sleep(*peersFor)
			n := scrape(b, "http://"+metrics+"/metrics", "jetstream_livestream_events_received_total")
			if bad := scrape(b, "http://"+metrics+"/metrics", "jetstream_livestream_decode_errors_total"); bad > n/100 {
				b.Errorf("%d events, %d decode errors", n, bad)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				b.Fatal(err)
			}
			_ = cmd.Wait()
			reportPeer(b, cmd, n)
		}
	})
}

// benchmarkServe measures skein serve on the stream of a relay.
func benchmarkServe(b *testing.B, relayArgs ...string) {
	for b.Loop() {
		relay := startMadeUp(b, relayArgs...)
		cmd := exec.CommandContext(b.Context(), binary, "serve", "--relay", "ws://"+relay, "--store", b.TempDir(), "--cursor", "0",
			"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-level", "info")
		logs, err := cmd.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		api := ""
		for lines := bufio.NewScanner(logs); api == "" && lines.Scan(); {
			var m struct {
				API string `json:"api"`
			}
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				api = m.API
			}
		}
		time.Sleep(*peersFor)
		var stats struct {
			Cursor int64 `json:"cursor"`
		}
		resp, err := http.Get(api + "/xrpc/blue.skein.graph.getStats")
		if err != nil {
			b.Fatal(err)
		}
		if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil || resp.Body.Close() != nil {
			b.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		_ = cmd.Wait()
		reportPeer(b, cmd, stats.Cursor)
	}
}

// scrape returns a counter's sum over its labels, 0 if it is missing.
func scrape(b *testing.B, url, name string) (n int64) {
	b.Helper()
	resp, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			b.Fatal(lines.Text())
		}
		n += int64(v)
	}
	return n
}

// startMadeUp starts a relay of a made-up network, and returns its address.
func startMadeUp(b *testing.B, args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), simulator, append([]string{"relay", "--rate", "0", "--hold", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "ws://")
	if err != nil || !ok {
		b.Fatal(line, err)
	}
	return address
}

func reportPeer(b *testing.B, cmd *exec.Cmd, n int64) {
	b.Helper()
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok || n == 0 {
		b.Fatal(n)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	b.ReportMetric(float64(n)/peersFor.Seconds(), "events/s")
	b.ReportMetric(cpu.Seconds()/float64(n)*1e6, "cpu-s/million")
	b.ReportMetric(float64(usage.Maxrss)/1024, "peak-MiB")
}
