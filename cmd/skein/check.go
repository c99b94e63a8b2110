package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/urfave/cli/v3"

	"skein/graph"
	"skein/internal/kv"
)

// maxProblems is how many broken invariants check lists; it counts them all.
const maxProblems = 100

func checkCommand(e *environment) *cli.Command {
	return storeCommand("check", "read the whole store and prove its invariants", func(ctx context.Context, path string, store kv.Store) error {
		var crossed atomic.Int64
		ctx = kv.AllowCrossing(ctx, &crossed)
		before, err := graph.WriteState(ctx, store)
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		problems := 0
		p := e.progress("%d keys read")
		err = graph.Verify(ctx, store, func(problem string) {
			if problems++; problems <= maxProblems {
				fmt.Fprintln(e.stdout, problem)
			}
		}, p.tell)
		p.end()
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		if crossed.Load() > 0 { // the engine does not keep a state for so long
			after, err := graph.WriteState(ctx, store)
			if err != nil {
				return fmt.Errorf("check: %w", err)
			}
			if after != before {
				fmt.Fprintf(e.stderr, "%s: it was written to while it was read, in %d states, so %d problems may be none; stop the writers and check again\n", path, crossed.Load()+1, problems)
				return errQuiet
			}
		}
		if problems > 0 {
			fmt.Fprintf(e.stderr, "%s: %d invariants are broken\n", path, problems)
			return errQuiet
		}
		fmt.Fprintf(e.stdout, "%s: all invariants hold\n", path)
		return nil
	})
}
