package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein/graph"
	"skein/internal/app"
)

// maxProblems is how many broken invariants check lists; it counts them all.
const maxProblems = 100

func checkCommand(e *environment) *cli.Command {
	s := &settings{}
	return &cli.Command{
		Name:  "check",
		Usage: "read the whole store and prove its invariants",
		Flags: []cli.Flag{s.storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := noArguments(c); err != nil {
				return err
			}
			store, err := app.OpenStore(app.StoreOptions{Store: s.store, ReadOnly: true})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
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
			if problems > 0 {
				fmt.Fprintf(e.stderr, "%s: %d invariants are broken\n", s.store, problems)
				return errQuiet
			}
			fmt.Fprintf(e.stdout, "%s: all invariants hold\n", s.store)
			return nil
		},
	}
}
