package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"skein/internal/kv"
)

// pebbleReader is what pebble.DB and pebble.Snapshot have in common.
type pebbleReader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// reader implements kv.Reader on a snapshot, or on the store itself while the
// writer's token is held, when nothing else changes it.
type reader struct {
	db      pebbleReader
	buf     []byte
	iter    *pebble.Iterator // kept between scans: opening one costs microseconds
	inUse   bool             // iter is in a Scan that has not returned
	lookups []lookup         // scratch of MultiGet
}

func (r *reader) close() error {
	if r.iter == nil {
		return nil
	}
	err := r.iter.Close()
	r.iter = nil
	return err
}

// Get implements kv.Reader.
func (r *reader) Get(key []byte) ([]byte, bool, error) {
	v, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("pebblekv: reading %x: %w", key, err)
	}
	r.buf = append(r.buf[:0], v...)
	return r.buf, true, closer.Close()
}

// lookup is one worker's part of a MultiGet: the values it found, end to end.
type lookup struct {
	order  []int32 // the worker's keys, ascending
	values []byte
	spans  []span // per key of the worker; start -1: no value
	err    error
}

// Keys that one worker takes at a time: under it, a goroutine costs more than
// it saves. Below fewKeys, single Gets are as good.
const keysPerWorker, maxWorkers, fewKeys = 256, 4, 8

// MultiGet implements kv.Reader. The keys are looked up in ascending order
// with one iterator, which keeps the tables of all levels open and moves
// forward only (before and after: docs/performance.md). Large batches are
// read by a few goroutines at once, because a lookup that misses the cache
// waits for the disk.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if len(keys) < fewKeys {
		for i, key := range keys {
			v, ok, err := r.Get(key)
			if err != nil {
				return err
			}
			if err := each(i, v, ok); err != nil {
				return err
			}
		}
		return nil
	}
	workers := max(1, min(maxWorkers, len(keys)/keysPerWorker))
	for len(r.lookups) < workers {
		r.lookups = append(r.lookups, lookup{})
	}
	bound := func(w int) int { return w * len(keys) / workers }
	var wg sync.WaitGroup
	for w := range workers {
		l, part := &r.lookups[w], keys[bound(w):bound(w+1)]
		if w == workers-1 {
			l.run(r.db, part)
			break
		}
		wg.Go(func() { l.run(r.db, part) })
	}
	wg.Wait()
	for w := range workers {
		l := &r.lookups[w]
		if l.err != nil {
			return fmt.Errorf("pebblekv: reading: %w", l.err)
		}
		for j, s := range l.spans {
			var v []byte
			if s.start >= 0 {
				v = l.values[s.start:s.end:s.end]
			}
			if err := each(bound(w)+j, v, s.start >= 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lookup) run(db pebbleReader, keys [][]byte) {
	l.values, l.order, l.err = l.values[:0], l.order[:0], nil
	l.spans = slices.Grow(l.spans[:0], len(keys))[:len(keys)]
	for i := range keys {
		l.order = append(l.order, int32(i))
		l.spans[i] = span{-1, -1}
	}
	slices.SortFunc(l.order, func(a, b int32) int { return bytes.Compare(keys[a], keys[b]) })
	it, err := db.NewIter(nil)
	if err != nil {
		l.err = err
		return
	}
	for _, n := range l.order {
		// Split takes the whole key, so that this asks the Bloom filters.
		if !it.SeekPrefixGE(keys[n]) || !bytes.Equal(it.Key(), keys[n]) {
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			l.err = errors.Join(err, it.Close())
			return
		}
		start := len(l.values)
		l.values = append(l.values, v...)
		l.spans[n] = span{start, len(l.values)}
	}
	l.err = errors.Join(it.Error(), it.Close())
}

// Scan implements kv.Reader. A Scan inside another's callback gets an iterator
// of its own.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if len(lo) == 0 { // Pebble takes an empty bound that is not nil for a key
		lo = nil
	}
	if len(hi) == 0 {
		hi = nil
	}
	it := r.iter
	switch {
	case it == nil || r.inUse:
		var err error
		if it, err = r.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
			return fmt.Errorf("pebblekv: scanning: %w", err)
		}
	default:
		it.SetBounds(lo, hi)
	}
	if r.inUse {
		return errors.Join(scan(it, reverse, each), it.Close())
	}
	r.iter, r.inUse = it, true
	err := scan(it, reverse, each)
	r.inUse = false
	return err
}

func scan(it *pebble.Iterator, reverse bool, each func(key, value []byte) (bool, error)) error {
	first, next := it.First, it.Next
	if reverse {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok; ok = next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("pebblekv: scanning, at %x: %w", it.Key(), err)
		}
		more, err := each(it.Key(), v)
		if err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("pebblekv: scanning: %w", err)
	}
	return nil
}

// txn implements kv.Txn. Its reads go to the store itself: the writer's token
// keeps that still.
type txn struct {
	reader
	writes writes
	size   int // bytes of the last batch: about what the next one will take
}

// Snapshot implements kv.Txn: there are no conflicts to avoid.
func (t *txn) Snapshot() kv.Reader { return &t.reader }

// Conflict implements kv.Txn: with one writer there are none.
func (t *txn) Conflict([]byte) {}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) { t.writes.add(writeSet, key, value) }

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) { t.writes.add(writeDelete, key, nil) }

// DeleteRange implements kv.Txn.
func (t *txn) DeleteRange(lo, hi []byte) { t.writes.add(writeDeleteRange, lo, hi) }

// Merge implements kv.Txn.
func (t *txn) Merge(key, operand []byte) { t.writes.add(writeMerge, key, operand) }
