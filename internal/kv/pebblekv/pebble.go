// Package pebblekv is the embedded engine: kv.Store on cockroachdb/pebble.
// It owns the files of one folder; it does not know what the keys mean.
//
// One process has the folder open, and Updates run one at a time, so a
// transaction never meets a conflict and its function runs exactly once.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein/internal/kv"
)

// Options say how a store is opened. The zero value of every field but Dir and
// Merger is usable.
type Options struct {
	// Dir is the store's folder. It is made if Create is set.
	Dir string
	// Create makes a store where there is none; without it Open returns
	// kv.ErrNotFound.
	Create bool
	// ReadOnly opens the store without writing to its folder, but for the lock.
	ReadOnly bool
	// Merger folds merges; its name is kept in the store.
	Merger kv.Merger
	// Memory is the budget in bytes for the block cache and the memtables
	// together. 0 means DefaultMemory.
	Memory int64
	// SyncInterval is how soon a committed write is also synced to disk.
	// 0 means one second.
	SyncInterval time.Duration
	// Logger receives what the engine says. nil means nothing is said.
	Logger *slog.Logger
	// FS is the file system, nil for the machine's own. Tests crash theirs.
	FS vfs.FS
}

// DefaultMemory is the memory budget, in bytes, of a store opened without one.
const DefaultMemory = 256 << 20

// Store is an open store. It implements kv.Store.
type Store struct {
	db     *pebble.DB
	merger kv.Merger
	lock   *pebble.Lock
	wal    *walFS
	writer chan struct{} // holds one token: whoever has it may update
	txn    txn           // the one transaction, reused; guarded by writer
	closed atomic.Bool
	views  sync.RWMutex // held by every View; Close waits for them
}

// Open opens the store in o.Dir. It returns kv.ErrLocked if another process
// has it open, and kv.ErrNotFound if there is none and o.Create is not set.
func Open(o Options) (*Store, error) {
	fs := o.FS
	if fs == nil {
		fs = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SyncInterval <= 0 {
		o.SyncInterval = time.Second
	}
	if o.Create && !o.ReadOnly {
		if err := fs.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("pebblekv: making the store's folder %s: %w", o.Dir, err)
		}
	} else if err := exists(fs, o.Dir); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(o.Dir, fs)
	switch {
	case errors.Is(err, syscall.EAGAIN) || err != nil && strings.Contains(err.Error(), "lock held"):
		return nil, fmt.Errorf("pebblekv: locking %s: %w: %w", o.Dir, kv.ErrLocked, err)
	case err != nil:
		return nil, fmt.Errorf("pebblekv: locking %s: %w", o.Dir, err)
	}
	wal := newWALFS(fs)
	po, release := pebbleOptions(o, wal)
	po.Lock = lock
	db, err := pebble.Open(o.Dir, po)
	release()
	if err != nil {
		return nil, fmt.Errorf("pebblekv: opening %s: %w", o.Dir, errors.Join(err, lock.Close()))
	}
	s := &Store{db: db, merger: o.Merger, lock: lock, wal: wal, writer: make(chan struct{}, 1)}
	s.txn.reader.db = db
	s.writer <- struct{}{}
	wal.start(o.SyncInterval, o.Logger)
	return s, nil
}

// exists reports, as an error, that there is no store in dir. It leaves
// nothing behind there.
func exists(fs vfs.FS, dir string) error {
	switch st, err := fs.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("pebblekv: %s: %w", dir, kv.ErrNotFound)
	case err != nil:
		return fmt.Errorf("pebblekv: %s: %w", dir, err)
	case !st.IsDir():
		return fmt.Errorf("pebblekv: %s is no folder: %w", dir, kv.ErrNotFound)
	}
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return fmt.Errorf("pebblekv: %s: %w", dir, err)
	}
	if !desc.Exists {
		return fmt.Errorf("pebblekv: %s: %w", dir, kv.ErrNotFound)
	}
	return nil
}

