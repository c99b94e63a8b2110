package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer"
	"skein.blue/consumer/labels"
	"skein.blue/internal/clients"
	"skein.blue/internal/outward"
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
	// Handles resolves handles, Service is the server's public identity, and Feeds are its feeds. All may be nil.
	Handles query.Handles
	Service *query.Service
	Feeds   *feed.Feeds
	// Space, if set, is called once the disk has space. It is set in a process that should index
	// but, because the disk is full, has opened the index read-only and only answers queries.
	Space func()
	// Draining, if set, is closed when the process is about to stop but still answers: from then on it is not ready, and closes
	// each connection after its answer, so that clients move to other nodes.
	Draining <-chan struct{}
	// Clients limits the clients of the query API. Its Refused is set by Serve.
	Clients clients.Options
	// Network says how to contact the receivers of Watches.
	Network *Network
	// Page configures the page at /.
	Page page.Options
	// Past says which history to fetch at the first start.
	Past Past
	// Backup says when to back up; nil: never.
	Backup *BackupSchedule
	// Ready, if set, is called with both addresses once both are listening.
	Ready func(api, admin net.Addr)

	// Watches are run while the stream is consumed.
	Watches []Watch
}

// A server is an Index that Serve serves.
type server struct {
	*Index

	o      ServeOptions
	front  *front
	tasks  *tasks
	source string // of the stream; "" on a query node
	labels *labels.Consumer
	api    *query.Server
	stored atomic.Int64 // time of the newest event that the store had when it was last read, in Unix microseconds
}

// Serve answers queries, and consumes if o.Consume is set, until ctx ends.
func (x *Index) Serve(ctx context.Context, o ServeOptions) (err error) {
	s := &server{Index: x, o: o, front: newFront(x.log), tasks: newTasks(ctx)}
	defer s.tasks.end()
	if err := s.build(); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	ctx = s.tasks.ctx
	if s.o.Consume != nil {
		if err = s.index(ctx); err != nil {
			s.tasks.stop(err)
		}
	}
	<-ctx.Done()
	x.log.Info("stopping: committing what was read")
	s.tasks.end()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// build builds the consumer and the query API.
func (s *server) build() error {
	if s.o.Consume != nil {
		if s.o.Consume.Part != nil {
			if err := s.Backfill.Enclose(s.tasks.ctx); err != nil {
				return asUsage(err)
			}
		}
		c, err := s.Consumer(*s.o.Consume)
		if err != nil {
			return err
		}
		s.source = c.Source()
	}
	_, _ = s.sample(s.tasks.ctx) // the first answer has its time
	qo := query.Options{Version: s.o.Version, Relay: s.source, Status: s.status, Handles: s.o.Handles, Service: s.o.Service, Feeds: s.o.Feeds, Logger: s.log, Metrics: query.NewMetrics(s.Registry)}
	if s.Backfill != nil {
		qo.Queue = s.Backfill.Queue
		if _, audits := s.Backfill.Audits(); audits {
			qo.Audits = func() query.Audits { a, _ := s.Backfill.Audits(); return query.Audits(a) }
		}
	}
	qo.Subscribers = min(2000, divideDescriptors(openFiles()).api/2) // leaves room for other requests
	if s.o.Consume == nil || s.part {
		qo.Subscribers = -1 // this process does not see the commits of others
	}
	s.buildInfo(s.o.Version, s.o.Commit)
	s.api = query.New(s.Graph, qo)
	return nil
}

// start starts the tasks. It returns once both listeners listen.
func (s *server) start() error {
	o, t := &s.o, s.tasks
	t.run("subscriptions", func(ctx context.Context) error {
		<-ctx.Done()
		s.api.Close() // disconnects subscribers, which would delay the shutdown
		return nil
	})
	o.Page.Kinds, o.Page.Accounts = s.Graph.Kinds(), s.accounts
	live := page.NewLive(s.sample)
	t.run("page", live.Run)
	t.run("writers", s.Graph.FollowWriters)
	api, admin := s.dated(page.Handler(s.api, live, o.Page)), s.dated(s.admin())
	if err := s.front.listen(t.ctx, o); err != nil {
		return err
	}
	s.Registry.MustRegister(s.front.refused)
	s.front.serve(t, o, api, admin)
	t.run("fence", s.awaitFenced)
	if o.Space != nil {
		t.run("space", s.awaitSpace)
	}
	if o.Backup != nil {
		last := prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_backup_last_timestamp_seconds", Help: "Time of the newest backup in the target of --backup-to; 0: none is known."})
		s.Registry.MustRegister(last, gauge("skein_backup_interval_seconds", "How often a backup is made (--backup-every).", o.Backup.Every.Seconds))
		t.run("backup", func(ctx context.Context) error { s.backUp(ctx, o.Backup, last); return nil })
	}
	if o.Labels != nil {
		with := *o.Labels
		with.Logger, with.Metrics = s.log.With("component", "labels"), labels.NewMetrics(s.Registry)
		s.labels = labels.New(s.Graph, with)
	}
	s.answering(o, s.front)
	if o.Consume != nil {
		t.run("progress", s.logProgress)
	}
	if len(o.Watches) > 0 {
		return s.runWatches(t.ctx, t)
	}
	return nil
}

// errMove ends what a process does to its partitions, which it then moves.
var errMove = errors.New("partitions move")

// index indexes until ctx ends. When other writers of the store come or go, it ends what it does to its partitions, gives up some or takes
// others over, and begins again: as a restart does, but queries are answered meanwhile.
func (s *server) index(ctx context.Context) error {
	for {
		t := newTasks(ctx)
		t.run("move", func(ctx context.Context) error {
			select {
			case <-s.Graph.Due():
				return errMove
			case <-ctx.Done():
				return nil
			}
		})
		if err := s.indexParts(t); err != nil {
			t.stop(err)
		}
		<-t.ctx.Done()
		t.end()
		if cause := context.Cause(t.ctx); ctx.Err() != nil || !errors.Is(cause, errMove) {
			if errors.Is(cause, context.Canceled) {
				return nil
			}
			return cause
		}
		err := await(ctx, s.log, true, func() error { return s.Graph.Move(ctx) })
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it stops: other writers take its partitions over
		case err != nil:
			return fmt.Errorf("indexing failed: %w", err)
		}
	}
}

