package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/consumer/archive"
	"skein.blue/graph"
	"skein.blue/internal/app"
	"skein.blue/internal/clients"
	"skein.blue/internal/command"
	"skein.blue/internal/identities/plc"
	"skein.blue/internal/kv"
	"skein.blue/internal/page"
	"skein.blue/query/feed"
)

func serveCommand(e *command.Environment) *cli.Command {
	s, b := &command.Settings{}, &command.BackupSettings{}
	flags := append(s.IndexFlags(e),
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3210", Usage: "address of the query API", Destination: &s.Listen, Sources: command.Env("listen")},
		&cli.StringFlag{Name: "admin-listen", Value: "127.0.0.1:3211", Usage: "address of the admin listener, which serves /metrics, /healthz, /readyz, /gaps, /deadletters, /resyncs, /backfill and /debug/pprof/", Destination: &s.Admin, Sources: command.Env("admin-listen")},
		&cli.BoolFlag{Name: "force-cursor", Usage: "start at --cursor although the store has a cursor; without this flag, that is an error", Destination: &s.ForceCursor, Sources: command.Env("force-cursor")},
		&cli.StringFlag{Name: "backfill", Value: "off", Usage: "where to fetch older records from: off, archive (from the URL of --archive) or repos (from every host that the relay lists). The backfill begins when skein is first started with this option, and resumes after a restart", Destination: &s.Past, Sources: command.Env("backfill")},
		&cli.StringFlag{Name: "archive", Usage: "URL of an archive of the network's history (Jetstream v2), for --backfill archive", Destination: &s.Archive, Sources: command.Env("archive")},
		&cli.BoolFlag{Name: "repair", Value: true, Usage: "when skein has missed events of a repo, refetch the repo from its host (default: true)", Destination: &s.Repair, Sources: command.Env("repair")},
		&cli.DurationFlag{Name: "drain", Usage: "how long to keep answering queries after SIGTERM, at most 1h. During that time /readyz answers \"not ready\", so that a load balancer moves clients away. A second SIGTERM stops at once", Destination: &s.Drain, Sources: command.Env("drain")},
		&cli.BoolFlag{Name: "consume", Value: true, Usage: "index the firehose; with --consume=false, only answer queries (default: true)", Destination: &s.Consume, Sources: command.Env("consume")},
	)
	flags = append(flags, s.LabelersFlag())
	flags = append(append(append(append(flags, s.AdminTokenFlags()...), s.VerifyFlags()...), s.PastFlags()...), append(s.ComparisonFlags(), s.NameFlags()...)...)
	flags = append(append(flags, s.ClientFlags()...), append(b.ScheduleFlags(), b.StartFlags()...)...)
	return &cli.Command{
		Name:  "serve",
		Usage: "index the firehose and answer queries",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			return serve(ctx, e, s, b, flags)
		},
	}
}

