package graph

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// Options say how a Store works. The zero value is usable.
type Options struct {
	// Intern are the options of the dictionary. Its Settings are for a new store: an existing one has its own.
	Intern intern.Options
	// StateCache bounds the bytes of the accounts' states in memory. 0 means 16 MiB.
	StateCache int64
	// SliceSize is the number of a deleted account's records that one write erases. 0 means
	// 4,000.
	SliceSize int
	// SetCache bounds the bytes of large sets that stay decoded. 0 means 64 MiB.
	SetCache int64
	// Joins says that this process shares the partitions of a store that several processes write with the others: it begins with those that
	// are free, and Move changes them. Otherwise it writes all of them, and Open fails if another live process has any.
	Joins bool
	// Lanes is the number of lanes, which apply their events at the same time, in a store with
	// several partitions. 0 means 2.
	Lanes int
	// Beat is the interval of a writer's heartbeats. Another process waits for four intervals
	// without one before it takes the claim over. 0 means a second.
	Beat time.Duration
	// Kinds are indexed besides the built-in kinds and those that the store was configured with
	// before. They have no numbers yet. Open fails if they contradict the store's.
	Kinds []kinds.Info
	// ReadOnly opens the graph for questions only.
	ReadOnly bool
	// MustExist makes Open fail if the store has no graph, rather than make one.
	MustExist bool
	// Fenced, if set, is called once if another writer takes over partitions of this one. Every
	// later write fails. It must not call the Store.
	Fenced func(error)
	// Import opens the graph for Import only.
	Import bool
	// Queued, if set, receives the repos that a committed write queued for a refetch. Only if it
	// is set are repos with missed events queued. It must not call the Store.
	Queued func([]batch.Queued)
	// Logger may be nil: nothing is logged then.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Writes counts the store's writes. It may be nil.
	Writes *kv.Metrics
}

// A Store is the graph. Its methods may be called from any goroutine.
type Store struct {
	core
	cursors
	past
	labels

	merger *write.Merger
	source *ask.Source
	ids    intern.Interner
	hidden hiddenCache
	secret []byte
	made   bool // by this Open

	watchers []Watcher // guarded by writing

	waited  atomic.Int64 // see TakeWait
	limiter say.Limiter
}

// core is what the parts of a Store share.
type core struct {
	kv      kv.Store
	o       Options
	layout  format.Layout
	claim   *claim // nil if nobody else can write the store, or this process cannot
	kinds   atomic.Pointer[kinds.Table]
	lacking atomic.Pointer[map[string]format.Lack] // kinds that may lack earlier records, as of Open

	parts atomic.Uint64 // the format.Partitions that this process writes
	watch *watch        // of the writers
	due   chan struct{} // see Due

	writing sync.Mutex // held by every write; guards lanes
	lanes   []*lane    // each for some of the partitions; none if the Store has none
	holes   format.Holes
	total   format.AccountCounts // of the store, as of when this process got its partitions: counts do not move with them

	// status guards what readers ask about the last commit while a write, which may take
	// seconds, holds writing: the counters, past.backfill, the holes, the lanes, and their cursors and erase jobs. Writes
	// change them under both locks, and read them under writing alone.
	status           sync.Mutex
	applied, replays int64 // events committed since Open, and how many of them were dropped

	desynchronized, partial atomic.Int64 // repos, as of the last commit

	common    atomic.Pointer[common] // the newest that was read
	unwritten atomic.Uint64          // ask.Unwritten.Parts, as of the last look of FollowWriters
	sweptSeen atomic.Uint32          // the day on which AddSeen last deleted what is too old
}

// closeTime bounds Close: the store may not answer, and the next writer finds out what Close
// could not write.
const closeTime = 2 * time.Second

// Close gives up the ids and the claim. It does not close the store below. The end of ctx does not cut it short.
func (s *Store) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	s.ids.Close()
	if s.claim == nil {
		return nil
	}
	return s.claim.close(ctx)
}

// Engine names the engine below.
func (s *core) Engine() string { return s.kv.Engine() }

// Events returns how many events were applied since Open, and how many were dropped because
// they had been applied before.
func (s *core) Events() (applied, replayed int64) {
	s.status.Lock()
	defer s.status.Unlock()
	return s.applied - s.replays, s.replays
}

// Kinds returns what is indexed.
func (s *core) Kinds() *kinds.Table { return s.kinds.Load() }

// ShardBits returns the number of bits of an id that name its shard.
func (s *core) ShardBits() uint8 { return s.layout.Settings.ShardBits }

// Made reports whether Open created the store, rather than finding it.
func (s *Store) Made() bool { return s.made }

// Secret returns 32 random bytes of this store, which signs cursors with them.
func (s *Store) Secret() []byte { return s.secret }
