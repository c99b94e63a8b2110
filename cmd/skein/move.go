package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/graph"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

func exportCommand(e *command.Environment) *cli.Command {
	return storeCommand("export", "write the store to standard output as JSON lines, which skein import can load into a store on any engine", func(ctx context.Context, path string, store kv.Store) error {
		p := e.Progress("records", recordsIn(ctx, store))
		n, err := export.Write(ctx, store, e.Data, p.Tell)
		p.End()
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		fmt.Fprintf(e.Stderr, "%s: %d accounts and %d records exported\n", path, n.Accounts, n.Records)
		return nil
	})
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

func importCommand(e *command.Environment) *cli.Command {
	s := &command.Settings{}
	return &cli.Command{
		Name: "import", Usage: "fill an empty store from an export", ArgsUsage: "FILE (- for standard input)",
		Flags: s.WriteFlags(e),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return command.UsageError("import needs a file that skein export wrote, or - for standard input")
			}
			return importStore(ctx, e, s, c.Args().First())
		},
	}
}

func importStore(ctx context.Context, e *command.Environment, s *command.Settings, file string) (err error) {
	so, err := s.StoreOptions(e)
	if err != nil {
		return err
	}
	so.Create, so.Import = true, true
	in, size := io.NopCloser(os.Stdin), int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		in = f
	}
	app.LimitMemory(so)
	x, err := command.OpenIndex(ctx, so)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	p := e.Progress("bytes", size)
	counted := &command.Counting{Reader: in}
	n, err := export.Read(ctx, x.Graph, counted, func(records int64) { p.Of(counted.N, size, human.Count(records)+" records") })
	p.End()
	interrupted := ctx.Err() != nil
	if err = errors.Join(err, in.Close(), x.Close(ctx)); err != nil && interrupted {
		return errors.New("import: interrupted. Run the same command again: it reads the file from the beginning; you need not empty the store first")
	}
	if errors.Is(err, graph.ErrImport) {
		return err // the error names the import
	}
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	fmt.Fprintf(e.Stderr, "%s: %d accounts and %d records imported\n", s.Store, n.Accounts, n.Records)
	return nil
}
