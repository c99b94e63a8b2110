package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/consumer/proof"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// history is a server of an archive of some 20,000 records.
type history struct {
	*httptest.Server

	plans    atomic.Int64
	segments atomic.Int64
	wrong    atomic.Pointer[http.HandlerFunc] // answers instead of the archive
}

// begin makes an archive, and serves it.
func begin(t *testing.T) *history {
	t.Helper()
	archived := relay.NewArchive(network.Options{Seed: 3, Accounts: 4096, History: 5})
	h := &history{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "planSnapshot") {
			h.plans.Add(1)
		} else {
			h.segments.Add(1)
		}
		if wrong := h.wrong.Load(); wrong != nil {
			(*wrong)(w, r)
			return
		}
		archived.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

// exported returns the accounts and records of a store, as text. The times of jobs, and the sum over
// them, differ between two stores.
func exported(t *testing.T, store kv.Store) string {
	t.Helper()
	var b strings.Builder
	_, err := export.Write(t.Context(), store, &b, nil)
	must(t, err)
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, `{"doubts"`) && !strings.HasPrefix(line, `{"end"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// An archive is read in the background. At its end, its accounts are complete, the job is on record,
// and only one job runs at a time.
func TestArchiveJob(t *testing.T) {
	h := begin(t)
	var reading atomic.Int64
	w := newWorld(t, 1)
	var heard atomic.Bool
	w.deaf = true
	var x *index
	var begun atomic.Int64 // when it began, by the store
	x = w.index(newStore(), func(o *Options) {
		o.Relay = "" // its list has none of these accounts
		o.Listening = func() (time.Time, bool) { return time.Time{}, heard.Load() }
		o.Archiving = func(is bool) {
			if is {
				begun.CompareAndSwap(0, x.g.Backfill().Begun.UnixMilli())
				reading.Add(1)
			} else {
				reading.Add(-1)
			}
		}
	})
	nothing := http.HandlerFunc(http.NotFound)
	h.wrong.Store(&nothing)
	must(t, x.m.Archive(t.Context(), h.URL))
	time.Sleep(100 * time.Millisecond)
	if st := x.m.StatusNow(); !st.Busy {
		t.Errorf("before the stream is heard: %+v", st)
	}
	now := time.Now().UnixMilli()
	heard.Store(true)
	if st := x.settle(t); begun.Load() < now || !strings.Contains(st.Ended["archive"], "refused") || x.g.Backfill().Archive != "" {
		t.Errorf("an address of something else: %q, stored: %+v; begun %d ms after the stream", st.Ended["archive"], x.g.Backfill(), begun.Load()-now)
	}
	hold := make(chan struct{})
	wait := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { <-hold; rw.WriteHeader(http.StatusServiceUnavailable) })
	h.wrong.Store(&wait)
	must(t, x.m.Archive(t.Context(), h.URL))
	if err := x.m.Archive(t.Context(), h.URL); !errors.Is(err, ErrBusy) {
		t.Errorf("a second archive at the same time: %v", err)
	}
	if st := x.m.StatusNow(); st.Archive != h.URL || !st.Busy {
		t.Errorf("%+v, want that it reads %s", st, h.URL)
	}
	if b := x.g.Backfill(); b.Archive != h.URL || b.Begun.IsZero() {
		t.Errorf("stored: %+v", b)
	}
	h.wrong.Store(nil)
	close(hold)
	st := x.settle(t)
	if st.Ended["archive"] != "ok" || st.Archive != "" || st.Complete == 0 || st.Complete != st.Accounts || st.Records < 20_000 || st.Bytes == 0 || reading.Load() != 0 {
		t.Errorf("%+v, reading %d archives", st, reading.Load())
	}
	if b := x.g.Backfill(); b.Archive != "" || !b.Begun.IsZero() || b.Roster.Source != format.RosterArchive+h.URL || !b.Roster.Known() {
		t.Errorf("stored: %+v", b)
	}
	must(t, x.g.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = h.URL })) // as if it had broken off
	if err := x.m.Archive(t.Context(), "https://another.example.com"); err == nil || !strings.Contains(err.Error(), "another archive, "+h.URL) {
		t.Errorf("another archive: %v", err)
	}
	must(t, check.Store(t.Context(), x.store, func(p string) { t.Error(p) }, nil))
	before, segments := exported(t, x.store), h.segments.Load()
	must(t, x.m.Archive(t.Context(), h.URL)) // again: there is nothing new
	if st := x.settle(t); st.Ended["archive"] != "ok" || h.segments.Load() != segments || exported(t, x.store) != before {
		t.Errorf("%+v; fetched %d more segments", st, h.segments.Load()-segments)
	}
}

// A job that was interrupted in the middle ends, in the next process, with the records that an
// uninterrupted one has. With a Verifier, the next process does not continue it.
func TestInterruptedArchiveJob(t *testing.T) {
	h := begin(t)
	w := newWorld(t, 1)
	alone := func(o *Options) { o.Relay = "" }
	whole := w.index(newStore(), alone)
	must(t, whole.m.Archive(t.Context(), h.URL))
	whole.settle(t)
	want := exported(t, whole.store)

	store := newStore()
	x := w.index(store, func(o *Options) { o.Relay, o.ArchiveOps = "", 1000 })
	must(t, x.m.Archive(t.Context(), h.URL))
	await(t, "a first write", func() bool { c, ok := x.g.Cursor("archive " + h.URL); return ok && c.Seq > 0 })
	x.end()
	if b := x.g.Backfill(); b.Archive != h.URL {
		t.Fatalf("stored after the interruption: %+v", b)
	}
	verifying := w.index(store, func(o *Options) { o.Relay, o.Verifier = "", proof.NewVerifier(strangers{}) })
	if st := verifying.m.StatusNow(); st.Archive != "" || verifying.g.Backfill().Archive != h.URL {
		t.Errorf("with a Verifier: %+v", st)
	}
	verifying.end()
	x = w.index(store, alone)
	await(t, "the end of the archive", func() bool { return x.m.StatusNow().Ended["archive"] != "" })
	if st := x.settle(t); st.Ended["archive"] != "ok" || st.Complete != st.Accounts {
		t.Errorf("%+v", st)
	}
	if got := exported(t, store); got != want {
		t.Errorf("%d bytes of records, want %d", len(got), len(want))
	}
}

// An archive is read up to a minute after the start of the stream: of this run's, or, if the stream
// ran before, of the job's. Without a stream, everything that is sealed is read.
func TestArchiveUntil(t *testing.T) {
	m := idle(t, Options{})
	begun := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	job := func() time.Time {
		t.Helper()
		return m.o.Store.Backfill().Begun
	}
	must(t, m.o.Store.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive, b.Begun = "https://archive.example.com", begun }))
	if got := m.archiver.until(); !got.IsZero() {
		t.Errorf("without a stream: %v", got)
	}
	for _, c := range []struct {
		name  string
		since time.Time
		ok    bool
		want  time.Time
		begun time.Time // of the job, afterwards
	}{
		{"the stream ran before", begun.Add(time.Hour), false, begun.Add(time.Minute), begun},
		{"the stream started in this run, before the job", begun.Add(-time.Hour), true, begun.Add(-59 * time.Minute), begun},
		{"the stream started later, in this run", begun.Add(2 * time.Hour), true, begun.Add(121 * time.Minute), begun.Add(2 * time.Hour)},
		{"a later process, whose stream ran before", time.Time{}, false, begun.Add(121 * time.Minute), begun.Add(2 * time.Hour)},
		{"a clock that is ahead does not move the job's start", time.Now().Add(time.Hour), true, time.Now().Add(61 * time.Minute), begun.Add(2 * time.Hour)},
	} {
		m.o.Listening = func() (time.Time, bool) { return c.since, c.ok }
		if got := m.archiver.until(); got.Sub(c.want).Abs() > 10*time.Second {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if !job().Equal(c.begun) {
			t.Errorf("%s: the job started at %v, want %v", c.name, job(), c.begun)
		}
	}
}

// The present is the time of the newest event, if there is one: the clock of the machine may be
// wrong. The cursor of an archive does not count.
func TestStreamNow(t *testing.T) {
	m := idle(t, Options{})
	if got := m.o.streamNow(); time.Since(got).Abs() > time.Minute {
		t.Errorf("without events: %v", got)
	}
	apply := func(source, at string) {
		var b batch.Batch
		b.AddAccount(1, []byte("did:web:a.example.com"), true, false)
		b.Seen(1, []byte(at))
		must(t, m.o.Store.Apply(context.Background(), source, &b))
	}
	apply("archive https://archive.example.com", "2031-01-01T00:00:00Z")
	if got := m.o.streamNow(); time.Since(got).Abs() > time.Minute {
		t.Errorf("with an archive: %v", got)
	}
	apply("relay.example.com", "2026-02-03T04:05:06Z")
	apply("other.example.com", "2026-02-03T04:05:05Z")
	if got := m.o.streamNow(); !got.Equal(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)) {
		t.Errorf("with two relays: %v", got)
	}
}

// An archive that never makes progress, or lies about it, ends the job with an error.
func TestAbuseArchivePlans(t *testing.T) {
	for name, plan := range map[string]map[string]any{
		"goes back":       {"plannedThroughSeq": -5, "sealedTipSeq": 100, "segments": []any{}},
		"a missing file":  {"plannedThroughSeq": 100, "sealedTipSeq": 100, "segments": []any{map[string]any{"name": "x", "checksum": "0", "minSeq": 1, "maxSeq": 100, "mode": "segment"}}},
		"another file":    {"plannedThroughSeq": 100, "sealedTipSeq": 100, "segments": []any{map[string]any{"name": "../../etc/passwd", "checksum": "0", "minSeq": 1, "maxSeq": 100, "mode": "segment"}}},
		"reversed blocks": {"plannedThroughSeq": 100, "sealedTipSeq": 100, "segments": []any{map[string]any{"name": "x", "checksum": "0", "minSeq": 1, "maxSeq": 100, "mode": "blocks", "blocks": []any{map[string]int{"first": 5, "last": 5}}}}},
		"not even a plan": nil,
		"stands still":    {"plannedThroughSeq": 0, "sealedTipSeq": 100, "segments": []any{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := begin(t)
			lie := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.HasSuffix(r.URL.Path, "planSnapshot"):
					http.NotFound(rw, r)
				case plan == nil:
					rw.WriteHeader(http.StatusTeapot)
				default:
					_ = json.NewEncoder(rw).Encode(plan)
				}
			})
			h.wrong.Store(&lie)
			w := newWorld(t, 1)
			x := w.index(newStore(), nil)
			must(t, x.m.Archive(t.Context(), h.URL))
			st := x.settle(t)
			if outcome := st.Ended["archive"]; outcome == "ok" || outcome == "" || st.Accounts != 0 || h.plans.Load() > 100 {
				t.Errorf("after %d plans: %+v", h.plans.Load(), st)
			}
		})
	}
}
