package query

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein/graph"
	"skein/intern"
)

// Lexicons are the lexicons of the methods served here, by NSID, as in the
// folder lexicons.
//
//go:embed lexicons/*.json
var Lexicons embed.FS

// Options say how questions are served.
type Options struct {
	// Timeout is how long one question may take. 0 means ten seconds.
	Timeout time.Duration
	// Version is that of the program, for _health and getStats.
	Version string
	// Relay is the source whose cursor getStats shows. Empty means the one
	// whose last event is the newest.
	Relay string
	// Logger and Metrics may be nil.
	Logger  *slog.Logger
	Metrics *Metrics
}

// Server serves questions. It implements http.Handler.
type Server struct {
	store   *graph.Store
	o       Options
	cursors *cursors
	mux     *http.ServeMux
}

// method is an XRPC query.
type method struct {
	nsid  string
	serve func(s *Server, ctx context.Context, q params) (any, error)
	takes []string // its parameters
	many  []string // those of them that may be repeated
}

var methods = []method{
	{"blue.skein.graph.query", (*Server).query, []string{"set", "limit", "cursor", "count"}, nil},
	{"blue.skein.graph.contains", (*Server).contains, []string{"set", "member"}, []string{"member"}},
	{"blue.skein.graph.getStats", (*Server).getStats, nil, nil},
}

// New returns a Server of the graph in store.
func New(store *graph.Store, o Options) (*Server, error) {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "query")
	c, err := newCursors(store.Secret())
	if err != nil {
		return nil, err
	}
	s := &Server{store: store, o: o, cursors: c, mux: http.NewServeMux()}
	for _, m := range methods {
		s.mux.HandleFunc("/xrpc/"+m.nsid, func(w http.ResponseWriter, r *http.Request) { s.call(w, r, &m) })
	}
	s.mux.HandleFunc("/xrpc/_health", s.health)
	s.mux.HandleFunc("/xrpc/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, "unknown", &Error{http.StatusNotImplemented, "MethodNotImplemented", fmt.Sprintf("no method %q here", clip(strings.TrimPrefix(r.URL.Path, "/xrpc/")))})
	})
	s.mux.HandleFunc("/{$}", s.about)
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// An Error is what an XRPC client gets.
type Error struct {
	Status  int
	Name    string
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Name + ": " + e.Message }

func invalid(format string, args ...any) error {
	return &Error{http.StatusBadRequest, "InvalidRequest", fmt.Sprintf(format, args...)}
}

// call serves one XRPC query.
func (s *Server) call(w http.ResponseWriter, r *http.Request, m *method) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		s.fail(w, m.nsid, &Error{http.StatusMethodNotAllowed, "InvalidRequest", m.nsid + " is a query: use GET"})
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Timeout)
	defer cancel()
	q, err := parseParams(r.URL.RawQuery, m)
	var answer any
	if err == nil {
		answer, err = m.serve(s, ctx, q)
	}
	if s.o.Metrics != nil {
		s.o.Metrics.Seconds.WithLabelValues(m.nsid).Observe(time.Since(start).Seconds())
	}
	if err == nil {
		s.write(w, http.StatusOK, answer)
		return
	}
	if r.Context().Err() != nil {
		return // the client has left
	}
	xerr, ok := errors.AsType[*Error](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded):
		xerr = &Error{http.StatusGatewayTimeout, "QueryTimeout", fmt.Sprintf("the question took longer than %v", s.o.Timeout)}
	default:
		s.o.Logger.Error("a question failed", "method", m.nsid, "error", err)
		xerr = &Error{http.StatusInternalServerError, "InternalServerError", "the question failed; the server's log says why"}
	}
	s.fail(w, m.nsid, xerr)
}

func (s *Server) fail(w http.ResponseWriter, method string, e *Error) {
	if s.o.Metrics != nil {
		s.o.Metrics.Errors.WithLabelValues(method, e.Name).Inc()
	}
	s.write(w, e.Status, map[string]string{"error": e.Name, "message": e.Message})
}

func (s *Server) write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.o.Logger.Error("an answer cannot be written", "error", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalServerError","message":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(b, '\n')); err != nil {
		s.o.Logger.Debug("a client left before its answer", "error", err)
	}
}

// params are the parameters of a call.
type params struct{ values url.Values }

// parseParams reads the query string. A parameter given twice where one is
// taken is the client's error; one that the method does not know is passed
// over, as XRPC servers do.
func parseParams(raw string, m *method) (params, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return params{}, invalid("the query string cannot be read: %v", err)
	}
	for name, v := range values {
		if len(v) > 1 && slices.Contains(m.takes, name) && !slices.Contains(m.many, name) {
			return params{}, invalid("parameter %s is given %d times, it is taken once", name, len(v))
		}
	}
	return params{values}, nil
}

func (q params) expr() (*Expr, error) {
	if !q.values.Has("set") {
		return nil, invalid("parameter set is missing")
	}
	e, err := Parse(q.values.Get("set"))
	if err != nil {
		return nil, invalid("set: %v", err)
	}
	return e, nil
}

func (q params) integer(name string, lo, hi, otherwise int) (int, error) {
	if !q.values.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(q.values.Get(name))
	if err != nil || n < lo || n > hi {
		return 0, invalid("parameter %s is %q, it must be a number from %d to %d", name, clip(q.values.Get(name)), lo, hi)
	}
	return n, nil
}

func (q params) boolean(name string) (bool, error) {
	switch v := q.values.Get(name); {
	case !q.values.Has(name) || v == "false":
		return false, nil
	case v == "true":
		return true, nil
	}
	return false, invalid("parameter %s is %q, it must be true or false", name, clip(q.values.Get(name)))
}

