package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if err := a.read(c); err != nil {
				return err
			}
			if c.IsSet("max-lag") && maxLag <= 0 {
				return command.UsageError("--max-lag %v: must be more than 0", maxLag)
			}
			return health(ctx, e, a.address, a.token, maxLag)
		},
	}
}

// health asks /readyz. maxLag is how far the index may be behind, 0: any.
func health(ctx context.Context, e *command.Environment, admin, token string, maxLag time.Duration) error {
	if !strings.Contains(admin, "://") {
		host, port, err := net.SplitHostPort(admin)
		if err != nil {
			return command.UsageError("--admin %q: expected HOST:PORT", admin)
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() { // listening on all addresses includes loopback
			host = "127.0.0.1"
		}
		admin = "http://" + net.JoinHostPort(host, port)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	address := strings.TrimSuffix(admin, "/") + "/readyz"
	if maxLag > 0 {
		address += "?maxLag=" + maxLag.String()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return command.UsageError("--admin: %v", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Transport{}).RoundTrip(req) // never through a proxy
	if err != nil {
		return fmt.Errorf("no daemon answers at %s: %w", admin, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	state := say.Line(strings.TrimSpace(string(b)))
	switch {
	case resp.StatusCode == http.StatusOK && (state == "ready" || strings.HasPrefix(state, "ready, but")): // not indexing
		fmt.Fprintln(e.Stdout, state)
		return nil
	case strings.HasPrefix(state, "not ready"):
		fmt.Fprintln(e.Stdout, state)
		return command.ErrQuiet
	}
	return fmt.Errorf("%s answered %s, which is not an answer from skein; --admin must be the admin address of skein serve", admin, resp.Status)
}
