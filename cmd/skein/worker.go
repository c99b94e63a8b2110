package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

// worker fetches history: a daemon, or this process.
type worker interface {
	begin(ctx context.Context, p *past) error
	car(ctx context.Context, in io.Reader) (backfill.Placed, error)
	status(ctx context.Context) (backfill.Status, error)
}

// adminClient gives up on a daemon, or on another program at its address, that does not answer.
var adminClient = &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}}

// adminOf is a running daemon, by its admin address and its token, "" for none.
type adminOf struct{ address, token string }

func (d adminOf) begin(ctx context.Context, p *past) error {
	if len(p.dids) > 0 {
		if err := d.post(ctx, "/resync", "application/json", asJSON(map[string]any{"dids": p.dids}), nil); err != nil {
			return err
		}
		if p.archive == "" && len(p.hosts) == 0 {
			return nil
		}
	}
	return d.post(ctx, "/backfill", "application/json", asJSON(map[string]any{"archive": p.archive, "hosts": p.hosts, "repos": p.archive == "" && len(p.hosts) == 0}), nil)
}

func (d adminOf) car(ctx context.Context, in io.Reader) (p backfill.Placed, err error) {
	err = d.post(ctx, "/car", "application/vnd.ipld.car", in, &p)
	return p, err
}

func (d adminOf) status(ctx context.Context) (st backfill.Status, err error) {
	err = d.ask(ctx, http.MethodGet, "/backfill", "", nil, &st)
	return st, err
}

func (d adminOf) post(ctx context.Context, path, contentType string, body io.Reader, into any) error {
	return d.ask(ctx, http.MethodPost, path, contentType, body, into)
}

func (d adminOf) ask(ctx context.Context, method, path, contentType string, body io.Reader, into any) (err error) {
	resp, err := d.send(ctx, method, path, contentType, body)
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
func (d adminOf) send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	base := d.address
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
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	client := adminClient
	if path == "/car" || path == "/checkpoint" || strings.HasPrefix(path, "/members") || path == "/backfill" && method == http.MethodPost { // a repo may be large, and a relay or a disk slow
		client = new(http.Client)
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

// here does the work in this process.
type here struct {
	x           *app.Index
	stop        context.CancelFunc
	stopped     chan error
	closeMirror func() error
}

func openHere(ctx context.Context, e *command.Environment, s *command.Settings, p *past, create bool) (h *here, err error) {
	so, err := s.StoreOptions(e)
	if err != nil {
		return nil, err
	}
	so.Create = create
	_, closeMirror, err := s.OpenMirror(ctx, so)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeMirror())
		}
	}()
	if so.Backfill, err = s.BackfillOptions(); err != nil {
		return nil, err
	}
	so.Backfill.Hosts = p.hosts
	app.LimitMemory(so)
	x, err := command.OpenIndex(ctx, so)
	if errors.Is(err, kv.ErrNotFound) && !create {
		return nil, command.UsageError("no daemon is running here, and there is no store in %s; start skein serve, or name a daemon with --admin or a store with --store", s.Store)
	}
	if err != nil {
		return nil, err
	}
	if err := replaceHosts(ctx, x.Graph, p.hosts); err != nil {
		return nil, errors.Join(err, x.Close(ctx))
	}
	running, stop := context.WithCancel(ctx)
	h = &here{x, stop, make(chan error, 1), closeMirror}
	began := make(chan struct{})
	go func() { h.stopped <- x.Backfill.Run(running, func() { close(began) }) }()
	select {
	case <-began:
		return h, nil
	case err := <-h.stopped:
		stop()
		return nil, errors.Join(err, x.Close(ctx))
	}
}

// replaceHosts replaces the hosts of an interrupted backfill by those that are named now. Of the
// earlier ones, perhaps mistyped, it keeps those whose lists have been read in part.
func replaceHosts(ctx context.Context, g *graph.Store, hosts []string) error {
	if b := g.Backfill(); len(hosts) == 0 || !b.Named {
		return nil
	}
	return g.ChangeBackfill(ctx, func(b *format.Backfill) {
		before := b.Hosts
		b.Hosts = map[string]format.HostBackfill{}
		for h, at := range before {
			if at.Cursor != "" && !at.Done {
				b.Hosts[h] = at
			}
		}
		for _, h := range hosts {
			h = backfill.HTTPAddress(h)
			b.Hosts[h] = before[h]
		}
	})
}

func (h *here) begin(ctx context.Context, p *past) error {
	var err error
	switch {
	case p.archive != "":
		err = h.x.Backfill.Archive(ctx, p.archive)
	case len(p.dids) > 0:
		if err = h.x.Backfill.Resync(ctx, "operator", p.dids...); err != nil || len(p.hosts) == 0 {
			return err
		}
		fallthrough
	default:
		err = h.x.Backfill.Hosts(ctx, p.hosts...)
	}
	if errors.Is(err, backfill.ErrBusy) { // the interrupted work resumes
		return nil
	}
	return err
}

func (h *here) car(ctx context.Context, in io.Reader) (backfill.Placed, error) {
	return h.x.Backfill.PlaceCAR(ctx, in)
}

func (h *here) status(ctx context.Context) (backfill.Status, error) {
	return h.x.Backfill.Status(ctx)
}

func (h *here) close(ctx context.Context) error {
	h.stop()
	return errors.Join(<-h.stopped, h.x.Close(ctx), h.closeMirror())
}
