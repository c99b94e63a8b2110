package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"skein/graph/export"
	"skein/internal/app"
	"skein/internal/kv"
)

func exportCommand(e *environment) *cli.Command {
	return storeCommand("export", "write the store to standard output, as lines of JSON that import reads into any engine", func(ctx context.Context, path string, store kv.Store) error {
		p := e.progress("%d records")
		n, err := export.Write(ctx, store, e.stdout, p.tell)
		p.end()
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		fmt.Fprintf(e.stderr, "%s: %d accounts and %d records exported\n", path, n.Accounts, n.Records)
		return nil
	})
}

func importCommand(e *environment) *cli.Command {
	s := &settings{}
	return &cli.Command{
		Name: "import", Usage: "fill an empty store with what export wrote", ArgsUsage: "FILE (- is standard input)",
		Flags: s.writeFlags(e),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usage("import: name the file that skein export wrote, or - for standard input")
			}
			return importStore(ctx, e, s, c.Args().First())
		},
	}
}

func importStore(ctx context.Context, e *environment, s *settings, file string) (err error) {
	so, err := s.storeOptions(e)
	if err != nil {
		return err
	}
	so.Create, so.Import = true, true
	in := io.NopCloser(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		in = f
	}
	app.LimitMemory(so)
	x, err := openIndex(ctx, so)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	p := e.progress("%d records")
	n, err := export.Read(ctx, x.Graph, in, p.tell)
	p.end()
	if err = errors.Join(err, in.Close(), x.Close(ctx)); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	fmt.Fprintf(e.stderr, "%s: %d accounts and %d records imported\n", s.store, n.Accounts, n.Records)
	return nil
}
