// Package memkv is a store in memory that behaves like FoundationDB: many
// writers with optimistic conflicts, commits with an unknown outcome, and
// limits on size and time. Tests use it to find code that depends on Pebble's
// single writer.
package memkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"skein.blue/internal/kv"
)

// Limits are the limits of a transaction. Tests set smaller ones than FoundationDB's
// to exceed them cheaply.
type Limits struct {
	Key, Value, Txn int           // bytes
	Age             time.Duration // of one attempt
}

// FDBLimits are the limits of FoundationDB 7.3.
var FDBLimits = Limits{Key: 10_000, Value: 50_000, Txn: 10_000_000, Age: 5 * time.Second}

// Faults are injected at random, as shares of all commits.
type Faults struct {
	Seed uint64 // the same seed injects the same faults
	// Conflict is the share of commits that fail although nothing conflicts.
	Conflict float64
	// Unknown is the share of commits that report an unknown outcome; half of
	// them are applied.
	Unknown float64
}

// Options configure a store. Only Merger is required.
type Options struct {
	Merger kv.Merger // folds merges
	Limits Limits    // zero: FDBLimits
	Faults Faults    // zero: none
	// OnCommit, if set, is called before each commit with its number, counted
	// from 1. An error simulates a crash: it ends the Update before the commit
	// is applied or, if it wraps ErrAfterCommit, after.
	OnCommit func(n int) error
	// Conflicted, if set, is called for a read that made a commit conflict,
	// with the first key of its range, as FoundationDB reports it.
	Conflicted func(key []byte)
	// Trips, if set, is called at the end of each View with the number of round trips that it would take on
	// a cluster (kv.Trips), and the number of reads that were begun early and never used.
	Trips func(n, unused int)
}

// ErrAfterCommit in an error of Options.OnCommit applies the commit before the crash.
var ErrAfterCommit = fmt.Errorf("memkv: crash after the commit")

type item struct{ key, value []byte }

// Store is a store in memory. It implements kv.Store.
type Store struct {
	o Options

	mu      sync.Mutex // guards the fields below
	tree    *btree.BTreeG[item]
	version uint64
	stamp   uint64   // the last version that was made by a Txn with Touch
	history []commit // ascending by version; old ones are dropped
	rng     *rand.Rand
	commits int
	closed  bool
	counts  Counts
}

// Counts are the outcomes of commits. Commits counts those that were applied, Unknown those
// that reported an unknown outcome, applied or not.
type Counts struct{ Commits, Conflicts, Unknown int }

type keyRange struct{ lo, hi []byte } // hi nil: the end of the key space

type commit struct {
	version uint64
	writes  []keyRange
}

// historyLen is the minimum number of commits kept for conflict checks. An attempt older
// than those is retried, as on FoundationDB after five seconds.
const historyLen = 4096

// Open returns an empty store.
func Open(o Options) *Store {
	if o.Limits == (Limits{}) {
		o.Limits = FDBLimits
	}
	return &Store{
		o:    o,
		tree: btree.NewBTreeG(func(a, b item) bool { return bytes.Compare(a.key, b.key) < 0 }),
		rng:  rand.New(rand.NewPCG(o.Faults.Seed, 0)),
	}
}

// Counts returns the outcomes of commits since the store was opened.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Store) snapshot() (r reader, version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return r, 0, kv.ErrClosed
	}
	return reader{tree: s.tree.Copy(), stamp: s.stamp}, s.version, nil
}

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, _, err := s.snapshot()
	if err != nil {
		return err
	}
	r.ctx, r.ahead, r.used = ctx, map[string]int{}, map[string]bool{}
	err = fn(&r)
	if s.o.Trips != nil {
		unused := 0
		for read := range r.ahead {
			if !r.used[read] {
				unused++
			}
		}
		s.o.Trips(r.trips.Count(), unused)
	}
	return err
}

// ViewAcross implements kv.Store. A snapshot lives as long as its readers, so there are
// no crossings.
func (s *Store) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	return 0, s.View(ctx, fn)
}

// Update implements kv.Store. After three attempts that took too long it returns
// kv.ErrTooLarge.
func (s *Store) Update(ctx context.Context, fn func(kv.Txn) error) error {
	for slow := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, version, err := s.snapshot()
		if err != nil {
			return err
		}
		r.ctx = context.Background()
		t := &txn{reader: r, limits: s.o.Limits}
		t.reader.conflicts = &t.reads
		start := time.Now()
		if err := fn(t); err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
		if len(t.ops) == 0 {
			return nil
		}
		if time.Since(start) > s.o.Limits.Age {
			if slow++; slow == 3 {
				return fmt.Errorf("memkv: attempts took over %v: %w", s.o.Limits.Age, kv.ErrTooLarge)
			}
			continue
		}
		done, err := s.commit(t, version)
		if done || err != nil {
			return err
		}
	}
}

