// Package app wires the parts of skein together: store, graph, consumer, query API and admin
// endpoints. The commands and the integration tests share this wiring. It parses no flags.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/consumer/labels"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/clients"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/kv/kvmetrics"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/page"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// filterFile is the file in a store's folder that keeps the filters of known strings while the store
// is closed (package intern, filterfile.go). A store can do without it.
const filterFile = "skein.filters"

// StoreOptions say which store to open, and how.
type StoreOptions struct {
	Store        string // a folder, or fdb://…
	Create       bool
	ReadOnly     bool
	Memory       int64 // budget in bytes; 0: DefaultMemory()
	SyncInterval time.Duration
	// AcceptLoss names a damaged write-ahead log. The store opens without its lost writes
	// (pebblekv.Options).
	AcceptLoss string
	// MinFree is how many bytes of the disk must stay free (pebblekv.Options). AwaitSpace
	// makes writes wait for them, instead of failing.
	MinFree    uint64
	AwaitSpace bool
	// Settings configure a new store. Settings that are not zero must match those of an
	// existing one.
	Settings dict.Settings
	// Share is what this process writes of a store on FoundationDB. It draws ids from Shards.
	Share  graph.Share
	Shards *dict.ShardRange
	// Kinds are indexed in addition to the built-in ones (graph.Options).
	Kinds []kinds.Info
	// Backfill says how to fetch whole repos. nil: no repo is fetched, and repos with missed
	// events are not queued.
	Backfill *backfill.Options
	// Import opens the store for graph.Store.Import.
	Import bool
	// TableBytes, if set, counts what is written to the tables of a store in a folder.
	TableBytes *pebblekv.TableBytes
	// Wait makes OpenIndex wait for a cluster that does not answer and, without Create, for a
	// writer to create the store. It logs the wait.
	Wait bool
	// Fatal is called when the engine cannot go on, and must not return. nil means a panic.
	Fatal  func(error)
	Logger *slog.Logger
	// Tracer receives a share of the daemon's work (package tracing). nil means none.
	Tracer trace.Tracer

	writes *kvmetrics.Metrics
}

