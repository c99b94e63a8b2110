package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/testing/collector"
)

// A daemon traces its queries, batches and fetched repos; their numbers are those of the
// stream. A collector that does not answer stops neither the start nor the end.
func TestTraces(t *testing.T) {
	c := collector.Start(t)
	n := startNetwork(t, "--from", "2000", "--rate", "2000", "--events", "4000", "--hosts", "2", "--only-plc")
	d := serveDaemon(t, nil, n.flags("--store", filepath.Join(t.TempDir(), "store"), "--backfill", "repos", "--trace-endpoint", c.URL, "--trace-share", "1")...)
	const method = "blue.skein.graph.query"
	if code, body := askAt(t, d.api+"/xrpc/"+method+"?set=follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"); code != http.StatusOK {
		t.Fatal(body)
	}
	if code, body := askAt(t, d.api+"/xrpc/"+method+"?set=nonsense"); code != http.StatusBadRequest {
		t.Fatal(body)
	}
	eventually(t, 30*time.Second, "traces of fetched repos, and of new events", func() bool {
		last := int64(0)
		for _, s := range c.Spans("apply a batch") {
			if seq, ok := collector.Attributes(s)["skein.last_seq"].(int64); ok {
				last = max(last, seq)
			}
		}
		return last > 2000 && len(c.Spans("fetch a repo")) > 0
	})
	d.stop()

	batches := map[string]bool{}
	for _, s := range c.Spans("apply a batch") {
		batches[string(s.GetSpanId())] = true
	}
	writes := 0
	for _, s := range c.Spans("write") {
		if !batches[string(s.GetParentSpanId())] {
			t.Fatalf("a write of no batch: %v", s)
		}
		writes++
	}
	if writes == 0 {
		t.Error("no write is traced")
	}
	for _, s := range c.Spans("fetch a repo") {
		if a := collector.Attributes(s); a["server.address"] == "" || !strings.HasPrefix(fmt.Sprint(a["skein.did"]), "did:plc:") {
			t.Fatalf("%v", s)
		}
	}
	queries := c.Spans(method)
	if len(queries) != 2 {
		t.Fatalf("%d queries are traced, not 2", len(queries))
	}
	good, bad := collector.Attributes(queries[0]), collector.Attributes(queries[1])
	if good["http.response.status_code"] != int64(200) || !strings.Contains(fmt.Sprint(good["url.query"]), "follows") || len(queries[0].GetEvents()) != 1 {
		t.Errorf("%v", queries[0])
	}
	if bad["http.response.status_code"] != int64(400) || bad["error.type"] != "InvalidRequest" {
		t.Errorf("%v", queries[1])
	}

	d = serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "store"), "--relay", "ws://127.0.0.1:1", "--trace-endpoint", "http://127.0.0.1:1")
	if took, _ := d.stop(); took > 10*time.Second {
		t.Errorf("without a collector, stopping took %v", took)
	}
	for _, args := range [][]string{{"--trace-endpoint", "127.0.0.1:4318"}, {"--trace-endpoint", "http://127.0.0.1:4318", "--trace-share", "2"}, {"--trace-share", "0.5"}} {
		if code, _, errs := skein(t, append([]string{"serve", "--store", filepath.Join(t.TempDir(), "store")}, args...)...); code != 64 || !strings.Contains(errs, "--trace-") {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
}
