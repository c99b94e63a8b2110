package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
)

// A node that starts before its writer waits for it. While the cluster stands still, queries
// get StoreUnavailable, and the node is not ready and logs that once.
func TestClusterAway(t *testing.T) {
	c := cluster(t, 1, "single")
	stood := harness.NewFault(t, "FoundationDB cluster that stands still for 12s", 1)
	store := fmt.Sprintf("fdb://%s?prefix=away", c.File)
	relay := playRecording(t, 120)

	stopped := launch(t, nil, "--store", store, "--consume=false")
	node := launch(t, nil, "--store", store, "--consume=false")
	for _, d := range []*daemon{stopped, node} {
		d.logs("waiting for a writer to create the store")
	}
	if took, _ := stopped.stop(); took > 5*time.Second {
		t.Errorf("a waiting node ended %v after the signal", took)
	}
	writer := serveDaemon(t, nil, "--store", store, "--relay", relay, "--cursor", "0")
	node.await(10 * time.Second)

	must(t, c.Pause())
	paused := time.Now()
	question := "/xrpc/blue.skein.graph.query?set=followers(did:web:a.example)"
	for _, d := range []*daemon{node, writer} { // each notices separately, and then answers at once
		eventually(t, 12*time.Second, "a query is answered StoreUnavailable", func() bool {
			code, body := askAt(t, d.api+question)
			return code == http.StatusServiceUnavailable && strings.Contains(body, "StoreUnavailable")
		})
		t.Logf("noticed after %v", time.Since(paused))
		asked := time.Now()
		if code, body := askAt(t, d.api+question); code != 503 || time.Since(asked) > time.Second {
			t.Errorf("a query during the stall: %d %s after %v", code, body, time.Since(asked))
		}
		if code, body := askAt(t, d.admin+"/readyz"); code != 503 || !strings.Contains(body, "has not answered for") {
			t.Errorf("/readyz: %d %s", code, body)
		}
		run(t, 1, "has not answered for", "health", "--admin", d.admin)
	}
	time.Sleep(time.Until(paused.Add(12 * time.Second)))
	must(t, c.Resume())
	stood.Happened()
	eventually(t, 15*time.Second, "queries are answered again", func() bool {
		code, _ := askAt(t, node.api+question)
		return code == http.StatusOK
	})
	for _, d := range []*daemon{node, writer} {
		s := d.log.String()
		if strings.Count(s, "the FoundationDB cluster does not answer") != 1 || strings.Count(s, "the FoundationDB cluster answers again") != 1 || strings.Contains(s, `"for":5000000000`) {
			t.Errorf("the log:\n%s", s)
		}
	}
	writer.stop()
	node.stop()
}

// A daemon that starts while its cluster is down waits for it. SIGTERM ends the wait.
func TestStartAwaitsTheCluster(t *testing.T) {
	c := cluster(t, 1, "single")
	store := fmt.Sprintf("fdb://%s?prefix=start", c.File)
	must(t, c.Pause())
	relay := playRecording(t, 120)
	d, stopped := launch(t, nil, "--store", store, "--relay", relay), launch(t, nil, "--store", store, "--relay", relay)
	for _, d := range []*daemon{d, stopped} {
		d.logs("waiting for the FoundationDB cluster")
	}
	stopped.signal(syscall.SIGTERM)
	<-stopped.read
	if !strings.Contains(stopped.log.String(), "stopped during the start") {
		t.Errorf("the log:\n%s", stopped.log.String())
	}
	must(t, c.Resume())
	d.await(20 * time.Second)
	d.stop()
}
