package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/graph"
	"skein.blue/graph/export"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

func importCommand(e *command.Environment) *cli.Command {
	o := app.StoreOptions{Create: true, Import: true}
	return &cli.Command{
		Name: "import", Usage: "fill an empty store from an export", ArgsUsage: "FILE (- for standard input)",
		Flags: command.StoreFlags(e, &o),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return command.UsageError("import needs a file that skein export wrote, or - for standard input")
			}
			return importStore(ctx, e, o, c.Args().First())
		},
	}
}

func importStore(ctx context.Context, e *command.Environment, so app.StoreOptions, file string) (err error) {
	if err := e.Prepare(&so); err != nil {
		return err
	}
	in, size, at := io.NopCloser(os.Stdin), int64(0), func() int64 { return 0 }
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		in, at = f, func() int64 { n, _ := f.Seek(0, io.SeekCurrent); return n }
	}
	app.LimitMemory(so)
	x, err := app.OpenIndex(ctx, so)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	p := e.Progress("bytes")
	n, err := export.Read(ctx, x.Graph, in, func(records int64) { p.Of(at(), size, say.Count(records)+" records") })
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
	fmt.Fprintf(e.Stderr, "%s: %d accounts and %d records imported\n", so.Store, n.Accounts, n.Records)
	return nil
}
