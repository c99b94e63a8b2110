package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/clients"
	"skein.blue/internal/command"
)

func tokenCommand(e *command.Environment) *cli.Command {
	return &cli.Command{
		Name:      "token",
		Usage:     "make a token for a client, and its line for the file of serve --tokens",
		ArgsUsage: "NAME [rate=N] [bytes=N] [expires=TIME]",
		Description: "The token goes to standard error, for the client, and the line to standard output, for the file:\n\n" +
			"    skein token my-app rate=50 expires=2027-12-31 >> tokens.txt\n\n" +
			"The line holds a hash, not the token. rate is in requests a second, bytes in bytes of answers a second, 0 for no limit;\n" +
			"without them, --rate and --rate-bytes apply. The client sends the token as Authorization: Bearer TOKEN, or, beside a\n" +
			"service auth token, as " + clients.TokenHeader + ": TOKEN.",
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() == 0 {
				return command.UsageError("token needs a NAME, which the log shows")
			}
			token, line, err := clients.NewToken(c.Args().First(), strings.Join(c.Args().Tail(), " "))
			if err != nil {
				return command.UsageError("%v", err)
			}
			if _, err := fmt.Fprintln(e.Stderr, token); err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.Stdout, line)
			return err
		},
	}
}
