package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"skein/consumer"
	"skein/internal/app"
)

func serveCommand(e *environment) *cli.Command {
	s := &settings{}
	flags := append(s.indexFlags(e),
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3210", Usage: "address of the query API", Destination: &s.listen, Sources: env("listen")},
		&cli.StringFlag{Name: "admin-listen", Value: "127.0.0.1:3211", Usage: "address of /metrics, /healthz, /readyz, /deadletters, /gaps, /debug/pprof/", Destination: &s.admin, Sources: env("admin-listen")},
		&cli.BoolFlag{Name: "force-cursor", Usage: "use --cursor although one is stored", Destination: &s.forceCursor, Sources: env("force-cursor")},
		&cli.BoolFlag{Name: "consume", Value: true, Usage: "false: only answer questions", Destination: &s.consume, Sources: env("consume")},
	)
	return &cli.Command{
		Name:  "serve",
		Usage: "consume the firehose, index it, answer queries",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return serve(ctx, e, s, flags)
		},
	}
}

func serve(ctx context.Context, e *environment, s *settings, flags []cli.Flag) (err error) {
	so, err := s.storeOptions(e)
	if err != nil {
		return err
	}
	onFDB := strings.HasPrefix(s.store, "fdb:")
	so.Create, so.Wait = s.consume, true // a node that only answers never makes a store
	so.ReadOnly = onFDB && !s.consume    // beside the writers; a folder has one process
	co, err := s.consumerOptions()
	if err != nil {
		return err
	}
	if _, _, err := consumer.ParseRelay(s.relay); err != nil {
		return usage("--relay: %v", err)
	}
	for _, name := range environmentWarnings(os.Environ(), flags) {
		so.Logger.Warn("this environment variable is no setting of skein serve", "name", name)
	}
	e.stop.onHangup(func() { so.Logger.Info("SIGHUP: there is nothing to read anew; going on") })
	app.LimitMemory(so)
	x, err := openIndex(ctx, so)
	if err != nil && ctx.Err() != nil {
		so.Logger.Info("stopped before it had begun")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, x.Close(ctx))
		so.Logger.Info("stopped")
	}()
	o := app.ServeOptions{Listen: s.listen, AdminListen: s.admin, Version: version()}
	if s.consume {
		o.Consume = &co
	}
	err = x.Serve(ctx, o)
	if errors.Is(err, consumer.ErrCursorStored) {
		return usage("%v", err)
	}
	return err
}
