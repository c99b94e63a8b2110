package harness_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

var (
	constellationFlag    = flag.String("constellation", "", "path of at-microcosm's constellation (cargo build --release -p constellation: target/release/main)")
	constellationBackend = flag.String("constellation.backend", "rocks", "its storage: rocks or memory")
	constellationSize    = flag.Int("constellation.events", 60_000, "number of events in TestConstellation")
)

// jetstreamLines returns an event as Jetstream's JSON, one line for each operation.
func jetstreamLines(e *oracle.Event, have map[string]bool) (lines []string) {
	at := 1_700_000_000_000_000 + e.Seq
	line := func(v map[string]any) {
		v["did"], v["time_us"] = e.DID, at
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		lines = append(lines, string(b))
	}
	switch e.Type {
	case oracle.AccountEvent:
		account := map[string]any{"did": e.DID, "seq": e.Seq, "active": e.Active, "time": "2026-01-01T00:00:00Z"}
		if !e.Active {
			account["status"] = "deactivated"
		}
		line(map[string]any{"kind": "account", "account": account})
	case oracle.CommitEvent:
		for _, o := range e.Ops {
			k := kinds.ByName(o.Kind)
			commit := map[string]any{"rev": e.Rev, "operation": "delete", "collection": k.Collection, "rkey": o.Rkey}
			path := e.DID + "/" + k.Collection + "/" + o.Rkey
			if o.Delete {
				delete(have, path)
			} else {
				commit["operation"] = "create"
				if have[path] {
					commit["operation"] = "update"
				}
				have[path] = true
				var v any = o.Subject
				for _, name := range slices.Backward(k.To.Field) {
					v = map[string]any{name: v}
				}
				if o.Kind == oracle.ListItem {
					v = map[string]any{"subject": o.Subject, "list": o.List}
				}
				commit["record"] = v
			}
			line(map[string]any{"kind": "commit", "commit": commit})
		}
	default: // the others make no links
	}
	return lines
}

// linkWorld is the input of both programs.
type linkWorld struct {
	events []*oracle.Event
	model  *oracle.Model
	star   string // a third of all events follow it
}

func newLinkWorld(n int) *linkWorld {
	w := &linkWorld{model: oracle.New()}
	h := oracle.NewHistory(5, max(200, n/40))
	w.star = h.Accounts()[0]
	linked := map[string]bool{}
	for range n {
		e := h.Next()
		// Leave out what differs by design: damaged commits, and accounts that are hidden
		// forever. A third of the events follow one account, from new accounts.
		if e.Type == oracle.IdentityEvent || e.Type == oracle.SyncEvent || e.Damaged || e.Deleted {
			continue
		}
		if e.Type == oracle.AccountEvent && !linked[e.DID] { // Constellation ignores the status of an account without links
			continue
		}
		for _, o := range e.Ops {
			linked[e.DID] = linked[e.DID] || o.Subject != ""
		}
		w.add(e)
		if len(w.events)%3 == 0 {
			seq := e.Seq
			e = &oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: fmt.Sprintf("did:web:fan%d.example.com", seq), Rev: oracle.TID(1<<60 + uint64(seq)<<10)}
			e.Ops = []oracle.Op{{Kind: "follow", Rkey: oracle.TID(1<<59 + uint64(seq)<<10), Subject: w.star}}
			w.add(e)
		}
	}
	return w
}

func (w *linkWorld) add(e *oracle.Event) {
	c := *e
	c.Seq = int64(len(w.events) + 1)
	w.events = append(w.events, &c)
	w.model.Apply(&c)
}

// startConstellation runs Constellation on the events, and returns its address once it has
// them all.
func startConstellation(t *testing.T, w *linkWorld, dir string) (base string, took time.Duration) {
	t.Helper()
	have := map[string]bool{}
	var lines []string
	for _, e := range w.events {
		lines = append(lines, jetstreamLines(e, have)...)
	}
	return runConstellation(t, lines, w.star, dir)
}

