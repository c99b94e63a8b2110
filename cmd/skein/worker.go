package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
)

// worker fetches history: a daemon, or this process.
type worker interface {
	begin(ctx context.Context, p *past) error
	car(ctx context.Context, in io.Reader) (backfill.Placed, error)
	status(ctx context.Context) (backfill.Status, error)
}

func (a *admin) begin(ctx context.Context, p *past) error {
	var st backfill.Status // decoding it proves that a skein answered
	if len(p.dids) > 0 {
		if err := a.post(ctx, "/resync", map[string]any{"dids": p.dids}, &st); err != nil || len(p.Hosts) == 0 {
			return err
		}
	}
	return a.post(ctx, "/backfill", p, &st)
}

func (a *admin) car(ctx context.Context, in io.Reader) (p backfill.Placed, err error) {
	err = a.ask(ctx, http.MethodPost, "/car", in, &p)
	return p, err
}

func (a *admin) status(ctx context.Context) (st backfill.Status, err error) {
	err = a.ask(ctx, http.MethodGet, "/backfill", nil, &st)
	return st, err
}

// here does the work in this process.
type here struct {
	store   app.StoreOptions
	network *app.Network
	x       *app.Index
	stop    context.CancelFunc
	stopped chan error
}

func (h *here) open(ctx context.Context, e *command.Environment, p *past) (err error) {
	if err := errors.Join(e.Prepare(&h.store), h.store.Check()); err != nil {
		return err
	}
	h.store.Create, h.store.Backfill = true, &backfill.Options{Hosts: p.Hosts}
	h.network.Backfill(h.store.Backfill)
	app.LimitMemory(h.store)
	if h.x, err = app.OpenIndex(ctx, h.store); err != nil {
		return err
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

func (h *here) begin(ctx context.Context, p *past) (err error) {
	if len(p.dids) > 0 {
		if err := h.x.Backfill.Resync(ctx, "operator", p.dids...); err != nil || len(p.Hosts) == 0 {
			return err
		}
	}
	if p.Archive != "" {
		err = h.x.Backfill.Archive(ctx, p.Archive)
	} else {
		err = h.x.Backfill.Hosts(ctx, p.Hosts...)
	}
	if errors.Is(err, backfill.ErrBusy) { // the interrupted work resumes
		return nil
	}
	return err
}

func (h *here) car(ctx context.Context, in io.Reader) (backfill.Placed, error) {
	return h.x.Backfill.PlaceCAR(ctx, in)
}

func (h *here) status(ctx context.Context) (backfill.Status, error) { return h.x.Backfill.Status(ctx) }

func (h *here) close(ctx context.Context) error {
	h.stop()
	return errors.Join(<-h.stopped, h.x.Close(ctx))
}
