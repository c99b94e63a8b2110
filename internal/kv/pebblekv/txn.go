package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"skein.blue/internal/kv"
)

// pebbleReader is implemented by pebble.DB and pebble.Snapshot.
type pebbleReader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// reader implements kv.Reader on a snapshot, or on the store itself for the holder of
// the writer's token, because nobody else can change it then.
type reader struct {
	db    pebbleReader
	buf   []byte
	spare []byte           // for reads within a MultiGet
	iter  *pebble.Iterator // reused between scans: opening one costs microseconds
	inUse bool             // iter is in a Scan that has not returned
	multi multiGet

	ctx   interface{ Err() error } // of a View: its end ends the reads
	stamp uint64                   // of a View
}

// Stamp implements kv.Stamped.
func (r *reader) Stamp() uint64 { return r.stamp }

func (r *reader) close() error {
	if r.iter == nil {
		return nil
	}
	err := r.iter.Close()
	r.iter = nil
	if err != nil {
		return fmt.Errorf("pebblekv: ending a read: %w", readError(err))
	}
	return nil
}

// Fork implements kv.Forker. A fork of a transaction reads the store itself, like the transaction: nobody else can
// change it meanwhile.
func (r *reader) Fork() (other kv.Reader, release func() error) {
	o := &reader{db: r.db, ctx: r.ctx}
	return o, o.close
}

// Get implements kv.Reader.
func (r *reader) Get(key []byte) ([]byte, bool, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, false, err
	}
	v, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("pebblekv: reading %x: %w", key, readError(err))
	}
	r.buf = append(r.buf[:0], v...)
	return r.buf, true, closer.Close()
}

// multiGet is the scratch of a MultiGet.
type multiGet struct {
	inUse   bool
	order   []int32 // the keys, ascending
	found   []found // by key
	workers []lookup
	next    atomic.Int32 // index into order: the first key that no worker has taken
}

// found locates a value in the values of a worker. start is -1 if the key is missing.
type found struct {
	start, end int
	worker     int
}

// lookup has the results of one worker, as one run of values.
type lookup struct {
	values []byte
	err    error
}

// A worker takes keysAtOnce keys at a time. With fewer than keysPerWorker keys for each,
// a goroutine costs more than it saves. Below fewKeys, single Gets are as fast.
const keysAtOnce, keysPerWorker, maxWorkers, fewKeys = 64, 256, 4, 8

// MultiGet implements kv.Reader. It looks up the keys in ascending order with one
// iterator, which keeps the tables of all levels open and only moves forward
// (measured in docs/decisions/0007). Several goroutines read a large batch, because
// a cache miss waits for the disk. Each takes a few keys at a time, because a value
// may have ten bytes or ten thousand.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if len(keys) < fewKeys {
		for i, key := range keys {
			v, ok, err := r.Get(key)
			if err != nil {
				return err
			}
			own := r.buf // each may call Get
			r.buf, r.spare = r.spare, nil
			err = each(i, v, ok)
			r.spare = own
			if err != nil {
				return err
			}
		}
		return nil
	}
	m := &r.multi
	if m.inUse { // by the MultiGet whose callback this is
		m = new(multiGet)
	}
	m.inUse = true
	defer func() { m.inUse = false }()
	m.order, m.found = m.order[:0], slices.Grow(m.found[:0], len(keys))[:len(keys)]
	for i := range keys {
		m.order = append(m.order, int32(i))
		m.found[i].start = -1
	}
	ascending := func(a, b int32) int { return bytes.Compare(keys[a], keys[b]) }
	if !slices.IsSortedFunc(m.order, ascending) {
		slices.SortFunc(m.order, ascending)
	}
	workers := max(1, min(maxWorkers, len(keys)/keysPerWorker))
	for len(m.workers) < workers {
		m.workers = append(m.workers, lookup{})
	}
	m.next.Store(0)
	var wg sync.WaitGroup
	for w := range workers - 1 {
		wg.Go(func() { m.look(r.db, keys, w) })
	}
	m.look(r.db, keys, workers-1)
	wg.Wait()
	for w := range workers {
		if err := m.workers[w].err; err != nil {
			return fmt.Errorf("pebblekv: reading: %w", readError(err))
		}
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	for i, f := range m.found {
		var v []byte
		if f.start >= 0 {
			v = m.workers[f.worker].values[f.start:f.end:f.end]
		}
		if err := each(i, v, f.start >= 0); err != nil {
			return err
		}
	}
	return nil
}

