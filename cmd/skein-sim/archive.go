package main

import (
	"context"
	"fmt"
	"net"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

func archiveCommand(e *command.Environment) *cli.Command {
	n, listen := network.Options{History: 350}, ""
	return subcommand("archive", "serve the history of a made-up network as an archive, as Jetstream v2 does; it makes each block when it is asked for", &n,
		[]cli.Flag{&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3213", Usage: "address to listen on", Destination: &listen}},
		func(ctx context.Context, _ *cli.Command) error {
			a := relay.NewArchive(n)
			err := serve(ctx, listen, a, func(address net.Addr) {
				fmt.Fprintf(e.Stderr, "serving an archive of %d records on http://%s\n", a.Records(), address)
			})
			if err != nil {
				return fmt.Errorf("archive: %w", err)
			}
			return nil
		})
}
