// Package pebblekv is the embedded engine: kv.Store on cockroachdb/pebble, in one
// folder.
//
// Only one process has the folder open, and Updates run one at a time, so there are
// no conflicts and the function of an Update runs exactly once.
package pebblekv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// Store is an open store. It implements kv.Store.
type Store struct {
	db       *pebble.DB
	merger   kv.Merger
	lock     *pebble.Lock
	fs       *storeFS
	fatal    func(error)
	readOnly bool
	damage   atomic.Pointer[kv.Damage] // the first damage found
	said     say.Limiter
	writer   chan struct{} // holds one token, which an Update takes
	txn      txn           // the one transaction, reused; guarded by writer
	stamp    atomic.Uint64 // odd during a commit that changes it
	gate     *gate
	stalls   stalls // for metrics
}

// Errors of Open. They are wrapped; test with errors.Is.
var (
	// ErrForeign is returned for a folder that has other files and no store, instead of creating
	// one there.
	ErrForeign = errors.New("pebblekv: the folder holds something other than a store")
	// ErrMinFree is returned if Options.MinFree is less than the engine needs.
	ErrMinFree = errors.New("pebblekv: --min-free is too small")
)

// Open opens the store in o.Dir. It returns kv.ErrLocked if another process has it
// open, kv.ErrNotFound if it does not exist and o.Create is not set, ErrForeign if it would
// have to be created among other files, kv.ErrDamaged if parts of it are missing or damaged,
// and kv.ErrDiskFull if the disk has too little space. After any of these errors, the folder
// is unchanged.
func Open(o Options) (*Store, error) {
	o.Logger, o.SyncInterval = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.SyncInterval, time.Second)
	o.Memory, o.OpenFiles = cmp.Or(o.Memory, DefaultMemory), cmp.Or(o.OpenFiles, 2048)
	if least := leastFree(o.Memory); o.MinFree > 0 && o.MinFree < least {
		return nil, fmt.Errorf("%w: with this --memory the engine needs %d MiB; set that or more, or 0 for as much as it needs", ErrMinFree, (least-1)>>20+1)
	}
	fs := o.FS
	if fs == nil {
		fs = disk{vfs.Default}
	}
	if o.Create && !o.ReadOnly {
		if err := fs.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("pebblekv: making the store's folder %s: %w", o.Dir, err)
		}
	}
	found, err := look(fs, o.Dir)
	if err != nil {
		return nil, err
	}
	if !found && (!o.Create || o.ReadOnly) {
		return nil, fmt.Errorf("pebblekv: %s: %w", o.Dir, kv.ErrNotFound)
	}
	if !found {
		if err := vacant(fs, o.Dir); err != nil {
			return nil, err
		}
	}
	held, err := lockFolder(fs, o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{merger: o.Merger, readOnly: o.ReadOnly, lock: held, fs: newStoreFS(fs, o), writer: make(chan struct{}, 1), gate: &gate{closing: make(chan struct{})}}
	s.fatal = s.stopper(o)
	if err := s.open(o, found); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	s.txn.reader.db, s.txn.reader.ctx, s.fs.fatal = s.db, context.Background(), s.fatal
	s.writer <- struct{}{}
	s.fs.start(o.SyncInterval, o.Logger)
	return s, nil
}

// open opens Pebble after checking that this loses no data.
func (s *Store) open(o Options, found bool) error {
	if !o.ReadOnly {
		if err := s.fs.full(); err != nil {
			return err
		}
	}
	if found {
		if err := s.fs.prove(o); err != nil {
			return err
		}
	}
	po, release := s.pebbleOptions(o)
	defer release()
	db, err := pebble.Open(o.Dir, po)
	if err != nil {
		return fmt.Errorf("pebblekv: opening %s: %w", o.Dir, opening(err))
	}
	s.db = db
	return nil
}

