package graph

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/fence"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/kvmetrics"
)

// Options say how a Store works. The zero value is usable.
type Options struct {
	Intern intern.Options
	// Defaults are the settings of a new store where Intern.Settings say nothing. The
	// zero value means dict.DefaultSettings.
	Defaults dict.Settings
	// StateCache bounds, in bytes, the accounts' states kept in memory. 0 means
	// 16 MiB.
	StateCache int64
	// SliceSize is how many records of a deleted account are erased in one
	// write. 0 means 4,000.
	SliceSize int
	// SetCache is how many bytes of large sets are kept decoded. 0 means 64 MiB.
	SetCache int64
	// Share is what is written of a store of several partitions. The zero Share
	// is all of it.
	Share Share
	// Lanes is into how many lanes the share is divided, which apply their
	// events at the same time: in a store of several partitions. 0 means 2.
	Lanes int
	// Beat is how often the writer of a share says that it is alive; whoever
	// finds its claim waits four times as long before taking it over. 0 means a
	// second.
	Beat time.Duration
	// Clock is what Open waits by before it takes over a dead writer's claim. The zero value
	// is the machine's.
	Clock fence.Clock
	// Embedded says that the engine has but one process, and that it has the store
	// open once: nobody else writes it.
	Embedded bool
	// Kinds are indexed besides what is built in, and besides what the store has been
	// configured with before; they have no numbers yet. What contradicts that is refused.
	Kinds []kinds.Info
	// ReadOnly opens the graph for questions only.
	ReadOnly bool
	// MustExist refuses a store without a graph, and makes none in it.
	MustExist bool
	// Fenced, if set, is called once if another writer takes over partitions of this one.
	// Every write fails from then on. It must not call the Store.
	Fenced func(error)
	// Import opens the graph for Import only.
	Import bool
	// Queued, if set, is told which repos were queued to be fetched whole, once that is
	// committed; and then repos are queued of which something is missed. It must not
	// call the Store.
	Queued func([]batch.Queued)
	// Logger receives what the operator should know. nil means nothing is said.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Writes count the store's writes. It may be nil.
	Writes *kvmetrics.Metrics
}

// A Store is the graph. Its methods may be called from any goroutine; those that write
// wait for each other.
type Store struct {
	kv         kv.Store
	o          Options
	layout     format.Layout
	merger     *write.Merger
	source     *ask.Source
	ids        intern.Interner
	owner      owner
	intake     intake
	guard      guard
	hiddenSets hiddenSets
	lanes      []*lane // one, but in a store of several partitions; none if it is read only
	secret     []byte
	made       bool // by this Open
	kinds      atomic.Pointer[kinds.Table]
	lacking    atomic.Pointer[map[string]format.Lack] // kinds of which something may be lacking, as of the opening

	writing sync.Mutex // guards lanes and watcher
	watcher Watcher    // nil: there is none

	// told guards what is told of the last commit, backfill and the lanes' cursors, jobs and
	// numbers, against those who ask while a write goes on, which may take seconds. Those
	// who change it hold writing as well, and need not have it to read.
	told     sync.Mutex
	backfill format.Backfill

	desynchronized, partial, doubtful atomic.Int64 // repos, as of the last commit
}

// closeTime is how long a Close may take: the store may not answer, and what was
// not said is found out by the next writer.
const closeTime = 2 * time.Second

// Close notes how far the leased ids were used, and gives up the claim. It does
// not close the store under it, and is not cut short by the end of ctx.
func (s *Store) Close(ctx context.Context) error {
	if s.o.ReadOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := s.ids.Close(ctx)
	if errors.Is(err, kv.ErrDiskFull) { // it was said, and the next writer finds it out
		err = nil
	}
	return errors.Join(err, s.guard.close(ctx))
}

// Engine names the engine below.
func (s *Store) Engine() string { return s.kv.Engine() }

// Events returns how many events of repos were applied since the store was opened,
// and how many were dropped because they had been applied before.
func (s *Store) Events() (applied, replayed int64) {
	s.told.Lock()
	defer s.told.Unlock()
	for _, l := range s.lanes {
		applied += l.applied
		replayed += l.replays
	}
	return applied - replayed, replayed
}

// Kinds returns what is indexed.
func (s *Store) Kinds() *kinds.Table { return s.kinds.Load() }

// shared reports whether several processes may write the store.
func (s *Store) shared() bool { return s.layout.Shared() }

// Alone reports whether this process writes all of the store: what it knows of the accounts
// is all that is known.
func (s *Store) Alone() bool { return s.layout.Settings.Partitions == 1 && !s.o.ReadOnly }

// ReadOnly reports whether it was opened for questions only.
func (s *Store) ReadOnly() bool { return s.o.ReadOnly }

// Made reports whether Open made the store, and did not find one.
func (s *Store) Made() bool { return s.made }

// Secret returns 32 bytes that belong to this store and never leave it.
func (s *Store) Secret() []byte { return s.secret }
