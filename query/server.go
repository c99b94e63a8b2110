package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph"
	"skein.blue/internal/clients"
	"skein.blue/internal/kv"
	"skein.blue/query/algebra"
	"skein.blue/query/constellation"
	"skein.blue/query/feed"
	"skein.blue/query/language"
	"skein.blue/query/rank"
	"skein.blue/query/watch"
	"skein.blue/query/xrpc"
)

// Options configure a Server.
type Options struct {
	// Timeout bounds one query. 0 means ten seconds.
	Timeout time.Duration
	// Version is the program's version, for _health and getStats.
	Version string
	// Queue returns the number of repos queued for a fetch, and of those given up, by reason.
	// nil means that no repo is fetched.
	Queue func() (waiting int64, failed map[string]int64)
	// Audits returns how many repos and records this process has compared with their hosts, and
	// how many of the records differed. nil means that it compares none.
	Audits func() Audits
	// Relay is the source whose cursor getStats shows. Empty means the source with the newest
	// event.
	Relay string
	// Status returns the status of the consumer of Relay. nil means that this process has no
	// consumer.
	Status func() Status
	// Subscribers is the largest number of subscriptions. 0 means 2,000; a negative number
	// allows none, for a process that does not write the store.
	Subscribers int
	// Handles resolves handles. nil means that they are not resolved.
	Handles Handles
	// Service is the server's public identity. nil means that it has no DID, and cannot
	// identify viewers.
	Service *Service
	// Feeds, if not nil, are served. They need a Service.
	Feeds *feed.Feeds
	// Logger may be nil.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Audits counts comparisons with hosts in getStats.
type Audits struct {
	Repos       int64 `json:"repos"`
	Records     int64 `json:"records"`
	Differences int64 `json:"differences"`
}

// A Status is the consumer's status in getStats.
type Status struct {
	State  string        // see consumer.State
	Lag    time.Duration // how old the newest event is, see consumer.Status
	HasLag bool          // Lag is known
}

// A Server answers queries and serves subscriptions. It implements http.Handler.
type Server struct {
	store   *graph.Store
	words   *language.Vocabulary
	o       Options
	cursors *xrpc.Cursors
	mux     *http.ServeMux
	queues  xrpc.Queues
	forms   *xrpc.Forms
	watcher *watch.Watcher
	unread  *clients.Pool // bytes of large answers that are being sent
}

// methods returns the methods that the server answers.
func (s *Server) methods() []xrpc.Method {
	type answer func(context.Context, *call) (any, error)
	serve := func(a answer) func(context.Context, *xrpc.Query) (any, error) {
		return func(ctx context.Context, q *xrpc.Query) (any, error) { return a(ctx, &call{Query: q, server: s}) }
	}
	own := []xrpc.Method{
		{NSID: "blue.skein.graph.query", Serve: serve(query), Form: true},
		{NSID: "blue.skein.graph.list", Serve: serve(list), Form: true, Slow: true},
		{NSID: "blue.skein.graph.contains", Serve: serve(contains), Form: true},
		{NSID: "blue.skein.graph.known", Serve: serve(known), Form: true},
		{NSID: "blue.skein.graph.getBlocks", Serve: serve(getBlocks), Form: true, Slow: true},
		{NSID: "blue.skein.graph.counts", Serve: serve(counts), Form: true},
		{NSID: "blue.skein.graph.overlap", Serve: serve(overlap), Form: true, Slow: true},
		{NSID: "blue.skein.graph.labels", Serve: serve(labels)},
		{NSID: "com.atproto.label.queryLabels", Serve: serve(queryLabels), Slow: true},
		{NSID: "blue.skein.graph.path", Serve: serve(path), Slow: true},
		{NSID: "blue.skein.graph.histogram", Serve: serve(histogram), Form: true, Slow: true},
		{NSID: rank.NSID, Serve: serve(ranked), Form: true, Slow: true},
		{NSID: "blue.skein.graph.getAccount", Serve: serve(getAccount)},
		{NSID: "blue.skein.graph.getStats", Serve: serve(getStats)},
		{NSID: "app.bsky.graph.getRelationships", Serve: serve(getRelationships)},
		{NSID: "blue.skein.graph.subscribe", Serve: serve(subscribe)},
	}
	all := slices.Concat(own, s.o.Feeds.Methods(), constellation.Methods())
	for i := range all {
		all[i] = all[i].Described()
	}
	return all
}

// New returns a Server of the graph in store.
func New(store *graph.Store, o Options) *Server {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("component", "query")
	o.Subscribers = cmp.Or(o.Subscribers, 2000)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	c := xrpc.NewCursors(store.Secret())
	processors := runtime.GOMAXPROCS(0)
	s := &Server{
		store: store, words: language.NewVocabulary(store.Kinds()), o: o, cursors: c, mux: http.NewServeMux(),
		// The large queue bounds memory, and leaves processors for small queries.
		queues: xrpc.Queues{Light: clients.NewQueue(8 * processors), Slow: clients.NewQueue(processors), Large: clients.NewQueue((processors + 1) / 2)},
		forms:  xrpc.NewForms(), watcher: watch.New(store, o.Logger, o.Subscribers), unread: clients.NewPool(maxUnread),
	}
	for name, q := range map[string]*clients.Queue{"light": s.queues.Light, "slow": s.queues.Slow, "large": s.queues.Large} {
		waits := o.Metrics.Waits.WithLabelValues(name)
		q.Waited = func(took time.Duration) { waits.Observe(took.Seconds()) }
	}
	for _, m := range s.methods() {
		s.mux.HandleFunc(m.Path(), func(w http.ResponseWriter, r *http.Request) { s.call(w, r, &m) })
	}
	s.mux.HandleFunc("GET /xrpc/_health", func(w http.ResponseWriter, r *http.Request) {
		s.write(w, r, http.StatusOK, map[string]string{"version": s.o.Version})
	})
	s.mux.HandleFunc("/xrpc/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, "unknown", xrpc.Errorf(http.StatusNotImplemented, "MethodNotImplemented", "unknown method %q", language.Brief(strings.TrimPrefix(r.URL.Path, "/xrpc/"))))
	})
	s.mux.HandleFunc("GET /.well-known/did.json", s.didDocument)
	s.serveDescriptions()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Retry-After, Skein-As-Of") // package app sets Skein-As-Of
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, *") // * does not stand for Authorization
		h.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// call serves one XRPC query.
func (s *Server) call(w http.ResponseWriter, r *http.Request, m *xrpc.Method) {
	if !slices.Contains(strings.Split(m.Allowed(), ", "), r.Method) { // OPTIONS has its answer already
		w.Header().Set("Allow", m.Allowed())
		s.fail(w, r, m.NSID, xrpc.Errorf(http.StatusMethodNotAllowed, "InvalidRequest", "%s does not take %s; it takes %s", m.NSID, language.Brief(r.Method), m.Allowed()))
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Timeout)
	defer cancel()
	s.o.Metrics.InFlight.Inc()
	answer, err := s.answer(ctx, w, r, m)
	took := time.Since(start)
	s.o.Metrics.InFlight.Dec()
	s.o.Metrics.Seconds.WithLabelValues(m.NSID).Observe(took.Seconds())
	w.Header().Set("Server-Timing", "answer;dur="+strconv.FormatFloat(took.Seconds()*1000, 'f', 3, 64)) // https://www.w3.org/TR/server-timing/
	if err == nil {
		s.o.Metrics.answered(m.NSID, http.StatusOK)
		if sub, ok := answer.(*watch.Subscriber); ok {
			s.stream(w, r, sub)
		} else {
			s.write(w, r, http.StatusOK, answer)
		}
		return
	}
	xerr, ok := errors.AsType[*xrpc.Error](err)
	// The request's context ends when its client has gone, and also when a read times out, as that of a late or a taken form does.
	if r.Context().Err() != nil && (!ok || xerr.Status != http.StatusRequestTimeout && xerr.Status != http.StatusServiceUnavailable) {
		s.o.Metrics.answered(m.NSID, statusClientGone)
		return
	}
	s.fail(w, r, m.NSID, s.errorOf(m.NSID, err))
}

// errorOf returns the error that a client receives.
func (s *Server) errorOf(method string, err error) *xrpc.Error {
	if xerr, ok := errors.AsType[*xrpc.Error](err); ok {
		return xerr
	}
	if limit, ok := errors.AsType[*algebra.LimitError](err); ok {
		return xrpc.Errorf(http.StatusBadRequest, "InvalidRequest", "%s", limit.What)
	}
	switch {
	case errors.Is(err, kv.ErrCorrupt):
		s.o.Logger.Error("a query met a damaged part of the store", "method", method, "error", err)
		return xrpc.Errorf(http.StatusInternalServerError, "StoreDamaged", "the answer needs a damaged part of the store; the server's log names it")
	case errors.Is(err, kv.ErrUnavailable): // the engine logs when that begins and ends
		return xrpc.Errorf(http.StatusServiceUnavailable, "StoreUnavailable", "the store does not answer at present; try again later")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kv.ErrTooOld):
		return xrpc.Errorf(http.StatusGatewayTimeout, "QueryTimeout", "the query took longer than %v", s.o.Timeout)
	}
	s.o.Logger.Error("a query failed", "method", method, "error", err)
	return xrpc.Errorf(http.StatusInternalServerError, "InternalServerError", "the query failed; the server's log says why")
}

