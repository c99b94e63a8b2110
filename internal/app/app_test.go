package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/graph/check"
	"skein.blue/graph/kinds"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

const (
	plainPDS   = "../../testdata/pds/plain-pds.frames"
	plainRelay = "../../testdata/pds/plain-relay.frames"
	plainTruth = "../../testdata/pds/plain-truth.json"
	// realNetwork holds other people's data, so it is not in this repository.
	realNetwork = "../../../shared/testdata/public/jetstream/"
)

// open opens an index. closeIt or the end of the test closes it.
func open(t *testing.T, dir string, log *slog.Logger) (x *app.Index, closeIt func()) {
	t.Helper()
	x, err := app.OpenIndex(t.Context(), app.StoreOptions{Store: dir, Create: true, Memory: 64 << 20, Logger: log})
	must(t, err)
	closeIt = sync.OnceFunc(func() { must(t, x.Close(context.Background())) })
	t.Cleanup(closeIt)
	return x, closeIt
}

// serve serves an index, and consumes if o is not nil.
func serve(t *testing.T, x *app.Index, o *consumer.Options) (base, admin string, stop func()) {
	t.Helper()
	return serveWith(t, x, app.ServeOptions{Consume: o})
}

func serveWith(t *testing.T, x *app.Index, o app.ServeOptions) (base, admin string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan [2]string, 1), make(chan error, 1)
	go func() {
		o.Listen, o.AdminListen, o.Version = "127.0.0.1:0", "127.0.0.1:0", "test"
		o.Ready = func(api, admin net.Addr) { ready <- [2]string{"http://" + api.String(), "http://" + admin.String()} }
		done <- x.Serve(ctx, o)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-done)
	})
	t.Cleanup(stop)
	select {
	case a := <-ready:
		return a[0], a[1], stop
	case err := <-done:
		t.Fatal(err)
	case <-time.After(10 * time.Second):
		t.Fatal("not ready in ten seconds")
	}
	return "", "", nil
}

func readTruth(t *testing.T) *oracle.Truth {
	t.Helper()
	tr, err := oracle.ReadTruth(plainTruth)
	must(t, err)
	return tr
}

// compare compares the answers with the truth, in pages of a length.
func compare(t *testing.T, tr *oracle.Truth, base string, limit int) {
	t.Helper()
	diffs, n, err := tr.Compare(t.Context(), base, limit)
	must(t, err)
	for _, d := range diffs[:min(5, len(diffs))] {
		t.Error(d)
	}
	if len(diffs) > 0 || n < 200 {
		t.Fatalf("pages of %d: %d differences, %d sets with members", limit, len(diffs), n)
	}
	diffs, compared, err := tr.CompareMethods(t.Context(), base)
	must(t, err)
	for _, d := range diffs[:min(5, len(diffs))] {
		t.Error(d)
	}
	if len(diffs) > 0 || compared < 1000 {
		t.Fatalf("known, rank, getRelationships, windows, list, links: %d differences, %d answers that are not empty", len(diffs), compared)
	}
}

type stats struct {
	Cursor                                    int64
	State                                     string
	Accounts, Hidden, Partial, Desynchronized int64
	Records                                   map[string]int64
}

func getStats(t *testing.T, base string) (s stats) {
	t.Helper()
	must(t, oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph.getStats", &s))
	return s
}

func replay(t *testing.T, x *app.Index, o consumer.Options) {
	t.Helper()
	c, err := x.Consumer(o)
	must(t, err)
	must(t, c.Run(t.Context()))
	for x.Graph.Erasing() {
		must(t, x.Graph.EraseSlice(t.Context()))
	}
}

func checkStore(t *testing.T, dir string) {
	t.Helper()
	s, err := app.OpenStore(t.Context(), app.StoreOptions{Store: dir, ReadOnly: true})
	must(t, err)
	must(t, check.Store(t.Context(), s, func(p string) { t.Error("check: " + p) }, nil))
	must(t, s.Close())
}

func TestTruth(t *testing.T) {
	tr := readTruth(t)
	for _, file := range []string{plainPDS, plainRelay} {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			for round, limit := range []int{1000, 7} { // the second one from cursor 0 into the same store
				if round == 1 && file == plainRelay {
					break // once more changes as little as with the other file
				}
				x, closeIt := open(t, dir, nil)
				o := consumer.Options{Frames: file}
				if round == 1 {
					o.Cursor, o.ForceCursor = new(int64), true
				}
				replay(t, x, o)
				base, _, stop := serve(t, x, nil)
				compare(t, tr, base, limit)
				s := getStats(t, base)
				if s.Partial != 0 || s.Desynchronized != 0 || s.Accounts != int64(len(tr.Accounts)) || s.Hidden != 4 {
					t.Errorf("round %d: %+v", round, s)
				}
				want := tr.RecordCounts()
				if !maps.Equal(s.Records, want) {
					t.Errorf("round %d: records %v, want %v", round, s.Records, want)
				}
				stop()
				closeIt()
				checkStore(t, dir)
			}
		})
	}
}

