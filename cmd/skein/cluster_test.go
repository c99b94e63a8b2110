package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/kvtest"
)

// The long loop:
// go test -tags fdb ./cmd/skein -run TestCluster -cluster.rounds 100 -timeout 2h
var clusterRounds = flag.Int("cluster.rounds", 1, "how often TestCluster indexes the recorded stream")

// cluster returns a FoundationDB cluster. The test is skipped in a build without it.
func cluster(t *testing.T, servers int, redundancy string) *kvtest.Cluster {
	t.Helper()
	if !fdbkv.Built {
		t.Skip("built without FoundationDB; use go test -tags fdb")
	}
	c := kvtest.StartServers(t, servers, redundancy)
	t.Cleanup(func() { must(t, c.Remove()) })
	return c
}

// Two writers and a query node share a cluster. The writers are killed, and the cluster goes down.
// The answers end up true, and the writers never conflict on the contents of a set.
func TestCluster(t *testing.T) {
	c := cluster(t, 1, "single")
	rounds := max(*clusterRounds, harness.Times(1))
	down := harness.NewFault(t, "FoundationDB cluster down and back, beside killed writers", rounds)
	for round := range rounds {
		clusterRound(t, c, fmt.Sprintf("fdb://%s?prefix=round%d", c.File, round), seeded(t))
		if t.Failed() {
			return
		}
		down.Happened()
	}
}

// Three servers keep two copies of the data. Each is killed in turn while two writers index: without a restart of
// theirs, and with two servers for a while, the writers and the query node go on, and the answers end up true.
func TestClusterLosesAServer(t *testing.T) {
	const servers = 3
	c := cluster(t, servers, "double")
	lost := harness.NewFault(t, "one of three FoundationDB servers lost", servers)
	store := fmt.Sprintf("fdb://%s?prefix=lost", c.File)
	relay := playRecording(t, 14) // takes two and a half minutes
	var writers []*daemon
	for range 2 {
		writers = append(writers, serveDaemon(t, nil, "--store", store, "--relay", relay, "--cursor", "0"))
	}
	node := serveDaemon(t, nil, "--store", store, "--consume=false")
	cursor := func() (seq int64) {
		st, err := node.stats()
		if err != nil {
			return -1
		}
		return st.Cursor
	}
	for i := range servers {
		must(t, c.DownServer(i))
		lost.Happened()
		began := time.Now()
		first := int64(-1) // what was committed before the loss may show up after it
		eventually(t, time.Minute, "two of three servers answer", func() bool { first = cursor(); return first >= 0 })
		if first == last {
			t.Fatalf("all events were indexed before server %d was lost", i)
		}
		eventually(t, time.Minute, "two of three servers index", func() bool { return cursor() > first })
		t.Logf("without server %d: events are indexed and answered after %v", i, time.Since(began).Round(time.Millisecond))
		must(t, errors.Join(c.UpServer(i), c.Ready(), c.Whole()))
	}
	eventually(t, time.Minute, "all events are indexed", func() bool { return cursor() == last })
	for _, d := range []*daemon{node, writers[0]} {
		d.isTrue()
	}
	for _, d := range append(writers, node) {
		d.stop()
	}
	run(t, 0, "no problems found", "check", "--store", store)
}

func clusterRound(t *testing.T, c *kvtest.Cluster, store string, rng *rand.Rand) {
	relay := playRecording(t, 120) // takes 18 s
	writers := make([]*daemon, 2)
	seen := map[string]string{}
	start := func(i int, args ...string) {
		args = append(args, "--store", store, "--relay", relay)
		writers[i] = serveDaemon(t, nil, args...)
	}
	start(0, "--cursor", "0")
	start(1, "--cursor", "0")
	node := serveDaemon(t, nil, "--store", store, "--consume=false")
	run(t, 1, "and it is alive", "replay", "--store", store, "--relay", relay, "--cursor", "0")
	pause := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	for i := range 5 {
		pause(2 * time.Second)
		if i == 2 {
			must(t, c.Down())
			pause(3 * time.Second)
			must(t, errors.Join(c.Up(), c.Ready()))
			continue
		}
		w := rng.IntN(2)
		if writers[w].metric("skein_consumer_cursor") == "" {
			continue // it has committed nothing, so a kill would lose --cursor
		}
		notePermitted(t, writers[w], seen)
		writers[w].kill()
		start(w)
	}
	eventually(t, time.Minute, "all events are indexed", func() bool { st, err := node.stats(); return err == nil && st.Cursor == last })
	for _, d := range []*daemon{node, writers[0]} {
		d.isTrue()
	}
	for _, w := range writers {
		notePermitted(t, w, seen)
		w.stop()
	}
	node.stop()
	t.Logf("conflicts that FoundationDB reported, by keyspace: %v", seen)
	run(t, 0, "no problems found", "check", "--store", store)
	run(t, 0, `"records": 874`, "stats", "--json", "--store", store)
}