func serve(ctx context.Context, e *command.Environment, s *command.Settings, b *command.BackupSettings, flags []cli.Flag) (err error) {
	so, err := s.StoreOptions(e)
	if err != nil {
		return err
	}
	for _, f := range [][2]string{{"--listen", s.Listen}, {"--admin-listen", s.Admin}} {
		if err := command.CheckListen(f[0], f[1]); err != nil {
			return err
		}
	}
	if s.Listen == s.Admin && !strings.HasSuffix(s.Listen, ":0") {
		return command.UsageError("--listen and --admin-listen are both %s; the admin listener needs its own address", s.Listen)
	}
	if err := s.CheckPreview(); err != nil {
		return err
	}
	token, err := s.AdminToken()
	if err != nil {
		return err
	}
	if !s.Consume && s.Cursor != "" {
		return command.UsageError("--cursor has no effect with --consume=false, which indexes nothing")
	}
	if s.Drain < 0 || s.Drain > time.Hour {
		return command.UsageError("--drain %v: must be from 0s to 1h", s.Drain)
	}
	if s.ForceCursor && s.Cursor == "" {
		return command.UsageError("--force-cursor needs --cursor")
	}
	shared := app.EngineOf(s.Store).Shared
	so.Create, so.Wait = s.Consume, shared // a query node never creates a store
	so.ReadOnly = shared && !s.Consume     // runs beside the writers; a folder has only one process
	so.AwaitSpace = true
	mirror, closeMirror, err := s.OpenMirror(ctx, so)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeMirror()) }()
	if err := b.CheckStart(s); err != nil {
		return err
	}
	schedule, err := b.Schedule(s.Store)
	if err != nil {
		return err
	}
	past, err := pastOptions(s, &so)
	if err != nil {
		return err
	}
	co, err := s.ConsumerOptions()
	if err != nil {
		return err
	}
	if _, _, err := consumer.ParseRelay(s.Relay); err != nil {
		return command.UsageError("--relay: %v", err)
	}
	command.EnvironmentWarnings(os.Environ(), flags, func(name, meant string) {
		args := []any{"name", name}
		if meant != "" {
			args = append(args, "did_you_mean", meant)
		}
		so.Logger.Warn("unknown environment variable", args...)
	})
	command.QuietLibraries(so.Logger)
	handles, err := s.Handles()
	if err != nil {
		return err
	}
	service, err := s.Service()
	if err != nil {
		return err
	}
	limits, err := s.Clients()
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE)                                    // the reader of the log may exit; the index goes on
	e.Stop.OnHangup(func() { reload(so.Logger, nil, limits.Tokens) }) // until there are feeds to reload
	app.LimitMemory(so)
	o := app.ServeOptions{Listen: s.Listen, AdminListen: s.Admin, AdminToken: token, Version: command.Version(), Commit: command.Commit(), Past: past, Handles: handles, Page: page.Options{Handles: s.Resolver != "off", Public: s.Public()}, Service: service, Clients: limits, Backup: schedule, Status: e.StatusLine()}
	if s.Consume {
		o.Consume = &co
		if o.Labels, err = s.Labels(); err != nil {
			return err
		}
	}
	d := daemonConfig{e: e, s: s, store: so, serve: o, mirror: mirror}
	if b.Follow != "" {
		return d.follow(ctx, b)
	}
	if b.From != "" {
		if err := beginWith(ctx, s, b, so); err != nil || ctx.Err() != nil {
			return err
		}
	}
	err = d.run(ctx)
	if errors.Is(err, kv.ErrDiskFull) {
		err = d.runWithoutSpace(ctx, err)
	}
	if errors.Is(err, consumer.ErrCursorStored) {
		return command.UsageError("%v", err)
	}
	return err
}

// A daemonConfig is a configured serve command.
type daemonConfig struct {
	e     *command.Environment
	s     *command.Settings
	store app.StoreOptions
	serve app.ServeOptions

	mirror *plc.Mirror // nil without --plc-mirror
	full   error       // why it only answers: the disk is full
}