// runConstellation runs Constellation on lines of Jetstream, and returns its address once it has them all.
// The last line, which it adds, is a record of an account.
func runConstellation(t *testing.T, lines []string, account, dir string) (base string, took time.Duration) {
	t.Helper()
	pipe := filepath.Join(dir, "events")
	must(t, syscall.Mkfifo(pipe, 0o600))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil || l.Close() != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, *constellationFlag, "--jetstream", "none", "--fixture", pipe, "--backend", *constellationBackend, "--data", filepath.Join(dir, "rocks"), "--bind", "127.0.0.1:"+port)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	must(t, cmd.Start())
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	out := bufio.NewWriterSize(f, 1<<20)
	const sentinel = "did:plc:sentinelaaaaaaaaaaaaaaaa"
	lines = append(lines, jetstreamLines(&oracle.Event{Type: oracle.CommitEvent, Seq: 1 << 30, DID: account, Rev: oracle.TID(3 << 59), Ops: []oracle.Op{{Kind: "block", Rkey: "x", Subject: sentinel}}}, map[string]bool{})...)
	began := time.Now()
	for _, line := range lines {
		_, err = out.WriteString(line + "\n")
		must(t, err)
	}
	must(t, out.Flush())
	base = "http://127.0.0.1:" + port
	for ; ; time.Sleep(20 * time.Millisecond) {
		var n struct{ Total int }
		if err := links(base+"/links/count", url.Values{"target": {sentinel}, "collection": {"app.bsky.graph.block"}, "path": {".subject"}}, &n); err == nil && n.Total == 1 {
			return base, time.Since(began)
		}
		if time.Since(began) > 20*time.Minute {
			t.Fatal("constellation does not reach the end of the events")
		}
	}
}

// startSkein indexes the events, and serves them.
func startSkein(t *testing.T, w *linkWorld, dir string) (base string, took time.Duration) {
	t.Helper()
	kv, err := pebblekv.Open(pebblekv.Options{Dir: filepath.Join(dir, "skein"), Create: true, Merger: write.NewMerger(write.Limits{})})
	must(t, err)
	t.Cleanup(func() { _ = kv.Close() })
	g, err := graph.Open(t.Context(), kv, graph.Options{})
	must(t, err)
	frames := make([][]byte, len(w.events))
	for i, e := range w.events {
		frames[i] = oracle.Frame(e)
	}
	began := time.Now()
	c, err := consumer.New(g, consumer.Options{Relay: "ws://memory", Read: slices.Values(frames)})
	if err == nil {
		err = c.Run(t.Context())
	}
	must(t, err)
	took = time.Since(began)
	s := query.New(g, query.Options{})
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL, took
}

