package backfill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/ask"
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
	m := New(o)
	g, err := graph.Open(t.Context(), newStore(), graph.Options{Embedded: true, Queued: m.Queued})
	if err != nil {
		t.Fatal(err)
	}
	m.SetStore(g)
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// rowOf returns the row of an account in the queue.
func rowOf(t *testing.T, m *Manager, did string) (row *format.Resync) {
	t.Helper()
	if err := m.o.Store.View(t.Context(), func(s *ask.View) (err error) { _, _, row, err = s.Account(did); return err }); err != nil {
		t.Fatal(err)
	}
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
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
			}))
			defer srv.Close()
			m := idle(t, Options{})
			r := m.reader()
			defer free(r)
			_, err := m.getRepo(t.Context(), srv.URL, "did:web:a.example.com", r)
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
		{"larger than allowed", func(w http.ResponseWriter) { _, _ = w.Write(likesOf(did, 400, 60)) }, failTooLarge, false, true, "--max-repo-bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/xrpc/com.atproto.sync.getRepo" || r.URL.Query().Get("did") != did {
					t.Errorf("requested: %s", r.URL)
				}
				c.serve(w)
			}))
			defer srv.Close()
			m := idle(t, Options{MaxRepoBytes: int64(len(whole)) + 1000})
			r := m.reader()
			defer free(r)
			n, err := m.getRepo(t.Context(), srv.URL, did, r)
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

// ticking is a body that sends one chunk after each wait.
type ticking struct {
	chunk []byte
	wait  time.Duration
	n     int
}

func (r *ticking) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	r.n--
	time.Sleep(r.wait)
	return copy(p, r.chunk), nil
}

// A repo that arrives more slowly than the lowest rate fails; one that is as fast does not, and the
// time that skein itself takes between two reads does not count.
func TestRateOfRepos(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int // a second
		own   time.Duration
		grace time.Duration
		fails bool
	}{
		{"at the rate", 1000, 0, 0, false},
		{"a little faster, with long breaks of ours", 1010, time.Minute, 0, false},
		{"a little slower", 990, 0, 0, true},
		{"slower, within the grace", 990, 0, time.Minute, false},
		{"far slower, within the grace and no longer", 10, 0, 20 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := time.Now().Add(c.grace)
				body := &meteredBody{Reader: &ticking{make([]byte, c.bytes), time.Second, 30}, least: 1000, from: from}
				p := make([]byte, 4096)
				var err error
				read := 0
				for err == nil {
					var n int
					n, err = body.Read(p)
					read += n
					time.Sleep(c.own)
				}
				if errors.Is(err, errSlow) != c.fails || !c.fails && (!errors.Is(err, io.EOF) || read != 30*c.bytes) || body.n != int64(read) {
					t.Errorf("after %d bytes, counted %d: %v", read, body.n, err)
				}
			})
		})
	}
}

// The errors of the body itself are passed on.
func TestMeteredErrors(t *testing.T) {
	want := errors.New("reset by peer")
	body := &meteredBody{Reader: iotest.ErrReader(want), least: 1 << 40, from: time.Now().Add(-time.Hour)}
	if _, err := body.Read(make([]byte, 10)); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// Texts from strangers are kept short, valid, and otherwise as they are.
func TestShorten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := make([]byte, rng.IntN(700))
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		s := string(b)
		if rng.IntN(2) == 0 {
			s = strings.Repeat("é", len(b)/2)
		}
		got := shorten(s)
		if !utf8.ValidString(got) || len(got) > 300+len("…") {
			t.Fatalf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(s) && len(s) <= 300 && got != s {
			t.Fatalf("%q, want %q", got, s)
		}
		if utf8.ValidString(s) && len(s) > 300 && !strings.HasPrefix(s, strings.TrimSuffix(got, "…")) {
			t.Fatalf("%q is not a prefix of %q", got, s)
		}
	}
}

