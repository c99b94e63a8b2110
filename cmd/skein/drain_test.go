package main

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// restartEach restarts nodes one after the other beside queries, which a load balancer sends to those that /readyz says are
// ready. None may fail.
func restartEach(t *testing.T, start []func() *daemon) {
	t.Helper()
	nodes := make([]atomic.Pointer[daemon], len(start))
	for i, s := range start {
		nodes[i].Store(s())
	}
	var answered, failed atomic.Int64
	ctx, quit := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer func() { quit(); sending.Wait() }()
	for range 8 {
		sending.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				d := nodes[turn%len(nodes)].Load()
				code, _ := fetch(context.Background(), http.DefaultClient, d.admin+"/readyz")
				<-time.After(20 * time.Millisecond) // what a load balancer knows is old
				if code != http.StatusOK {
					continue
				}
				if code, err := fetch(context.Background(), http.DefaultClient, d.api+"/xrpc/blue.skein.graph.query?set=followers("+known+")"); code != http.StatusOK {
					t.Logf("a query failed: %d %v", code, err)
					failed.Add(1)
				}
				answered.Add(1)
			}
		})
	}
	for i, s := range start {
		was := answered.Load()
		eventually(t, 30*time.Second, "queries are answered", func() bool { return answered.Load() > was+20 })
		took, log := nodes[i].Load().stop()
		if took < time.Second || !strings.Contains(log, "draining") || !strings.Contains(log, "stopped") {
			t.Errorf("node %d ended after %v:\n%s", i, took, log)
		}
		nodes[i].Store(s())
	}
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d queries failed", n, answered.Load())
	}
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
	if ready := d.metric("skein_ready"); err != nil || resp.StatusCode != http.StatusOK || !resp.Close || resp.Body.Close() != nil || ready != "1" {
		t.Errorf("while it drains: %+v %v, skein_ready %s", resp, err, ready) // SkeinNotReady would page
	}
	if took, _ := d.stop(); took > 10*time.Second {
		t.Errorf("after a second SIGTERM, stopping took %v", took)
	}
}

// Query nodes on FoundationDB are restarted one after the other beside queries, and none fails.
func TestRollingRestart(t *testing.T) {
	c := cluster(t, 1, "single")
	store := "fdb://" + c.File + "?prefix=rolling"
	run(t, 0, "", "replay", "--frames", plainPDS, "--store", store)
	node := func() *daemon { return serveDaemon(t, nil, "--store", store, "--consume=false", "--drain", "1s") }
	restartEach(t, []func() *daemon{node, node, node})
}
