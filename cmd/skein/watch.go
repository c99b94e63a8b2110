package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

func watchCommand(e *command.Environment) *cli.Command {
	var a app.Asker
	var state, format string
	return &cli.Command{
		Name:      "watch",
		Usage:     "print who enters and leaves a set, from the first start on: + or - and the member, a line each",
		ArgsUsage: "EXPR",
		Flags: append(askFlags(&a),
			&cli.StringFlag{Name: "state", Usage: "file that keeps what was printed, so that a later run prints what has changed since. Without it, a watch prints what changes while it runs", Destination: &state},
			&cli.StringFlag{Name: "format", Value: "auto", Usage: "text, jsonl or auto: text on a terminal, otherwise jsonl, which has ids and times", Destination: &format}),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return command.UsageError("skein watch needs one set expression in quotes, such as 'followers(did:plc:…)'")
			}
			if format != "auto" && format != "text" && format != "jsonl" {
				return command.UsageError("--format %q: expected text, jsonl or auto", format)
			}
			prepareAsker(&a)
			text := format == "text" || format == "auto" && e.OnTerminal
			said, due := "", time.Time{}
			w := app.LastingWatch{
				Asker: a, Set: c.Args().First(),
				Load: func(context.Context) ([]byte, error) {
					b, err := os.ReadFile(state)
					if state == "" || errors.Is(err, fs.ErrNotExist) {
						return nil, nil
					}
					return b, err
				},
				Save: func(_ context.Context, b []byte) error {
					if state == "" {
						return nil
					}
					return replace(state, b)
				},
				Tell: func(_ context.Context, t app.Told) error { return printChange(e, text, t) },
				Failed: func(err error, wait time.Duration) {
					if err != nil {
						fmt.Fprintf(e.Stderr, "%v; trying again in %v\n", err, wait)
						said, due = "", time.Time{}
					} else if time.Now().After(due) {
						said, due = printWatched(ctx, e, &a, c.Args().First(), said), time.Now().Add(time.Minute)
					}
				},
			}
			return w.Run(ctx)
		},
	}
}

// printWatched prints what is watched, and whether it is complete, unless that was said. It returns what is said.
func printWatched(ctx context.Context, e *command.Environment, a *app.Asker, set, said string) string {
	now, status := queryAnswer{}, "complete"
	if a.Ask(ctx, "query", url.Values{"set": {set}, "count": {"true"}}, &now) != nil {
		return said // until the next attempt
	}
	if now.Reason != "" {
		status = "may be incomplete: " + say.Line(now.Reason)
	}
	if status != said {
		fmt.Fprintf(e.Stderr, "watching %s (members now: %d; %s)\n", set, now.Total, status)
	}
	return status
}

// printChange prints a change of a watched set.
func printChange(e *command.Environment, text bool, t app.Told) error {
	if !text {
		return app.WriteJSONLine(e.Data, t)
	}
	_, err := fmt.Fprintln(e.Data, map[string]string{"entered": "+", "left": "-"}[t.Type], say.Line(t.Member))
	return err
}

// replace writes a file at once: after a crash it is the old one or the new one.
func replace(path string, b []byte) error {
	f, err := os.Create(path + ".new")
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
