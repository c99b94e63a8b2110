package main

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
	"skein.blue/query/feed"
)

// runWithoutSpace runs a node whose start failed with full, because the disk is full: it answers
// queries from the store as it is, which needs no space. When there is space, it starts again, and
// indexes.
func (n *node) runWithoutSpace(ctx context.Context, full error) error {
	reading := *n
	reading.store.ReadOnly, reading.store.Create, reading.store.Backfill = true, false, nil
	reading.serve.Consume, reading.serve.Labels, reading.serve.Past, reading.serve.Backup, reading.watches = nil, nil, app.Past{}, nil, ""
	if !n.consume {
		return reading.run(ctx)
	}
	space, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	reading.full, reading.serve.Space = full, func() { stop(errSpace) }
	err := reading.run(space)
	switch {
	case errors.Is(err, kv.ErrNotFound), errors.Is(err, graph.ErrNoGraph):
		return full // there is nothing to answer from
	case !errors.Is(err, errSpace):
		return err
	}
	n.store.Logger.Info("the disk has space again: starting to index")
	return n.run(ctx)
}

// errSpace ends a node without space when there is space.
var errSpace = errors.New("the disk has space")

// run opens the index and serves it until ctx ends.
func (n *node) run(ctx context.Context) (err error) {
	log := n.store.Logger
	n.answering.Store(false)
	x, err := app.OpenIndex(ctx, n.store)
	if err != nil && ctx.Err() != nil {
		log.Info("stopped during the start")
		return nil
	}
	if err != nil {
		return err
	}
	if n.full != nil { // only now is it known that there is a store to answer from
		log.Error("disk full: answering queries without indexing until there is space; free some space, or move the store", "error", n.full)
	}
	stopping := sync.OnceFunc(func() {
		if !errors.Is(context.Cause(ctx), errSpace) { // the process goes on: the service manager must not wait for its end
			command.NotifyStopping()
		}
	})
	defer context.AfterFunc(ctx, stopping)()
	defer func() {
		stopping()
		err = errors.Join(err, x.Close(ctx))
		if n.answering.Load() || err == nil { // the error alone reports a failed start
			log.Info("stopped")
		}
	}()
	o := n.serve
	if err := n.openFeeds(x, &o); err != nil {
		return err
	}
	n.graph.Store(x.Graph)
	return x.Serve(ctx, o)
}

// attend makes the first SIGTERM drain the node for as long as --drain says, and tells the service manager once the node answers,
// and then that it is alive: as long as the locks of the graph are free, and while the store is closed and opened again.
func (n *node) attend(ctx context.Context) {
	draining := make(chan struct{})
	n.serve.Draining = draining
	if n.drain > 0 {
		n.e.Stop.OnDrain(func() time.Duration {
			if !n.answering.Load() {
				return 0
			}
			n.store.Logger.Info("draining: not ready for new clients, and answering until then; a second SIGTERM stops now", "for", n.drain.String())
			close(draining)
			return n.drain
		})
	}
	alive := sync.OnceFunc(func() {
		go command.KeepAlive(ctx, func() { n.graph.Load().Events(); n.graph.Load().Incomplete() })
	})
	n.serve.Ready = func(net.Addr, net.Addr) {
		n.answering.Store(true)
		command.NotifyReady("answering")
		alive()
	}
}

// openFeeds reads the file of feeds, which may use the kinds of the index, if there is one. SIGHUP reloads it and the file
// of tokens.
func (n *node) openFeeds(x *app.Index, o *app.ServeOptions) error {
	files := map[string]func() (int, error){}
	if n.feeds.Path != "" {
		fo := n.feeds
		fo.Kinds, fo.Service = x.Graph.Kinds(), o.Service.DID()
		feeds, err := feed.New(fo)
		if err != nil {
			return command.UsageError("--feeds: %v", err)
		}
		o.Feeds, o.Page.Service, files["feeds"] = feeds, fo.Service, feeds.Reload
	}
	if n.watches != "" {
		var err error
		if o.Watches, err = n.network.ReadWatches(n.watches, os.Getenv("SKEIN_WATCH_SECRET"), x.Graph.Kinds()); err != nil {
			return err
		}
	}
	if t := o.Clients.Tokens; t != nil {
		files["tokens"] = t.Reload
	}
	n.e.Stop.OnHangup(func() { n.reload(files) })
	return nil
}

// reload reloads files, after SIGHUP. A file with an error changes nothing.
func (n *node) reload(files map[string]func() (int, error)) {
	log := n.store.Logger
	log.Info("SIGHUP: reloading", "files", len(files))
	for what, reload := range files {
		if read, err := reload(); err != nil {
			log.Error("SIGHUP: invalid file; keeping what it had before", "file", what, "error", err)
		} else {
			log.Info("SIGHUP: reloaded", "file", what, "entries", read)
		}
	}
}

// beginWith restores the newest backup of --from, unless there is a store.
func (n *node) beginWith(ctx context.Context) error {
	log := n.store.Logger.With("from", n.from)
	if !backup.Unfinished(n.store.Store) {
		found, err := app.StoreExists(n.store.Store)
		if err != nil {
			return err
		}
		if found {
			log.Info("there is a store: --from has no effect", "store", n.store.Store)
			return nil
		}
	}
	if err := n.source.open("--from ", n.from, true); err != nil {
		return err
	}
	m, err := backup.Find(ctx, n.source.target, time.Time{}, n.source.trust)
	if err != nil {
		return err
	}
	if err := n.network.Continues(m); err != nil {
		return err
	}
	log.Info("restoring a backup", "of", m.Time.Format(time.RFC3339), "size", say.Bytes(m.Bytes()), "holds", contents(m))
	start := time.Now()
	err = restore(ctx, n.e, n.source.target, m, n.store.Store)
	if ctx.Err() != nil {
		log.Info("stopped during the restore; the next start continues it")
		return nil //nolint:nilerr // that is why
	}
	if err != nil {
		return err
	}
	log.Info("restored", "took", time.Since(start).Round(time.Millisecond).String())
	return nil
}
