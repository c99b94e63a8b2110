package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skein.blue/graph"
	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
)

// waitEvery is how often a wait tries again, and logWaitEvery how often it is logged.
const (
	waitEvery    = time.Second
	logWaitEvery = time.Minute
)

// awaited returns what a daemon that met err waits for, "" if waiting cannot help. Only a query
// node waits for a writer to create the store.
func awaited(err error, create bool) string {
	switch {
	case errors.Is(err, kv.ErrUnavailable):
		return "waiting for the FoundationDB cluster: it does not answer"
	case !create && (errors.Is(err, kv.ErrNotFound) || errors.Is(err, graph.ErrNoGraph)):
		return "waiting for a writer to create the store: start skein serve without --consume=false on this cluster and prefix"
	}
	return ""
}

// await calls the function await if o.Wait is set, else try.
func (o *StoreOptions) await(ctx context.Context, try func() error) error {
	if !o.Wait {
		return try()
	}
	return await(ctx, logger(o.Logger), o.Create, try)
}

// await calls try until it returns nil, or an error that waiting cannot help with, or ctx ends.
// It logs what it waits for, and for how long it has waited.
func await(ctx context.Context, log *slog.Logger, create bool, try func() error) error {
	begun, logged, last := time.Now(), time.Time{}, ""
	for {
		err := try()
		why := awaited(err, create)
		if why == "" {
			if err == nil && last != "" {
				log.Info("wait over", "waited", time.Since(begun).Round(time.Second).String())
			}
			return err
		}
		if why != last || time.Since(logged) >= logWaitEvery {
			log.Warn(why, "error", err, "waited", time.Since(begun).Round(time.Second).String()) //nolint:sloglint // one of a few constants
			logged, last = time.Now(), why
		}
		if outward.Wait(ctx, waitEvery) != nil {
			return context.Cause(ctx)
		}
	}
}
