package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"skein.blue/consumer/backfill"
	"skein.blue/consumer/repo"
	"skein.blue/graph/kinds"
	"skein.blue/internal/command"
)

// The long run:
// go test ./cmd/skein -run TestBackfillKilled -backfill.kills 40 -backfill.past 300000
var (
	backfillKills = flag.Int("backfill.kills", 6, "how often TestBackfillKilled kills the daemon")
	backfillPast  = flag.Int("backfill.past", 40_000, "events before the daemon starts")
)

// network is the relay of a made-up network and its hosts, in another process.
type network struct {
	t       *testing.T
	address string // host:port
	hosts   []string
}

func startNetwork(t *testing.T, args ...string) *network {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), simulator, append([]string{"relay", "--proofs", "full", "--accounts", "4096", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "ws://")
	if err != nil || !ok {
		t.Fatalf("skein-sim relay: %s: %v", line, err)
	}
	n := &network{t: t, address: address}
	var list struct{ Hosts []struct{ Hostname string } }
	n.get("http://"+address+"/xrpc/com.atproto.sync.listHosts", &list)
	for _, h := range list.Hosts {
		n.hosts = append(n.hosts, h.Hostname)
	}
	return n
}

func (n *network) get(address string, into any) {
	n.t.Helper()
	resp, err := new(http.Client).Get(address)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		n.t.Fatal(err)
	}
}

// flags returns the flags of a daemon that fetches from the network.
func (n *network) flags(more ...string) []string {
	return append([]string{"--relay", "ws://" + n.address, "--plc", "http://" + n.address, "--allow-private-hosts"}, more...)
}

// records returns the records of all active accounts, and whether each account is active.
func (n *network) records() (records map[string]string, active map[string]bool) {
	n.t.Helper()
	records, active = map[string]string{}, map[string]bool{}
	var mu sync.Mutex // guards records
	for cursor := ""; ; {
		var page struct {
			Cursor string
			Repos  []struct {
				DID    string
				Active bool
			}
		}
		n.get("http://"+n.address+"/xrpc/com.atproto.sync.listRepos?limit=1000&cursor="+cursor, &page)
		var fetches errgroup.Group
		fetches.SetLimit(16) // some hosts hang
		for _, one := range page.Repos {
			if active[one.DID] = one.Active; one.Active {
				fetches.Go(func() error { return n.export(one.DID, &mu, records) })
			}
		}
		if err := fetches.Wait(); err != nil {
			n.t.Fatal(err)
		}
		if cursor = page.Cursor; cursor == "" {
			return records, active
		}
	}
}

// export tries the hosts in turn until one sends the repo intact. mu guards records.
func (n *network) export(did string, mu *sync.Mutex, records map[string]string) error {
	client := &http.Client{Timeout: 300 * time.Millisecond}
	var r repo.Reader
	for try := range 200 {
		resp, err := client.Get("http://" + n.hosts[try%len(n.hosts)] + "/xrpc/com.atproto.sync.getRepo?did=" + did)
		if err != nil {
			continue
		}
		err = r.Read(n.t.Context(), resp.Body, 1<<30)
		_ = resp.Body.Close()
		if err != nil || string(r.DID) != did {
			continue
		}
		mu.Lock()
		defer mu.Unlock()
		return r.Walk(n.t.Context(), func(k kinds.Kind, rkey, subject []byte) {
			records[fmt.Sprintf("%s %s %s", did, k, rkey)] = string(subject)
		})
	}
	return fmt.Errorf("no host sends the repo of %s", did)
}

