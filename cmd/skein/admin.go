package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

// admin is a running daemon, by the address of its admin listener and its token.
type admin struct {
	address, tokenFile string
	token              string // "" for none
	named              bool   // by the user; else the address is only a guess
}

// noAdmin is the address that stands for no daemon.
const noAdmin = "off"

// flags returns the flags that name the daemon.
func (a *admin) flags(usage string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: usage, Destination: &a.address, Sources: cli.EnvVars(command.EnvPrefix+"ADMIN", command.EnvPrefix+"ADMIN_LISTEN")},
		&cli.StringFlag{Name: "admin-token-file", Usage: "file of the daemon's admin token, if it has one; or set SKEIN_ADMIN_TOKEN", Destination: &a.tokenFile, Sources: command.Env("admin-token-file")},
	}
}

// read reads the token, and whether the user named the daemon.
func (a *admin) read(c *cli.Command) (err error) {
	a.named = c.IsSet("admin") && a.address != os.Getenv(command.EnvPrefix+"ADMIN_LISTEN")
	a.token, err = command.AdminToken(a.tokenFile)
	return err
}

// impatient gives up on a daemon, or on another program at its address, that does not answer. patient is for what may
// take long: a repo may be large, and a relay or a disk slow.
var (
	impatient = &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}}
	patient   = new(http.Client)
)

// post sends JSON.
func (a *admin) post(ctx context.Context, client *http.Client, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.ask(ctx, client, http.MethodPost, path, "application/json", bytes.NewReader(b), into)
}

func (a *admin) ask(ctx context.Context, client *http.Client, method, path, contentType string, body io.Reader, into any) (err error) {
	resp, err := a.send(ctx, client, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s did not answer as skein does; is --admin the admin address of skein serve? %w", resp.Request.URL.Host, err)
	}
	return nil
}

// send sends a request. A refusal is an error.
func (a *admin) send(ctx context.Context, client *http.Client, method, path, contentType string, body io.Reader) (*http.Response, error) {
	base := a.address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, body)
	if err != nil {
		return nil, command.UsageError("--admin: %v", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := client.Do(req)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted while waiting for %s", req.URL.Host)
	}
	if err != nil {
		return nil, fmt.Errorf("no answer from a daemon at %s; is skein serve running there? %w", req.URL.Host, err)
	}
	if resp.StatusCode >= 300 {
		var failure struct{ Error, Store string }
		err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&failure)
		_ = resp.Body.Close() // it was only read
		if err != nil || failure.Error == "" {
			failure.Error = fmt.Sprintf("%s answered %s; is --admin the admin address of skein serve?", req.URL.Host, resp.Status)
		}
		return nil, &refusal{resp.StatusCode, failure.Error, failure.Store}
	}
	return resp, nil
}

// refusal is an error answer of a daemon's admin listener.
type refusal struct {
	status  int
	message string
	store   string // that cannot do what was asked
}

// Error implements error.
func (r *refusal) Error() string { return r.message }
