// Package kv defines the ordered key-value store under the index: keys in byte
// order, snapshots, batched reads, range scans, and atomic writes of sets,
// deletes, range deletes and merges. The packages above define the keys, the
// values and how merges fold.
//
// The contract holds on both engines. Pebble has one process and merges inside
// its compactions; FoundationDB has many writers, optimistic conflicts, commits
// with an unknown outcome, and limits on size and time. Every engine passes the
// test suite in package kvtest.
package kv

import (
	"context"
	"errors"
	"fmt"
)

// Errors that an engine returns. They are wrapped; test with errors.Is.
var (
	// ErrTooLarge is returned by Update if a transaction, a key or a value
	// exceeds the engine's limit. Nothing was written; split the work.
	ErrTooLarge = errors.New("kv: transaction too large")
	// ErrLocked is returned by an engine's Open if another process has the
	// store open.
	ErrLocked = errors.New("kv: store is in use by another process")
	// ErrClosed is returned by calls made after Close.
	ErrClosed = errors.New("kv: store is closed")
	// ErrNotFound is returned by an engine's Open if the store does not exist
	// and Open may not create it.
	ErrNotFound = errors.New("kv: no store found")
	// ErrUnavailable is returned if the servers of a store do not answer. View
	// returns it at once while the servers are known to be silent. Update never
	// returns it: it retries until its context ends.
	ErrUnavailable = errors.New("kv: the store does not answer")
	// ErrTooOld is returned by View if fn ran longer than the engine keeps a
	// snapshot (FoundationDB: five seconds). See ViewAcross.
	ErrTooOld = errors.New("kv: the read took longer than the engine keeps a snapshot")
	// ErrFormat is returned by an engine's Open for a store made with another
	// Merger or another version of the engine.
	ErrFormat = errors.New("kv: the store has another format")
	// ErrCorrupt is returned by reads whose bytes do not match their checksum.
	ErrCorrupt = errors.New("kv: a part of the store is damaged")
	// ErrDamaged is returned by an engine's Open if files of the store are missing
	// or damaged. Open changes nothing then.
	ErrDamaged = errors.New("kv: the store is damaged")
	// ErrDiskFull is returned by Open and Update if the disk has too little free space to
	// go on safely. Committed writes are kept. An engine may be opened so that Update waits
	// for space instead, until its context ends.
	ErrDiskFull = errors.New("kv: the disk is full")
)

// Damage is an ErrCorrupt with the place of the damage.
type Damage struct {
	File        string // the damaged file
	First, Last []byte // the bounds of its keys, inclusive
	Err         error  // the engine's error
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("%v: file %s, with keys from %x to %x: %v", ErrCorrupt, d.File, d.First, d.Last, d.Err)
}

// Is reports whether target is ErrCorrupt.
func (d *Damage) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the engine's error.
func (d *Damage) Unwrap() error { return d.Err }

// A Reader reads one snapshot of the store. Only one goroutine may use it at a time.
type Reader interface {
	// Get returns the value of key, and whether the key exists. The value belongs
	// to the caller until the next call on this Reader; copy it to keep it.
	Get(key []byte) (value []byte, ok bool, err error)

	// MultiGet looks up all keys, possibly in parallel, and calls each once
	// for every key, in order, from the caller's goroutine. value is valid
	// only during the call, and must not be changed: equal keys may share it. An
	// error from each ends the read and is returned.
	MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error

	// Scan calls each for the keys in [lo, hi), in ascending order, or in
	// descending order if reverse is set, until each returns false or an
	// error. key and value are valid only during the call.
	Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (more bool, err error)) error
}

// A Stamped is a Reader of a store with a stamp.
type Stamped interface {
	Reader
	// Stamp returns the stamp in this state, without a round trip, or 0 if it is not known. Between two states with
	// the same stamp, no Txn was committed that called Touch.
	Stamp() uint64
}

// A Forker is a Reader that can be read by several goroutines, each with a Reader of its own.
type Forker interface {
	Reader
	// Fork returns a Reader of the same snapshot. release ends it, and must be called before the View ends.
	Fork() (r Reader, release func() error)
}