// exported returns the records that a store has of active accounts, and the active accounts that
// are not complete.
func exported(t *testing.T, store string, active map[string]bool) (records map[string]string, incomplete []string) {
	t.Helper()
	code, out, errs := skein(t, "export", "--store", store)
	if code != 0 {
		t.Fatalf("export: %s", errs)
	}
	records = map[string]string{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var l struct {
			DID, Kind string
			Records   [][2]string
			Account   *struct {
				DID, Rev                        string
				Partial, Desynchronized, Hidden bool
			}
		}
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return records, incomplete
		} else if err != nil {
			t.Fatal(err)
		}
		if a := l.Account; a != nil && active[a.DID] && (a.Partial || a.Desynchronized || a.Hidden || a.Rev == "") {
			incomplete = append(incomplete, fmt.Sprintf("%+v", *a))
		}
		for _, r := range l.Records {
			if active[l.DID] {
				records[fmt.Sprintf("%s %s %s", l.DID, l.Kind, r[0])] = r[1]
			}
		}
	}
}

func differences(t *testing.T, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	reported := 0
	for p, s := range want {
		if got[p] != s {
			if reported++; reported < 5 {
				t.Errorf("%s names %q, want %q", p, got[p], s)
			}
		}
	}
	for p, s := range got {
		if _, ok := want[p]; !ok {
			if reported++; reported < 10 {
				t.Errorf("%s names %q, want no record", p, s)
			}
		}
	}
	t.Fatalf("%d records, want %d", len(got), len(want))
}

// A daemon that joins an existing network fetches its history, is killed at random moments
// meanwhile, and ends up with the contents of the repos. Every second start verifies signatures, and
// keeps a copy of the directory. So does one that only fetches history, without the stream.
func TestBackfillKilled(t *testing.T) {
	t.Parallel()
	n := startNetwork(t, "--from", fmt.Sprint(*backfillPast), "--rate", "600", "--events", "6000", "--hosts", "5", "--host-faults", "--only-plc")
	store := filepath.Join(t.TempDir(), "store")
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	flags := [][]string{{"--verify", "cid"}, {"--verify", "full", "--plc-mirror", filepath.Join(t.TempDir(), "plc")}}
	for i := range *backfillKills {
		d := serveDaemon(t, nil, n.flags(append([]string{"--store", store, "--backfill", "repos"}, flags[i%2]...)...)...)
		time.Sleep(time.Duration(rng.IntN(1800)) * time.Millisecond)
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.read
		_ = d.cmd.Wait()
	}
	d := serveDaemon(t, nil, n.flags(append([]string{"--store", store, "--backfill", "repos", "--audit", "7200/h"}, flags[1]...)...)...)
	quiet := 0
	for began := time.Now(); quiet < 5; time.Sleep(200 * time.Millisecond) {
		var st backfill.Status
		n.get(d.admin+"/backfill", &st)
		var stats struct{ Cursor int64 }
		n.get(d.api+"/xrpc/blue.skein.graph.getStats", &stats)
		if quiet++; st.Busy || st.Hole || st.Waiting > 0 || stats.Cursor < int64(*backfillPast+6000) {
			quiet = 0
		}
		if time.Since(began) > 5*time.Minute {
			resyncs, outcomes := adminText(t, d, "/resyncs"), regexp.MustCompile(`(?m)^skein_(backfill|consumer_dropped|consumer_verif).*$`).FindAllString(metrics(t, d), -1)
			_, log := d.stop()
			t.Fatalf("the backfill does not end: %+v, cursor %d\n%s\n%s\n%s", st, stats.Cursor, resyncs, strings.Join(outcomes, "\n"), log)
		}
	}
	var stats struct {
		Audited struct{ Repos, Records, Differences int64 }
	}
	for began := time.Now(); stats.Audited.Repos < 10; time.Sleep(200 * time.Millisecond) {
		n.get(d.api+"/xrpc/blue.skein.graph.getStats", &stats)
		if time.Since(began) > time.Minute {
			t.Fatalf("no audits: %+v", stats)
		}
	}
	if stats.Audited.Differences > 0 {
		t.Errorf("audits found differences: %+v", stats)
	}
	if m := metrics(t, d); !regexp.MustCompile(`(?m)^skein_plc_complete_timestamp_seconds [1-9]`).MatchString(m) || strings.Contains(m, `skein_plc_lookups_total{answered="copy"} 0`) {
		t.Errorf("the copy of the directory is not complete, or not used:\n%s", regexp.MustCompile(`(?m)^skein_plc.*$`).FindAllString(m, -1))
	} else if !regexp.MustCompile(`(?m)^skein_backfill_coverage_ratio (1|0\.9\d+)$`).MatchString(m) || !regexp.MustCompile(`(?m)^skein_audit_last_timestamp_seconds 1\.\d+e\+09$`).MatchString(m) {
		t.Errorf("coverage, or the time of the last audit, is wrong:\n%s", regexp.MustCompile(`(?m)^skein_(backfill|audit).*$`).FindAllString(m, -1))
	}
	d.stop()
	want, active := n.records()
	got, incomplete := exported(t, store, active)
	differences(t, got, want)
	if len(incomplete) > 0 {
		t.Errorf("%d accounts are not complete: %s …", len(incomplete), incomplete[0])
	}
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	// Only history, by the command, without a daemon.
	alone := filepath.Join(t.TempDir(), "alone")
	code, out, errs := skein(t, append([]string{"backfill", "--store", alone, "--verify", "full"}, n.flags()...)...)
	if code != 0 || !strings.Contains(out, "done: ") {
		t.Fatalf("skein backfill: %d %s%s", code, out, errs)
	}
	got, _ = exported(t, alone, active)
	differences(t, got, want)
}

