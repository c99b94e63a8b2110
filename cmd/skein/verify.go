package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

func verifyCommand(e *command.Environment) *cli.Command {
	var r reading
	return &cli.Command{
		Name: "verify", Usage: "read the backups of a target and compare them with their hashes", ArgsUsage: "TARGET",
		Description: "Reads each part of the backups of TARGET, and restores nothing. " + targetUsage + ", or https://HOST/PATH. The exit code is 1 if a part is missing or damaged.",
		Flags:       []cli.Flag{r.trustFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			from, err := oneTarget(c)
			if err != nil {
				return err
			}
			if err := r.open("", from, true); err != nil {
				return err
			}
			p := e.Progress("bytes")
			v, err := backup.Verify(ctx, r.target, backup.VerifyOptions{
				Trust:    r.trust,
				Problem:  func(err error) { fmt.Fprintln(e.Stdout, say.Line(err.Error())) },
				Progress: func(done, total int64) { p.Of(done, total, "verifying") },
			})
			p.End()
			if ctx.Err() != nil {
				return errors.New("verify: interrupted before everything was read, so there may be more problems")
			}
			if err != nil {
				return err
			}
			if v.Problems > 0 {
				fmt.Fprintf(e.Stderr, "%s: %d problems found\n", r.target, v.Problems)
				return command.ErrQuiet
			}
			fmt.Fprintf(e.Stdout, "%s: no problems found in %d backups, whose %d parts (%s) were read\n", r.target, v.Backups, v.Parts, say.Bytes(v.Bytes))
			return nil
		},
	}
}
