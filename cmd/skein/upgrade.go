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
	"skein.blue/internal/kv"
)

func upgradeCommand(e *command.Environment) *cli.Command {
	s := &command.Settings{}
	return &cli.Command{
		Name: "upgrade", Usage: "upgrade a store made by an older version of skein; if interrupted, run it again",
		Flags: s.EngineFlags(e),
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			return upgradeStore(ctx, e, s)
		},
	}
}

// upgradeIn upgrades the store of so, which must exist, and returns the format that it found.
func upgradeIn(ctx context.Context, e *command.Environment, so app.StoreOptions) (from format.Version, err error) {
	app.LimitMemory(so)
	store, err := app.OpenStore(ctx, so)
	if err != nil {
		return from, err
	}
	p := e.Progress("keys", keysIn(store))
	from, err = upgrade.Run(ctx, store, p.Tell)
	p.End()
	if err = errors.Join(err, store.Close()); err != nil {
		return from, fmt.Errorf("upgrade: %s: %w", so.Store, err)
	}
	return from, nil
}

// upgradeFirst upgrades the store of a daemon before it serves, if there is one and it is older.
// An interrupted upgrade is continued at the next start.
func upgradeFirst(ctx context.Context, e *command.Environment, so app.StoreOptions) error {
	so.Create, so.Backfill, so.AwaitSpace = false, nil, false
	from, err := upgradeIn(ctx, e, so)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return nil
	case err != nil:
		return err
	case from != format.Newest && from != 0:
		so.Logger.Info("the store was upgraded", "from_format", int(from), "to_format", int(format.Newest))
	}
	return nil
}

func upgradeStore(ctx context.Context, e *command.Environment, s *command.Settings) error {
	so, err := s.StoreOptions(e)
	if err != nil {
		return err
	}
	from, err := upgradeIn(ctx, e, so)
	if err != nil {
		return err
	}
	if from == format.Newest {
		fmt.Fprintf(e.Stdout, "%s: already in format %d, the current one\n", s.Store, from)
		return nil
	}
	fmt.Fprintf(e.Stdout, "%s: upgraded from format %d to %d\n", s.Store, from, format.Newest)
	return nil
}
