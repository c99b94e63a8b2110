package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein/graph/check"
	"skein/internal/kv"
)

// maxProblems is how many broken invariants check lists; it counts them all.
const maxProblems = 100

func checkCommand(e *environment) *cli.Command {
	return storeCommand("check", "read the whole store and prove its invariants", func(ctx context.Context, path string, store kv.Store) error {
		problems := 0
		p := e.progress("%d keys read")
		err := check.Store(ctx, store, func(problem string) {
			if problems++; problems <= maxProblems {
				fmt.Fprintln(e.stdout, problem)
			}
		}, p.tell)
		p.end()
		if mixed, ok := errors.AsType[*check.Mixed](err); ok {
			fmt.Fprintf(e.stderr, "%s: %v, so %d problems may be none; stop the writers and check again\n", path, mixed, problems)
			return errQuiet
		}
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if problems > 0 {
			fmt.Fprintf(e.stderr, "%s: %d invariants are broken\n", path, problems)
			return errQuiet
		}
		fmt.Fprintf(e.stdout, "%s: all invariants hold\n", path)
		return nil
	})
}
