package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/export"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

func exportCommand(e *command.Environment) *cli.Command {
	var a admin
	var so app.StoreOptions
	var format string
	o := export.TableOptions{Program: "skein " + command.Version()}
	return &cli.Command{
		Name: "export", Usage: "write the store as JSON lines, which skein import can load into a store on any engine, or as Parquet files for analysis", ArgsUsage: "[DIR]",
		Description: "JSON lines go to standard output. Parquet files go to the new folder DIR; a running daemon goes on meanwhile. See docs/analysis.md.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "format", Value: "jsonl", Usage: "jsonl or parquet", Destination: &format},
			&cli.StringSliceFlag{Name: "kinds", DefaultText: "all", Usage: "with --format parquet: kinds of records to write, such as follow,like", Destination: &o.Kinds},
			&cli.StringFlag{Name: "since", DefaultText: "all", Usage: "with --format parquet: leave out records whose key has an earlier time than this: 2026-11-25T12:00:00Z, 2026-11-25, or an age such as 30d", Validator: func(s string) (err error) { o.Since, err = app.ParseTime(s); return err }},
			closedFlag(&so),
		}, a.flags("admin URL of the daemon on this machine whose store to export")...),
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			isTables := format == "parquet"
			switch {
			case !isTables && format != "jsonl":
				return command.UsageError("--format %q: expected jsonl or parquet", format)
			case !isTables && (!o.Since.IsZero() || len(o.Kinds) > 0):
				return command.UsageError("--kinds and --since need --format parquet")
			case !isTables && c.Args().Present():
				return command.UsageError("export takes no arguments without --format parquet, got %q", c.Args().First())
			case !isTables:
			case c.Args().Len() != 1 || c.Args().First() == "":
				return command.UsageError("skein export --format parquet needs one argument, the folder to write to")
			case so.Store != "" && !app.InFolder(so.Store):
				return command.UsageError("export --format parquet needs a store in a folder; copy this one first: skein export --store '%s' | skein import --store FOLDER -", so.Store)
			}
			if so.Store == "" {
				lent, done, err2 := a.lend(ctx)
				if err2 != nil {
					return err2
				}
				defer func() { err = done(err) }()
				so.Store = lent.Folder
			}
			o.Dir = c.Args().First()
			return withStore(ctx, so.Store, func(store kv.Store) error {
				if isTables {
					return exportTables(ctx, e, store, o)
				}
				return exportLines(ctx, e, store)
			})
		},
	}
}

// exportLines writes a store to standard output.
func exportLines(ctx context.Context, e *command.Environment, store kv.Store) error {
	p := e.Progress("records")
	n, err := export.Write(ctx, store, e.Data, p.Tell)
	p.End()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	fmt.Fprintf(e.Stderr, "%d accounts and %d records exported\n", n.Accounts, n.Records)
	return nil
}

// exportTables writes a store to a folder.
func exportTables(ctx context.Context, e *command.Environment, store kv.Store, o export.TableOptions) error {
	p := e.Progress("edges")
	o.Progress = p.Tell
	start := time.Now()
	m, err := export.WriteTables(ctx, store, o)
	p.End()
	switch {
	case errors.Is(err, export.ErrKind), errors.Is(err, export.ErrFolder):
		return command.UsageError("%v", err)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("export: interrupted: %s is not complete, and has no manifest.json; remove it", o.Dir)
	case err != nil:
		return fmt.Errorf("export: %w", err)
	}
	fmt.Fprintf(e.Stdout, "%s: %s edges and %s accounts, %s, in %v\n", o.Dir, say.Count(m.Edges()), say.Count(m.Tables["accounts"].Rows), say.Bytes(m.Bytes()), time.Since(start).Round(10*time.Millisecond))
	return nil
}
