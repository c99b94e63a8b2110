package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skein.blue/graph"
	"skein.blue/internal/kv"
)

// waitEvery is how often what is waited for is tried, and sayWaitEvery how often the log
// says so.
const (
	waitEvery    = time.Second
	sayWaitEvery = time.Minute
)

// awaited returns what a daemon that met err waits for, "" if time does not mend it. Only a node
// that makes no store waits for the one that does.
func awaited(err error, create bool) string {
	switch {
	case errors.Is(err, kv.ErrUnavailable):
		return "the cluster does not answer: waiting until it does"
	case !create && (errors.Is(err, kv.ErrNotFound) || errors.Is(err, graph.ErrNoGraph)):
		return "this node only answers, and no writer has begun the store yet: waiting for one. Start skein serve without --consume=false on this cluster and prefix"
	}
	return ""
}

// await is await, if o says so.
func (o *StoreOptions) await(ctx context.Context, try func() error) error {
	if !o.Wait {
		return try()
	}
	return await(ctx, logger(o.Logger), o.Create, try)
}

// await calls try until it returns nil, or an error that waiting does not mend, or ctx ends. It
// says in the log what it waits for, and for how long.
func await(ctx context.Context, log *slog.Logger, create bool, try func() error) error {
	begun, said, last := time.Now(), time.Time{}, ""
	for {
		err := try()
		why := awaited(err, create)
		if why == "" {
			if err == nil && last != "" {
				log.Info("the wait is over", "waited", time.Since(begun).Round(time.Second).String())
			}
			return err
		}
		if why != last || time.Since(said) >= sayWaitEvery {
			log.Warn(why, "error", err, "waited", time.Since(begun).Round(time.Second).String()) //nolint:sloglint // it is one of a few constants
			said, last = time.Now(), why
		}
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
