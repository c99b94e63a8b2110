package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
)

func verifyCommand(e *command.Environment) *cli.Command {
	var o load.Options
	return subcommand("verify", "compare a store that skein serve made from skein-sim relay with the network, up to the store's cursor", &o.Network,
		command.StoreFlags(e, &o.Store), func(ctx context.Context, c *cli.Command) error {
			if _, err := prepare(e, c, &o); err != nil { // the store has a default
				return err
			}
			return runLoad(e, "verify", func() ([]string, error) { return load.Verify(ctx, o) })
		})
}
