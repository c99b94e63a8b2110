package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/check"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

// maxProblems limits how many broken invariants check lists. It counts all of them.
const maxProblems = 100

// keysIn returns the approximate number of keys in a store, 0 if the engine cannot tell.
func keysIn(store kv.Store) int64 {
	if s, ok := store.(interface{ AboutKeys() int64 }); ok {
		return s.AboutKeys()
	}
	return 0
}

func checkCommand(e *command.Environment) *cli.Command {
	var file string
	progress := &cli.StringFlag{
		Name: "progress", DefaultText: app.CheckFile + " in the store's folder; none on FoundationDB", Destination: &file,
		Usage: "file that keeps the progress of the check: if the check is interrupted, and the store does not change, the next check goes on from there. \"\" keeps none",
	}
	return storeCommand("check", "read the whole store and check it for errors", func(ctx context.Context, path string, store kv.Store) error {
		if !progress.IsSet() && app.EngineOf(path).InProcess {
			file = filepath.Join(path, app.CheckFile)
		}
		problems := 0
		p := e.Progress("keys", keysIn(store))
		var resume *check.Progress
		if file != "" {
			resume = &check.Progress{
				File: file, Program: command.Version() + " " + command.Commit(),
				Resumed: func(at time.Time, keys int64) {
					fmt.Fprintf(e.Stderr, "going on with the check that was interrupted at %s, after %d keys; for one from the start, remove %s\n", at.UTC().Format(time.DateTime), keys, file)
				},
				Warn: func(err error) { fmt.Fprintln(e.Stderr, err) },
			}
		}
		err := check.Resume(ctx, store, resume, func(problem string) {
			if problems++; problems <= maxProblems {
				fmt.Fprintln(e.Stdout, human.Line(problem))
			}
		}, p.Tell)
		p.End()
		if mixed, ok := errors.AsType[*check.Mixed](err); ok {
			fmt.Fprintf(e.Stderr, "%s: %v, so the %d problems may not be real; stop all writers and check again\n", path, mixed, problems)
			return command.ErrQuiet
		}
		if interrupted, ok := errors.AsType[*check.Interrupted](err); ok {
			return fmt.Errorf("check: %w, so the store may still have errors. Run the command again: it goes on from there if the store has not changed", interrupted)
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
	}, progress)
}