// Writers of a cluster are killed, frozen, stopped and started, while others run. The others take over within ten seconds, without a person.
// A frozen writer ends once it notices. The answers end up true.
func TestClusterWritersComeAndGo(t *testing.T) {
	c := cluster(t, 1, "single")
	rounds := max(*clusterRounds, harness.Times(1))
	taken := harness.NewFault(t, "FoundationDB writer killed or frozen, beside others", rounds)
	for round := range rounds {
		rng := seeded(t)
		store := fmt.Sprintf("fdb://%s?prefix=fleet%d", c.File, round)
		relay := playRecording(t, 60) // takes 36 s
		var writers, frozen []*daemon
		start := func() {
			writers = append(writers, serveDaemon(t, nil, "--store", store, "--relay", relay, "--cursor", "0", "--repair=false"))
		}
		start()
		start()
		node := serveDaemon(t, nil, "--store", store, "--consume=false")
		isWritten := func() bool { st, err := node.stats(); return err == nil && st.Unwritten == 0 }
		takeovers := func() (n int) {
			for _, w := range writers {
				n += strings.Count(w.log.String(), "taking over from a writer that does not beat any more")
			}
			return n
		}
		for _, what := range rng.Perm(4) { // a writer is killed or frozen in any order
			eventually(t, 10*time.Second, "all partitions have writers", isWritten)
			time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			i := rng.IntN(len(writers))
			one := writers[i]
			if what == 0 || len(writers) == 1 {
				start()
				continue
			} else if writers = slices.Delete(writers, i, i+1); what == 1 {
				one.stop()
				continue
			} else if what == 2 {
				one.kill()
			} else {
				one.signal(syscall.SIGSTOP)
				frozen = append(frozen, one)
			}
			before, began := takeovers(), time.Now()
			eventually(t, 20*time.Second, "its partitions are taken over", func() bool { return takeovers() > before })
			eventually(t, 20*time.Second, "all partitions have writers", isWritten)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v to take over", took)
			} else {
				t.Logf("taken over after %v", took.Round(10*time.Millisecond))
			}
			taken.Happened()
		}
		for _, one := range frozen {
			one.signal(syscall.SIGCONT)
			one.logs("was taken over")
			if <-one.read; one.cmd.Wait() == nil {
				t.Error("a writer that was taken over ended without an error")
			}
		}
		eventually(t, time.Minute, "all events are indexed", func() bool { st, err := node.stats(); return err == nil && st.Cursor == last })
		node.isTrue()
		for _, d := range append(writers, node) {
			d.stop()
		}
		run(t, 0, "no problems found", "check", "--store", store)
		run(t, 0, `"records": 874`, "stats", "--json", "--store", store)
	}
}

// Two writers index the official PDS's stream on a cluster. In the middle, the commands of docs/operating.md back it up,
// while the writers go on, and restore it into an empty cluster. The restored store passes the check, and two writers
// go on from it to the truth.
func TestClusterBackup(t *testing.T) {
	var files [2]string
	for i := range files {
		c := cluster(t, 1, "single")
		_ = kvtest.Shell(t, "true") // skips the test if the tools are not installed
		files[i] = c.File
		agent := kvtest.Shell(t, "backup_agent -C "+c.File)
		must(t, agent.Start())
		t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	}
	relay := playRecording(t, 25) // takes 85 s; a backup takes 35
	writers := func(file string, args ...string) (all [2]*daemon) {
		for i := range all {
			all[i] = serveDaemon(t, nil, append([]string{"--store", "fdb://" + file + "?prefix=a.b_c-1", "--relay", relay, "--repair=false"}, args...)...)
		}
		return all
	}
	shell := func(line string) {
		t.Helper()
		if out, err := kvtest.Shell(t, line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	target := t.TempDir()
	const keys = `-k '\x02a.b_c-1\x00 \x02a.b_c-1\x02'`

	w := writers(files[0], "--cursor", "0")
	w[0].indexes(101)
	shell("fdbbackup start -C " + files[0] + " -t a.b_c-1 " + keys + " -d file://" + target + " -w")
	for _, d := range w {
		d.stop()
	}
	shell("fdbrestore start --dest-cluster-file " + files[1] + " -t a.b_c-1 " + keys + ` -r "file://$(echo ` + target + `/backup-*)" -w`)
	run(t, 0, "no problems found", "check", "--store", "fdb://"+files[1]+"?prefix=a.b_c-1")
	w = writers(files[1])
	if st, err := w[0].stats(); err != nil || st.Cursor <= 100 || st.Cursor >= last {
		t.Errorf("the restored cursor is %d (%v)", st.Cursor, err)
	}
	for _, d := range w {
		d.indexes(last)
		d.isTrue()
		d.stop()
	}
}

// notePermitted records what a writer conflicted on. Only strings, which two writers may meet at
// the same time, the rows of leases and, in moves, of writers are permitted.
func notePermitted(t *testing.T, d *daemon, seen map[string]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`skein_store_conflicts_total\{keyspace="([^"]*)"\} (\S+)`).FindAllStringSubmatch(d.metrics(), -1) {
		seen[m[1]] = m[2]
		if !slices.Contains([]string{"strings", "leases", "claims", "heartbeats"}, m[1]) {
			t.Errorf("%s conflicts on %s", m[2], m[1])
		}
	}
}
