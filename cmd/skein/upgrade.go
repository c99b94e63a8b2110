package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein/graph/format"
	"skein/graph/upgrade"
	"skein/internal/app"
)

func upgradeCommand(e *environment) *cli.Command {
	s := &settings{}
	return &cli.Command{
		Name: "upgrade", Usage: "bring a store that an older skein made up to date; where it is interrupted, run it again",
		Flags: s.writeFlags(e),
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return upgradeStore(ctx, e, s)
		},
	}
}

func upgradeStore(ctx context.Context, e *environment, s *settings) error {
	so, err := s.storeOptions(e)
	if err != nil {
		return err
	}
	app.LimitMemory(so)
	store, err := app.OpenStore(ctx, so)
	if err != nil {
		return err
	}
	p := e.progress("%d keys moved")
	from, err := upgrade.Run(ctx, store, p.tell)
	p.end()
	if err = errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("upgrade: %s: %w", s.store, err)
	}
	if from == format.Version {
		fmt.Fprintf(e.stdout, "%s: it has format %d, which is that of this program\n", s.store, from)
		return nil
	}
	fmt.Fprintf(e.stdout, "%s: brought up to date, from format %d to %d\n", s.store, from, format.Version)
	return nil
}
