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
		Usage:     "make a token for a client, and print a line to add to the tokens file (skein serve --tokens FILE)",
		ArgsUsage: "NAME [rate=N] [bytes=N] [expires=TIME]",
		Description: "The command prints the token to standard error: give the token to the client. It prints a line with the token's hash to\n" +
			"standard output: add that line to the tokens file:\n\n" +
			"    skein token my-app rate=50 expires=2027-12-31 >> tokens.txt\n\n" +
			"rate is the limit in requests per second, bytes the limit in response bytes per second; 0 means no limit. If you omit a\n" +
			"limit, that of serve --rate or --rate-bytes applies. expires is a date or a time; without it, the token does not expire.\n" +
			"The client sends the token as \"Authorization: Bearer TOKEN\". If that header already carries a service auth token, the\n" +
			"client sends \"" + clients.TokenHeader + ": TOKEN\" instead.",
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
