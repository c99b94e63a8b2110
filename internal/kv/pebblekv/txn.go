package pebblekv

import (
	"errors"
	"fmt"
	"io"
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
	values []byte
	ends   []int // per key the end of its value in values, or -1
	err    error
}

// Keys that one worker takes at a time: under it, a goroutine costs more than
// it saves.
const keysPerWorker, maxWorkers = 256, 4

// MultiGet implements kv.Reader. Large batches are read by a few goroutines at
// once: a lookup that misses the cache waits for the disk.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	workers := min(maxWorkers, len(keys)/keysPerWorker)
	if workers <= 1 {
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
	for len(r.lookups) < workers {
		r.lookups = append(r.lookups, lookup{})
	}
	bound := func(w int) int { return w * len(keys) / workers }
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { r.lookups[w].run(r.db, keys[bound(w):bound(w+1)]) })
	}
	wg.Wait()
	for w := range workers {
		l := &r.lookups[w]
		if l.err != nil {
			return l.err
		}
		start := 0
		for j, end := range l.ends {
			var v []byte
			if end >= 0 {
				v = l.values[start:end:end]
				start = end
			}
			if err := each(bound(w)+j, v, end >= 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lookup) run(db pebbleReader, keys [][]byte) {
	l.values, l.ends, l.err = l.values[:0], l.ends[:0], nil
	for _, key := range keys {
		v, closer, err := db.Get(key)
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			l.ends = append(l.ends, -1)
		case err != nil:
			l.err = fmt.Errorf("pebblekv: reading %x: %w", key, err)
			return
		default:
			l.values = append(l.values, v...)
			l.ends = append(l.ends, len(l.values))
			if err := closer.Close(); err != nil {
				l.err = fmt.Errorf("pebblekv: reading %x: %w", key, err)
				return
			}
		}
	}
}

// Scan implements kv.Reader. A Scan inside another's callback gets an iterator
// of its own.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
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
	batch *pebble.Batch
	err   error
}

func (t *txn) note(err error) {
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("pebblekv: building a batch: %w", err)
	}
}

// Snapshot implements kv.Txn: there are no conflicts to avoid.
func (t *txn) Snapshot() kv.Reader { return &t.reader }

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) { t.note(t.batch.Set(key, value, nil)) }

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) { t.note(t.batch.Delete(key, nil)) }

// DeleteRange implements kv.Txn.
func (t *txn) DeleteRange(lo, hi []byte) { t.note(t.batch.DeleteRange(lo, hi, nil)) }

// Merge implements kv.Txn.
func (t *txn) Merge(key, operand []byte) { t.note(t.batch.Merge(key, operand, nil)) }