// opening wraps an error of pebble.Open in the matching error of package kv.
func opening(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w: %w", kv.ErrDiskFull, err)
	case strings.Contains(err.Error(), "merger name"), strings.Contains(err.Error(), "format major version"): // Pebble exports no errors for these
		return fmt.Errorf("%w: %w", kv.ErrFormat, err)
	case pebble.IsCorruptionError(err), strings.Contains(err.Error(), "file does not exist"):
		return fmt.Errorf("%w: %w", kv.ErrDamaged, err)
	}
	if _, system := errors.AsType[syscall.Errno](err); system {
		return err
	}
	// The options are always the same and correct, so Pebble objects to a file: a manifest, or
	// the options of the last start.
	return fmt.Errorf("%w: %w", kv.ErrDamaged, err)
}

// stopper returns the function that ends the process when Pebble cannot continue.
func (s *Store) stopper(o Options) func(error) {
	return func(err error) {
		if isFull(err) || strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), syscall.EDQUOT.Error()) {
			err = fmt.Errorf("%w: %w", kv.ErrDiskFull, err)
		}
		err = fmt.Errorf("pebblekv: %s: %w", o.Dir, err)
		if o.Fatal != nil {
			o.Fatal(err)
		}
		panic(err)
	}
}

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) (err error) {
	if !s.gate.enter() {
		return kv.ErrClosed
	}
	defer s.gate.leave()
	if err := s.usable(ctx); err != nil {
		return err
	}
	stamp := s.stamp.Load()
	snap := s.db.NewSnapshot()
	r := &reader{db: snap, ctx: ctx}
	defer func() { // after a panic of fn, too
		if done := errors.Join(r.close(), snap.Close()); done != nil {
			err = errors.Join(err, done)
		}
	}()
	if stamp%2 == 0 && s.stamp.Load() == stamp { // else a commit has changed it while the snapshot was taken
		r.stamp = stamp + 1
	}
	return fn(r)
}

// ViewAcross implements kv.Store. A snapshot lives as long as its readers, so there are
// no crossings.
func (s *Store) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	return 0, s.View(ctx, fn)
}

// Update implements kv.Store. Updates run one at a time; fn runs once.
func (s *Store) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case <-s.writer:
		defer func() { s.writer <- struct{}{} }()
	case <-s.gate.closing:
		return kv.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("pebblekv: waiting to write: %w", ctx.Err())
	}
	if err := s.awaitSpace(ctx); err != nil {
		return err
	}
	if err := s.usable(ctx); err != nil {
		return err
	}
	t := &s.txn
	t.writes.reset()
	t.touched = 0
	err := fn(t)
	if done := t.reader.close(); done != nil {
		err = errors.Join(err, done)
	}
	if err != nil || len(t.writes.ops) == 0 {
		return err
	}
	if len(t.writes.arena) > 1<<31 {
		return fmt.Errorf("pebblekv: a transaction of %d bytes: %w", len(t.writes.arena), kv.ErrTooLarge)
	}
	batch := s.db.NewBatchWithSize(min(t.size, maxBatchHint))
	if err := t.writes.put(batch); err != nil {
		return errors.Join(fmt.Errorf("pebblekv: building a batch: %w", err), batch.Close())
	}
	t.size = batch.Len()
	// With storeFS, pebble.Sync means handed to the operating system.
	s.stamp.Add(t.touched)
	err = batch.Commit(pebble.Sync)
	s.stamp.Add(t.touched)
	if err != nil {
		return errors.Join(fmt.Errorf("pebblekv: committing: %w", err), batch.Close())
	}
	return batch.Close()
}

// awaitSpace returns kv.ErrDiskFull if the disk has too little free space. With AwaitSpace it
// waits for space, and returns that error only if ctx ends first.
func (s *Store) awaitSpace(ctx context.Context) error {
	for {
		full := s.fs.full()
		if full == nil || !s.fs.await {
			return full
		}
		select {
		case <-time.After(spaceEvery):
		case <-s.gate.closing:
			return kv.ErrClosed
		case <-ctx.Done():
			return errors.Join(full, ctx.Err())
		}
	}
}

// spaceEvery is the interval at which a waiting write checks the known free space. storeFS.start
// updates that once a second.
const spaceEvery = 100 * time.Millisecond

// isFull reports whether a write failed because the disk, or the user's quota on it, is full.
func isFull(err error) bool { return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT) }

// A batch allocates memory in advance: as much as the previous batch needed, but at most
// maxBatchHint.
const maxBatchHint = 16 << 20

