package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/fence"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/memkv"
)

// failing returns the errors one after the other, and then nil.
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

// A start that meets a cluster that is away waits, and says so once a minute, with how long as
// people read it. A node that only answers also waits for the writer that begins the store.
func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		create bool
		errs   []error
		says   map[string]int
		takes  time.Duration
		fails  error
	}{
		"nothing to wait for":  {true, nil, map[string]int{"wait": 0}, 0, nil},
		"a cluster":            {true, repeated(150, kv.ErrUnavailable), map[string]int{"the cluster does not answer: waiting until it does": 3, "waited=1m0s": 1, "the wait is over\" waited=2m30s": 1}, 150 * time.Second, nil},
		"a writer":             {false, repeated(10, kv.ErrNotFound), map[string]int{"no writer has begun the store yet": 1, "the wait is over": 1}, 10 * time.Second, nil},
		"its first rows":       {false, repeated(10, graph.ErrNoGraph), map[string]int{"no writer has begun the store yet": 1}, 10 * time.Second, nil},
		"one, then the other":  {false, append(repeated(5, kv.ErrUnavailable), repeated(5, graph.ErrNoGraph)...), map[string]int{"the cluster does not answer": 1, "no writer has begun": 1, "the wait is over": 1}, 10 * time.Second, nil},
		"a writer finds none":  {true, repeated(1, kv.ErrNotFound), map[string]int{"wait": 0}, 0, kv.ErrNotFound},
		"a claimed share":      {true, repeated(1, fence.ErrClaimed), map[string]int{"wait": 0}, 0, fence.ErrClaimed},
		"an error after a day": {true, append(repeated(86_400, kv.ErrUnavailable), kv.ErrFormat), map[string]int{"the cluster does not answer": 1440, "the wait is over": 0}, 24 * time.Hour, kv.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				begun := time.Now()
				o := StoreOptions{Wait: true, Create: test.create, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				if err := o.await(t.Context(), failing(test.errs...)); !errors.Is(err, test.fails) {
					t.Errorf("it ends with %v", err)
				}
				if took := time.Since(begun); took != test.takes {
					t.Errorf("it took %v", took)
				}
				for text, times := range test.says {
					if n := strings.Count(log.String(), text); n != times {
						t.Errorf("%q is said %d times, want %d", text, n, times)
					}
				}
			})
		})
	}
}

// The end of the context ends the wait, and a command that is no daemon does not wait.
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

// A graph that nobody has begun is told apart from one of another format.
func TestNoGraph(t *testing.T) {
	for _, o := range []graph.Options{{ReadOnly: true}, {MustExist: true}} {
		store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
		if _, err := graph.Open(t.Context(), store, o); !errors.Is(err, graph.ErrNoGraph) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// away is a store whose cluster is known not to answer.
type away struct {
	kv.Store
	err error
}

func (a *away) Healthy() error { return a.err }

// While it is known that the cluster does not answer, the node is not ready, and says why.
func TestReadyzSaysThatTheClusterIsAway(t *testing.T) {
	x, err := OpenIndex(t.Context(), StoreOptions{Store: t.TempDir(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	cluster := &away{Store: x.KV}
	x.KV = cluster
	admin := x.admin()
	for _, test := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 200, "ready\n"},
		{fmt.Errorf("the FoundationDB cluster of /x has not answered for 12s: %w", kv.ErrUnavailable), 503, "not ready: the FoundationDB cluster of /x has not answered for 12s: kv: the store does not answer\n"},
		{nil, 200, "ready\n"},
	} {
		cluster.err = test.err
		rec := httptest.NewRecorder()
		admin.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if rec.Code != test.code || rec.Body.String() != test.says {
			t.Errorf("%v: %d %s", test.err, rec.Code, rec.Body)
		}
	}
}

// A daemon whose partitions another took over ends, and says so, with nothing to write.
func TestServeEndsWhenFenced(t *testing.T) {
	x, err := OpenIndex(t.Context(), StoreOptions{Store: t.TempDir(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // else it would not end
	defer cancel()
	err = x.Serve(ctx, ServeOptions{
		Listen: "127.0.0.1:0",
		Ready:  func(net.Addr, net.Addr) { x.fenced <- fmt.Errorf("%w: taken over", fence.ErrClaimed) },
	})
	if !errors.Is(err, fence.ErrClaimed) || ctx.Err() != nil {
		t.Errorf("it ended with %v", err)
	}
}
