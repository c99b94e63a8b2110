package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/kvtest"
)

// balancer sends queries to the nodes that /readyz says are ready, as a load balancer does.
type balancer struct {
	t     *testing.T
	mu    sync.Mutex // guards nodes
	nodes []*daemon
	ready map[*daemon]bool

	answered, failed atomic.Int64
}

// poll asks the nodes whether they are ready, until quit is closed.
func (b *balancer) poll(quit <-chan struct{}) {
	client := http.Client{Timeout: 2 * time.Second}
	for {
		b.mu.Lock()
		nodes := append([]*daemon(nil), b.nodes...)
		b.mu.Unlock()
		for _, d := range nodes {
			resp, err := client.Get(d.admin + "/readyz")
			ok := err == nil && resp.StatusCode == http.StatusOK
			if err == nil {
				_ = resp.Body.Close()
			}
			b.mu.Lock()
			b.ready[d] = ok
			b.mu.Unlock()
		}
		select {
		case <-quit:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// send sends queries in turns, until quit is closed. Any answer but 200 is a failure.
func (b *balancer) send(quit <-chan struct{}) {
	client := http.Client{Timeout: 10 * time.Second}
	for turn := 0; ; turn++ {
		select {
		case <-quit:
			return
		default:
		}
		b.mu.Lock()
		var ready []*daemon
		for _, d := range b.nodes {
			if b.ready[d] {
				ready = append(ready, d)
			}
		}
		b.mu.Unlock()
		if len(ready) == 0 {
			<-time.After(time.Millisecond)
			continue
		}
		resp, err := client.Get(ready[turn%len(ready)].api + "/xrpc/blue.skein.graph.query?set=followers(" + known + ")")
		if err != nil {
			b.t.Logf("a query failed: %v", err)
			b.failed.Add(1)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.t.Logf("a query failed: %s", resp.Status)
			b.failed.Add(1)
			continue
		}
		b.answered.Add(1)
	}
}

// restartEach restarts the nodes one after the other beside queries. None may fail.
func restartEach(t *testing.T, start []func() *daemon) {
	t.Helper()
	b := &balancer{t: t, ready: map[*daemon]bool{}}
	for _, s := range start {
		b.nodes = append(b.nodes, s())
	}
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { b.poll(quit) })
	for range 4 {
		running.Go(func() { b.send(quit) })
	}
	defer func() { close(quit); running.Wait() }()
	for i, s := range start {
		was := b.answered.Load()
		eventually(t, 30*time.Second, "queries are answered", func() bool { return b.answered.Load() > was+50 })
		old := b.nodes[i]
		took, log := old.stop()
		if took < time.Second || !strings.Contains(log, "draining") || !strings.Contains(log, "stopped") {
			t.Errorf("node %d ended after %v:\n%s", i, took, log)
		}
		fresh := s()
		b.mu.Lock()
		b.nodes[i] = fresh
		b.mu.Unlock()
		eventually(t, 30*time.Second, "the new node is ready", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.ready[fresh] })
	}
	if n := b.failed.Load(); n > 0 {
		t.Errorf("%d queries failed, %d were answered", n, b.answered.Load())
	}
	t.Logf("%d queries answered, none failed", b.answered.Load())
}

// With --drain, nodes behind a load balancer that follows /readyz are restarted without a failed
// query. A second SIGTERM ends the wait.
func TestDrain(t *testing.T) {
	t.Parallel()
	var start []func() *daemon
	for range 2 {
		store := replayed(t)
		start = append(start, func() *daemon { return serveDaemon(t, nil, "--store", store, "--consume=false", "--drain", "1s") })
	}
	restartEach(t, start)

	store := filepath.Join(t.TempDir(), "store")
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", store, "--drain", "1h")
	d.signal(syscall.SIGTERM)
	eventually(t, 10*time.Second, "the node is not ready", func() bool {
		code, body := askAt(t, d.admin+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	})
	resp, err := http.Get(d.api + "/xrpc/blue.skein.graph.getStats")
	if err != nil || resp.StatusCode != http.StatusOK || !resp.Close || resp.Body.Close() != nil {
		t.Errorf("while it drains: %+v %v", resp, err)
	}
	if took, _ := d.stop(); took > 10*time.Second {
		t.Errorf("after a second SIGTERM, stopping took %v", took)
	}
}

// Query nodes on FoundationDB are restarted one after the other beside queries, and none fails.
func TestRollingRestart(t *testing.T) {
	if !fdbkv.Built {
		t.Skip("built without FoundationDB: go test -tags fdb")
	}
	c := kvtest.Start(t)
	defer func() {
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	}()
	store := "fdb://" + c.File + "?prefix=rolling"
	run(t, 0, "", "replay", "--frames", plainPDS, "--store", store)
	node := func() *daemon { return serveDaemon(t, nil, "--store", store, "--consume=false", "--drain", "1s") }
	restartEach(t, []func() *daemon{node, node, node})
}
