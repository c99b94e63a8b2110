package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

// storeCommand returns a command that reads the store that --store names.
func storeCommand(name, usage string, action func(ctx context.Context, path string, store kv.Store) error, flags ...cli.Flag) *cli.Command {
	var o app.StoreOptions
	return &cli.Command{
		Name: name, Usage: usage, Flags: append([]cli.Flag{command.StoreFlag(&o)}, flags...),
		Action: func(ctx context.Context, _ *cli.Command) error {
			return withStore(ctx, o.Store, func(store kv.Store) error { return action(ctx, o.Store, store) })
		},
	}
}

// withStore opens a store for reading, calls fn with it, and closes it.
func withStore(ctx context.Context, path string, fn func(kv.Store) error) error {
	store, err := app.OpenStore(ctx, app.StoreOptions{Store: path, ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(fn(store), store.Close())
}
