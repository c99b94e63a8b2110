package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/relay"
)

func archiveCommand(e *command.Environment) *cli.Command {
	var o relay.Options
	var dir, listen string
	var records int64
	var mean int
	return &cli.Command{
		Name: "archive", Usage: "serve an archive of a made-up network, as Jetstream v2 does; creates it if it does not exist",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Usage: "folder of the archive", Required: true, Destination: &dir},
			&cli.Int64Flag{Name: "records", Value: 10_000_000, Usage: "records of indexed collections in a new archive, about 70 bytes each", Destination: &records},
			&cli.IntFlag{Name: "per-repo", Value: 350, Usage: "mean number of records per repo in a new archive", Destination: &mean},
			&cli.IntFlag{Name: "accounts", Value: 5_000_000, Usage: "population of a new archive", Destination: &o.Network.Accounts},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of the network of a new archive", Destination: &o.Network.Seed},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3213", Usage: "address to listen on", Destination: &listen},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			a, err := relay.OpenArchive(dir)
			if errors.Is(err, fs.ErrNotExist) {
				p := e.Progress("records", records)
				if err = relay.WriteArchive(dir, o.Network, records, mean, p.Tell); err == nil {
					p.End()
					a, err = relay.OpenArchive(dir)
				}
			}
			if err != nil {
				return fmt.Errorf("archive: %w", err)
			}
			ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return fmt.Errorf("archive: --listen %s: %w", listen, err)
			}
			srv := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
			defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
			fmt.Fprintf(e.Stderr, "serving the archive in %s on http://%s\n", dir, ln.Addr())
			if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("archive: %w", err)
			}
			return nil
		},
	}
}
