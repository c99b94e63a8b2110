package backfill

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// idle returns a Manager on a new store that works on nothing: tests call its steps.
func idle(t *testing.T, o Options) *Manager {
	t.Helper()
	if o.Relay == "" {
		o.Relay = "http://127.0.0.1:1"
	}
	o.AllowPrivateHosts = true
	q := NewQueue(o)
	g, err := graph.Open(t.Context(), newStore(), graph.Options{Queued: q.Add})
	must(t, err)
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return New(g, q)
}

// rowOf returns the row of an account in the queue.
func rowOf(t *testing.T, m *Manager, did string) (row *format.Resync) {
	t.Helper()
	_, _, row, err := m.o.account(t.Context(), did)
	must(t, err)
	return row
}

// The answer of a host that sends no repo decides whose fault it is, whether the host rests, and how
// long.
func TestAnswersOfHosts(t *testing.T) {
	type want struct {
		why                     string
		final, host, gone, busy bool
		after                   time.Duration
	}
	soon := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for _, c := range []struct {
		name   string
		code   int
		body   string
		header [2]string
		want   want
	}{
		{"a taken down account", 400, `{"error":"RepoTakendown","message":"Repo has been takendown"}`, [2]string{}, want{why: inactive}},
		{"a deactivated account", 400, `{"error":"RepoDeactivated"}`, [2]string{}, want{why: inactive}},
		{"a suspended account", 403, `{"error":"RepoSuspended"}`, [2]string{}, want{why: inactive}},
		{"no such repo", 400, `{"error":"RepoNotFound","message":"Could not find repo for DID"}`, [2]string{}, want{why: failNotFound, gone: true}},
		{"no such page", 404, `<h1>not found</h1>`, [2]string{}, want{why: failNotFound}},
		{"no such repo, with 404", 404, `{"error":"RepoNotFound"}`, [2]string{}, want{why: failNotFound, gone: true}},
		{"too many requests", 429, `{"error":"RateLimitExceeded"}`, [2]string{}, want{why: failHost, host: true, busy: true, after: time.Second}},
		{"too many requests, until a time", 429, ``, [2]string{"Retry-After", "7"}, want{why: failHost, host: true, busy: true, after: 7 * time.Second}},
		{"a limit that ends in an hour", 429, ``, [2]string{"Ratelimit-Reset", soon}, want{why: failHost, host: true, busy: true, after: time.Hour}},
		{"out of order", 503, ``, [2]string{"Retry-After", "30"}, want{why: failHost, host: true, after: 30 * time.Second}},
		{"a gateway", 502, `<html>`, [2]string{}, want{why: failHost, host: true}},
		{"an internal error with a name", 500, `{"error":"RepoNotFound"}`, [2]string{}, want{why: failNotFound, gone: true}},
		{"a token is required", 401, `{"error":"AuthRequired"}`, [2]string{}, want{why: failRefused}},
		{"forbidden", 403, `no`, [2]string{"Retry-After", "3"}, want{why: failRefused, after: 3 * time.Second}},
		{"no content", 204, ``, [2]string{}, want{why: failRefused}},
		{"a name that is no string", 400, `{"error":{"RepoNotFound":1}}`, [2]string{}, want{why: failRefused}},
		{"an endless error", 400, `{"error":"RepoNotFound","message":"` + strings.Repeat("x", 10_000) + `"}`, [2]string{}, want{why: failRefused}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.header[0] != "" {
					w.Header().Set(c.header[0], c.header[1])
				}
				if c.header[0] == "Ratelimit-Reset" {
					w.Header().Set("Ratelimit-Remaining", "0")
				}
				w.WriteHeader(c.code)
				if c.body != "" {
					_, _ = io.WriteString(w, c.body)
				}
			})
			m := idle(t, Options{})
			r := m.fetcher.reader()
			defer r.Release()
			_, err := m.fetcher.getRepo(t.Context(), at, "did:web:a.example.com", r)
			f, ok := errors.AsType[*failure](err)
			if !ok {
				t.Fatalf("%v", err)
			}
			got := want{f.why, f.final, f.host, f.gone, f.busy, f.after}
			if c.want.after > time.Minute && got.after > c.want.after-10*time.Second && got.after <= c.want.after {
				got.after = c.want.after
			}
			if got != c.want {
				t.Errorf("%+v, want %+v (%v)", got, c.want, err)
			}
			if !strings.Contains(err.Error(), f.why) || len(err.Error()) > 4000 {
				t.Errorf("the error does not name the reason, or is long: %.200s", err.Error())
			}
		})
	}
}