// pebbleOptions are chosen by what ../shared/docs/layout-measured.md measured:
// no compression above the last level (the keys' entropy is gone already),
// zstd there, and a wide base level with a lazy L0. Memtables of two ninths of the
// memory, and a base level of eight of them: a third less processor time than half
// of both, at fifty million edges (docs/performance.md).
// Blocks have 8 KiB, not 32: a look-up that misses the cache unpacks a whole one. release drops the caller's reference to the cache.
func pebbleOptions(o Options, fs vfs.FS) (po *pebble.Options, release func()) {
	memory := o.Memory
	if memory <= 0 {
		memory = DefaultMemory
	}
	memtable := min(max(memory*2/9, 4<<20), 128<<20)
	cache := pebble.NewCache(max(memory-memtable, 8<<20))
	po = &pebble.Options{
		FS:                          fs,
		Cache:                       cache,
		ReadOnly:                    o.ReadOnly,
		ErrorIfNotExists:            !o.Create,
		Merger:                      pebbleMerger(o.Merger),
		Logger:                      logger{o.Logger},
		MemTableSize:                uint64(memtable),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               8 * memtable,
		MaxOpenFiles:                2048,
		WALBytesPerSync:             1 << 20,
		// One below FormatWALSyncChunks on purpose: from there on a WAL
		// promises what has been synced, and walFS syncs later than it says.
		FormatMajorVersion:         pebble.FormatColumnarBlocks,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	po.TargetFileSizes[0] = 8 << 20
	for i := range po.Levels {
		po.Levels[i].BlockSize = 8 << 10
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

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	s.views.RLock()
	defer s.views.RUnlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	snap := s.db.NewSnapshot()
	r := &reader{db: snap}
	err := fn(r)
	return errors.Join(err, r.close(), snap.Close())
}

// Update implements kv.Store. Updates wait for one another; fn runs once.
func (s *Store) Update(ctx context.Context, fn func(kv.Txn) error) error {
	select {
	case <-s.writer:
		defer func() { s.writer <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("pebblekv: waiting to write: %w", ctx.Err())
	}
	if err := s.usable(ctx); err != nil {
		return err
	}
	t := &s.txn
	t.writes.reset()
	err := fn(t)
	if err = errors.Join(err, t.reader.close()); err != nil || len(t.writes.ops) == 0 {
		return err
	}
	if t.writes.full() {
		return fmt.Errorf("pebblekv: a write of %d bytes: %w", len(t.writes.arena), kv.ErrTooLarge)
	}
	batch := s.db.NewBatchWithSize(min(t.size, maxBatchHint))
	if err := t.writes.put(batch); err != nil {
		return errors.Join(fmt.Errorf("pebblekv: building a batch: %w", err), batch.Close())
	}
	t.size = batch.Len()
	// Sync here means: handed to the operating system. See walFS.
	if err := batch.Commit(pebble.Sync); err != nil {
		return errors.Join(fmt.Errorf("pebblekv: committing: %w", err), batch.Close())
	}
	return batch.Close()
}

// maxBatchHint bounds what is set aside for a batch because the one before it
// was large.
const maxBatchHint = 16 << 20

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return kv.ErrClosed
	}
	if err := s.wal.failed(); err != nil {
		return fmt.Errorf("pebblekv: an earlier sync failed, stop and check the disk: %w", err)
	}
	return ctx.Err()
}

// Sync implements kv.Store.
func (s *Store) Sync() error { return s.wal.syncAll() }

// Merger implements kv.Store.
func (s *Store) Merger() kv.Merger { return s.merger }

// RangeBytes implements kv.Store.
func (s *Store) RangeBytes(lo, hi []byte) (uint64, error) {
	if hi == nil {
		hi = []byte{0xff}
	}
	n, err := s.db.EstimateDiskUsage(lo, hi)
	if err != nil {
		return 0, fmt.Errorf("pebblekv: estimating sizes: %w", err)
	}
	return n, nil
}

// Engine implements kv.Store.
func (s *Store) Engine() string { return "pebble" }

// DiskBytes implements kv.Store.
func (s *Store) DiskBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Compact rewrites the whole store, so that its size on disk is settled.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("pebblekv: flushing: %w", err)
	}
	if err := s.db.Compact(ctx, []byte{0}, []byte{0xff, 0xff}, true); err != nil {
		return fmt.Errorf("pebblekv: compacting: %w", err)
	}
	return nil
}

// Close implements kv.Store. It waits for what is under way.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	<-s.writer
	s.views.Lock()
	defer s.views.Unlock()
	err := errors.Join(s.wal.stop(), s.db.Close(), s.wal.failed(), s.lock.Close())
	s.writer <- struct{}{}
	return err
}

// logger hands Pebble's messages to slog. Pebble calls Fatalf when going on
// would corrupt the store.
type logger struct{ l *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	l.l.Debug("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.l.Error("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	l.l.Error("pebble cannot go on", "detail", fmt.Sprintf(format, args...))
	panic("pebble: " + fmt.Sprintf(format, args...))
}
