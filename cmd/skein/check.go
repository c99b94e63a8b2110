package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/check"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// maxProblems limits how many broken invariants check lists. It counts all of them.
const maxProblems = 100

func checkCommand(e *command.Environment) *cli.Command {
	return storeCommand("check", "read the whole store and check it for errors", func(ctx context.Context, path string, store kv.Store) error {
		problems := 0
		p := e.Progress("keys")
		err := check.Store(ctx, store, func(problem string) {
			if problems++; problems <= maxProblems {
				fmt.Fprintln(e.Stdout, say.Line(problem))
			}
		}, p.Tell)
		p.End()
		if mixed, ok := errors.AsType[*check.Mixed](err); ok {
			fmt.Fprintf(e.Stderr, "%s: %v, so the %d problems may not be real; stop all writers and check again\n", path, mixed, problems)
			return command.ErrQuiet
		}
		if ctx.Err() != nil {
			return errors.New("check: interrupted before the whole store was read, so the store may still have errors")
		}
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if problems > 0 {
			fmt.Fprintf(e.Stderr, "%s: %d problems found\n", path, problems)
			return command.ErrQuiet
		}
		fmt.Fprintf(e.Stdout, "%s: no problems found\n", path)
		return nil
	})
}