// A body that is not the whole repo of the account fails with the reason that tells whose fault it is.
func TestBodiesOfHosts(t *testing.T) {
	const did = "did:web:a.example.com"
	whole := likesOf(did, 50, 60)
	broken := slices.Clone(whole)
	broken[len(broken)/2] ^= 1
	for _, c := range []struct {
		name  string
		serve func(w http.ResponseWriter)
		why   string
		host  bool
		final bool
		text  string
	}{
		{"whole", func(w http.ResponseWriter) { _, _ = w.Write(whole) }, "", false, false, ""},
		{"of another account", func(w http.ResponseWriter) { _, _ = w.Write(likesOf("did:web:b.example.com", 3, 60)) }, failInvalid, false, false, "sent the repo of did:web:b.example.com"},
		{"empty", func(http.ResponseWriter) {}, failInvalid, false, false, ""},
		{"a page", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<!doctype html><p>Hello</p>") }, failInvalid, false, false, ""},
		{"changed", func(w http.ResponseWriter) { _, _ = w.Write(broken) }, failInvalid, false, false, ""},
		{"cut between two blocks, or in one, without an error", func(w http.ResponseWriter) { _, _ = w.Write(whole[:len(whole)*2/3]) }, failInvalid, false, false, ""},
		{"broken off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
			_, _ = w.Write(whole[:len(whole)/2])
		}, failHost, true, false, "broke off"},
		{"larger than allowed", func(w http.ResponseWriter) { _, _ = w.Write(likesOf(did, 400, 60)) }, failTooLarge, false, true, "KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/xrpc/com.atproto.sync.getRepo" || r.URL.Query().Get("did") != did {
					t.Errorf("requested: %s", r.URL)
				}
				c.serve(w)
			})
			m := idle(t, Options{MaxRepoBytes: int64(len(whole)) + 1000})
			r := m.fetcher.reader()
			defer r.Release()
			n, err := m.fetcher.getRepo(t.Context(), at, did, r)
			if c.why == "" {
				if err != nil || n != int64(len(whole)) {
					t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
				}
				return
			}
			f, ok := errors.AsType[*failure](err)
			if !ok || f.why != c.why || f.host != c.host || f.final != c.final || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v, want %s", f, c.why)
			}
		})
	}
}

// While the PLC directory is down, nobody knows whether an account that its host calls inactive has moved: it stays as it was.
func TestPerhapsMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.add(1, 3)
	x := w.index(newStore(), nil)
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "operator"}, a.did))
	await(t, "the repo", func() bool { st, row := x.stateOf(t, a.did); return st.Whole() && row == nil })
	w.change(func() { w.dirDown, a.active = true, false })
	asked := w.hosts[0].requests.Load()
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "operator"}, a.did))
	await(t, "the host to be asked, and the repo to wait", func() bool {
		_, row := x.stateOf(t, a.did)
		return w.hosts[0].requests.Load() > asked && row != nil && row.Failure != ""
	})
	if st, row := x.stateOf(t, a.did); st.Has(format.FlagHidden) || row.State != graph.ResyncWaiting {
		t.Errorf("%+v, queued %+v", st, row)
	}
}

// A process refuses the repos of partitions that it does not write instead of forgetting them.
func TestReposOfOtherWriters(t *testing.T) {
	store := newStore()
	for _, owns := range []bool{true, false} {
		q := NewQueue(Options{})
		g, err := graph.Open(t.Context(), store, graph.Options{Queued: q.Add, ReadOnly: !owns})
		must(t, err)
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		m := New(g, q)
		if err := m.Resync(t.Context(), batch.Cause{Reason: "operator"}, "did:web:example.com"); (err == nil) != owns || (m.queue.waiting() > 0) != owns {
			t.Errorf("owned %v: %v, %d repos wait", owns, err, m.queue.waiting())
		}
	}
}