// After a failure, a repo is retried later and later, given up when retrying is useless or was tried
// often enough, and hidden where its host says so.
func TestRetries(t *testing.T) {
	const did = "did:web:a.example.com"
	for _, c := range []struct {
		name     string
		f        error
		tries    int // before this failure
		state    string
		failure  string
		least    time.Duration // the wait until the next try
		hidden   bool
		nextTry  bool
		countsAs int // tries afterwards
	}{
		{"a first failure", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 0, format.ResyncWaiting, failHost, time.Second, false, true, 1},
		{"the fifth", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 4, format.ResyncWaiting, failHost, 16 * time.Second, false, true, 5},
		{"the last", &failure{why: failHost, err: io.ErrUnexpectedEOF, host: true}, 7, format.ResyncFailed, failHost, 0, false, false, 8},
		{"the host asks to wait", &failure{why: failRefused, err: io.EOF, after: 10 * time.Minute}, 0, format.ResyncWaiting, failRefused, 10 * time.Minute, false, true, 1},
		{"the host asks to wait for a year", &failure{why: failRefused, err: io.EOF, after: 365 * 24 * time.Hour}, 0, format.ResyncWaiting, failRefused, time.Hour, false, true, 1},
		{"not found", &failure{why: failNotFound, err: io.EOF}, 2, format.ResyncWaiting, failNotFound, 4 * time.Second, false, true, 3},
		{"not found four times", &failure{why: failNotFound, err: io.EOF}, 3, format.ResyncFailed, failNotFound, 0, false, false, 4},
		{"gone four times", &failure{why: failNotFound, err: io.EOF, gone: true}, 3, format.ResyncFailed, failNotFound, 0, true, false, 4},
		{"no document four times", &failure{why: failNoDID, err: io.EOF}, 3, format.ResyncFailed, failNoDID, 0, false, false, 4},
		{"too large", &failure{why: failTooLarge, err: io.EOF, final: true}, 0, format.ResyncFailed, failTooLarge, 0, false, false, 1},
		{"inactive", &failure{why: inactive, err: io.EOF}, 5, format.ResyncInactive, "", 0, false, false, 0},
		{"an error without a class", io.ErrClosedPipe, 0, format.ResyncWaiting, failHost, time.Second, false, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := idle(t, Options{Tries: 8, Retry: 2 * time.Second})
			if err := m.Resync(t.Context(), "test", did); err != nil {
				t.Fatal(err)
			}
			_, err := m.o.Store.ChangeResync(t.Context(), did, func(r *format.Resync) bool { r.Tries = c.tries; return true })
			if err != nil {
				t.Fatal(err)
			}
			j, _, _ := m.sched.next(time.Now(), true)
			if j == nil || j.did != did {
				t.Fatalf("the next job is %+v", j)
			}
			before := time.Now()
			m.failedJob(t.Context(), j, c.f)
			row := rowOf(t, m, did)
			if row == nil || row.State != c.state || row.Failure != c.failure || row.Tries != c.countsAs {
				t.Fatalf("%+v, want state %v, failure %q, %d tries", row, c.state, c.failure, c.countsAs)
			}
			if wait := row.Due.Sub(before); c.state == format.ResyncWaiting && (wait < c.least-time.Millisecond || wait > 2*c.least+time.Second) {
				t.Errorf("retried after %v, want %v to %v", wait, c.least, 2*c.least)
			}
			if next := m.sched.jobs[did]; (next != nil) != c.nextTry || next != nil && !next.due.Equal(row.Due) {
				t.Errorf("in the queue in memory: %+v, stored: %+v", next, row)
			}
			if _, parked := m.parked[did]; parked == c.nextTry {
				t.Errorf("parked: %v", m.parked)
			}
			var st format.RepoState
			if err := m.o.Store.View(t.Context(), func(s *ask.View) (err error) { st, _, _, err = s.Account(did); return err }); err != nil || st.Has(format.FlagHidden) != c.hidden {
				t.Errorf("hidden: %v, want %v (%v)", st.Has(format.FlagHidden), c.hidden, err)
			}
		})
	}
}

// A host or the memory that is busy does not count as a try, unless it stays so.
func TestBusyIsNotATry(t *testing.T) {
	const did = "did:web:a.example.com"
	m := idle(t, Options{Tries: 8, Retry: time.Millisecond})
	if err := m.Resync(t.Context(), "test", did); err != nil {
		t.Fatal(err)
	}
	busy := &failure{why: failNoRoom, err: repo.ErrNoRoom, busy: true}
	for n := range mostBusy + 1 {
		j, _, _ := m.sched.next(time.Now().Add(time.Second), true)
		if j == nil {
			t.Fatalf("no job after %d failures", n)
		}
		m.failedJob(t.Context(), j, busy)
		if tries := rowOf(t, m, did).Tries; (tries > 0) != (n == mostBusy) {
			t.Fatalf("%d tries after the host was busy %d times", tries, n+1)
		}
	}
}