func (s *Store) usable(ctx context.Context) error {
	if s.gate.closed() {
		return kv.ErrClosed
	}
	if err := s.fs.failed(); err != nil {
		return fmt.Errorf("pebblekv: an earlier sync failed; stop skein and check the disk: %w", err)
	}
	return ctx.Err()
}

// Healthy returns an error, without I/O, after a read or a background job found damage,
// after a failed sync, and while the disk is full.
func (s *Store) Healthy() error {
	err := errors.Join(s.fs.failed(), s.fs.full())
	if d := s.damage.Load(); d != nil {
		return errors.Join(d, err)
	}
	return err
}

// FreeBytes returns the free bytes of the disk, 0 if they are unknown.
func (s *Store) FreeBytes() uint64 { return s.fs.free.Load() }

// listener handles the events of Pebble's background jobs. It limits the rate of
// repeated errors in the log, because Pebble retries continuously.
func (s *Store) listener(log *slog.Logger) *pebble.EventListener {
	return &pebble.EventListener{
		WriteStallBegin: s.stalls.begin,
		WriteStallEnd:   s.stalls.end,
		BackgroundError: func(err error) {
			if held, ok := s.said.Allow("background"); ok {
				log.Error("Pebble background job failed; retrying", "error", err, "occurrences", held+1)
			}
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			d := damageOf(info)
			s.damage.CompareAndSwap(nil, d)
			if _, ok := s.said.Allow("damage " + info.Path); ok {
				log.Error("a part of the store is damaged: restore it from a backup, or index again; skein check lists the damage", "file", info.Path, "error", info.Details)
			}
		},
	}
}

// damageOf returns the damaged file and the bounds of its keys.
func damageOf(info pebble.DataCorruptionInfo) *kv.Damage {
	return &kv.Damage{File: info.Path, First: bytes.Clone(info.Bounds.Start), Last: bytes.Clone(info.Bounds.End.Key), Err: info.Details}
}

// readError turns a corruption error of a read into a kv.ErrCorrupt.
func readError(err error) error {
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return damageOf(*info)
	}
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", kv.ErrCorrupt, err)
	}
	return err
}

// Sync implements kv.Store.
func (s *Store) Sync() error { return s.fs.syncAll() }

// Merger implements kv.Store.
func (s *Store) Merger() kv.Merger { return s.merger }

// RangeBytes implements kv.Store.
func (s *Store) RangeBytes(lo, hi []byte) (uint64, error) {
	if !s.gate.enter() {
		return 0, kv.ErrClosed
	}
	defer s.gate.leave()
	if hi == nil {
		hi = lastKey
	}
	if bytes.Compare(lo, hi) >= 0 {
		return 0, nil
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

// Compact rewrites the whole store, which settles its size on disk.
func (s *Store) Compact(ctx context.Context) error {
	if !s.gate.enter() {
		return kv.ErrClosed
	}
	defer s.gate.leave()
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("pebblekv: flushing: %w", err)
	}
	if err := s.db.Compact(ctx, []byte{0}, []byte{0xff, 0xff}, true); err != nil {
		return fmt.Errorf("pebblekv: compacting: %w", err)
	}
	return nil
}

// Close implements kv.Store. It waits for Views and Updates under way.
func (s *Store) Close() error {
	if !s.gate.close() {
		return nil
	}
	<-s.writer
	defer func() { s.writer <- struct{}{} }()
	err := s.fs.stop()
	s.fs.closing.Store(true)
	closed := s.db.Close()
	if isFull(closed) && s.fs.full() != nil {
		closed = nil // the log lacks its trailer, and nothing that was committed: stop has synced it
	}
	err = errors.Join(err, closed, s.fs.failed())
	if err == nil {
		err = s.fs.saveLogs()
	}
	return errors.Join(err, s.lock.Close())
}

// logger passes Pebble's messages to slog. Pebble calls Fatalf if continuing would
// corrupt the store.
type logger struct {
	l     *slog.Logger
	fatal func(error)
}

func (l logger) Infof(format string, args ...any) {
	l.l.Debug("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.l.Error("pebble", "detail", fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	l.fatal(fmt.Errorf("pebble cannot continue: "+format, args...))
}
