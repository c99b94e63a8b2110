package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/kv/pebblekv"
)

// StoreOptions say which store to open, and how.
type StoreOptions struct {
	Store    string // a folder, or fdb://…
	Create   bool
	ReadOnly bool
	Memory   int64 // budget in bytes; 0: DefaultMemory()
	// AcceptLoss names a damaged write-ahead log. The store opens without its lost writes
	// (pebblekv.Options).
	AcceptLoss string
	// MinFree is how many bytes of the disk must stay free (pebblekv.Options). AwaitSpace
	// makes writes wait for them, instead of failing.
	MinFree    uint64
	AwaitSpace bool
	// Joins says to share a store on FoundationDB with other processes that write it (graph.Options).
	Joins bool
	// Kinds are indexed in addition to the built-in ones (graph.Options).
	Kinds []kinds.Info
	// Backfill says how to fetch whole repos. nil: no repo is fetched, and repos with missed
	// events are not queued.
	Backfill *backfill.Options
	// Import opens the store for graph.Store.Import.
	Import bool
	// Wait makes OpenIndex wait for a cluster that does not answer and, without Create, for a
	// writer to create the store. It logs the wait.
	Wait bool
	// Fatal is called when the engine cannot go on, and must not return. nil means a panic.
	Fatal  func(error)
	Logger *slog.Logger

	writes *kv.Metrics
}

// FoundationDB is the scheme of a store on FoundationDB.
const FoundationDB = "fdb"

// InFolder reports whether a store, which --store names, is in a folder, on Pebble: only this process can have it open.
// The others are on FoundationDB, where several processes can.
func InFolder(store string) bool { return !strings.HasPrefix(store, FoundationDB+":") }

// OpenStore opens the engine that o.Store names.
func OpenStore(ctx context.Context, o StoreOptions) (kv.Store, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s, err := openEngine(ctx, o)
	lost, lostWrites := errors.AsType[*pebblekv.LostWrites](err)
	switch {
	case errors.Is(err, kv.ErrLocked):
		return nil, fmt.Errorf("the store %s is in use by another skein; stop it, or query it (skein query) instead of opening its store: %w", o.Store, err)
	case lostWrites:
		return nil, fmt.Errorf("the store %s is damaged; skein has not touched it. Restore the folder from a backup, or go on without the lost writes: start skein serve once with --accept-loss %s. skein then resumes at a cursor from before the loss, and so gets the lost events again if the relay still has them: %w", o.Store, lost.Log, err)
	case errors.Is(err, kv.ErrDamaged):
		return nil, fmt.Errorf("the store %s is damaged; skein has not touched it. Restore the folder from a backup, or index into a new folder: %w", o.Store, err)
	case errors.Is(err, kv.ErrNotFound):
		return nil, fmt.Errorf("%w; skein serve and skein replay create one", err)
	case errors.Is(err, kv.ErrFormat):
		return nil, fmt.Errorf("the store %s has another format: %s: %w", o.Store, format.Advice, err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

func openEngine(ctx context.Context, o StoreOptions) (kv.Store, error) {
	log := logger(o.Logger).With("component", "store")
	if !InFolder(o.Store) {
		at, err := fdbkv.Parse(o.Store)
		if err != nil {
			return nil, fmt.Errorf("--store: %w", err)
		}
		return fdbkv.Open(ctx, fdbkv.Options{Location: at, Create: o.Create, Merger: graph.Merger(), Logger: log, Metrics: o.writes})
	}
	if backup.Unfinished(o.Store) {
		return nil, fmt.Errorf("the folder holds an unfinished restore: %s; run the same skein restore again, which continues it, or remove the folder", o.Store)
	}
	return pebblekv.Open(pebblekv.Options{
		Dir: o.Store, Create: o.Create, ReadOnly: o.ReadOnly, Merger: graph.Merger(),
		Memory: o.budget().Engine, AcceptLoss: o.AcceptLoss, MinFree: o.MinFree, AwaitSpace: o.AwaitSpace,
		OpenFiles: divideDescriptors(openFiles()).tables, Fatal: o.Fatal, Logger: log,
	})
}
