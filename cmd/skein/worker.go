package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"skein.blue/consumer/backfill"
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

func (a *admin) begin(ctx context.Context, p *past) error {
	if len(p.dids) > 0 {
		if err := a.post(ctx, impatient, "/resync", map[string]any{"dids": p.dids}, nil); err != nil || len(p.hosts) == 0 {
			return err
		}
	}
	return a.post(ctx, patient, "/backfill", map[string]any{"archive": p.archive, "hosts": p.hosts, "repos": p.archive == "" && len(p.hosts) == 0}, nil)
}

func (a *admin) car(ctx context.Context, in io.Reader) (p backfill.Placed, err error) {
	err = a.ask(ctx, patient, http.MethodPost, "/car", "application/vnd.ipld.car", in, &p)
	return p, err
}

func (a *admin) status(ctx context.Context) (st backfill.Status, err error) {
	err = a.ask(ctx, impatient, http.MethodGet, "/backfill", "", nil, &st)
	return st, err
}

// here does the work in this process.
type here struct {
	store       app.StoreOptions
	network     *app.Network
	x           *app.Index
	stop        context.CancelFunc
	stopped     chan error
	closeMirror func() error
}

func (h *here) open(ctx context.Context, e *command.Environment, p *past) (err error) {
	if err := e.Prepare(&h.store); err != nil {
		return err
	}
	if err := h.store.Check(); err != nil {
		return err
	}
	if h.closeMirror, err = h.network.Open(ctx, h.store); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.closeMirror())
		}
	}()
	h.store.Backfill = &backfill.Options{Hosts: p.hosts}
	h.network.Backfill(h.store.Backfill)
	app.LimitMemory(h.store)
	h.x, err = app.OpenIndex(ctx, h.store)
	if errors.Is(err, kv.ErrNotFound) && !h.store.Create {
		return command.UsageError("no daemon is running here, and there is no store in %s; start skein serve, or name a daemon with --admin or a store with --store", h.store.Store)
	}
	if err != nil {
		return err
	}
	if err := h.x.ReplaceHosts(ctx, p.hosts); err != nil {
		return errors.Join(err, h.x.Close(ctx))
	}
	running, stop := context.WithCancel(ctx)
	h.stop, h.stopped = stop, make(chan error, 1)
	began := make(chan struct{})
	go func() { h.stopped <- h.x.Backfill.Run(running, func() { close(began) }) }()
	select {
	case <-began:
		return nil
	case err := <-h.stopped:
		stop()
		return errors.Join(err, h.x.Close(ctx))
	}
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
