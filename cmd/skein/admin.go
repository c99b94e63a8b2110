package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/outward"
)

// admin is a running daemon, by the address of its admin listener and its token.
type admin struct {
	address, tokenFile string
	token              string // "" for none
}

// flags returns the flags that name the daemon.
func (a *admin) flags(usage string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: usage, Destination: &a.address, Sources: cli.EnvVars(command.EnvPrefix+"ADMIN", command.EnvPrefix+"ADMIN_LISTEN")},
		&cli.StringFlag{Name: "admin-token-file", Usage: "file of the daemon's admin token, if it has one; or set SKEIN_ADMIN_TOKEN", Destination: &a.tokenFile, Sources: command.Env("admin-token-file")},
	}
}

// read makes a URL of the address, which may be that of a listener, and reads the token.
func (a *admin) read() (err error) {
	if !strings.Contains(a.address, "://") {
		host, port, err := net.SplitHostPort(a.address)
		if err != nil {
			return command.UsageError("--admin %q: expected HOST:PORT", a.address)
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() { // listening on all addresses includes loopback
			host = "127.0.0.1"
		}
		a.address = "http://" + net.JoinHostPort(host, port)
	}
	a.token, err = command.AdminToken(a.tokenFile)
	return err
}

// post sends JSON, and reads the answer.
func (a *admin) post(ctx context.Context, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.ask(ctx, http.MethodPost, path, bytes.NewReader(b), into)
}

// ask sends a request, and reads the answer.
func (a *admin) ask(ctx context.Context, method, path string, body io.Reader, into any) error {
	done, err := a.open(ctx, method, path, body, into)
	if err != nil {
		return err
	}
	return done()
}

// open is ask for an answer that the daemon does not end: what it lends is there until done is called, or this process is
// gone. A refusal is an error.
func (a *admin) open(ctx context.Context, method, path string, body io.Reader, into any) (done func() error, err error) {
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, errors.New(cmp.Or(outward.AnswerOf(resp).Name, fmt.Sprintf("%s answered %s; is --admin the admin address of skein serve?", a.address, resp.Status)))
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not answer as skein does; is --admin the admin address of skein serve? %w", a.address, err), resp.Body.Close())
	}
	return resp.Body.Close, nil
}

// lend asks for a checkpoint of the daemon's store. done removes it, and returns the error of reading it.
func (a *admin) lend(ctx context.Context) (c app.Checkpoint, done func(error) error, err error) {
	if err := a.read(); err != nil {
		return c, nil, err
	}
	end, err := a.open(ctx, http.MethodPost, "/checkpoint", strings.NewReader("{}"), &c)
	if err != nil {
		return c, nil, err
	}
	if _, err := os.Stat(c.Folder); err != nil {
		return c, nil, errors.Join(fmt.Errorf("the daemon's store cannot be read here; run the command on the daemon's machine, or in its container, as a user who may read the store: %w", err), end())
	}
	return c, func(err error) error {
		if _, gone := os.Stat(c.Folder); err != nil && gone != nil && ctx.Err() == nil {
			err = errors.New("the daemon has stopped, and has removed the copy of its store that was being read; run the command again")
		}
		return errors.Join(err, end())
	}, nil
}

// direct sends requests without a proxy.
var direct = new(http.Transport)

func (a *admin) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.address, "/")+path, body)
	if err != nil {
		return nil, command.UsageError("--admin: %v", err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := direct.RoundTrip(req)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, context.Cause(ctx) //nolint:wrapcheck // interrupted
	}
	if err != nil {
		return nil, fmt.Errorf("no answer from a daemon at %s; is skein serve running there? %w", req.URL.Host, err)
	}
	return resp, nil
}
