// Package kv is the ordered store that the index stands on: keys and values in
// byte order, snapshots, batched reads, range scans, and one atomic write of
// sets, deletes, range deletes and merges. It does not know what is stored:
// keys, values and how merges fold belong to the packages above.
//
// The contract is cut to what both engines can keep. Pebble has one process
// and merges inside its compactions; FoundationDB has many writers, optimistic
// conflicts, commits whose outcome is unknown, and limits on size and time.
// Package kvtest is the suite that every engine passes.
package kv

import (
	"context"
	"errors"
	"fmt"
)

// Errors that an engine returns. They are wrapped; test with errors.Is.
var (
	// ErrTooLarge is returned by Update when a transaction, a key or a value
	// is over the engine's limit. Nothing was written; split the work.
	ErrTooLarge = errors.New("kv: transaction too large")
	// ErrLocked is returned by an engine's Open when another process has the
	// store open.
	ErrLocked = errors.New("kv: store is in use by another process")
	// ErrClosed is returned by calls made after Close.
	ErrClosed = errors.New("kv: store is closed")
	// ErrNotFound is returned by an engine's Open when it was told not to
	// create a store and there is none.
	ErrNotFound = errors.New("kv: there is no store here")
	// ErrUnavailable is returned when the servers of a store do not answer. View
	// returns it at once while that is known. Update does not return it: it tries
	// until its context ends.
	ErrUnavailable = errors.New("kv: the store does not answer")
	// ErrTooOld is returned by View when reading took longer than the engine
	// keeps a state (FoundationDB: five seconds). See ViewAcross.
	ErrTooOld = errors.New("kv: reading took longer than the engine keeps a state")
	// ErrFormat is returned by an engine's Open for a store that was made with
	// another Merger, or another version of the engine.
	ErrFormat = errors.New("kv: the store has another format")
	// ErrCorrupt is returned by reads that meet bytes which are not those that were
	// written, as their checksums tell.
	ErrCorrupt = errors.New("kv: a part of the store is damaged")
	// ErrDamaged is returned by an engine's Open where the store's files are not
	// whole: it was not opened, and nothing was changed.
	ErrDamaged = errors.New("kv: the store is damaged")
	// ErrDiskFull is returned by Open and Update if the disk has too little free space to
	// go on safely. Committed writes are kept. An engine may be opened so that Update waits
	// for space instead, until its context ends.
	ErrDiskFull = errors.New("kv: the disk is full")
)

// Damage is an ErrCorrupt that says where it is.
type Damage struct {
	File        string // that is damaged
	First, Last []byte // keys that lie in it lie between these, inclusive
	Err         error  // what is wrong with it
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("%v: file %s, with keys from %x to %x: %v", ErrCorrupt, d.File, d.First, d.Last, d.Err)
}

// Is reports that it is an ErrCorrupt.
func (d *Damage) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns what is wrong.
func (d *Damage) Unwrap() error { return d.Err }

// Health is implemented by engines that know whether they work.
type Health interface {
	// Healthy returns nil as long as the store can be read whole, and written. It
	// returns at once, and asks nobody. An ErrUnavailable passes by itself.
	Healthy() error
}

// Monitored is implemented by engines that also know the disk of their store.
type Monitored interface {
	Health
	// FreeBytes returns how many bytes the disk has left, and whether that is known.
	FreeBytes() (uint64, bool)
}

// An Interrupt tells a Reader when the context of its View has ended: every read
// asks it. The zero Interrupt never does.
type Interrupt struct {
	done <-chan struct{}
	err  func() error
}

// InterruptOf returns the Interrupt of a context.
func InterruptOf(ctx context.Context) Interrupt { return Interrupt{ctx.Done(), ctx.Err} }

// Err returns what ended the context, nil if it has not ended.
func (i Interrupt) Err() error {
	select {
	case <-i.done:
		return i.err()
	default:
		return nil
	}
}