// The same over a socket, from a relay that drops the connection now and then, while the server
// answers and accounts' sets are watched.
func TestTruthOverSocket(t *testing.T) {
	tr := readTruth(t)
	all, err := synth.ReadFrames(plainPDS)
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	r := relay.NewRecorded(nil)
	var mu sync.Mutex
	r.DropAfter = func() int { mu.Lock(); defer mu.Unlock(); return 1 + rng.IntN(300) }
	srv := httptest.NewServer(r)
	defer srv.Close()
	dir := t.TempDir()
	x, closeIt := open(t, dir, nil)
	base, admin, stop := serve(t, x, &consumer.Options{
		Relay: srv.URL, Cursor: new(int64), MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Watchdog: 10 * time.Second,
	})
	watched := make([]*oracle.Watched, len(tr.Accounts))
	var watching sync.WaitGroup
	for n, did := range slices.Sorted(maps.Keys(tr.Accounts)) {
		set := []string{"followers(%s)", "follows(%s)", "intersect(follows(%[1]s),followers(%[1]s))", "except(follows(%[1]s),blocks(%[1]s))"}[n%4]
		watching.Go(func() { // each waits for the next round of the server
			var err error
			if watched[n], err = oracle.Watch(t.Context(), base, fmt.Sprintf(set, did)); err != nil {
				t.Error(err)
			}
		})
	}
	if watching.Wait(); t.Failed() {
		return
	}
	r.Append(all[:1000]...)
	waitForCursor(t, base, 1000)
	r.Append(all[1000:]...)
	waitForCursor(t, base, tr.FinalSeq)
	compare(t, tr, base, 1000)
	compareWatched(t, base, watched)
	if s := getStats(t, base); s.Desynchronized != 0 || s.Partial != 0 {
		t.Errorf("%+v", s)
	}
	n, _ := r.Connections()
	metrics := body(t, admin+"/metrics")
	if want := fmt.Sprintf("skein_consumer_reconnects_total %d\n", n-1); n < 5 || !strings.Contains(metrics, want) {
		t.Errorf("%d connections, but the metrics have no %q", n, want)
	}
	for _, path := range []string{"/healthz", "/readyz", "/debug/pprof/goroutine?debug=1"} {
		body(t, admin+path)
	}
	stop()
	closeIt()
	checkStore(t, dir)
}

// compareWatched compares watched sets, as the subscriptions reported them, with their members.
func compareWatched(t *testing.T, base string, all []*oracle.Watched) {
	t.Helper()
	some := 0
	for _, w := range all {
		want, _, err := oracle.Members(t.Context(), base, w.Set, 1000)
		must(t, err)
		slices.Sort(want)
		some += len(want)
		eventually(t, fmt.Sprintf("%s is reported as %q", w.Set, want), func() bool {
			got, wrong := w.Members()
			if len(wrong) > 0 {
				t.Fatalf("%s: %q", w.Set, wrong)
			}
			return slices.Equal(got, want)
		})
		must(t, w.Close())
	}
	if some < 100 {
		t.Errorf("the watched sets have only %d members", some)
	}
}

// body returns the body of an answer, which must be a 200.
func body(t *testing.T, address string) string {
	t.Helper()
	code, _, b := get(t, address, nil)
	if code != http.StatusOK {
		t.Fatalf("%s: %d", address, code)
	}
	return b
}

// get returns the answer to a GET that change, if set, changes.
func get(t *testing.T, address string, change func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, err)
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	must(t, err, resp.Body.Close())
	return resp.StatusCode, resp.Header, string(b)
}

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func waitForCursor(t *testing.T, base string, seq int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the cursor is %d", seq), func() bool { return getStats(t, base).Cursor >= seq })
}

