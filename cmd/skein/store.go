package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"skein/internal/app"
	"skein/internal/kv"
)

// storeCommand is a command that reads the store of --store.
func storeCommand(name, usage string, action func(ctx context.Context, path string, store kv.Store) error) *cli.Command {
	s := &settings{}
	return &cli.Command{
		Name: name, Usage: usage, Flags: []cli.Flag{s.storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := noArguments(c); err != nil {
				return err
			}
			store, err := app.OpenStore(app.StoreOptions{Store: s.store, ReadOnly: true})
			if err != nil {
				return err
			}
			return errors.Join(action(ctx, s.store, store), store.Close())
		},
	}
}
