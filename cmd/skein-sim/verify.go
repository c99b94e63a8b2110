package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/relay"
)

func verifyCommand(e *command.Environment) *cli.Command {
	var o load.Options
	var network relay.Options
	return &cli.Command{
		Name:  "verify",
		Usage: "compare a store that skein serve made from skein-sim relay with the network, up to the store's cursor",
		Flags: append(networkFlags(&network)[:4], command.StoreFlags(e, &o.Store)...), // without the relay's faults
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if network.Network.Accounts < 1 {
				return command.UsageError("--accounts %d: must be at least 1", network.Network.Accounts)
			}
			if !c.IsSet("log-level") {
				e.Level = "warn"
			}
			o.Network, o.Stderr = network.Network, e.Stderr
			if err := e.Prepare(&o.Store); err != nil {
				return err
			}
			problems, err := load.Verify(ctx, o)
			if errors.Is(err, load.ErrOther) {
				return command.UsageError("verify: %v", err)
			}
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			for _, p := range problems {
				fmt.Fprintln(e.Stderr, "verify: difference:", p)
			}
			if len(problems) > 0 {
				return command.ErrQuiet
			}
			return nil
		},
	}
}