// runWithoutSpace runs a daemon whose start failed with full, because the disk is full: it answers
// queries from the store as it is, which needs no space. When there is space, it starts again, and
// indexes.
func (d daemonConfig) runWithoutSpace(ctx context.Context, full error) error {
	reading := d
	reading.store.ReadOnly, reading.store.Create, reading.store.Backfill = true, false, nil
	reading.serve.Consume, reading.serve.Labels, reading.serve.Past, reading.serve.Backup = nil, nil, app.Past{}, nil
	if !d.s.Consume {
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
	d.store.Logger.Info("the disk has space again: starting to index")
	return d.run(ctx)
}

// errSpace ends a daemon without space when there is space.
var errSpace = errors.New("the disk has space")

// run opens the index and serves it until ctx ends.
func (d daemonConfig) run(ctx context.Context) (err error) {
	e, s, so, o := d.e, d.s, d.store, d.serve
	x, err := command.OpenIndex(ctx, so)
	if err != nil && ctx.Err() != nil {
		so.Logger.Info("stopped during the start")
		return nil
	}
	if err != nil {
		return err
	}
	if d.full != nil { // only now is it known that there is a store to answer from
		so.Logger.Error("disk full: answering queries without indexing until there is space; free some space, or move the store", "error", d.full)
	}
	var answering atomic.Bool
	stopping := sync.OnceFunc(command.NotifyStopping)
	defer context.AfterFunc(ctx, stopping)()
	defer func() {
		stopping()
		err = errors.Join(err, x.Close(ctx))
		if answering.Load() || err == nil { // the error alone reports a failed start
			so.Logger.Info("stopped")
		}
	}()
	feeds, err := s.Feeds(x.Graph.Kinds(), o.Service)
	if err != nil {
		return err
	}
	e.Stop.OnHangup(func() {
		if answering.Load() {
			command.NotifyReloading()
			defer command.NotifyReady("answering")
		}
		reload(so.Logger, feeds, o.Clients.Tokens)
	})
	draining := make(chan struct{})
	if o.Draining = draining; s.Drain > 0 {
		e.Stop.OnDrain(func() time.Duration {
			if !answering.Load() {
				return 0
			}
			so.Logger.Info("draining: not ready for new clients, and answering until then; a second SIGTERM stops now", "for", s.Drain.String())
			close(draining)
			return s.Drain
		})
	}
	var alive sync.WaitGroup
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx)) // until the store is closed
	defer func() { unwatch(); alive.Wait() }()
	if d.mirror != nil {
		d.mirror.Register(x.Registry)
	}
	o.Feeds, o.Page.Feeds = feeds, feeds.Previews
	o.Ready = func(net.Addr, net.Addr) {
		answering.Store(true)
		command.NotifyReady("answering")
		alive.Go(func() { command.KeepAlive(watched, func() { x.Graph.Events(); x.Graph.Incomplete() }) }) // the store's locks are free
	}
	return x.Serve(ctx, o)
}

// reload reloads the files after SIGHUP. Any of them may be nil. A file with an error changes nothing.
func reload(log *slog.Logger, feeds *feed.Feeds, tokens *clients.Tokens) {
	if feeds == nil && tokens == nil {
		log.Info("SIGHUP: nothing to reload")
		return
	}
	if feeds != nil {
		switch n, err := feeds.Reload(); {
		case err != nil:
			log.Error("SIGHUP: invalid file of feeds; keeping the previous feeds", "error", err)
		case n == 0:
			log.Warn("SIGHUP: the file of feeds is empty; serving no feeds")
		default:
			log.Info("SIGHUP: feeds reloaded", "feeds", n)
		}
	}
	if tokens != nil {
		if n, err := tokens.Reload(); err != nil {
			log.Error("SIGHUP: invalid file of tokens; keeping the previous tokens", "error", err)
		} else {
			log.Info("SIGHUP: tokens reloaded", "tokens", n)
		}
	}
}

// pastOptions reads the flags for fetching history.
func pastOptions(s *command.Settings, so *app.StoreOptions) (past app.Past, err error) {
	switch {
	case s.Past != "off" && s.Past != "archive" && s.Past != "repos":
		return past, command.UsageError("--backfill %q: must be off, archive or repos", s.Past)
	case (s.Past == "archive") != (s.Archive != ""):
		return past, command.UsageError("--backfill archive needs --archive URL, and --archive needs --backfill archive")
	case s.Past != "off" && !s.Consume:
		return past, command.UsageError("--backfill has no effect with --consume=false, which indexes nothing")
	case s.Past == "archive" && s.Verify == "full":
		return past, command.UsageError("--backfill archive cannot be combined with --verify full: an archive has no signatures; use --backfill repos")
	case s.Past != "off" && !s.Repair:
		return past, command.UsageError("--backfill fetches repos, which --repair=false forbids; remove --repair=false")
	}
	if s.Archive != "" {
		if _, err := archive.Source(s.Archive); err != nil {
			return past, command.UsageError("--archive: %v", err)
		}
	}
	bo, err := s.BackfillOptions()
	if err != nil {
		return past, err
	}
	if s.Consume && s.Repair {
		so.Backfill = bo
	}
	return app.Past{Archive: s.Archive, Repos: s.Past == "repos"}, nil
}
