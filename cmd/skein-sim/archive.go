package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/relay"
)

func archiveCommand(e *command.Environment) *cli.Command {
	var o relay.Options
	var listen string
	flags := append(networkFlags(&o)[:4], // without the relay's faults
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3213", Usage: "address to listen on", Destination: &listen},
	)
	for _, f := range flags {
		if past, ok := f.(*cli.IntFlag); ok && past.Name == "past" {
			past.Value = 350
		}
	}
	return &cli.Command{
		Name: "archive", Usage: "serve the history of a made-up network as an archive, as Jetstream v2 does; it makes each block when it is asked for",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if o.Network.Accounts < 1 || o.Network.History < 1 {
				return command.UsageError("--accounts and --past must be at least 1")
			}
			a := relay.NewArchive(o.Network)
			ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return fmt.Errorf("archive: --listen %s: %w", listen, err)
			}
			srv := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
			defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
			fmt.Fprintf(e.Stderr, "serving an archive of %d records on http://%s\n", a.Records(), ln.Addr())
			if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("archive: %w", err)
			}
			return nil
		},
	}
}
