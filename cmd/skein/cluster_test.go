package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/oracle"
)

// The long loop:
// go test -tags fdb ./cmd/skein -run TestCluster -cluster.rounds 100 -timeout 2h
var clusterRounds = flag.Int("cluster.rounds", 1, "how often TestCluster indexes the recorded stream")

// Two writers and a query node share a cluster. The writers are killed, and the cluster goes down.
// The answers end up true, and the writers never conflict on the contents of a set.
func TestCluster(t *testing.T) {
	if !fdbkv.Built {
		t.Skip("built without FoundationDB; use go test -tags fdb")
	}
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	c := kvtest.Start(t)
	defer func() {
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	}()
	rounds := max(*clusterRounds, harness.Times(1))
	down := harness.NewFault(t, "FoundationDB cluster down and back, beside killed writers", rounds)
	for round := range rounds {
		seed := rand.Uint64()
		t.Logf("round %d, seed %d", round, seed)
		clusterRound(t, c, tr, fmt.Sprintf("fdb://%s?prefix=round%d", c.File, round), rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			return
		}
		down.Happened()
	}
}

// Three servers keep two copies of the data. Each is killed in turn while two writers index: without a restart of
// theirs, and with two servers for a while, the writers and the query node go on, and the answers end up true.
func TestClusterLosesAServer(t *testing.T) {
	if !fdbkv.Built {
		t.Skip("built without FoundationDB; use go test -tags fdb")
	}
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	const servers = 3
	c := kvtest.StartServers(t, servers, "double")
	defer func() {
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	}()
	lost := harness.NewFault(t, "one of three FoundationDB servers lost", servers)
	store := fmt.Sprintf("fdb://%s?prefix=lost", c.File)
	relay := startSimulator(t, plainPDS, 14) // takes two and a half minutes
	var writers []*daemon
	for i := range 2 {
		writers = append(writers, serveDaemon(t, nil, "--store", store, "--relay", relay, "--partition", fmt.Sprintf("%d/2", i), "--cursor", "0"))
	}
	node := serveDaemon(t, nil, "--store", store, "--consume=false")
	cursor := func() (seq int64) {
		var stats struct{ Cursor int64 }
		if err := oracle.Get(t.Context(), node.api+"/xrpc/blue.skein.graph.getStats", &stats); err != nil {
			return -1
		}
		return stats.Cursor
	}
	for i := range servers {
		if err := c.DownServer(i); err != nil {
			t.Fatal(err)
		}
		lost.Happened()
		began := time.Now()
		first := int64(-1) // what was committed before the loss may show up after it
		eventually(t, time.Minute, "two of three servers answer", func() bool { first = cursor(); return first >= 0 })
		if first == last {
			t.Fatalf("all events were indexed before server %d was lost", i)
		}
		eventually(t, time.Minute, "two of three servers index", func() bool { return cursor() > first })
		t.Logf("without server %d: events are indexed and answered after %v", i, time.Since(began).Round(time.Millisecond))
		if err := errors.Join(c.UpServer(i), c.Ready(), c.Whole()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, time.Minute, "all events are indexed", func() bool { return cursor() == last })
	for _, d := range []*daemon{node, writers[0]} {
		diffs, n, err := tr.Compare(t.Context(), d.api, 100)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Errorf("%d sets, %v, %q", n, err, diffs)
		}
	}
	for _, d := range append(writers, node) {
		d.stop()
	}
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("check: %s%s", out, errs)
	}
}