// answer computes an answer. It holds a slot meanwhile, but not while the answer is sent, so a
// slow client delays nobody. A panic is an error: the client receives an answer even if the query meets a defect.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, m *xrpc.Method) (answer any, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("query: panic: %v\n%s", p, debug.Stack())
		}
		if taken, ok := errors.AsType[*xrpc.Error](context.Cause(ctx)); ok && err != nil {
			err = taken
		}
		end(nil)
	}()
	form, release, err := s.forms.Read(ctx, end, w, r, m, s.o.Timeout)
	if err != nil {
		return nil, err
	}
	defer release()
	q, err := xrpc.Parse(r.URL.RawQuery, form, m)
	if err != nil {
		return nil, err
	}
	s.prepare(ctx, q, w, r, m)
	defer q.Work.Leave()
	if err := cmp.Or(s.form(q), q.Work.Enter(ctx)); err != nil {
		return nil, err
	}
	if answer, err = m.Serve(ctx, q); err != nil {
		return nil, err
	}
	return s.finish(ctx, q, answer)
}

// prepare gives a call of a method what it works with.
func (s *Server) prepare(ctx context.Context, q *xrpc.Query, w http.ResponseWriter, r *http.Request, m *xrpc.Method) {
	q.Header, q.Words, q.Store, q.Cursors = r.Header, s.words, s.store, s.cursors
	q.Work = s.queues.Work(clients.Of(r), m.Slow)
	q.Viewer = sync.OnceValues(func() (string, error) { // once: a token is valid for one use
		if s.o.Service == nil {
			return "", xrpc.Invalid("%s does not work here: this server has no public name (its operator sets one with --service-host)", language.ViewerName)
		}
		h := w.Header() // shared caches must not store the answer
		h.Set("Cache-Control", "private, no-cache")
		h.Add("Vary", "Authorization")
		q.Work.Leave() // the query holds no slot meanwhile, so a slow host of keys delays nobody else
		did, err := s.o.Service.viewer(ctx, q.Work.Client, q.NSID, q.Header.Get("Authorization"))
		return did, cmp.Or(q.Work.Enter(ctx), err)
	})
	looked := 0
	q.Resolve = func(list []language.Literal, where func(int) string) error {
		return resolve(ctx, s.o.Handles, q, &looked, list, where)
	}
}

