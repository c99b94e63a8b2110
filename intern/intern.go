package intern

import (
	"cmp"
	"context"
	"log/slog"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Options configure an Interner.
type Options struct {
	// Settings are the store's. Zero fields are as in dict.DefaultSettings.
	Settings dict.Settings
	// CacheBytes bounds the memory of the cache. 0 means 64 MiB.
	CacheBytes int64
	// ReadOnly says that no string will get an id.
	ReadOnly bool
	// FilterBytes bounds the memory of a Drawer's filters of known strings. 0 means 32 MiB.
	FilterBytes int64
	// Owner names this writer in its leases, for example by host and process.
	Owner string
	// Slot returns the first of this writer's partitions, which may change. nil: 0.
	Slot func() uint8
	// Logger may be nil.
	Logger *slog.Logger
}

// An Interner gives strings their ids, for a writer. A Drawer does it within the transaction
// that uses them, a Claimer in earlier transactions. Reading does not need one (Lookup,
// Strings).
type Interner interface {
	// Prepare comes before the transaction of Resolve. b has the strings known so far; at
	// most n more will follow.
	Prepare(ctx context.Context, b *Batch, n int) error

	// Resolve gives every string of b its id, from the cache or the store, or a new one, as
	// part of tx. It returns the number of new strings by namespace. After more strings were
	// added, it may be called again in the same transaction. Before another attempt at the
	// transaction, call Retry on b.
	Resolve(tx kv.Txn, b *Batch) (made [len(dict.Namespaces) + 1]int, err error)

	// Committed must be called after the transaction of Resolve is committed. The strings of
	// b may then be in the cache.
	Committed(b *Batch)

	// Abandon must be called if the transaction of Resolve was not committed and never will
	// be. Other strings can then get the ids that were drawn for it.
	Abandon(b *Batch)

	// Close ends the goroutines. It does not close the store.
	Close()
}

// Open returns the Interner of a store: a Drawer if the settings have one partition, otherwise
// a Claimer.
func Open(ctx context.Context, store kv.Store, o Options) (Interner, error) {
	o.CacheBytes, o.FilterBytes, o.Logger = cmp.Or(o.CacheBytes, 64<<20), cmp.Or(o.FilterBytes, 32<<20), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Settings = o.Settings.Or(dict.DefaultSettings)
	if err := o.Settings.Check(); err != nil {
		return nil, err
	}
	leases := newLeaser(store, o)
	if o.Settings.Partitions > 1 {
		return newClaimer(leases, newCache(o.CacheBytes)), nil
	}
	d := &Drawer{leases: leases, cache: newCache(o.CacheBytes), strings: newStringFilter(o.FilterBytes, o.Logger)}
	if !o.ReadOnly {
		if err := d.strings.open(ctx, store); err != nil {
			return nil, err
		}
	}
	return d, nil
}
