// Package app wires the parts of skein together: store, graph, consumer, query API and admin
// endpoints. The commands and the integration tests share this wiring. It parses no flags.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

func logger(l *slog.Logger) *slog.Logger { return cmp.Or(l, slog.New(slog.DiscardHandler)) }

// An Index is an open store with its graph and its metrics.
type Index struct {
	Path     string // of the store, absolute if it is a folder
	KV       kv.Store
	Graph    *graph.Store
	Registry *prometheus.Registry
	Backfill *backfill.Manager // nil without StoreOptions.Backfill
	part     bool              // other processes may write some of the accounts
	memory   int64             // the budget, in bytes; 0: DefaultMemory()
	log      *slog.Logger
	fenced   chan error // receives once, when another writer takes over

	consumerMetrics sync.Once
	consuming       *consumer.Metrics
	consumer        atomic.Pointer[consumer.Consumer] // the most recent one
}

// OpenIndex opens a store for writing, or with o.ReadOnly for queries only. Options that the store cannot
// have are an ErrUsage.
func OpenIndex(ctx context.Context, o StoreOptions) (_ *Index, err error) {
	defer func() { err = asUsage(err) }()
	reg, budget := prometheus.NewRegistry(), o.budget()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.writes = kv.NewMetrics(reg, format.KeyspaceOf)
	x := &Index{Path: o.Store, Registry: reg, part: o.Joins, memory: o.Memory, log: logger(o.Logger), fenced: make(chan error, 1)}
	if err := o.await(ctx, func() (err error) { x.KV, err = OpenStore(ctx, o); return err }); err != nil {
		return nil, err
	}
	if InFolder(o.Store) { // also if it is read because the disk is full, which they may be the reason for
		if err := removeCheckpoints(o.Store); err != nil && !o.ReadOnly {
			return nil, errors.Join(err, x.KV.Close())
		}
	}
	var queue *backfill.Queue
	var queued func([]batch.Queued)
	if o.Backfill != nil {
		bo := *o.Backfill
		bo.Logger = x.log.With("component", "backfill")
		bo.Metrics = backfill.NewMetrics(reg, func() backfill.Status { return x.Backfill.StatusNow() })
		bo.Memory, bo.ArchiveOps = budget.Repos, budget.ArchiveOps
		bo.Archiving = func(begins bool) { // an archive's batches and segments need memory
			if begins {
				limitMemory(budget.Collector + budget.Archive)
			} else {
				limitMemory(budget.Collector)
				debug.FreeOSMemory()
			}
		}
		bo.Listening, bo.Live = x.listening, x.isLive
		queue = backfill.NewQueue(bo)
		queued = queue.Add
	}
	options := graph.Options{
		Intern:     intern.Options{CacheBytes: budget.Strings, FilterBytes: budget.Filters, Owner: owner()},
		Kinds:      o.Kinds,
		StateCache: budget.States,
		SetCache:   budget.Sets,
		Joins:      o.Joins,
		ReadOnly:   o.ReadOnly,
		MustExist:  !o.Create,
		Import:     o.Import,
		Queued:     queued,
		Logger:     x.log.With("component", "graph"),
		Metrics:    graph.NewMetrics(reg),
		Writes:     o.writes,
		Fenced:     func(err error) { x.fenced <- err },
	}
	if !InFolder(o.Store) {
		options.Intern.Settings = dict.SharedSettings
	}
	if err := o.await(ctx, func() (err error) { x.Graph, err = graph.Open(ctx, x.KV, options); return err }); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the graph in %s: %w", o.Store, err), x.KV.Close())
	}
	if queue != nil {
		x.Backfill = backfill.New(x.Graph, queue)
	}
	if abs, err := filepath.Abs(o.Store); err == nil && InFolder(o.Store) {
		x.Path = abs
	}
	x.monitor()
	return x, nil
}

// monitor registers metrics of the store, as far as the engine has them.
func (x *Index) monitor() {
	x.Registry.MustRegister(
		gauge("skein_consumer_desynchronized_repos", "Repos with missed events: the sum over all writers. After a move of partitions, one writer's value means nothing.", func() float64 { n, _ := x.Graph.Incomplete(); return float64(n) }),
		gauge("skein_graph_unwritten_ratio", "Share of the network without a living writer, in a store that several processes write.", func() float64 { return float64(x.Graph.Unwritten().Percent()) / 100 }),
		gauge("skein_consumer_partial_repos", "Repos whose history is not indexed: likewise the sum over all writers.", func() float64 { _, n := x.Graph.Incomplete(); return float64(n) }))
	if c, ok := x.KV.(interface{ Collector() prometheus.Collector }); ok {
		x.Registry.MustRegister(c.Collector())
	}
	if m, ok := x.KV.(interface{ FreeBytes() uint64 }); ok {
		x.Registry.MustRegister(
			gauge("skein_store_free_bytes", "Free bytes on the store's disk; 0 if unknown.", func() float64 { return float64(m.FreeBytes()) }),
			gauge("skein_store_full", "1 while nothing is written because the disk has too little free space.", func() float64 { return map[bool]float64{true: 1}[x.diskFull()] }),
			gauge("skein_store_damaged", "1 from when a read or a background job meets a damaged part of the store until a restart.", func() float64 { return map[bool]float64{true: 1}[errors.Is(x.healthy(), kv.ErrCorrupt)] }),
			gauge("skein_store_disk_bytes", "Bytes of the store on disk.", func() float64 { return float64(x.KV.DiskBytes()) }))
	}
}

// diskFull reports whether the store accepts no writes because its disk is full.
func (x *Index) diskFull() bool {
	return errors.Is(x.healthy(), kv.ErrDiskFull)
}

// healthy returns why the store accepts no writes, nil if it does or the engine does not tell.
func (x *Index) healthy() error {
	if h, ok := x.KV.(interface{ Healthy() error }); ok {
		return h.Healthy()
	}
	return nil
}

func owner() string {
	host, _ := os.Hostname() // "" if it fails
	return fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
}

// Close closes the graph and the store. The end of ctx does not cut it short.
func (x *Index) Close(ctx context.Context) error {
	return errors.Join(x.Graph.Close(context.WithoutCancel(ctx)), x.KV.Close())
}

// Consumer builds a consumer of the index. Metrics report the most recent consumer.
func (x *Index) Consumer(o consumer.Options) (*consumer.Consumer, error) {
	if o.Part == nil && x.Graph.Backfill().Around.Hops > 0 {
		return nil, UsageError("the store holds a part of the network, and can index nothing else: use skein serve --around, or name another --store")
	}
	o.Logger = x.log
	x.consumerMetrics.Do(func() {
		x.consuming = consumer.NewMetrics(x.Registry, func() consumer.Status {
			if c := x.consumer.Load(); c != nil {
				return c.Status()
			}
			return consumer.Status{State: consumer.NotConsuming}
		})
	})
	o.Metrics = x.consuming
	o.DiskFull = x.diskFull
	c, err := consumer.New(x.Graph, o)
	if err == nil {
		x.consumer.Store(c)
	}
	return c, err
}