// Metrics of this package.
type Metrics struct {
	Seconds  *prometheus.HistogramVec // method
	Errors   *prometheus.CounterVec   // method, error
	Requests *prometheus.CounterVec   // method, code
	InFlight prometheus.Gauge
	Waits    *prometheus.HistogramVec // queue
}

// statusClientGone stands for a query whose client disconnected before the answer, as in nginx.
const statusClientGone = 499

func (m *Metrics) answered(method string, code int) {
	m.Requests.WithLabelValues(method, strconv.Itoa(code)).Inc()
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_query_duration_seconds", Help: "Time to answer.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
		}, []string{"method"}),
		Errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_errors_total", Help: "Queries answered with an error.",
		}, []string{"method", "error"}),
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_requests_total", Help: "Queries answered, by method and HTTP status.",
		}, []string{"method", "code"}),
		InFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_requests_in_flight", Help: "Queries being answered, those that wait for a slot included.",
		}),
		Waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_query_queue_wait_seconds", Help: "Time that a query waited for a slot of a queue: light, slow (methods that take milliseconds) or large (queries that read much).",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"queue"}),
	}
	reg.MustRegister(m.Seconds, m.Errors, m.Requests, m.InFlight, m.Waits)
	for _, q := range new(Server).methods() {
		m.Seconds.WithLabelValues(q.NSID)
		for _, name := range []string{"InternalServerError", "QueryTimeout", "StoreDamaged", "StoreUnavailable"} {
			m.Errors.WithLabelValues(q.NSID, name) // alerts see a rise from 0 only if there was a 0
		}
	}
	return m
}
