package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/format"
	"skein.blue/graph/upgrade"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
)

func upgradeCommand(e *command.Environment) *cli.Command {
	s := &command.Settings{}
	return &cli.Command{
		Name: "upgrade", Usage: "upgrade a store made by an older skein; if interrupted, run it again",
		Flags: s.EngineFlags(e),
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			return upgradeStore(ctx, e, s)
		},
	}
}

func upgradeStore(ctx context.Context, e *command.Environment, s *command.Settings) error {
	so, err := s.StoreOptions(e)
	if err != nil {
		return err
	}
	app.LimitMemory(so)
	store, err := app.OpenStore(ctx, so)
	if err != nil {
		return err
	}
	p := e.Progress("keys", keysIn(store))
	from, err := upgrade.Run(ctx, store, p.Tell)
	p.End()
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("upgrade: %s: %w", s.Store, err)
	}
	if from == format.Newest {
		fmt.Fprintf(e.Stdout, "%s: already in format %d, the current one\n", s.Store, from)
		return nil
	}
	fmt.Fprintf(e.Stdout, "%s: upgraded from format %d to %d\n", s.Store, from, format.Newest)
	return nil
}
