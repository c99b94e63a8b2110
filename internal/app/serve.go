package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer"
	"skein.blue/consumer/labels"
	"skein.blue/internal/clients"
	"skein.blue/internal/page"
	"skein.blue/query"
	"skein.blue/query/feed"
)

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
	// Network, if set, has more metrics to serve.
	Network *Network
	// Page configures the page at /.
	Page page.Options
	// Past says which history to fetch at the first start.
	Past Past
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
	if o.Consume != nil {
		if c, err = x.Consumer(*o.Consume); err != nil {
			return err
		}
		source = c.Source()
	}
	fresh := &freshness{x: x, consumer: c, full: o.Space != nil}
	qo := query.Options{Version: o.Version, Relay: source, Status: fresh.status, Handles: o.Handles, Service: o.Service, Feeds: o.Feeds, Logger: x.log, Metrics: query.NewMetrics(x.Registry)}
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
	o.Network.register(x.Registry)
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
		api: func(net.Addr) http.Handler {
			return o.closing(fresh.dated(x.gate(page.Handler(api, live, o.Page), o.Clients)))
		},
		admin: func(at net.Addr) http.Handler { return fresh.dated(x.guard(&o, api, fresh, at)) },
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
	if o.Backup != nil {
		m := newBackupMetrics(x.Registry)
		t.run("backup", func(ctx context.Context) error { x.backUp(ctx, o.Backup, m); return nil })
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
func (x *Index) guard(o *ServeOptions, api *query.Server, fresh *freshness, at net.Addr) http.Handler {
	g := guardAdmin(x.admin(o.drains, api, fresh), o.AdminListen, at, o.AdminToken, func(r *http.Request, why string) {
		if held, ok := x.front.limiter.Allow("admin"); ok {
			x.log.Warn("admin request refused", "component", "http", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "host", r.Host, "why", why, "occurrences", held+1)
		}
	})
	if g.token == nil && !g.bound.IsLoopback() {
		x.log.Info("admin listener without a token, reachable from other machines: serving only metrics and health", "component", "http", "address", at.String(), "paths", openPaths, "to_change", "SKEIN_ADMIN_TOKEN or --admin-token-file")
	}
	return g
}
