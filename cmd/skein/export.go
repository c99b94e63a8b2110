package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// exportFlags are the flags of skein export.
type exportFlags struct {
	lender

	format string
	since  time.Time
	kinds  []string
}

func exportCommand(e *command.Environment) *cli.Command {
	var f exportFlags
	return &cli.Command{
		Name: "export", Usage: "write the store as JSON lines, which skein import can load into a store on any engine, or as Parquet files for analysis", ArgsUsage: "[DIR]",
		Description: "JSON lines go to standard output. Parquet files go to the new folder DIR; a running daemon goes on meanwhile. See docs/analysis.md.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "format", Value: "jsonl", Usage: "jsonl or parquet", Destination: &f.format},
			&cli.StringSliceFlag{Name: "kinds", DefaultText: "all", Usage: "with --format parquet: kinds of records to write, such as follow,like", Destination: &f.kinds},
			&cli.StringFlag{Name: "since", DefaultText: "all", Usage: "with --format parquet: leave out records whose key has an earlier time than this: 2026-11-25T12:00:00Z, 2026-11-25, or an age such as 30d", Validator: func(s string) (err error) { f.since, err = app.ParseTime(s); return err }},
		}, f.flags("export with --format parquet")...),
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := f.read(c); err != nil {
				return err
			}
			switch {
			case f.format == "jsonl" && (!f.since.IsZero() || len(f.kinds) > 0):
				return command.UsageError("--kinds and --since need --format parquet")
			case f.format == "jsonl":
				if err := command.NoArguments(c); err != nil {
					return err
				}
				return withStore(ctx, f.store.Store, func(store kv.Store) error { return exportLines(ctx, e, f.store.Store, store) })
			case f.format != "parquet":
				return command.UsageError("--format %q: expected jsonl or parquet", f.format)
			case c.Args().Len() != 1:
				return command.UsageError("skein export --format parquet needs one argument, the folder to write to")
			}
			return exportTables(ctx, e, &f, c.Args().First())
		},
	}
}

// exportLines writes a store to standard output.
func exportLines(ctx context.Context, e *command.Environment, path string, store kv.Store) error {
	p := e.Progress("records", recordsIn(ctx, store))
	n, err := export.Write(ctx, store, e.Data, p.Tell)
	p.End()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	fmt.Fprintf(e.Stderr, "%s: %d accounts and %d records exported\n", path, n.Accounts, n.Records)
	return nil
}

// exportTables writes a checkpoint of a store, which may be in use, to a folder.
func exportTables(ctx context.Context, e *command.Environment, f *exportFlags, dir string) (err error) {
	o := export.TableOptions{Dir: dir, Program: "skein " + command.Version(), Since: f.since}
	if len(f.kinds) > 0 {
		o.Kinds = f.kinds
	}
	c, done, err := f.checkpoint(ctx, e)
	if no, ok := errors.AsType[*noCheckpoint](err); ok {
		return command.UsageError("export --format parquet needs a store in a folder; copy this one first: skein export --store '%s' | skein import --store FOLDER -", no.store)
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	store, err := app.OpenStore(ctx, app.StoreOptions{Store: c.Folder, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	p := e.Progress("edges", recordsIn(ctx, store))
	o.Progress = p.Tell
	start := time.Now()
	m, err := export.WriteTables(ctx, store, o)
	p.End()
	switch {
	case errors.Is(err, export.ErrKind), errors.Is(err, export.ErrFolder):
		return command.UsageError("%v", err)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("export: interrupted: %s is not complete, and has no manifest.json; remove it", dir)
	case err != nil:
		return fmt.Errorf("export: %w", err)
	}
	fmt.Fprintf(e.Stdout, "%s: %s edges and %s accounts as of %s, %s, in %v\n", dir, say.Count(m.Edges()), say.Count(m.Tables["accounts"].Rows), c.Time.UTC().Format(time.RFC3339), say.Bytes(m.Bytes()), time.Since(start).Round(10*time.Millisecond))
	return nil
}

// recordsIn returns the number of records in a store, 0 if it cannot be read.
func recordsIn(ctx context.Context, store kv.Store) (n int64) {
	_ = store.View(ctx, func(r kv.Reader) error {
		counts, _, _, err := check.Totals(r)
		for _, of := range counts.Records {
			n += of
		}
		return err
	})
	return n
}