func clusterRound(t *testing.T, c *kvtest.Cluster, tr *oracle.Truth, store string, rng *rand.Rand) {
	relay := startSimulator(t, plainPDS, 120) // takes 18 s
	writers := make([]*daemon, 2)
	seen := map[string]string{}
	start := func(i int, args ...string) {
		args = append(args, "--store", store, "--relay", relay, "--partition", fmt.Sprintf("%d/2", i))
		writers[i] = serveDaemon(t, nil, args...)
	}
	start(0, "--cursor", "0")
	start(1, "--cursor", "0")
	node := serveDaemon(t, nil, "--store", store, "--consume=false")
	if code, _, errs := skein(t, "serve", "--store", store, "--relay", relay, "--partition", "1/4"); code != 1 || !strings.Contains(errs, "and it is alive") {
		t.Errorf("a second writer of the same share: exit %d, %s", code, errs)
	}
	pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	for i := range 5 {
		pause(2 * time.Second)
		if i == 2 {
			if err := c.Down(); err != nil {
				t.Fatal(err)
			}
			pause(3 * time.Second)
			if err := errors.Join(c.Up(), c.Ready()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		w := rng.IntN(2)
		if metric(t, writers[w], "skein_consumer_cursor") == "" {
			continue // it has committed nothing, so a kill would lose --cursor
		}
		notePermitted(t, writers[w], seen)
		if err := writers[w].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-writers[w].read
		start(w)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		var stats struct{ Cursor int64 }
		if err := oracle.Get(t.Context(), node.api+"/xrpc/blue.skein.graph.getStats", &stats); err == nil && stats.Cursor == last {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("cursor %d after a minute (%v)\n%s\n%s", stats.Cursor, err, writers[0].log.String(), writers[1].log.String())
		}
	}
	for _, d := range []*daemon{node, writers[0]} {
		diffs, n, err := tr.Compare(t.Context(), d.api, 100)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Errorf("%d sets, %v, %q", n, err, diffs)
		}
		diffs, n, err = tr.CompareMethods(t.Context(), d.api)
		if err != nil || len(diffs) > 0 || n == 0 {
			t.Errorf("%d answers, %v, %q", n, err, diffs)
		}
	}
	for _, w := range writers {
		notePermitted(t, w, seen)
		w.stop()
	}
	node.stop()
	t.Logf("conflicts that FoundationDB reported, by keyspace: %v", seen)
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("check: %s%s", out, errs)
	}
	if code, out, errs := skein(t, "stats", "--store", store); code != 0 || !regexp.MustCompile(`(?m)^accounts +30 \(`).MatchString(out) {
		t.Errorf("stats: %d %s%s", code, out, errs)
	}
}

