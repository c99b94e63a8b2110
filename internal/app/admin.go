package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
	"skein.blue/query"
)

// The endpoints for operators and their tools.

// adminHelp lists the endpoints of the admin listener.
const adminHelp = `/gaps          places in the streams where events may be missing
/deadletters   malformed input that skein dropped (the newest 10,000)
/resyncs       repos queued for a full refetch, and repos that skein gave up on
/backfill      progress of fetching history
/members       all members of a set, one a line: ?set=…
/metrics       for Prometheus
/healthz       whether the process answers
/readyz        whether queries are answered
/debug/pprof/  profiles
`

// readyTime limits how long the store of a ready node may take to answer.
const readyTime = 2 * time.Second

// draining reports whether the process is about to stop.
func (o *ServeOptions) draining() bool {
	select {
	case <-o.Draining:
		return true
	default: // also if Draining is nil
		return false
	}
}

// ready returns nil if queries are answered.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := s.Graph.View(ctx, func(s *ask.View) error { _, err := s.Counts(); return err })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer within %v: %w", readyTime, err)
	}
	return err
}

// admin returns the handler of the endpoints for operators.
func (s *server) admin() http.Handler {
	mux := http.NewServeMux()
	s.Registry.MustRegister(gauge("skein_ready", "1 if queries are answered, also while the process drains.", func() float64 { return map[bool]float64{true: 1}[s.ready(context.Background()) == nil] }))
	mux.Handle("/metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		err := s.ready(r.Context())
		if s.o.draining() {
			err = errors.New("draining: the process is about to stop")
		}
		if most := r.URL.Query().Get("maxLag"); err == nil && most != "" {
			err = s.within(most)
		}
		if err != nil {
			http.Error(w, say.Line("not ready: "+err.Error()), http.StatusServiceUnavailable)
			return
		}
		state := "ready"
		if err = cmp.Or(s.written(), s.healthy()); errors.Is(err, kv.ErrDiskFull) {
			state += ", but not indexing: " + err.Error()
		} else if err != nil {
			state += ", but " + err.Error()
		}
		_, _ = io.WriteString(w, say.Line(state)+"\n")
	})
	mux.HandleFunc("/deadletters", s.lines(notes(s.KV, read.DeadLetters)))
	mux.HandleFunc("/gaps", s.lines(notes(s.KV, read.Gaps)))
	mux.HandleFunc("GET /resyncs", s.lines(s.resyncs))
	s.backfillEndpoints(mux)
	s.checkpointEndpoint(mux)
	mux.HandleFunc("GET /members", s.api.ServeMembers)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, adminHelp) })
	return mux
}

// WriteJSONLine writes v as a line of JSON that is safe to show on a terminal.
func WriteJSONLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(say.EscapeJSON(b), '\n'))
	}
	return err
}

// lines serves a list: one JSON object per line, as text, which a browser shows.
func (s *server) lines(list func(ctx context.Context, each func(any) error) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query.WithoutDeadline(w, r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		begun := false
		err := list(r.Context(), func(v any) error { begun = true; return WriteJSONLine(w, v) })
		switch {
		case err == nil || r.Context().Err() != nil:
		case !begun:
			http.Error(w, say.Line(err.Error()), http.StatusInternalServerError)
		default: // the client must see that the list is cut short
			s.log.Error("a list for the operator is cut short", "path", r.URL.Path, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// notes lists the dead letters or the gaps.
func notes[T any](store kv.Store, read func(kv.Reader) ([]T, error)) func(ctx context.Context, each func(any) error) error {
	return func(ctx context.Context, each func(any) error) error {
		var all []T
		err := store.View(ctx, func(r kv.Reader) (err error) { all, err = read(r); return err })
		for i := 0; i < len(all) && err == nil; i++ {
			err = each(all[i])
		}
		return err
	}
}

// resyncs lists the resync queue.
func (s *server) resyncs(ctx context.Context, each func(any) error) error {
	_, err := s.Graph.ViewAcross(ctx, func(s *ask.View) error {
		return s.Resyncs(func(did string, row format.Resync) error {
			return each(struct {
				DID string `json:"did"`
				format.Resync
			}{did, row})
		})
	})
	return err
}