// The real network: the index agrees with production Jetstream's output for the same messages.
func TestJetstream(t *testing.T) {
	expected, err := os.ReadFile(realNetwork + "expected_v1.jsonl")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(realNetwork + " is missing: the repository does not include messages of the real network")
	}
	must(t, err)
	want := map[string][]string{}
	puts, deletes := 0, 0
	for line := range bytes.Lines(expected) {
		var e struct {
			DID    string `json:"did"`
			Commit *struct {
				Operation, Collection, Rkey string
				Record                      struct{ Subject json.RawMessage }
			} `json:"commit"`
		}
		must(t, json.Unmarshal(line, &e))
		if e.Commit == nil {
			continue
		}
		for _, k := range kinds.All {
			if k.Collection != e.Commit.Collection {
				continue
			}
			if e.Commit.Operation == "delete" {
				deletes++
				continue
			}
			var subject string
			if json.Unmarshal(e.Commit.Record.Subject, &subject) != nil {
				var ref struct{ URI string }
				must(t, json.Unmarshal(e.Commit.Record.Subject, &ref))
				subject = ref.URI
			}
			puts++
			want[k.Forward+"("+e.DID+")"] = append(want[k.Forward+"("+e.DID+")"], subject)
			want[k.Reverse+"("+subject+")"] = append(want[k.Reverse+"("+subject+")"], e.DID)
		}
	}
	if puts < 50 {
		t.Fatalf("only %d records expected", puts)
	}
	dir := t.TempDir()
	x, closeIt := open(t, dir, nil)
	replay(t, x, consumer.Options{Frames: realNetwork + "frames-be.frames"})
	base, _, stop := serve(t, x, nil)
	for set, members := range want {
		slices.Sort(members)
		members = slices.Compact(members)
		got, total, err := oracle.Members(t.Context(), base, set, 7)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, members) || total != len(members) {
			t.Errorf("%s: got %q, %v, want %q", set, got, err, members)
		}
	}
	s := getStats(t, base)
	var records int64
	for _, n := range s.Records {
		records += n
	}
	if records != int64(puts) || s.Partial != 148 || s.Desynchronized != 0 { // 148 commits, each of a different repo
		t.Errorf("%d records created, %d deletes of unknown records; the index has %+v", puts, deletes, s)
	}
	stop()
	closeIt()
	checkStore(t, dir)
}

// Faults of the relay are logged, and the consumer recovers automatically.
func TestRelayFaults(t *testing.T) {
	all, err := synth.ReadFrames(plainPDS)
	must(t, err)
	slow, err := synth.ReadFrames("../../testdata/pds/error-consumertooslow.frames")
	must(t, err)
	for name, c := range map[string]struct {
		set  func(*relay.Recorded)
		log  string
		gaps int
		drop string
	}{
		"text":            {func(r *relay.Recorded) { r.Text = "hello" }, "text message", 1, "text_message"},
		"too large":       {func(r *relay.Recorded) { r.First = make([]byte, 9<<20) }, "too large", 1, "too_large"},
		"ConsumerTooSlow": {func(r *relay.Recorded) { r.First, r.FirstOnce = slow[0], true }, "ConsumerTooSlow", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := relay.NewRecorded(all[:200])
			c.set(r)
			srv := httptest.NewServer(r)
			defer srv.Close()
			log := &lockedBuffer{}
			x, _ := open(t, t.TempDir(), slog.New(slog.NewTextHandler(log, nil)))
			base, admin, stop := serve(t, x, &consumer.Options{Relay: srv.URL, Cursor: new(int64), MinBackoff: time.Millisecond})
			waitForCursor(t, base, 200)
			metrics := body(t, admin+"/metrics")
			stop()
			if !strings.Contains(log.String(), c.log) {
				t.Errorf("the log has no %q:\n%s", c.log, log)
			}
			if want := fmt.Sprintf("skein_consumer_gaps_total %d\n", c.gaps); !strings.Contains(metrics, want) {
				t.Errorf("the metrics have no %q", want)
			}
			if want := fmt.Sprintf("skein_consumer_dropped_total{reason=%q} 1\n", c.drop); c.drop != "" && !strings.Contains(metrics, want) {
				t.Errorf("the metrics have no %q", want)
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