// Two writers index the official PDS's stream on a cluster. In the middle, the commands that skein backup
// prints back it up, while the writers go on; those that skein restore prints restore it into an empty cluster.
// The restored store passes the check, and two writers go on from it to the truth.
func TestClusterBackup(t *testing.T) {
	if !fdbkv.Built {
		t.Skip("built without FoundationDB; use go test -tags fdb")
	}
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	_ = kvtest.Shell(t, "true") // skips the test if the tools are not installed
	var stores [2]string
	for i := range stores {
		c := kvtest.Start(t)
		t.Cleanup(func() {
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
		stores[i] = fmt.Sprintf("fdb://%s?prefix=a.b_c-1", c.File)
	}
	relay := startSimulator(t, plainPDS, 25) // takes 85 s; a backup takes 35
	writers := func(store string, args ...string) (all [2]*daemon) {
		for i := range all {
			all[i] = serveDaemon(t, nil, append([]string{"--store", store, "--relay", relay, "--repair=false", "--partition", fmt.Sprintf("%d/2", i)}, args...)...)
		}
		return all
	}
	target := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := func(line string) {
		cmd := kvtest.Shell(t, line)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	run := func(line string) (string, error) {
		out, err := kvtest.Shell(t, line).CombinedOutput()
		return string(out), err
	}

	w := writers(stores[0], "--cursor", "0")
	eventually(t, time.Minute, "some events are indexed", func() bool { return count(t, w[0], "skein_consumer_cursor") > 100 })
	code, out, errs := skein(t, "backup", "--admin", w[1].admin, target)
	lines := strings.Split(out, "\n")
	if code != 1 || len(lines) < 2 || !strings.Contains(errs, "Nothing is backed up yet") {
		t.Fatal(code, out, errs)
	}
	if code, same, _ := skein(t, "backup", "--store", stores[0], target); code != 1 || same != out {
		t.Errorf("the daemon's commands are %s, those for --store %s", out, same)
	}
	agent(lines[0])
	began := time.Now()
	if out, err := run(lines[1]); err != nil {
		t.Fatalf("%s: %v: %s", lines[1], err, out)
	}
	t.Logf("backed up in %v, when the cursor was %d", time.Since(began).Round(time.Millisecond), count(t, w[0], "skein_consumer_cursor"))
	for _, d := range w {
		d.stop()
	}

	code, out, errs = skein(t, "restore", "--store", stores[1], target)
	lines = strings.Split(out, "\n")
	remove := regexp.MustCompile(`fdbcli -C .*\\x02'`).FindString(errs)
	if code != 1 || len(lines) < 2 || remove == "" {
		t.Fatal(code, out, errs)
	}
	agent(lines[0])
	restored := func() {
		if out, err := run(lines[1]); err != nil {
			t.Fatalf("%s: %v: %s", lines[1], err, out)
		}
		if code, out, errs := skein(t, "check", "--store", stores[1]); code != 0 {
			t.Fatalf("check: %s%s", out, errs)
		}
	}
	restored()
	if out, err := run(lines[1]); err == nil {
		t.Errorf("restored over a store: %s", out)
	}
	if out, err := run(remove); err != nil {
		t.Fatalf("%s: %v: %s", remove, err, out)
	}
	if code, _, errs := skein(t, "check", "--store", stores[1]); code == 0 || !strings.Contains(errs, "no store") {
		t.Errorf("check of a removed store: %d %s", code, errs)
	}
	restored()
	node := serveDaemon(t, nil, "--store", stores[1], "--consume=false")
	var stats struct{ Cursor int64 }
	if err := oracle.Get(t.Context(), node.api+"/xrpc/blue.skein.graph.getStats", &stats); err != nil || stats.Cursor <= 100 || stats.Cursor >= last {
		t.Errorf("the restored cursor is %d (%v)", stats.Cursor, err)
	}
	node.stop()
	w = writers(stores[1])
	for _, d := range w {
		eventually(t, 2*time.Minute, "everything is indexed", func() bool { return count(t, d, "skein_consumer_cursor") == last })
	}
	for _, d := range w {
		diffs, n, err := tr.Compare(t.Context(), d.api, 100)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Errorf("%d sets, %v, %q", n, err, diffs)
		}
		d.stop()
	}
	if code, out, errs := skein(t, "check", "--store", stores[1]); code != 0 {
		t.Errorf("check: %s%s", out, errs)
	}
}

// last is the last seq of the recorded stream.
const last = 2116

// notePermitted records what a writer conflicted on. Only strings, which two writers may meet at
// the same time, and the rows of leases are permitted.
func notePermitted(t *testing.T, d *daemon, seen map[string]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`skein_store_conflicts_total\{keyspace="([^"]*)"\} (\S+)`).FindAllStringSubmatch(metrics(t, d), -1) {
		seen[m[1]] = m[2]
		if m[1] != "strings" && m[1] != "leases" {
			t.Errorf("%s conflicts on %s", m[2], m[1])
		}
	}
}

func metrics(t *testing.T, d *daemon) string {
	t.Helper()
	return adminText(t, d, "/metrics")
}

// adminText returns a page of the admin interface as text.
func adminText(t *testing.T, d *daemon, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// count returns a metric that is a whole number, 0 if there is none. Above a million they are written
// like 1.2e+07.
func count(t *testing.T, d *daemon, name string) int {
	t.Helper()
	n, _ := strconv.ParseFloat(metric(t, d, name), 64)
	return int(n)
}

// metric returns the value of a metric without labels, "" if it is 0 or missing.
func metric(t *testing.T, d *daemon, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(metrics(t, d))
	if m == nil || m[1] == "0" {
		return ""
	}
	return m[1]
}

// startSimulator serves recorded frames, and returns the relay's address.
func startSimulator(t *testing.T, file string, rate int) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), simulator, "relay", "--frames", file, "--listen", "127.0.0.1:0", "--rate", fmt.Sprint(rate))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var frames int
	var address string
	if _, err := fmt.Fscanf(stderr, "serving %d frames on %s\n", &frames, &address); err != nil {
		t.Fatal(err)
	}
	return address
}
