package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

// healthCommand checks that a daemon answers queries. It is the health check of container
// images, which have no other program.
func healthCommand(e *command.Environment) *cli.Command {
	var a admin
	var maxLag time.Duration
	return &cli.Command{
		Name:  "health",
		Usage: "check that a running daemon answers queries; exits with 1 if not",
		Flags: append(a.flags("admin address of the daemon"),
			&cli.DurationFlag{Name: "max-lag", DefaultText: "any", Usage: "exit with 1 also if the index is further behind than this, such as 5m, or has no event yet: if answers that old are of no use to you", Destination: &maxLag}),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.IsSet("max-lag") && maxLag <= 0 {
				return command.UsageError("--max-lag %v: must be more than 0", maxLag)
			}
			if err := a.read(); err != nil {
				return err
			}
			return health(ctx, e, &a, maxLag)
		},
	}
}

// health asks /readyz. maxLag is how far the index may be behind, 0: any.
func health(ctx context.Context, e *command.Environment, a *admin, maxLag time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	path := "/readyz"
	if maxLag > 0 {
		path += "?maxLag=" + maxLag.String()
	}
	resp, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	state := say.Line(strings.TrimSpace(string(b)))
	isReady := resp.StatusCode == http.StatusOK && (state == "ready" || strings.HasPrefix(state, "ready, but")) // not indexing
	if !isReady && !strings.HasPrefix(state, "not ready") {
		return fmt.Errorf("%s answered %s, which is not an answer from skein; --admin must be the admin address of skein serve", a.address, resp.Status)
	}
	fmt.Fprintln(e.Stdout, state)
	if !isReady {
		return command.ErrQuiet
	}
	return nil
}