// More was missed of a repo while its last fetch failed: it is not given up. The wait is as long as
// after any failure, so an account that loses events at will, on a host that always fails, costs
// no more than others.
func TestFailureOfAnOldFetch(t *testing.T) {
	const did = "did:web:a.example.com"
	m := idle(t, Options{Tries: 3, Retry: 2 * time.Second})
	if err := m.Resync(t.Context(), "test", did); err != nil {
		t.Fatal(err)
	}
	for n := range 8 {
		j, _, _ := m.sched.next(time.Now().Add(time.Hour), true)
		if j == nil {
			t.Fatal("no job")
		}
		if err := m.Resync(t.Context(), "test", did); err != nil { // missed again, while the fetch runs
			t.Fatal(err)
		}
		m.failedJob(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
		row := rowOf(t, m, did)
		if row == nil || row.State != format.ResyncWaiting || row.Tries != min(n+1, 2) || time.Until(row.Due) < 500*time.Millisecond {
			t.Fatalf("after %d failures: %+v", n+1, row)
		}
		if next := m.sched.jobs[did]; next == nil || next.running || next.generation != row.Generation || !next.due.Equal(row.Due) {
			t.Fatalf("in memory: %+v, stored: %+v", next, row)
		}
	}
	j, _, _ := m.sched.next(time.Now().Add(time.Hour), true)
	m.failedJob(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if row := rowOf(t, m, did); row.State != format.ResyncFailed {
		t.Errorf("nothing more was missed, but it is not given up: %+v", row)
	}
}

// A repo that was taken from the queue while its fetch failed does not return to it.
func TestFailureAfterRemoval(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 5)
	m := idle(t, Options{})
	if err := m.Resync(t.Context(), "test", a.did); err != nil {
		t.Fatal(err)
	}
	j, _, _ := m.sched.next(time.Now(), true)
	if p, err := m.PlaceCAR(t.Context(), bytes.NewReader(a.car())); err != nil || p.Outcome != batch.Placed.String() {
		t.Fatalf("%+v, %v", p, err)
	}
	m.failedJob(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if row := rowOf(t, m, a.did); row != nil || m.sched.jobs[a.did] != nil || len(m.parked) > 0 {
		t.Errorf("stored: %+v, in memory: %+v, parked: %v", row, m.sched.jobs[a.did], m.parked)
	}
}

// A repo that was removed from the queue while its fetch failed, and then queued again, stays in the
// queue.
func TestFailureAfterRequeue(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 5)
	m := idle(t, Options{})
	if err := m.Resync(t.Context(), "test", a.did); err != nil {
		t.Fatal(err)
	}
	j, _, _ := m.sched.next(time.Now(), true)
	if p, err := m.PlaceCAR(t.Context(), bytes.NewReader(a.car())); err != nil || p.Outcome != batch.Placed.String() {
		t.Fatalf("%+v, %v", p, err)
	}
	due := time.Now().Add(time.Second)
	m.sched.put(a.did, j.generation+7, due, 0, "") // between the removal and the end of failedJob
	m.failedJob(t.Context(), j, &failure{why: failHost, err: io.EOF, host: true})
	if next := m.sched.jobs[a.did]; next == nil || next.running || next.again || next.generation != j.generation || !next.due.Equal(due) || len(m.parked) > 0 {
		t.Errorf("in memory: %+v, parked: %v", next, m.parked)
	}
}

// A superseded repo is fetched again for the generation that the store has, whatever its job knew,
// unless it is no longer queued.
func TestSuperseded(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 5)
	for _, c := range []struct {
		name    string
		stored  int64  // generation in the store, above the job's
		again   uint64 // generation that the scheduler is given meanwhile, above the job's
		removed bool
		want    int64 // above the job's; 0: it is not queued
	}{
		{"a later generation", 5, 0, false, 5},
		{"an earlier one: the clock was put back", -5, 0, false, -5},
		{"queued again meanwhile", 5, 9, false, 9},
		{"removed", 0, 0, true, 0},
		{"removed and queued again", 0, 9, true, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := idle(t, Options{})
			if err := m.Resync(t.Context(), "test", a.did); err != nil {
				t.Fatal(err)
			}
			j, _, _ := m.sched.next(time.Now(), true)
			before := j.generation
			if _, err := m.o.Store.ChangeResync(t.Context(), a.did, func(r *format.Resync) bool { r.Generation += uint64(c.stored); return true }); err != nil {
				t.Fatal(err)
			}
			if c.removed {
				if p, err := m.PlaceCAR(t.Context(), bytes.NewReader(a.car())); err != nil || p.Outcome != batch.Placed.String() {
					t.Fatalf("%+v, %v", p, err)
				}
			}
			if c.again > 0 {
				m.sched.put(a.did, before+c.again, time.Now(), 0, "")
			}
			m.placed(t.Context(), j, batch.Superseded, 5, nil)
			m.jobs.Wait()
			next := m.sched.jobs[a.did]
			if (next != nil) != (c.want != 0) || next != nil && (next.generation != before+uint64(c.want) || next.running || next.again || next.index < 0) {
				t.Errorf("in memory: %+v, want generation %d", next, before+uint64(c.want))
			}
		})
	}
}

// An operator who knows that a repo was restored from a backup makes skein believe its host, which
// has an older state than the stream brought.
func TestBelieve(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(0, 6)
	x := w.index(newStore(), func(o *Options) { o.Tries = 2 })
	w.fetched(x, a)
	w.mu.Lock()
	records, rev := maps.Clone(a.records), a.rev
	w.mu.Unlock()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 4 {
		x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) })
	}
	w.mu.Lock()
	a.records, a.rev, a.packed = records, rev, nil // restored
	a.car()
	w.mu.Unlock()
	w.fetched(x, a)
	if st, row := x.stateOf(t, a.did); uint64(st.Rev) == rev || row == nil || row.Failure != failOlder {
		t.Fatalf("believed without being told: %+v, queued: %+v", st, row)
	}
	if err := x.m.Believe(t.Context(), a.did); err != nil {
		t.Fatal(err)
	}
	x.settle(t)
	if st, row := x.stateOf(t, a.did); uint64(st.Rev) != rev || !st.Complete() || row != nil {
		t.Errorf("%+v, queued: %+v", st, row)
	}
	x.has(t, w)
}