// commit tries to apply t, and reports whether it is known to be applied.
func (s *Store) commit(t *txn, version uint64) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	var crash error
	if s.o.OnCommit != nil {
		if crash = s.o.OnCommit(s.commits); crash != nil && !errors.Is(crash, ErrAfterCommit) {
			return false, crash
		}
	}
	if s.conflicts(t, version) || s.rng.Float64() < s.o.Faults.Conflict {
		s.counts.Conflicts++
		return false, crash
	}
	unknown := s.rng.Float64() < s.o.Faults.Unknown
	if unknown {
		s.counts.Unknown++
		if s.rng.IntN(2) == 0 {
			return false, crash
		}
	}
	if err := s.apply(t); err != nil {
		return false, err
	}
	s.counts.Commits++
	return !unknown, crash
}

func (s *Store) conflicts(t *txn, version uint64) bool {
	if version == s.version {
		return false
	}
	if len(s.history) == 0 || s.history[0].version > version+1 {
		return true // too old to tell
	}
	for _, c := range slices.Backward(s.history) {
		if c.version <= version {
			break
		}
		for _, w := range c.writes {
			for _, r := range t.reads {
				if (w.hi == nil || bytes.Compare(r.lo, w.hi) < 0) && (r.hi == nil || bytes.Compare(w.lo, r.hi) < 0) {
					if s.o.Conflicted != nil {
						s.o.Conflicted(r.lo)
					}
					return true
				}
			}
		}
	}
	return false
}

func (s *Store) apply(t *txn) error {
	tree := s.tree.Copy() // an error of Fold leaves s.tree unchanged
	c := commit{version: s.version + 1}
	for _, op := range t.ops {
		c.writes = append(c.writes, op.keys)
		key := op.keys.lo
		switch op.kind {
		case opSet:
			tree.Set(item{key, op.value})
		case opDelete:
			tree.Delete(item{key: key})
		case opDeleteRange:
			var doomed []item
			tree.Ascend(item{key: key}, func(it item) bool {
				in := op.keys.hi == nil || bytes.Compare(it.key, op.keys.hi) < 0
				if in {
					doomed = append(doomed, it)
				}
				return in
			})
			for _, it := range doomed {
				tree.Delete(it)
			}
		case opMerge:
			values := [][]byte{op.value}
			if old, ok := tree.Get(item{key: key}); ok {
				values = [][]byte{old.value, op.value}
			}
			v, err := s.o.Merger.Fold(nil, key, values, true)
			if err != nil {
				return fmt.Errorf("memkv: folding %x: %w", key, err)
			}
			if len(v) > s.o.Limits.Value {
				return fmt.Errorf("memkv: %x folds to %d bytes: %w", key, len(v), kv.ErrTooLarge)
			}
			tree.Set(item{key, v})
		}
	}
	s.tree = tree
	if s.version++; t.touched {
		s.stamp = s.version
	}
	s.history = append(s.history, c)
	if len(s.history) > 2*historyLen {
		s.history = slices.Clone(s.history[historyLen:])
	}
	return nil
}

// Sync implements kv.Store. There is no disk.
func (s *Store) Sync() error { return nil }

// Engine implements kv.Store.
func (s *Store) Engine() string { return "memory" }

// Merger implements kv.Store.
func (s *Store) Merger() kv.Merger { return s.o.Merger }

// RangeBytes implements kv.Store. It counts the bytes of keys and values.
func (s *Store) RangeBytes(lo, hi []byte) (n uint64, err error) {
	r, _, err := s.snapshot()
	if err != nil {
		return 0, err
	}
	r.tree.Ascend(item{key: lo}, func(it item) bool {
		if hi != nil && bytes.Compare(it.key, hi) >= 0 {
			return false
		}
		n += uint64(len(it.key) + len(it.value))
		return true
	})
	return n, nil
}

// DiskBytes implements kv.Store.
func (s *Store) DiskBytes() uint64 { return 0 }

// Close implements kv.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Reopen returns a new store with the same content and other options, as a new process
// would open it. It closes s.
func (s *Store) Reopen(o Options) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.copied(o)
}

// Copy returns a new store with the same content and other options. The two share memory until one of them changes a row.
func (s *Store) Copy(o Options) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied(o)
}

func (s *Store) copied(o Options) *Store {
	n := Open(o)
	n.tree, n.version = s.tree.Copy(), s.version
	return n
}