func typeName(ns intern.Namespace) string { return ns.String() }

func (s *Server) query(ctx context.Context, q params) (any, error) {
	e, err := q.expr()
	if err != nil {
		return nil, err
	}
	limit, err := q.integer("limit", 1, 1000, 100)
	if err != nil {
		return nil, err
	}
	countOnly, err := q.boolean("count")
	if err != nil {
		return nil, err
	}
	var after intern.ID
	var pinned unseen
	if q.values.Has("cursor") {
		if after, pinned, err = s.cursors.open(e, q.values.Get("cursor")); err != nil {
			return nil, invalid("%v", err)
		}
	}
	out := struct {
		Type    string    `json:"type"`
		Total   uint64    `json:"total"`
		Members *[]string `json:"members,omitempty"`
		Cursor  string    `json:"cursor,omitempty"`
	}{Type: typeName(e.Type())}
	err = s.store.View(ctx, func(sn *graph.Snapshot) error {
		v, err := newEvaluation(ctx, sn, e)
		if err != nil {
			return err
		}
		set, err := v.result()
		if err != nil {
			return err
		}
		if out.Total = set.GetCardinality(); countOnly {
			return nil
		}
		if pinned == nil {
			pinned = v.unseen()
		}
		v.pin(set, pinned)
		ids, more := page(set, after, limit)
		members, err := v.strings(ids)
		if err != nil {
			return err
		}
		out.Members = &members
		if more {
			out.Cursor, err = s.cursors.seal(e, ids[len(ids)-1], pinned)
		}
		return err
	})
	return out, err
}

// maxMembers bounds the members of one contains.
const maxMembers = 100

func (s *Server) contains(ctx context.Context, q params) (any, error) {
	e, err := q.expr()
	if err != nil {
		return nil, err
	}
	given := q.values["member"]
	if len(given) == 0 || len(given) > maxMembers {
		return nil, invalid("parameter member is given %d times, it must be 1 to %d", len(given), maxMembers)
	}
	members := make([]literal, len(given))
	for i, m := range given {
		if members[i] = (literal{m, e.Type()}); !e.Type().Valid([]byte(m)) {
			return nil, invalid("member %q (number %d) cannot be in a set of %s", clip(m), i+1, plural(e.Type()))
		}
	}
	type item struct {
		Member    string `json:"member"`
		Contained bool   `json:"contained"`
	}
	out := struct {
		Members []item `json:"members"`
	}{make([]item, len(given))}
	err = s.store.View(ctx, func(sn *graph.Snapshot) error {
		v, err := newEvaluation(ctx, sn, e)
		if err != nil {
			return err
		}
		ids, err := lookup(sn, members)
		if err != nil {
			return err
		}
		for i, m := range members {
			in, err := v.contains(m, ids[i])
			if err != nil {
				return err
			}
			out.Members[i] = item{m.s, in}
		}
		return nil
	})
	return out, err
}

func (s *Server) getStats(ctx context.Context, _ params) (any, error) {
	var counts graph.Counts
	var cursors []graph.Cursor
	err := s.store.View(ctx, func(sn *graph.Snapshot) (err error) {
		if counts, err = sn.Counts(); err != nil {
			return err
		}
		cursors, err = sn.Cursors()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := struct {
		Version    string  `json:"version"`
		Engine     string  `json:"engine"`
		Relay      string  `json:"relay"`
		Cursor     int64   `json:"cursor"`
		LagSeconds float64 `json:"lagSeconds"`
		graph.Counts
	}{Version: s.o.Version, Engine: s.store.Engine(), Relay: s.o.Relay, Counts: counts}
	var newest time.Time
	for _, c := range cursors {
		if c.Source == s.o.Relay || s.o.Relay == "" && !c.Time.Before(newest) {
			newest = c.Time
			out.Relay, out.Cursor, out.LagSeconds = c.Source, int64(c.Seq), Lag(c.Time)
		}
	}
	return out, nil
}

// Lag returns the age in seconds of an event of time t, 0 if t is not known or
// in the future.
func Lag(t time.Time) float64 {
	if t.Unix() <= 0 {
		return 0
	}
	return max(0, time.Since(t).Round(time.Millisecond).Seconds())
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.write(w, http.StatusOK, map[string]string{"version": s.o.Version})
}

func (s *Server) about(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var b strings.Builder
	fmt.Fprintf(&b, "skein %s: who follows whom and who likes what, as sets.\n\nMethods:\n", s.o.Version)
	for _, m := range methods {
		fmt.Fprintf(&b, "  /xrpc/%s  %s\n", m.nsid, strings.Join(m.takes, ", "))
	}
	fmt.Fprintf(&b, "  /xrpc/_health\n\nSets:\n")
	for _, k := range graph.Kinds {
		fmt.Fprintf(&b, "  %s(DID)  %s(%s)\n", k.Forward, k.Reverse, strings.ToUpper(k.SubjectIs.String()))
	}
	fmt.Fprintf(&b, "  members(X, …)  intersect(E, …)  union(E, …)  except(E, …)\n\nExample:\n  /xrpc/blue.skein.graph.query?set=intersect(followers(did:plc:…),followers(did:plc:…))\n")
	_, _ = w.Write([]byte(b.String()))
}

// Metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Seconds *prometheus.HistogramVec // method
	Errors  *prometheus.CounterVec   // method, error
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_query_seconds", Help: "Time to answer.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
		}, []string{"method"}),
		Errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_errors_total", Help: "Questions that were answered with an error.",
		}, []string{"method", "error"}),
	}
	reg.MustRegister(m.Seconds, m.Errors)
	for _, q := range methods {
		m.Seconds.WithLabelValues(q.nsid)
	}
	return m
}