// indexParts starts the tasks that index what this process has of the store.
func (s *server) indexParts(t *tasks) error {
	if !s.Graph.Writes() {
		s.consumer.Store(nil) // it stands by
		return nil
	}
	o := s.o.Consume
	if _, isStored := s.Graph.Cursor(s.source); isStored && s.part && !o.ForceCursor {
		o.Cursor = nil // another writer has begun
	}
	c, err := s.Consumer(*o)
	if err != nil {
		return err
	}
	o.Cursor, o.ForceCursor = nil, false // once only
	t.run("stream", func(ctx context.Context) error {
		if err := c.Run(ctx); err != nil {
			return fmt.Errorf("indexing failed: %w", err)
		}
		return nil
	})
	if s.Backfill != nil {
		s.runBackfill(t)
	}
	if s.labels != nil {
		t.run("labels", func(ctx context.Context) error {
			err := await(ctx, s.log.With("component", "labels"), true, func() error { return s.labels.Run(ctx) })
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("indexing labels failed: %w", err)
			}
			return nil
		})
	}
	return nil
}

// awaitFenced returns an error when another writer takes over this daemon's share, which may be while it has nothing to write.
func (s *server) awaitFenced(ctx context.Context) error {
	select {
	case err := <-s.fenced:
		return fmt.Errorf("indexing failed: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// awaitSpace waits until the disk has space, and then calls Space, unless the process drains: it answers until ctx ends.
func (s *server) awaitSpace(ctx context.Context) error {
	for s.diskFull() || s.o.draining() {
		if outward.Wait(ctx, time.Second) != nil {
			return nil //nolint:nilerr // that is how a task ends
		}
	}
	s.o.Space()
	return nil
}