// look is a worker: it looks up keys until all are taken.
func (m *multiGet) look(db pebbleReader, keys [][]byte, worker int) {
	l := &m.workers[worker]
	l.values, l.err = l.values[:0], nil
	it, err := db.NewIter(nil)
	if err != nil {
		l.err = err
		return
	}
	for {
		end := int(m.next.Add(keysAtOnce))
		from := end - keysAtOnce
		if from >= len(m.order) {
			break
		}
		for i, n := range m.order[from:min(end, len(m.order))] {
			if i > 0 && bytes.Equal(keys[n], keys[m.order[from+i-1]]) { // such as that of a row group
				m.found[n] = m.found[m.order[from+i-1]]
				continue
			}
			// The whole key is the prefix (Split), so this uses the Bloom filters.
			if !it.SeekPrefixGE(keys[n]) {
				if err := it.Error(); err != nil { // the next seek would clear it
					l.err = errors.Join(err, it.Close())
					return
				}
				continue
			}
			if !bytes.Equal(it.Key(), keys[n]) {
				continue
			}
			v, err := it.ValueAndErr()
			if err != nil {
				l.err = errors.Join(err, it.Close())
				return
			}
			start := len(l.values)
			l.values = append(l.values, v...)
			m.found[n] = found{start, len(l.values), worker}
		}
	}
	l.err = errors.Join(it.Error(), it.Close())
}

// Scan implements kv.Reader. A Scan inside the callback of another Scan opens a second
// iterator.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) (err error) {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if len(lo) == 0 { // Pebble treats an empty bound as a key unless it is nil
		lo = nil
	}
	if hi != nil && bytes.Compare(lo, hi) >= 0 { // after such bounds, Pebble's iterator misses keys
		return nil
	}
	it := r.iter
	if it == nil || r.inUse {
		if it, err = r.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
			return fmt.Errorf("pebblekv: scanning: %w", readError(err))
		}
	} else {
		it.SetBounds(lo, hi)
	}
	if r.inUse {
		defer func() {
			if done := it.Close(); err == nil && done != nil {
				err = fmt.Errorf("pebblekv: scanning: %w", readError(done))
			}
		}()
		return r.scan(it, reverse, each)
	}
	r.iter, r.inUse = it, true
	err = r.scan(it, reverse, each)
	r.inUse = false
	if it.Error() != nil { // err says so; the end of the View must not say it again
		r.iter = nil
		_ = it.Close()
	}
	return err
}

func (r *reader) scan(it *pebble.Iterator, reverse bool, each func(key, value []byte) (bool, error)) error {
	first, next := it.First, it.Next
	if reverse {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok; ok = next() {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("pebblekv: scanning, at %x: %w", it.Key(), readError(err))
		}
		more, err := each(it.Key(), v)
		if err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("pebblekv: scanning: %w", readError(err))
	}
	return nil
}

// txn implements kv.Txn. It reads the store itself, which nobody else can change while
// the transaction holds the writer's token.
type txn struct {
	reader
	writes  writes
	size    int    // bytes of the last batch, an estimate for the next
	touched uint64 // 1: Touch was called
}

// Snapshot implements kv.Txn. There are no conflicts, so it returns the same reader.
func (t *txn) Snapshot() kv.Reader { return &t.reader }

// Conflict implements kv.Txn. With one writer there are no conflicts.
func (t *txn) Conflict([]byte) {}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) { t.writes.add(writeSet, key, value) }

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) { t.writes.add(writeDelete, key, nil) }

// DeleteRange implements kv.Txn. It never passes Pebble a range that begins with the empty
// key: built with the race detector, Pebble 2.1.7 sometimes turns that key into nil (in a
// check, keyspanIter.materializeSpan), and its compactions then lose the range.
func (t *txn) DeleteRange(lo, hi []byte) {
	if hi == nil {
		hi = lastKey
	}
	if len(lo) == 0 {
		lo = []byte{0}
	}
	if bytes.Compare(lo, hi) < 0 {
		t.writes.add(writeDeleteRange, lo, hi)
	}
}

// lastKey is above all keys: Pebble's ranges need an end.
var lastKey = bytes.Repeat([]byte{0xff}, 1024)

// Merge implements kv.Txn.
func (t *txn) Merge(key, operand []byte) { t.writes.add(writeMerge, key, operand) }

// Touch implements kv.Txn.
func (t *txn) Touch() { t.touched = 1 }
