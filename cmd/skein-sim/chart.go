package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/load/chart"
)

func chartCommand(e *command.Environment) *cli.Command {
	var markdown bool
	return &cli.Command{
		Name: "chart", Usage: "draw the samples of load tests over the number of edges, as an SVG", ArgsUsage: "NAME=FILE...",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "markdown", Usage: "print a table instead, with the bytes written by level and by keyspace", Destination: &markdown}},
		Action: func(_ context.Context, c *cli.Command) error {
			var runs []chart.Run
			for _, arg := range c.Args().Slice() {
				name, file, ok := strings.Cut(arg, "=")
				if !ok {
					return command.UsageError("%q: must be NAME=FILE, with a file of load --samples", arg)
				}
				f, err := os.Open(file)
				if err != nil {
					return fmt.Errorf("chart: %w", err)
				}
				run, err := chart.Read(name, f)
				if err := errors.Join(err, f.Close()); err != nil {
					return fmt.Errorf("chart: %w", err)
				}
				runs = append(runs, run)
			}
			if len(runs) == 0 {
				return command.UsageError("chart needs the samples of at least one run: NAME=FILE")
			}
			draw := chart.Draw
			if markdown {
				draw = chart.Table
			}
			if err := draw(e.Stdout, runs); err != nil {
				return fmt.Errorf("chart: %w", err)
			}
			return nil
		},
	}
}