// skein backfill and skein resync report wrong arguments.
func TestBackfillUsage(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"backfill", "--store", store, "--archive", "no address"}, 64, "is not an address"},
		{[]string{"backfill", "--store", store, "--archive", "https://a.example.com", "--did", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}, 64, "cannot be combined"},
		{[]string{"backfill", "--store", store, "--did", "me"}, 64, "is not a DID"},
		{[]string{"backfill", "--store", store, "--plc", "directory"}, 64, "--plc"},
		{[]string{"backfill", "--store", store, "--car", "/no/such/file"}, 1, "no such file"},
		{[]string{"resync"}, 64, "needs the DIDs"},
		{[]string{"resync", "me"}, 64, "is not a DID"},
		{[]string{"resync", "--admin", "http://127.0.0.1:1", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}, 1, "is skein serve running"},
		{[]string{"serve", "--store", store, "--backfill", "all"}, 64, "off, repos or archive=URL"},
		{[]string{"serve", "--store", store, "--backfill", "archive"}, 64, "off, repos or archive=URL"},
		{[]string{"serve", "--store", store, "--backfill", "repos", "--repair=false"}, 64, "remove --repair=false"},
	} {
		if code, out, errs := skein(t, c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d, %s%s", c.args, code, out, errs)
		}
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// A backfill prints what it waits for, and drops a mistyped host once another host is named.
func TestMistypedHostIsDropped(t *testing.T) {
	t.Parallel()
	pds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"repos":[]}`) }))
	defer pds.Close()
	store := t.TempDir() + "/store"
	run := func(ctx context.Context, host string) (int, string) {
		var out lockedBuffer // several goroutines write to it
		code := command.Run(ctx, &command.Environment{Stdout: &out, Stderr: &out}, commandLine,
			[]string{"skein", "backfill", "--admin", "off", "--store", store, "--allow-private-hosts", "--host", host})
		return code, out.String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if code, out := run(ctx, "http://127.0.0.1:1"); code != 1 || !strings.Contains(out, "http://127.0.0.1:1 does not answer; retrying") || !strings.Contains(out, "interrupted") {
		t.Errorf("a host that does not exist: %d %s", code, out)
	}
	if code, out := run(t.Context(), pds.URL); code != 0 || !strings.Contains(out, "1 of 1 hosts listed") {
		t.Errorf("another host: %d %s", code, out)
	}
}
