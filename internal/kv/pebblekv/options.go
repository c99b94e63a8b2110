package pebblekv

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
)

// Options configure a store. Only Dir and Merger are required.
type Options struct {
	// Dir is the store's folder. Open makes it if Create is set.
	Dir string
	// Create makes the store if it does not exist; without it Open returns
	// kv.ErrNotFound.
	Create bool
	// ReadOnly opens the store without changing its folder.
	ReadOnly bool
	// Merger folds merges. The store records its name.
	Merger kv.Merger
	// Memory is the budget in bytes for the block cache and the memtables
	// together. 0 means DefaultMemory.
	Memory int64
	// SyncInterval limits how long a commit may stay unsynced. 0 means one second.
	SyncInterval time.Duration
	// OpenFiles limits the number of open tables. 0 means 2,048.
	OpenFiles int
	// AcceptLoss is the Log of a *LostWrites that Open returned; Open then opens the
	// store without the writes of this log and of later ones. Any other damage is still an
	// error, so a setting that is never removed does not accept a second loss. With ReadOnly
	// it has no effect.
	AcceptLoss string
	// MinFree is the free space of the disk, in bytes, below which nothing is written. 0 means
	// the engine's own need, 64 MiB and three memtables; Open returns ErrMinFree for less than
	// that. Writing resumes a tenth above it, at most 1 GiB above it.
	MinFree uint64
	// AwaitSpace makes Update wait for free space instead of returning kv.ErrDiskFull.
	AwaitSpace bool
	// Fatal is called when the engine cannot continue because the disk is full or
	// fails. It must end the process and not return. Commits are not lost. nil means a
	// panic.
	Fatal func(error)
	// Logger receives the engine's messages. nil means no logging.
	Logger *slog.Logger
	// FS is the file system. nil means the machine's own. Tests simulate crashes with it.
	FS vfs.FS
}

// DefaultMemory is the memory budget, in bytes, of a store opened without one.
const DefaultMemory = 256 << 20

// blockSize is the size of a data block before compression.
const blockSize = 8 << 10

// pebbleOptions returns options that follow from measurements (docs/decisions/0008):
// zstd on the last level and no compression above it, because the keys are compact
// already; a wide base level and a lazy L0. A memtable takes two ninths of the memory, and
// the base level has the size of eight memtables: at fifty million edges, that took a third
// less processor time than half of both. Blocks have 8 KiB, not 32, because a cache miss
// decompresses a whole block. release drops the caller's reference to the cache.
func (s *Store) pebbleOptions(o Options) (po *pebble.Options, release func()) {
	memtable := memtableSize(o.Memory)
	cache := pebble.NewCache(max(o.Memory-memtable, 8<<20))
	po = &pebble.Options{
		FS:                          s.fs,
		Lock:                        s.lock,
		Cache:                       cache,
		ReadOnly:                    o.ReadOnly,
		ErrorIfNotExists:            !o.Create,
		Merger:                      pebbleMerger(o.Merger),
		Logger:                      logger{o.Logger, s.fatal},
		EventListener:               s.listener(o.Logger),
		MemTableSize:                uint64(memtable),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               8 * memtable,
		MaxOpenFiles:                o.OpenFiles,
		WALBytesPerSync:             1 << 20,
		// Must stay below FormatWALSyncChunks: from that version on, a WAL
		// records what has been synced, and storeFS syncs later than it reports.
		FormatMajorVersion:         pebble.FormatColumnarBlocks,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	po.TargetFileSizes[0] = 8 << 20
	for i := range po.Levels {
		po.Levels[i].BlockSize = blockSize
		profile := block.NoCompression
		if i == len(po.Levels)-1 {
			profile = block.GoodCompression
		} else {
			po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
		po.Levels[i].Compression = func() *block.CompressionProfile { return profile }
	}
	return po, cache.Unref
}
