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
		Usage:     "make a token for a client, and print the line to add to the file that serve --tokens names",
		ArgsUsage: "NAME [rate=N] [bytes=N] [expires=TIME]",
		Description: "The command prints the token on standard error; give it to the client. It prints the line on standard output; add it to\n" +
			"the file:\n\n" +
			"    skein token my-app rate=50 expires=2027-12-31 >> tokens.txt\n\n" +
			"The line holds a hash, not the token. rate is the limit in requests per second, bytes the limit in response bytes per\n" +
			"second; 0 means no limit. A limit that you omit is that of --rate or --rate-bytes. The client sends the token as\n" +
			"\"Authorization: Bearer TOKEN\". If that header already carries a service auth token, it sends \"" + clients.TokenHeader + ": TOKEN\"\n" +
			"instead.",
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() == 0 {
				return command.UsageError("skein token needs a NAME for the client; logs show this name")
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