// A Reader reads one state of the store. It is used by one goroutine at a time.
type Reader interface {
	// Get returns the value of key, and whether there is one. The bytes are
	// the caller's only until the next call on this Reader: copy what is kept.
	Get(key []byte) (value []byte, ok bool, err error)

	// MultiGet looks up all keys, possibly in parallel, and calls each once
	// for every key, in order, from the caller's goroutine. value is valid
	// only during the call. An error from each ends the read and is returned.
	MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error

	// Scan calls each for the keys in [lo, hi), in ascending order, or in
	// descending order if reverse is set, until each returns false or an
	// error. key and value are valid only during the call.
	Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (more bool, err error)) error
}

// A Txn is one attempt at an atomic write. Its reads show the state before the
// transaction: never its own writes. Keys and values handed to it may be
// reused by the caller as soon as the call returns.
//
// Reads of a Txn are checked at commit: where another transaction has changed
// what was read, the attempt is discarded and made again. Reads through
// Snapshot are not checked. Merges read nothing as far as conflicts go, so any
// number of writers may merge into one key.
type Txn interface {
	Reader

	// Snapshot reads the same state as the Txn without adding conflicts.
	Snapshot() Reader
	// Conflict has key checked at commit, as if the Txn had read it.
	Conflict(key []byte)

	Set(key, value []byte)
	Delete(key []byte)
	// DeleteRange deletes the keys in [lo, hi).
	DeleteRange(lo, hi []byte)
	// Merge folds operand into the value of key with the store's Merger.
	Merge(key, operand []byte)
}

// A Store is one open store. All methods may be called from any goroutine.
type Store interface {
	// View calls fn with a consistent state of the store. The Reader is dead
	// when fn returns; its reads fail once ctx has ended.
	View(ctx context.Context, fn func(Reader) error) error

	// ViewAcross is View for reading a whole store, however long that takes: where
	// the engine no longer keeps the state that it began with, the Reader goes over
	// to a newer one, instead of failing with ErrTooOld. It returns how often: fn
	// then has seen a mix of states, unless the caller can tell that nothing was
	// written. It is not for questions.
	ViewAcross(ctx context.Context, fn func(Reader) error) (crossings int, err error)

	// Update calls fn and commits what it wrote, atomically. When it returns
	// nil the write is committed: it survives SIGKILL, and is synced to disk
	// within the engine's sync interval.
	//
	// fn may be called more than once: after a conflict, and after an attempt
	// whose outcome is unknown and which may therefore have been committed.
	// So fn must look for the traces of an earlier attempt of itself, and keep
	// no state that a discarded attempt would spoil. An error from fn ends the
	// Update, nothing is written, and the error is returned as it is.
	Update(ctx context.Context, fn func(Txn) error) error

	// Sync returns when everything that was committed before the call is
	// synced to disk.
	Sync() error

	// Engine names the engine: "pebble", "memory" or "fdb".
	Engine() string

	// Merger returns the Merger that the store was opened with.
	Merger() Merger

	// DiskBytes returns the bytes that the store takes on disk, 0 if the
	// engine cannot tell.
	DiskBytes() uint64

	// RangeBytes returns about how many bytes the keys in [lo, hi) take, on
	// disk where there is one.
	RangeBytes(lo, hi []byte) (uint64, error)

	// Close syncs and closes the store.
	Close() error
}

// A Merger says how merges fold. Values that were set and operands that were
// merged share one encoding, so that a run of them folds into one of them.
// Fold must be associative: engines fold any run of neighbours at any time.
type Merger interface {
	// Name is kept in the store. A store opened with another name is refused.
	Name() string

	// Fold appends to dst what values, oldest first, come to. base says that
	// nothing older exists, so that tombstones may go. Where the result says
	// "nothing", an engine may keep it or drop the key: readers must take an
	// empty fold and a missing key for the same. An error means corruption.
	Fold(dst, key []byte, values [][]byte, base bool) ([]byte, error)
}

// ScanPrefix calls each for the keys that begin with prefix, in ascending order, until
// it returns an error.
func ScanPrefix(r Reader, prefix []byte, each func(key, value []byte) error) error {
	return r.Scan(prefix, PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		err := each(k, v)
		return err == nil, err
	})
}

// PrefixEnd returns the first key after all keys that begin with prefix, or
// nil when there is none (a prefix of 0xff bytes only).
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
