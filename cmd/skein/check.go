package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/check"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

// maxProblems is how many broken invariants check lists; it counts them all.
const maxProblems = 100

// keysIn returns about how many keys a store has, 0 where the engine cannot tell.
func keysIn(store kv.Store) int64 {
	if s, ok := store.(interface{ AboutKeys() int64 }); ok {
		return s.AboutKeys()
	}
	return 0
}

func checkCommand(e *command.Environment) *cli.Command {
	return storeCommand("check", "read the whole store and prove its invariants", func(ctx context.Context, path string, store kv.Store) error {
		problems := 0
		p := e.Progress("keys", keysIn(store))
		err := check.Store(ctx, store, func(problem string) {
			if problems++; problems <= maxProblems {
				fmt.Fprintln(e.Stdout, human.Line(problem))
			}
		}, p.Tell)
		p.End()
		if mixed, ok := errors.AsType[*check.Mixed](err); ok {
			fmt.Fprintf(e.Stderr, "%s: %v, so %d problems may be none; stop the writers and check again\n", path, mixed, problems)
			return command.ErrQuiet
		}
		if ctx.Err() != nil {
			return errors.New("check: interrupted: not all of the store was read, and nothing is proven")
		}
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if problems > 0 {
			fmt.Fprintf(e.Stderr, "%s: %d invariants are broken\n", path, problems)
			return command.ErrQuiet
		}
		fmt.Fprintf(e.Stdout, "%s: all invariants hold\n", path)
		return nil
	})
}
