package memkv

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"skein.blue/internal/kv"
)

// reader reads one version of the tree. If conflicts is set, it collects the ranges
// that were read. Each call overwrites the bytes that the call before it returned, as an
// engine may, which exposes callers that keep them. Two buffers take turns, because the key of a call may lie in the bytes that the
// call before it returned.
type reader struct {
	tree      *btree.BTreeG[item]
	stamp     uint64
	conflicts *[]keyRange
	ctx       interface{ Err() error } // of a View: its end ends the reads
	returned  []byte                   // what the last Get returned
	spare     []byte                   // the buffer of the Get before

	trips kv.Trips
	ahead map[string]int  // when reads were begun early (kv.Trips), by key or range; nil in a Txn
	used  map[string]bool // those of ahead that were used: a key may be read again, a range is read once
}

// Stamp implements kv.Stamped.
func (r *reader) Stamp() uint64 { return r.stamp + 1 }

// PrefetchGet implements kv.Prefetcher. It only matters for the count of round trips.
func (r *reader) PrefetchGet(key []byte) { r.begin("key " + string(key)) }

// PrefetchScan implements kv.Prefetcher. It only matters for the count of round trips.
func (r *reader) PrefetchScan(lo, hi []byte, _ int) { r.begin(fmt.Sprintf("range %x %x", lo, hi)) }

func (r *reader) begin(read string) {
	if _, under := r.ahead[read]; !under && r.ahead != nil {
		r.ahead[read] = r.trips.Begin()
	}
}

// await counts the round trip of a read that was begun at a time, unless it was begun earlier and has arrived.
func (r *reader) await(begun int, read func() string) {
	if len(r.ahead) > 0 {
		at := read()
		if begun, early := r.ahead[at]; early {
			if r.used[at] = true; strings.HasPrefix(at, "range") {
				delete(r.ahead, at)
			}
			r.trips.Await(begun)
			return
		}
	}
	r.trips.Await(begun)
}

// expire overwrites what the last Get returned.
func (r *reader) expire() {
	for i := range r.returned {
		r.returned[i] = 0xa5
	}
	r.returned = nil
}

func (r *reader) note(lo, hi []byte) {
	if r.conflicts != nil {
		*r.conflicts = append(*r.conflicts, keyRange{bytes.Clone(lo), bytes.Clone(hi)})
	}
}

func (r *reader) noteKey(key []byte) {
	if r.conflicts != nil {
		only, _ := alone(key, nil)
		*r.conflicts = append(*r.conflicts, only)
	}
}

// alone returns the range of a key, and a copy of a value, in one allocation: tests read and write millions of keys.
func alone(key, value []byte) (only keyRange, copied []byte) {
	n, m := len(key), 2*len(key)+1
	b := make([]byte, 0, m+len(value))
	b = append(append(append(append(b, key...), key...), 0), value...)
	return keyRange{b[:n:n], b[n:m:m]}, b[m:]
}

// Get implements kv.Reader.
func (r *reader) Get(key []byte) ([]byte, bool, error) {
	r.await(r.trips.Begin(), func() string { return "key " + string(key) })
	return r.get(key)
}

func (r *reader) get(key []byte) ([]byte, bool, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, false, err
	}
	r.noteKey(key)
	it, ok := r.tree.Get(item{key: key})
	value := append(r.spare[:0], it.value...)
	r.spare = r.returned
	r.expire() // after the look-up: the key may lie in these bytes
	r.returned = value
	if it.value == nil {
		return nil, ok, nil
	}
	return slices.Clip(value), ok, nil
}

// MultiGet implements kv.Reader.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.expire()
	begun := r.trips.Begin() // all keys take one round trip
	for i, key := range keys {
		r.await(begun, func() string { return "key " + string(key) })
		v, ok, err := r.get(key)
		if err != nil {
			return err
		}
		own := r.returned // each may call the Reader
		r.returned = nil
		err = each(i, v, ok)
		clear(v)
		if r.spare == nil {
			r.spare = own
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Scan implements kv.Reader. It clears key and value after each call, which exposes
// callers that keep them.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.note(lo, hi)
	if !reverse {
		r.await(r.trips.Begin(), func() string { return fmt.Sprintf("range %x %x", lo, hi) })
	} else {
		r.trips.Await(r.trips.Begin())
	}
	lo, hi = bytes.Clone(lo), bytes.Clone(hi) // they may lie in the bytes that expire
	r.expire()
	var err error
	var key, value []byte // each Scan has its own: each may call the Reader
	step := func(it item) bool {
		if err = r.ctx.Err(); err != nil {
			return false
		}
		if reverse && bytes.Compare(it.key, lo) < 0 || !reverse && hi != nil && bytes.Compare(it.key, hi) >= 0 {
			return false
		}
		if reverse && hi != nil && bytes.Compare(it.key, hi) >= 0 {
			return true // Descend begins with hi, which the range excludes
		}
		key, value = append(key[:0], it.key...), append(value[:0], it.value...)
		k, v := slices.Clip(key), slices.Clip(value)
		var more bool
		more, err = each(k, v)
		clear(k)
		clear(v)
		return more && err == nil
	}
	switch {
	case !reverse:
		r.tree.Ascend(item{key: lo}, step)
	case hi == nil:
		r.tree.Reverse(step)
	default:
		r.tree.Descend(item{key: hi}, step)
	}
	return err
}

type opKind uint8

const (
	opSet opKind = iota
	opDelete
	opDeleteRange
	opMerge
)

type op struct {
	kind  opKind
	keys  keyRange
	value []byte
}

// txn implements kv.Txn.
type txn struct {
	reader
	reads   []keyRange
	ops     []op
	size    int
	limits  Limits
	touched bool
	err     error
}

// Snapshot implements kv.Txn.
func (t *txn) Snapshot() kv.Reader { return &reader{tree: t.tree, ctx: t.ctx} }

// Conflict implements kv.Txn.
func (t *txn) Conflict(key []byte) { t.noteKey(key) }

func (t *txn) add(kind opKind, keys keyRange, value []byte) {
	t.size += len(keys.lo) + len(keys.hi) + len(value)
	switch {
	case t.err != nil:
	case len(keys.lo) > t.limits.Key:
		t.err = fmt.Errorf("memkv: a key of %d bytes: %w", len(keys.lo), kv.ErrTooLarge)
	case len(value) > t.limits.Value:
		t.err = fmt.Errorf("memkv: a value of %d bytes: %w", len(value), kv.ErrTooLarge)
	case t.size > t.limits.Txn:
		t.err = fmt.Errorf("memkv: a transaction of %d bytes: %w", t.size, kv.ErrTooLarge)
	default:
		t.ops = append(t.ops, op{kind, keys, value})
	}
}

func (t *txn) addAlone(kind opKind, key, value []byte) {
	only, copied := alone(key, value)
	t.add(kind, only, copied)
}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) { t.addAlone(opSet, key, value) }

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) { t.addAlone(opDelete, key, nil) }

// DeleteRange implements kv.Txn.
func (t *txn) DeleteRange(lo, hi []byte) {
	t.add(opDeleteRange, keyRange{bytes.Clone(lo), bytes.Clone(hi)}, nil)
}

// Merge implements kv.Txn.
func (t *txn) Merge(key, operand []byte) { t.addAlone(opMerge, key, operand) }

// Touch implements kv.Txn.
func (t *txn) Touch() { t.touched = true }