// OpenStore opens the engine that o.Store names.
func OpenStore(ctx context.Context, o StoreOptions) (kv.Store, error) {
	if !o.engine().InProcess {
		return openFDB(ctx, o)
	}
	if o.Share.N > 1 {
		return nil, fmt.Errorf("%w: %s: a store in a folder has one writer; several writers need FoundationDB (--store fdb://…)", graph.ErrShare, o.Share)
	}
	if err := finished(o.Store); err != nil {
		return nil, err
	}
	s, err := pebblekv.Open(pebblekv.Options{
		Dir: o.Store, Create: o.Create, ReadOnly: o.ReadOnly, Merger: write.NewMerger(write.Limits{}),
		Memory: o.budget().Engine, SyncInterval: o.SyncInterval, AcceptLoss: o.AcceptLoss, MinFree: o.MinFree, AwaitSpace: o.AwaitSpace,
		OpenFiles: divideDescriptors(openFiles()).tables, Marker: format.HeaderKey, Fatal: o.Fatal, TableBytes: o.TableBytes,
		Logger: logger(o.Logger).With("component", "store"),
	})
	lost, lostWrites := errors.AsType[*pebblekv.LostWrites](err)
	switch {
	case errors.Is(err, kv.ErrLocked):
		return nil, fmt.Errorf("the store %s is in use by another skein; stop it, or query it (skein query) instead of opening its store: %w", o.Store, err)
	case lostWrites:
		return nil, fmt.Errorf("the store %s is damaged; skein has not touched it. Restore the folder from a backup, or go on without the lost writes: start skein serve once with --accept-loss %s. skein then resumes at a cursor from before the loss, and so gets the lost events again if the relay still has them: %w", o.Store, lost.Log, err)
	case errors.Is(err, kv.ErrDamaged):
		return nil, fmt.Errorf("the store %s is damaged; skein has not touched it. Restore the folder from a backup, or index into a new folder: %w", o.Store, err)
	case errors.Is(err, kv.ErrNotFound):
		return nil, fmt.Errorf("%w; skein serve and skein replay create one", err)
	case errors.Is(err, kv.ErrFormat):
		return nil, fmt.Errorf("another version of skein made the store %s, in a format that this version cannot read (it reads %s); use the version that made it, or index into a new folder: %w",
			o.Store, write.NewMerger(write.Limits{}).Name(), err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

func openFDB(ctx context.Context, o StoreOptions) (kv.Store, error) {
	at, err := fdbkv.Parse(o.Store)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	fo := fdbkv.Options{
		Location: at, Create: o.Create, ReadOnly: o.ReadOnly, Merger: write.NewMerger(write.Limits{}),
		Logger: logger(o.Logger).With("component", "store"),
	}
	fo.Retried, fo.Conflicted, fo.Versioned, fo.Trips = o.writes.Retried, o.writes.Conflicted, o.writes.Versioned, o.writes.Tripped
	s, err := fdbkv.Open(ctx, fo)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, fmt.Errorf("%w; skein serve and skein replay create one", err)
	}
	return s, err
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// An Index is an open store with its graph and its metrics.
type Index struct {
	Path      string // of the store, absolute if it is a folder
	KV        kv.Store
	Graph     *graph.Store
	Registry  *prometheus.Registry
	Backfill  *backfill.Manager // nil without StoreOptions.Backfill
	part      bool              // it writes only a share of the accounts
	memory    int64             // the budget, in bytes; 0: DefaultMemory()
	log       *slog.Logger
	listening listening
	front     front
	tracer    trace.Tracer
	fenced    chan error // receives once, when another writer takes over

	consumerMetrics sync.Once
	consuming       *consumer.Metrics
	consumer        atomic.Pointer[consumer.Consumer] // the most recent one
}

// OpenIndex opens a store for writing, or with o.ReadOnly for queries only.
func OpenIndex(ctx context.Context, o StoreOptions) (*Index, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.writes = kvmetrics.New(reg, format.KeyspaceOf)
	var store kv.Store
	if err := o.await(ctx, func() (err error) { store, err = OpenStore(ctx, o); return err }); err != nil {
		return nil, err
	}
	if o.engine().InProcess { // also if it is read because the disk is full, which they may be the reason for
		if err := removeCheckpoints(o.Store); err != nil && !o.ReadOnly {
			return nil, errors.Join(err, store.Close())
		}
	}
	var manager *backfill.Manager
	var queued func([]batch.Queued)
	if o.Backfill != nil {
		bo := *o.Backfill
		bo.Logger = logger(o.Logger).With("component", "backfill")
		bo.Tracer = o.Tracer
		bo.Metrics = backfill.NewMetrics(reg, func() backfill.Status { return manager.StatusNow() })
		bo.Memory = o.budget().Repos
		bo.ArchiveOps = o.budget().ArchiveOps
		bo.Archiving = func(begins bool) { archiveMemory(o, begins) }
		manager = backfill.New(bo)
		queued = manager.Queued
	}
	engine, budget := o.engine(), o.budget()
	fenced := make(chan error, 1)
	options := graph.Options{
		Intern: intern.Options{
			Settings: o.Settings, Shards: o.Shards,
			CacheBytes: budget.Strings, FilterBytes: budget.Filters, Owner: owner(), Metrics: intern.NewMetrics(reg),
		},
		Defaults:   engine.Settings,
		Kinds:      o.Kinds,
		StateCache: budget.States,
		SetCache:   budget.Sets,
		Share:      o.Share,
		Embedded:   !engine.Shared,
		ReadOnly:   o.ReadOnly,
		MustExist:  !o.Create,
		Import:     o.Import,
		Queued:     queued,
		Logger:     logger(o.Logger).With("component", "graph"),
		Metrics:    graph.NewMetrics(reg),
		Writes:     o.writes,
		Tracer:     o.Tracer,
		Fenced:     func(err error) { fenced <- err },
	}
	if engine.InProcess && !o.ReadOnly {
		options.Intern.FilterFile = filepath.Join(o.Store, filterFile)
	}
	var g *graph.Store
	if err := o.await(ctx, func() (err error) { g, err = graph.Open(ctx, store, options); return err }); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the graph in %s: %w", o.Store, err), store.Close())
	}
	x := &Index{Path: o.Store, KV: store, Graph: g, Registry: reg, Backfill: manager, part: o.Share.N > 1, memory: o.Memory, log: logger(o.Logger), front: front{log: logger(o.Logger)}, tracer: o.Tracer, fenced: fenced}
	if manager != nil {
		manager.SetStore(g)
	}
	if abs, err := filepath.Abs(o.Store); err == nil && engine.InProcess {
		x.Path = abs
	}
	x.monitor()
	return x, nil
}

func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Close closes the graph and the store. The end of ctx does not cut it short.
func (x *Index) Close(ctx context.Context) error {
	return errors.Join(x.Graph.Close(context.WithoutCancel(ctx)), x.KV.Close())
}

// Consumer builds a consumer of the index. Metrics report the most recent consumer.
func (x *Index) Consumer(o consumer.Options) (*consumer.Consumer, error) {
	o.Logger = x.log
	x.consumerMetrics.Do(func() {
		x.consuming = consumer.NewMetrics(x.Registry, func() consumer.Status {
			if c := x.consumer.Load(); c != nil {
				return c.Status()
			}
			return consumer.Status{State: consumer.Connecting}
		})
	})
	o.Metrics = x.consuming
	o.DiskFull = x.diskFull
	c, err := consumer.New(x.Graph, o)
	if err == nil {
		x.consumer.Store(c)
	}
	return c, err
}

// Progressed returns the last sequence number that the most recent consumer has applied, 0 if
// none.
func (x *Index) Progressed() int64 {
	if c := x.consumer.Load(); c != nil {
		return c.Progress().Applied
	}
	return 0
}

// ServeOptions say what a daemon serves.
type ServeOptions struct {
	// Listen is the address of the query API, and AdminListen of the admin listener, "" for none.
	Listen, AdminListen string
	// AdminToken is the token for the admin listener. Without one the listener serves everything
	// on loopback, and only metrics and health elsewhere.
	AdminToken string
	Version    string
	Commit     string // of the source of the program, "" if unknown
	// Consume is nil for a query node.
	Consume *consumer.Options
	// Labels says whose labels to read; nil: nobody's. Its Logger and Metrics are set by Serve.
	Labels *labels.Options
	// Handles resolves handles, Service is the server's public identity, and Feeds are its feeds.
	// All may be nil.
	Handles query.Handles
	Service *query.Service
	Feeds   *feed.Feeds
	// Space, if set, is called once the disk has space. It is set in a process that should index
	// but, because the disk is full, has opened the index read-only and only answers queries.
	Space func()
	// Draining, if set, is closed when the process is about to stop but still answers: from then on
	// it is not ready, and closes each connection after its answer, so that clients move to other
	// nodes.
	Draining <-chan struct{}
	// Clients limits the clients of the query API. Its Refused is set by Serve.
	Clients clients.Options
	// Certificate, if set, makes the query API speak TLS.
	Certificate *Certificate
	// Page configures the page at /.
	Page page.Options
	// CheckEvery is how often to check the store, slowly, in the background; 0: never. Only the embedded
	// engine can.
	CheckEvery time.Duration
	// Past says which history to fetch at the first start.
	Past Past
	// AsOf, if set, is the time of the newest event that a node which does not consume answers from.
	AsOf time.Time
	// Backup says when to back up; nil: never.
	Backup *BackupSchedule
	// Status, if set, receives a status line every second, and "" at the end. If it is nil, the
	// status is logged every minute.
	Status func(line string)
	// Ready, if set, is called with both addresses once both are listening.
	Ready func(api, admin net.Addr)

	// mount, if set, receives the handlers instead of the listeners (Follow).
	mount func(h handlers)
}

// handlers make the handlers of the two listeners, given the address of each.
type handlers struct {
	api, admin func(at net.Addr) http.Handler
}

// Serve answers queries, and consumes if o.Consume is set, until ctx ends.
func (x *Index) Serve(ctx context.Context, o ServeOptions) (err error) {
	var c *consumer.Consumer
	var source string
	var status func() query.Status
	if o.Consume != nil {
		if c, err = x.Consumer(*o.Consume); err != nil {
			return err
		}
		source = c.Source()
		status = func() query.Status {
			st := c.Status()
			return query.Status{State: string(st.State), Lag: st.Lag, HasLag: st.HasLag}
		}
	}
	if !o.AsOf.IsZero() {
		status = func() query.Status {
			return query.Status{State: "off", Lag: time.Since(o.AsOf), HasLag: true}
		}
	}
	if o.Space != nil {
		status = func() query.Status { return query.Status{State: string(consumer.Full)} }
	}
	qo := query.Options{Version: o.Version, Relay: source, Status: status, Handles: o.Handles, Service: o.Service, Feeds: o.Feeds, Logger: x.log, Metrics: query.NewMetrics(x.Registry), Tracer: x.tracer}
	if x.Backfill != nil {
		qo.Queue = x.Backfill.Queue
		if _, audits := x.Backfill.Audits(); audits {
			qo.Audits = func() query.Audits { a, _ := x.Backfill.Audits(); return query.Audits(a) }
		}
	}
	share := divideDescriptors(openFiles())
	qo.Subscribers = min(2000, share.api/2) // leaves room for other requests
	if o.Consume == nil || x.part {
		qo.Subscribers = -1 // this process does not see the commits of others
	}
	x.buildInfo(o.Version, o.Commit)
	api, err := query.New(x.Graph, qo)
	if err != nil {
		return err
	}
	t := newTasks(ctx)
	defer t.end()
	ctx = t.ctx
	t.run("subscriptions", func(ctx context.Context) error {
		<-ctx.Done()
		api.Close() // disconnects subscribers, which would delay the shutdown
		return nil
	})
	o.Page.Kinds = x.Graph.Kinds()
	if o.Page.Examples == nil {
		o.Page.Examples = page.CacheExamples(x.examples)
	}
	live := page.NewLive(x.sampler(o.Version, c), min(1000, share.api/4))
	t.run("page", func(ctx context.Context) error { live.Run(ctx); return nil })
	h := handlers{
		api:   func(net.Addr) http.Handler { return o.closing(x.gate(page.Handler(api, live, o.Page), o.Clients)) },
		admin: func(at net.Addr) http.Handler { return x.guard(&o, api, at) },
	}
	var apiAddr, adminAddr net.Addr
	if o.mount != nil {
		o.mount(h)
	} else if apiAddr, adminAddr, err = x.front.listen(t, &o, h); err != nil {
		return err
	}
	t.run("fence", x.awaitFenced)
	if o.Space != nil {
		t.run("space", func(ctx context.Context) error { x.awaitSpace(ctx, o.Space); return nil })
	}
	if o.CheckEvery > 0 {
		m := newCheckMetrics(x.Registry)
		t.run("check", func(ctx context.Context) error { x.checkStore(ctx, o.CheckEvery, m); return nil })
	}
	if o.Backup != nil {
		m := newBackupMetrics(x.Registry)
		t.run("backup", func(ctx context.Context) error { x.backUp(ctx, o.Backup, m); return nil })
		if o.Backup.Verify > 0 {
			t.run("backup verification", func(ctx context.Context) error { x.verifyBackups(ctx, o.Backup, m); return nil })
		}
	}
	if err := x.readLabels(t, o.Labels); err != nil {
		return err
	}
	if o.Ready != nil { // before the log: who reads it may send a signal at once
		o.Ready(apiAddr, adminAddr)
	}
	if o.mount == nil {
		x.logStart(o, apiAddr, adminAddr)
	}
	if x.Backfill != nil {
		x.runBackfill(t, o.Past, source)
	}
	if c != nil {
		t.run("progress", func(ctx context.Context) error { x.showProgress(ctx, c, o.Status); return nil })
		if err = c.Run(ctx); err != nil {
			err = fmt.Errorf("indexing failed: %w", err)
			t.stop(err)
		}
	}
	<-ctx.Done()
	x.log.Info("stopping: committing what was read")
	t.end()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// readLabels starts the task that reads labelers, if there is any to read.
func (x *Index) readLabels(t *tasks, o *labels.Options) error {
	if o == nil {
		return nil
	}
	with := *o
	with.Logger, with.Metrics = x.log.With("component", "labels"), labels.NewMetrics(x.Registry)
	c, err := labels.New(x.Graph, with)
	if err != nil {
		return err
	}
	t.run("labels", func(ctx context.Context) error {
		if err := c.Run(ctx); err != nil {
			return fmt.Errorf("indexing labels failed: %w", err)
		}
		return nil
	})
	return nil
}

// drains reports whether the process is about to stop.
func (o *ServeOptions) drains() bool {
	select {
	case <-o.Draining:
		return true
	default: // also if Draining is nil
		return false
	}
}

// closing returns h such that each answer closes its connection while the process drains.
func (o *ServeOptions) closing(h http.Handler) http.Handler {
	if o.Draining == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.drains() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// awaitFenced returns an error when another writer takes over this daemon's share, which may be
// while it has nothing to write.
func (x *Index) awaitFenced(ctx context.Context) error {
	select {
	case err := <-x.fenced:
		return fmt.Errorf("indexing failed: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// gate returns the query API behind a gate that limits its clients, and counts and logs whom it
// refuses.
func (x *Index) gate(api http.Handler, o clients.Options) http.Handler {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skein_query_refused_total", Help: "Requests refused before they were worked on, by reason: rate, bytes, token (unknown) or expired.",
	}, []string{"reason"})
	x.Registry.MustRegister(refused)
	for _, why := range []string{"rate", "bytes", "token", "expired"} {
		refused.WithLabelValues(why)
	}
	o.Refused = func(client, why string) {
		refused.WithLabelValues(why).Inc()
		if held, ok := x.front.limiter.Allow("client " + why); ok {
			x.log.Warn("client refused", "component", "http", "client", client, "why", why, "occurrences", held+1)
		}
	}
	return clients.NewGate(api, o)
}

// guard returns the admin endpoints behind a guard that refuses unauthorized requests.
func (x *Index) guard(o *ServeOptions, api *query.Server, at net.Addr) http.Handler {
	g := guardAdmin(x.admin(o.drains, api), o.AdminListen, at, o.AdminToken, func(r *http.Request, why string) {
		if held, ok := x.front.limiter.Allow("admin"); ok {
			x.log.Warn("admin request refused", "component", "http", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "host", r.Host, "why", why, "occurrences", held+1)
		}
	})
	if g.token == nil && !g.bound.IsLoopback() {
		x.log.Info("admin listener without a token, reachable from other machines: serving only metrics and health", "component", "http", "address", at.String(), "paths", openPaths, "to_change", "SKEIN_ADMIN_TOKEN or --admin-token-file")
	}
	return g
}
