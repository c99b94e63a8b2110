package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer/backfill"
	"skein.blue/consumer/repo"
	"skein.blue/graph/kinds"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
)

// The long run:
// go test ./cmd/skein -run TestBackfillKilled -backfill.kills 40 -backfill.past 300000
var (
	backfillKills = flag.Int("backfill.kills", 4, "how often TestBackfillKilled kills the daemon")
	backfillPast  = flag.Int64("backfill.past", 20_000, "events before the daemon starts")
)

// simulateHosts serves the relay, the hosts and the directory of a made-up network.
func simulateHosts(t *testing.T, o relay.Options) (address string) {
	t.Helper()
	o.Full, o.Past, o.Network.Seed = true, true, 1
	r := relay.NewSimulated(o)
	go r.Run(t.Context())
	hosts := relay.NewHosts(r, make([]string, 5), true)
	for i := range hosts.Addresses {
		hosts.Addresses[i], _ = listen(t, "", hosts.Handler(i))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", r)
	mux.HandleFunc("GET /xrpc/com.atproto.sync.listHosts", hosts.ListHosts)
	mux.Handle("GET /xrpc/com.atproto.sync.listRepos", hosts.Handler(-1))
	mux.Handle("GET /{did}", r.Documents(hosts.Of))
	address, _ = listen(t, "", mux)
	return address
}

// A daemon that joins an existing network fetches its history, is killed at random moments
// meanwhile, and ends up with the contents of the repos. Every second start verifies signatures. So
// does one that skein backfill makes fetch the history.
func TestBackfillKilled(t *testing.T) {
	t.Parallel()
	n := simulated.Options{Accounts: 4096, OnlyPLC: true}
	const events = 3000
	address := simulateHosts(t, relay.Options{Network: n, From: *backfillPast, Rate: 600, Events: events})
	start := func(store string, more ...string) *daemon {
		return serveDaemon(t, nil, append([]string{"--store", store, "--relay", "ws://" + address, "--plc", "http://" + address, "--allow-private-hosts"}, more...)...)
	}
	store := filepath.Join(t.TempDir(), "store")
	rng := seeded(t)
	flags := [][]string{{"--backfill", "repos"}, {"--backfill", "repos", "--verify", "full"}}
	for i := range *backfillKills {
		d := start(store, flags[i%2]...)
		d.indexes(1) // or the stream may end before any start has seen it
		time.Sleep(time.Duration(rng.IntN(1200)) * time.Millisecond)
		d.kill()
	}
	d := start(store, append(flags[1], "--audit", "7200/h")...)
	ended := func() {
		t.Helper()
		quiet := 0
		var st backfill.Status
		defer func() {
			if t.Failed() {
				t.Logf("cursor %d, %+v\n%s", d.cursor(), st, d.log.String())
			}
		}()
		eventually(t, 5*time.Minute, "the backfill ends", func() bool {
			must(t, oracle.Get(t.Context(), d.admin+"/backfill", &st))
			if quiet++; st.Busy || st.Hole || st.Waiting > 0 || d.cursor() < int(*backfillPast+events) {
				quiet = 0
			}
			return quiet >= 5
		})
	}
	ended()
	eventually(t, time.Minute, "ten repos are audited", func() bool { st, err := d.stats(); return err == nil && st.Audited.Repos >= 10 })
	if st, err := d.stats(); err != nil || st.Audited.Differences > 0 {
		t.Errorf("audits found differences: %+v, %v", st, err)
	}
	if m := d.metrics(); !regexp.MustCompile(`(?m)^skein_backfill_coverage_ratio (1|0\.9\d+)$`).MatchString(m) {
		t.Errorf("the coverage is wrong:\n%s", regexp.MustCompile(`(?m)^skein_(backfill|audit).*$`).FindAllString(m, -1))
	}
	d.stop()
	verifyNetwork(t, store, n, *backfillPast)

	store = filepath.Join(t.TempDir(), "asked")
	d = start(store, "--verify", "full", "--cursor", fmt.Sprint(*backfillPast+events-100))
	eventually(t, time.Minute, "skein backfill ends", func() bool { // it can begin once the stream is live
		code, out, _ := skein(t, "backfill", "--admin", d.admin)
		return code == 0 && strings.HasPrefix(out, "done: ")
	})
	ended()
	d.stop()
	verifyNetwork(t, store, n, *backfillPast)

	// From a file and a host, without a stream.
	var repos struct{ Repos []struct{ DID string } }
	must(t, oracle.Get(t.Context(), "http://"+address+"/xrpc/com.atproto.sync.listRepos?limit=2", &repos))
	file, one, two := fetchRepo(t, address, repos.Repos[0].DID), repos.Repos[0].DID, repos.Repos[1].DID
	single := filepath.Join(t.TempDir(), "single")
	d = start(single, "--relay", "ws://127.0.0.1:1")
	run(t, 0, one+" at ", "backfill", "--admin", d.admin, "--car", file, "--did", two)
	d.stop()
	if got, all := holdingsOf(t, single).records, holdingsOf(t, store).records; !slices.Equal(got[one], all[one]) || !slices.Equal(got[two], all[two]) || len(got) != 2 {
		t.Errorf("from a file and a host: %q, want those of %s and %s", got, one, two)
	}
}

// fetchRepo fetches a repo into a file. Some hosts of a made-up network are faulty.
func fetchRepo(t *testing.T, address, did string) (file string) {
	t.Helper()
	var list struct{ Hosts []struct{ Hostname string } }
	must(t, oracle.Get(t.Context(), "http://"+address+"/xrpc/com.atproto.sync.listHosts", &list))
	client := &http.Client{Timeout: 500 * time.Millisecond}
	for try := range 200 {
		resp, err := client.Get("http://" + list.Hosts[try%len(list.Hosts)].Hostname + "/xrpc/com.atproto.sync.getRepo?did=" + did)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was only read
		r := repo.Reader{Kinds: kinds.BuiltIn, Memory: repo.NewMemory(1 << 30)}
		if err != nil || r.Read(t.Context(), bytes.NewReader(b), 1<<30) != nil || string(r.DID) != did {
			continue
		}
		file = filepath.Join(t.TempDir(), "repo.car")
		must(t, os.WriteFile(file, b, 0o600))
		return file
	}
	t.Fatalf("no host sends the repo of %s", did)
	return ""
}
