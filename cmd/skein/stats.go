package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

func statsCommand(e *command.Environment) *cli.Command {
	var exact bool
	return storeCommand("stats", "print what the store holds and how much space each part takes", func(ctx context.Context, path string, store kv.Store) error {
		st, err := app.ReadStats(ctx, path, store)
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		if exact {
			out := json.NewEncoder(e.Stdout)
			out.SetIndent("", "  ")
			return out.Encode(st)
		}
		return st.Write(e.Stdout)
	}, &cli.BoolFlag{Name: "json", Usage: "print exact numbers as JSON", Destination: &exact})
}