// A Txn is one attempt at an atomic write. Its reads show the state before the
// transaction, never its own writes. The caller may reuse the memory of keys and
// values as soon as a call returns.
//
// Commit checks the reads of a Txn: if another transaction has changed what it
// read, the attempt is discarded and retried. Reads through Snapshot are not
// checked. A merge does not count as a read, so any number of writers may merge
// into one key without conflicts.
type Txn interface {
	Reader

	// Snapshot reads the same state as the Txn without adding conflicts.
	Snapshot() Reader
	// Conflict makes commit check key as if the Txn had read it.
	Conflict(key []byte)

	Set(key, value []byte)
	Delete(key []byte)
	// DeleteRange deletes the keys in [lo, hi).
	DeleteRange(lo, hi []byte)
	// Merge folds operand into the value of key with the store's Merger.
	Merge(key, operand []byte)
	// Touch changes the store's stamp (Stamped).
	Touch()
}

// A Store is one open store. All methods may be called from any goroutine.
type Store interface {
	// View calls fn with a consistent snapshot of the store. The Reader is valid
	// until fn returns; its reads fail once ctx has ended.
	View(ctx context.Context, fn func(Reader) error) error

	// ViewAcross is View for reading a whole store, however long that takes. If
	// the engine drops the snapshot, the Reader continues in a newer one instead
	// of failing with ErrTooOld. ViewAcross returns how often that happened: if it
	// did, fn has seen a mix of states, unless the caller knows that nothing was
	// written meanwhile. Do not answer queries with it: while the engine is busy, it
	// comes after all other work.
	ViewAcross(ctx context.Context, fn func(Reader) error) (crossings int, err error)

	// Update calls fn and commits its writes atomically. If it returns nil, the
	// write is committed: it survives SIGKILL, and is synced to disk within the
	// engine's sync interval.
	//
	// Update may call fn more than once: after a conflict, and after an attempt
	// with an unknown outcome, which may have been committed. So fn must look
	// for the traces of its own earlier attempt, and keep no state that a
	// discarded attempt would spoil. An error from fn ends the Update: nothing
	// is written, and Update returns the same error, not wrapped. If ctx ends, the
	// outcome is unknown.
	Update(ctx context.Context, fn func(Txn) error) error

	// Sync returns when everything committed before the call is synced to disk.
	Sync() error

	// Engine names the engine: "pebble", "memory" or "fdb".
	Engine() string

	// Merger returns the Merger that the store was opened with.
	Merger() Merger

	// DiskBytes returns the size of the store on disk, 0 if the engine does not
	// know it.
	DiskBytes() uint64

	// RangeBytes estimates the bytes that the keys in [lo, hi) take, on disk if
	// the engine has one.
	RangeBytes(lo, hi []byte) (uint64, error)

	// Close syncs and closes the store.
	Close() error
}

// A Merger defines how merges fold. A run of values and operands folds into one value, which
// folds again.
// Fold must be associative: engines fold any run of neighbours at any time.
type Merger interface {
	// Name is stored in the store, which only opens with a Merger of that name.
	Name() string

	// Fold appends the fold of values, oldest first, to dst. If base is set,
	// nothing older exists, so tombstones may be dropped. An engine may store an
	// empty result or drop the key: readers must treat an empty value and a
	// missing key alike. An error means corruption.
	Fold(dst, key []byte, values [][]byte, base bool) ([]byte, error)
}

type urgent struct{}

// Urgent returns ctx for calls of View and Update that come before all others while the engine is busy. They must be small and rare:
// heartbeats, and cursors without data.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgent{}, true) }

// IsUrgent reports whether ctx is from Urgent.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgent{}) != nil }

// ScanPrefix calls each for the keys that begin with prefix, in ascending order, until
// it returns an error.
func ScanPrefix(r Reader, prefix []byte, each func(key, value []byte) error) error {
	return r.Scan(prefix, PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		err := each(k, v)
		return err == nil, err
	})
}

// PrefixEnd returns the first key after all keys that begin with prefix, or
// nil if there is none (a prefix of 0xff bytes only).
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