// links sends a request to either program.
func links(address string, p url.Values, v any) error {
	resp, err := http.Get(address + "?" + p.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

type linkAnswer struct {
	Total   int
	Records []struct{ DID, Collection, Rkey string }
	Linking []struct{ DID, Collection, Rkey string } `json:"linking_records"`
	DIDs    []string                                 `json:"linking_dids"`
	Cursor  *string
}

// unlimited removes the limit, which methods that count do not take.
func unlimited(p url.Values) url.Values {
	p.Del("limit")
	return p
}

// allLinks collects all pages, sorted.
func allLinks(t *testing.T, address string, p url.Values) (total int, all []string) {
	t.Helper()
	for {
		var a linkAnswer
		if err := links(address, p, &a); err != nil {
			t.Fatal(address, p, err)
		}
		total = a.Total
		for _, r := range append(a.Records, a.Linking...) {
			all = append(all, r.DID+"/"+r.Collection+"/"+r.Rkey)
		}
		all = append(all, a.DIDs...)
		if a.Cursor == nil {
			slices.Sort(all)
			return total, all
		}
		p.Set("cursor", *a.Cursor)
	}
}

// Constellation (at-microcosm/microcosm-rs), given the same events as Jetstream's JSON,
// gives the same answers. The test also counts the known differences, and compares the
// speed of both.
//
//	go test ./internal/sim/harness -run TestConstellation -v -constellation PATH [-constellation.events 1000000]
func TestConstellation(t *testing.T) {
	if *constellationFlag == "" {
		t.Skip("needs constellation: use -constellation PATH")
	}
	w := newLinkWorld(*constellationSize)
	dir := t.TempDir()
	theirs, theyTook := startConstellation(t, w, dir)
	ours, weTook := startSkein(t, w, dir)
	views := w.model.Views()
	type subject struct {
		k      kinds.Info
		target string
	}
	var subjects []subject
	edges := 0
	for _, k := range kinds.All {
		for target, members := range views.Reverse[k.Name] {
			edges += len(members)
			if !strings.HasPrefix(target, "at://") || strings.HasPrefix(target, "at://did:") { // skein resolves or rejects handles
				subjects = append(subjects, subject{k, target})
			}
		}
	}
	slices.SortFunc(subjects, func(x, y subject) int { return strings.Compare(x.k.Name+x.target, y.k.Name+y.target) })
	if all := subjects; len(all) > 4000 {
		subjects = nil
		for i := range 4000 {
			subjects = append(subjects, all[i*len(all)/4000])
		}
	}
	inactive := map[string]int{} // hidden actors of a subject, by kind and subject
	seen := map[string]bool{}
	for p, s := range w.model.Records {
		if edge := p.Kind + " " + p.DID + " " + s; s != "" && w.model.Hidden[p.DID] && !seen[edge] {
			seen[edge] = true
			inactive[p.Kind+" "+s]++
		}
	}
	twice, hidden := 0, 0
	for _, s := range subjects {
		field := strings.Join(s.k.To.Field, ".")
		newer := func() url.Values {
			return url.Values{"subject": {s.target}, "source": {s.k.Collection + ":" + field}, "limit": {"100"}}
		}
		older := func() url.Values {
			return url.Values{"target": {s.target}, "collection": {s.k.Collection}, "path": {"." + field}, "limit": {"100"}}
		}
		for path, p := range map[string]func() url.Values{"/xrpc/blue.microcosm.links.getBacklinkDids": newer, "/links/distinct-dids": older} {
			_, got := allLinks(t, ours+path, p())
			_, want := allLinks(t, theirs+path, p())
			if !slices.Equal(got, want) {
				t.Fatalf("%s %v: %q, constellation %q, model %q", path, p(), got, want, views.Reverse[s.k.Name][s.target])
			}
		}
		for path, p := range map[string]func() url.Values{"/xrpc/blue.microcosm.links.getBacklinks": newer, "/links": older} {
			total, got := allLinks(t, ours+path, p())
			theirTotal, want := allLinks(t, theirs+path, p())
			for _, r := range got {
				if !slices.Contains(want, r) {
					t.Fatalf("%s %v: constellation has no %s", path, p(), r)
				}
			}
			if total != len(got) {
				t.Fatalf("%s %v: %d of %d", path, p(), len(got), total)
			}
			twice += len(want) - len(got)
			hidden += theirTotal - len(want)
		}
		var got, want struct{ Total int }
		const count = "/links/count/distinct-dids"
		must(t, errors.Join(links(ours+count, unlimited(older()), &got), links(theirs+count, unlimited(older()), &want)))
		if n := inactive[s.k.Name+" "+s.target]; got.Total != want.Total-n {
			t.Fatalf("%s %v: %d, constellation %d including %d inactive", count, older(), got.Total, want.Total, n)
		}
	}
	t.Logf("%d events, %d edges; %d subjects compared; constellation also lists %d duplicate records and counts %d records of inactive accounts", len(w.events), edges, len(subjects), twice, hidden)

	small := subjects[len(subjects)/2]
	ask := func(base, path string, p url.Values) string {
		var times []time.Duration
		for range 200 {
			began := time.Now()
			var v any
			must(t, links(base+path, p, &v))
			times = append(times, time.Since(began))
		}
		slices.Sort(times)
		return fmt.Sprintf("%.2f", float64(times[len(times)/2].Microseconds())/1000)
	}
	t.Logf("%-44s %12s %12s", "", "skein", "constellation")
	row := func(what, a, b string) { t.Logf("%-44s %12s %12s", what, a, b) }
	rate := func(d time.Duration) string { return fmt.Sprintf("%.0f", float64(len(w.events))/d.Seconds()) }
	row("events/s indexed", rate(weTook), rate(theyTook))
	row("bytes an edge on disk, logs included", fmt.Sprintf("%.1f", float64(sizeOf(t, filepath.Join(dir, "skein")))/float64(edges)), fmt.Sprintf("%.1f", float64(sizeOf(t, filepath.Join(dir, "rocks")))/float64(edges)))
	for name, s := range map[string]subject{"few": small, "many": {*kinds.ByName("follow"), w.star}} {
		p := url.Values{"subject": {s.target}, "source": {s.k.Collection + ":" + strings.Join(s.k.To.Field, ".")}}
		n := fmt.Sprintf(" (%d, %s)", len(views.Reverse[s.k.Name][s.target]), name)
		row("getBacklinks, 100, median ms"+n, ask(ours, "/xrpc/blue.microcosm.links.getBacklinks", p), ask(theirs, "/xrpc/blue.microcosm.links.getBacklinks", p))
		row("getBacklinksCount, median ms"+n, ask(ours, "/xrpc/blue.microcosm.links.getBacklinksCount", p), ask(theirs, "/xrpc/blue.microcosm.links.getBacklinksCount", p))
	}
}

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return err
	}))
	return n
}
