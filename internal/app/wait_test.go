package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// failing returns a function that returns the errors in turn, and then nil.
func failing(errs ...error) func() error {
	return func() error {
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}

// repeated returns err n times.
func repeated(n int, err error) (all []error) {
	for range n {
		all = append(all, fmt.Errorf("opening: %w", err))
	}
	return all
}

// A start waits for a cluster that does not answer, and logs the time waited once a minute, in
// units for people. A query node also waits for a writer to create the store.
func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		create bool
		errs   []error
		logs   map[string]int
		takes  time.Duration
		fails  error
	}{
		"nothing to wait for":  {true, nil, map[string]int{"wait": 0}, 0, nil},
		"a cluster":            {true, repeated(150, kv.ErrUnavailable), map[string]int{"waiting for the FoundationDB cluster": 3, "waited=1m0s": 1, "wait over\" waited=2m30s": 1}, 150 * time.Second, nil},
		"a writer":             {false, repeated(10, kv.ErrNotFound), map[string]int{"waiting for a writer": 1, "wait over": 1}, 10 * time.Second, nil},
		"its first rows":       {false, repeated(10, graph.ErrNoGraph), map[string]int{"waiting for a writer": 1}, 10 * time.Second, nil},
		"cluster, then writer": {false, append(repeated(5, kv.ErrUnavailable), repeated(5, graph.ErrNoGraph)...), map[string]int{"waiting for the FoundationDB cluster": 1, "waiting for a writer": 1, "wait over": 1}, 10 * time.Second, nil},
		"a writer finds none":  {true, repeated(1, kv.ErrNotFound), map[string]int{"wait": 0}, 0, kv.ErrNotFound},
		"a claimed share":      {true, repeated(1, graph.ErrClaimed), map[string]int{"wait": 0}, 0, graph.ErrClaimed},
		"an error after a day": {true, append(repeated(86_400, kv.ErrUnavailable), kv.ErrFormat), map[string]int{"waiting for the FoundationDB cluster": 1440, "wait over": 0}, 24 * time.Hour, kv.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				begun := time.Now()
				o := StoreOptions{Wait: true, Create: test.create, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				if err := o.await(t.Context(), failing(test.errs...)); !errors.Is(err, test.fails) {
					t.Errorf("the wait ended with %v", err)
				}
				if took := time.Since(begun); took != test.takes {
					t.Errorf("the wait took %v", took)
				}
				for text, times := range test.logs {
					if n := strings.Count(log.String(), text); n != times {
						t.Errorf("%q logged %d times, want %d", text, n, times)
					}
				}
			})
		})
	}
}

// The end of the context ends the wait. Only daemons wait.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		never := func() error { return kv.ErrUnavailable }
		o := StoreOptions{Wait: true}
		if err := o.await(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		o.Wait = false
		if err := o.await(t.Context(), never); !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a command: %v", err)
		}
	})
}

// A store without a graph has an error of its own, different from a store of another format.
func TestStoreWithoutGraphHasItsOwnError(t *testing.T) {
	for _, o := range []graph.Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: graph.Merger()}), o); !errors.Is(err, graph.ErrNoGraph) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// away is a store whose cluster may be known not to answer.
type away struct {
	kv.Store
	err error
}

func (a *away) View(ctx context.Context, fn func(kv.Reader) error) error {
	return errors.Join(a.err, a.Store.View(ctx, fn))
}

// openHere opens a new index until the test ends.
func openHere(t *testing.T) *Index {
	t.Helper()
	x, err := OpenIndex(t.Context(), StoreOptions{Store: t.TempDir(), Create: true})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close(context.Background())) })
	return x
}

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

// While the cluster is known not to answer, the node is not ready, and gives the reason.
func TestReadyzGivesTheClusterAsReason(t *testing.T) {
	cluster := &away{Store: memkv.Open(memkv.Options{Merger: graph.Merger()})}
	g, err := graph.Open(t.Context(), cluster, graph.Options{})
	must(t, err)
	defer func() { must(t, g.Close(context.Background())) }()
	admin := (&server{Index: &Index{Graph: g, KV: cluster, Registry: prometheus.NewRegistry()}}).admin()
	for _, test := range []struct {
		err  error
		code int
		body string
	}{
		{nil, 200, "ready\n"},
		{fmt.Errorf("the FoundationDB cluster of /x has not answered for 12s: %w", kv.ErrUnavailable), 503, "not ready: the FoundationDB cluster of /x has not answered for 12s: kv: the store does not answer\n"},
		{nil, 200, "ready\n"},
	} {
		cluster.err = test.err
		rec := httptest.NewRecorder()
		admin.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if rec.Code != test.code || rec.Body.String() != test.body {
			t.Errorf("%v: %d %s", test.err, rec.Code, rec.Body)
		}
	}
}

