package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

func idsCommand(e *command.Environment) *cli.Command {
	audit := storeCommand("audit", "list the leases (blocks of ids that writers reserved), count the skipped ids for each reason, and count the ids still available", func(ctx context.Context, path string, store kv.Store) error {
		var out bytes.Buffer
		p := e.Progress("rows", 0)
		err := app.AuditIDs(ctx, store, &out, p.Tell)
		p.End()
		if err != nil {
			return fmt.Errorf("ids audit: %w", err)
		}
		fmt.Fprintf(e.Stdout, "%s: %s", path, &out)
		return nil
	})
	var o app.StoreOptions
	var byID bool
	resolve := &cli.Command{
		Name: "resolve", Usage: "show the ids of DIDs and AT URIs; with --id, show the DIDs and AT URIs of ids", ArgsUsage: "STRING… | --id N…",
		Flags: []cli.Flag{command.StoreFlag(&o), &cli.BoolFlag{Name: "id", Usage: "treat the arguments as ids", Destination: &byID}},
		Action: func(ctx context.Context, c *cli.Command) error {
			if !c.Args().Present() {
				return command.UsageError("ids resolve needs DIDs or AT URIs, or ids with --id")
			}
			ids, err := app.ParseIDs(c.Args().Slice(), byID)
			if err != nil {
				return err
			}
			return withStore(ctx, o.Store, func(store kv.Store) error {
				missing, err := ids.Resolve(ctx, store, e.Stdout)
				if err != nil {
					return fmt.Errorf("ids resolve: %w", err)
				}
				for _, m := range missing {
					fmt.Fprintf(e.Stderr, "%s: not in the store\n", m)
					err = command.ErrQuiet
				}
				return err
			})
		},
	}
	return &cli.Command{
		Name: "ids", Usage: "look up the internal ids of DIDs and AT URIs, and show how ids are used", Commands: []*cli.Command{audit, resolve},
		Action: command.ChooseCommand,
	}
}
