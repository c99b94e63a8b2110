package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

func resyncCommand(e *command.Environment) *cli.Command {
	var a admin
	var trust bool
	return &cli.Command{
		Name: "resync", Usage: "make a running daemon fetch repos again, or for the first time", ArgsUsage: "DID|@HANDLE…",
		Flags: append(a.flags("admin URL of the daemon"), &cli.BoolFlag{Name: "trust-host", Usage: "accept the host's copy even if it is older than commits already seen in the stream, for example after the host was restored from a backup", Destination: &trust}),
		Action: func(ctx context.Context, c *cli.Command) error {
			dids := c.Args().Slice()
			if len(dids) == 0 {
				return command.UsageError("skein resync needs the DIDs or @handles of the repos")
			}
			if err := checkDIDs("", dids); err != nil {
				return err
			}
			if err := a.read(); err != nil {
				return err
			}
			if err := a.post(ctx, "/resync", map[string]any{"dids": dids, "trustHost": trust}, new(struct{})); err != nil { // decoding proves that a skein answered
				return err
			}
			fmt.Fprintf(e.Stdout, "%d queued\n", len(dids))
			return nil
		},
	}
}