// A list for the operator is whole, also if it takes longer than a stranger may.
func TestListsTakeTheirTime(t *testing.T) {
	srv := httptest.NewUnstartedServer(new(server).lines(func(ctx context.Context, each func(any) error) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
			return each("row")
		}
	}))
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 50*time.Millisecond, 100*time.Millisecond
	srv.Start()
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	if must(t, resp.Body.Close()); err != nil || string(b) != "\"row\"\n" {
		t.Errorf("the list is %q, %v", b, err)
	}
}

// While a writer is missing or behind, the others are ready, but not current, and a metric says of how much.
func TestReadyzNamesWhatIsUnwritten(t *testing.T) {
	x := openHere(t)
	store := memkv.Open(memkv.Options{Merger: graph.Merger()})
	open := func() *graph.Store {
		g, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}, Joins: true})
		must(t, err)
		return g
	}
	g, others := open(), []*graph.Store{open(), open(), open()}
	must(t, g.Move(t.Context()))
	for _, other := range others { // before they have any partition
		must(t, other.Close(t.Context()))
	}
	defer func() { must(t, g.Close(context.Background())) }()
	x.Graph, x.KV = g, store
	node, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}, ReadOnly: true})
	must(t, err)
	if node.Unwritten().Percent() != 100 {
		t.Errorf("before it has heard a writer, a node misses %d %%", node.Unwritten().Percent())
	}
	must(t, g.ImportCursor(t.Context(), format.Cursor{Source: "relay.test", Seq: 1, Time: time.Now()}, 1))
	c, err := consumer.New(g, consumer.Options{Relay: "wss://relay.test"})
	must(t, err)
	x.consumer.Store(c)
	x.part = true
	s := &server{Index: x, o: ServeOptions{Consume: &consumer.Options{}}}
	s.stored.Store(time.Now().Add(-30 * time.Minute).UnixMicro()) // of another writer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = g.FollowWriters(ctx) }()
	for g.Unwritten().Percent() != 75 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	admin := s.admin()
	for path, want := range map[string]string{
		"/readyz":           "200 ready, but 75 % of the network is not indexed: a writer has stopped\n",
		"/readyz?maxLag=1h": "503 not ready: 75 % of the network is not indexed: a writer has stopped\n",
		"/readyz?maxLag=9m": "503 not ready: the index is 30m0s behind, which is more than 9m0s\n",
		"/metrics":          "\nskein_graph_unwritten_ratio 0.75\n",
	} {
		rec := httptest.NewRecorder()
		admin.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if got := fmt.Sprintf("%d %s", rec.Code, rec.Body); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A daemon whose partitions were taken over ends with that error, even with nothing to write.
func TestServeEndsWhenFenced(t *testing.T) {
	x := openHere(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a failing Serve would never end
	defer cancel()
	err := x.Serve(ctx, ServeOptions{
		Listen: "127.0.0.1:0",
		Ready:  func(net.Addr, net.Addr) { x.fenced <- fmt.Errorf("%w: taken over", graph.ErrClaimed) },
	})
	if !errors.Is(err, graph.ErrClaimed) || ctx.Err() != nil {
		t.Errorf("Serve ended with %v", err)
	}
}

// A complete backup counts as one, although the list of backups cannot be written.
func TestBackupWithoutAList(t *testing.T) {
	dir := t.TempDir()
	to, err := backup.OpenTarget(dir)
	must(t, err, os.Mkdir(filepath.Join(dir, "index.json"), 0o755))
	s, last := &server{Index: openHere(t)}, prometheus.NewGauge(prometheus.GaugeOpts{})
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.backUp(ctx, &BackupSchedule{Job: BackupJob{Target: to}, Every: time.Second}, last) })
	for testutil.ToFloat64(last) == 0 {
		if all, err := backup.List(ctx, to); err != nil || len(all) > 1 {
			t.Fatal(all, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	done.Wait()
}
