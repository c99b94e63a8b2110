package intern

import (
	"context"
	"log/slog"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Options say how an Interner works.
type Options struct {
	// Settings are those of the store (dict.Settings). What is zero in them is as in
	// dict.DefaultSettings.
	Settings dict.Settings
	// CacheBytes bounds the memory of the cache. 0 means 64 MiB.
	CacheBytes int64
	// Alone says that nobody else makes strings in a store of one partition.
	Alone bool
	// FilterBytes bounds the memory of the filters that know what strings there
	// are. 0 means 32 MiB.
	FilterBytes int64
	// Owner names this writer in its leases: host and process, say.
	Owner string
	// Shards confines this writer to a range of shards. nil: all.
	Shards *dict.ShardRange
	// Slot is the first of the partitions that this writer owns.
	Slot uint8
	// Logger may be nil.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// An Interner gives strings their ids, for a writer. How differs: a Drawer does it
// within the transaction that uses them, a Claimer in transactions before.
// Reading (Lookup, Strings) needs none: see read.go.
type Interner interface {
	// Prepare is called before the transaction of Resolve, with the strings that are
	// known by then, and how many more there will be at most.
	Prepare(ctx context.Context, b *Batch, n int) error

	// Resolve gives every string of b its id, from the cache, the store, or new, as
	// part of tx, and returns how many it made, by namespace. It may be called again
	// in the same transaction, after more was added. When the transaction is tried
	// again, call Retry on b first.
	Resolve(tx kv.Txn, b *Batch) (made [len(dict.Namespaces) + 1]int, err error)

	// Committed tells that the transaction that b was resolved in is committed: its
	// strings may now be found in the cache.
	Committed(b *Batch)

	// Abandon tells that the transaction that b was resolved in was not committed,
	// and will not be: the ids that were drawn for it go to others.
	Abandon(b *Batch)

	// Close ends what runs in the background and notes in the rows of the leases how
	// many of their ids were used. It does not close the store.
	Close(ctx context.Context) error
}

// Open returns what gives out the ids of a store: a Drawer where the settings have
// one partition, else a Claimer.
func Open(ctx context.Context, store kv.Store, o Options) (Interner, error) {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FilterBytes <= 0 {
		o.FilterBytes = 32 << 20
	}
	o.Settings = o.Settings.Or(dict.DefaultSettings)
	if err := o.Settings.Check(); err != nil {
		return nil, err
	}
	leases, err := newLeaser(store, o)
	if err != nil {
		return nil, err
	}
	if o.Settings.Partitions > 1 {
		return newClaimer(leases, newCache(o.CacheBytes)), nil
	}
	d := &Drawer{leases: leases, cache: newCache(o.CacheBytes)}
	if o.Alone {
		d.strings = newStringFilter(o.FilterBytes, o.Logger)
		if err := d.strings.open(ctx, store); err != nil {
			return nil, err
		}
	}
	return d, nil
}
