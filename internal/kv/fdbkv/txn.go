//go:build fdb

package fdbkv

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"skein.blue/internal/kv"
)

// readsInFlight bounds the reads that one MultiGet has under way.
const readsInFlight = 4096

// maxTxnBytes is what a transaction may come to as FoundationDB counts it,
// conflict ranges included, which is less than its limit of 10,000,000.
const maxTxnBytes = 9_000_000

// reader reads the state of one transaction.
type reader struct {
	s    *Store
	tr   fdb.Transaction
	from fdb.ReadTransaction // tr, or its snapshot
	// Of a View:
	view      bool
	begun     time.Time
	interrupt kv.Interrupt
	mayCross  int // how often it may go over to a newer state
	crossed   int
}

// Get implements kv.Reader.
func (r *reader) Get(key []byte) (value []byte, ok bool, err error) {
	err = r.MultiGet([][]byte{key}, func(_ int, v []byte, found bool) error {
		value, ok = v, found
		return nil
	})
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if err := r.interrupt.Err(); err != nil {
		return err
	}
	futures := make([]fdb.FutureByteSlice, 0, min(len(keys), readsInFlight))
	asked := 0
	for i := range keys {
		if err := r.interrupt.Err(); err != nil {
			return err
		}
		for ; asked < len(keys) && asked-i < readsInFlight; asked++ {
			futures = append(futures, r.from.Get(r.s.key(keys[asked])))
		}
		v, err := futures[0].Get()
		for err != nil {
			if err = r.recover(err); err != nil {
				return err
			}
			futures = futures[:0]
			for n := i; n < asked; n++ {
				futures = append(futures, r.from.Get(r.s.key(keys[n])))
			}
			v, err = futures[0].Get()
		}
		r.s.cluster.success()
		futures = futures[1:]
		ok := v != nil
		if ok {
			if v, err = r.s.value(keys[i], v); err != nil {
				return err
			}
		}
		if err := each(i, v, ok); err != nil {
			return err
		}
	}
	return nil
}

// Scan implements kv.Reader.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (more bool, err error)) error {
	if err := r.interrupt.Err(); err != nil {
		return err
	}
	rng := r.s.keyRange(lo, hi)
	for {
		if bytes.Compare(rng.Begin.FDBKey(), rng.End.FDBKey()) >= 0 {
			return nil
		}
		it := r.from.GetRange(rng, fdb.RangeOptions{Mode: fdb.StreamingModeIterator, Reverse: reverse}).Iterator()
		err := func() error {
			for it.Advance() {
				if err := r.interrupt.Err(); err != nil {
					return callerDone{err}
				}
				row, err := it.Get()
				if err != nil {
					return err
				}
				r.s.cluster.success()
				if reverse { // where to go on from, should that be needed
					rng.End = row.Key
				} else {
					rng.Begin = append(slices.Clip(row.Key), 0)
				}
				key := row.Key[len(r.s.prefix):]
				value, err := r.s.value(key, row.Value)
				if err != nil {
					return callerDone{err}
				}
				if more, err := each(key, value); err != nil || !more {
					return callerDone{err}
				}
			}
			return nil
		}()
		var done callerDone
		switch {
		case err == nil:
			return nil
		case errors.As(err, &done):
			return done.error
		}
		if err := r.recover(err); err != nil {
			return err
		}
	}
}

// callerDone carries the end of a Scan that its caller wanted, and no error of
// the engine.
type callerDone struct{ error }

func (callerDone) Error() string { return "done" }

// maxCrossings bounds how often one ViewAcross may go over to a newer state.
const maxCrossings = 1 << 20

// recover makes ready for another try of a read that failed, at the same state
// if that is to be had, or returns the error. The reads of an Update are not
// tried again one by one: all of it is.
func (r *reader) recover(err error) error {
	var fe fdb.Error
	if !r.view || !errors.As(err, &fe) {
		return err
	}
	version := int64(0)
	switch fe.Code {
	case codeTooOld:
		if r.crossed >= r.mayCross {
			return err
		}
		r.crossed++
	case codeFutureVersion, codeBehind:
		if version, err = r.tr.GetReadVersion().Get(); err != nil {
			return err
		}
	default:
		return err
	}
	if err := r.tr.OnError(fe).Get(); err != nil {
		return err
	}
	if version != 0 {
		r.tr.SetReadVersion(version)
	}
	return r.allow()
}

// allow gives the View time for one state from now on: FoundationDB counts from
// its beginning.
func (r *reader) allow() error {
	return r.tr.Options().SetTimeout((time.Since(r.begun) + 2*stateAge + r.s.o.Timeout).Milliseconds())
}

type opKind uint8

const (
	opSet opKind = iota
	opDelete
	opMerge  // folded
	opAppend // merged by appending
)

// op is what happens to one key, or a link of a chain of merges into it.
type op struct {
	kind opKind
	// base says that nothing older counts: the key was set, deleted or in a
	// deleted range earlier in the transaction.
	base   bool
	key    fdb.Key
	values [][]byte // of a set: one; of merges: the operands, oldest first
}

// txn implements kv.Txn. What is written is gathered, and handed to
// FoundationDB when all reading is done.
type txn struct {
	reader

	ops    []op
	at     map[string]int // key → index in ops
	ranges []fdb.KeyRange // deleted, before all ops
	arena  []byte
	frames []byte // scratch
	// seed decides which merges are folded: the same in every attempt, or those
	// into a key that others merge into all the time never would be.
	seed   maphash.Seed
	failed error // what could not be said at once
}

func (t *txn) begin(tr fdb.Transaction) {
	t.reader = reader{s: t.s, tr: tr, from: tr}
	t.ops, t.ranges, t.arena, t.failed = t.ops[:0], t.ranges[:0], t.arena[:0], nil
	if t.at == nil {
		t.at = map[string]int{}
	}
	clear(t.at)
}

// Snapshot implements kv.Txn.
func (t *txn) Snapshot() kv.Reader {
	return &reader{s: t.s, tr: t.tr, from: t.tr.Snapshot()}
}

// Conflict implements kv.Txn.
func (t *txn) Conflict(key []byte) {
	if err := t.tr.AddReadConflictKey(t.s.key(key)); err != nil {
		t.failed = err
	}
}

// keep copies bytes that are the caller's. If the arena grows, what is in it
// goes on living in the old one.
func (t *txn) keep(parts ...[]byte) []byte {
	start := len(t.arena)
	for _, p := range parts {
		t.arena = append(t.arena, p...)
	}
	return t.arena[start:len(t.arena):len(t.arena)]
}

// op returns what is known of key so far.
func (t *txn) op(key []byte) (o *op, isNew bool) {
	if i, ok := t.at[string(key)]; ok {
		return &t.ops[i], false
	}
	t.at[string(key)] = len(t.ops)
	o = t.grow()
	*o = op{key: t.keep(t.s.prefix, key), values: o.values[:0]}
	for _, r := range t.ranges {
		o.base = o.base || bytes.Compare(o.key, r.Begin.FDBKey()) >= 0 && bytes.Compare(o.key, r.End.FDBKey()) < 0
	}
	return o, true
}

// grow adds an op, whose memory may have been used before.
func (t *txn) grow() *op {
	if len(t.ops) == cap(t.ops) {
		t.ops = slices.Grow(t.ops, 1)
	}
	t.ops = t.ops[:len(t.ops)+1]
	return &t.ops[len(t.ops)-1]
}

// Set implements kv.Txn.
func (t *txn) Set(key, value []byte) {
	o, _ := t.op(key)
	o.kind, o.base, o.values = opSet, true, append(o.values[:0], t.keep(value))
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) {
	o, _ := t.op(key)
	o.kind, o.base, o.values = opDelete, true, o.values[:0]
}

// Merge implements kv.Txn.
func (t *txn) Merge(key, operand []byte) {
	o, isNew := t.op(key)
	if !isNew && o.kind == opDelete {
		o.base = true
	}
	o.kind, o.values = opMerge, append(o.values, t.keep(operand))
}

// DeleteRange implements kv.Txn.
func (t *txn) DeleteRange(lo, hi []byte) {
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return
	}
	r := t.s.keyRange(t.keep(lo), hi)
	for i := range t.ops {
		if o := &t.ops[i]; bytes.Compare(o.key, r.Begin.FDBKey()) >= 0 && bytes.Compare(o.key, r.End.FDBKey()) < 0 {
			o.kind, o.base, o.values = opDelete, true, o.values[:0]
		}
	}
	t.ranges = append(t.ranges, r)
}

// finish hands everything to FoundationDB. A merge is appended to the value,
// unread; one in foldEvery, and what is not small, is folded into the value
// instead, which keeps it short. That is read with conflicts, so that nothing
// which another writer appends meanwhile is lost.
func (t *txn) finish() error {
	if t.failed != nil {
		return t.failed
	}
	var keys [][]byte
	var which []int
	for i := range t.ops {
		o := &t.ops[i]
		if o.kind != opMerge || o.base {
			continue
		}
		size := 0
		for _, v := range o.values {
			size += len(v)
		}
		if size <= maxAppend && maphash.Bytes(t.seed, o.key)%foldEvery > 0 {
			o.kind = opAppend
			continue
		}
		keys = append(keys, o.key[len(t.s.prefix):])
		which = append(which, i)
	}
	err := t.MultiGet(keys, func(n int, v []byte, ok bool) error {
		if ok {
			o := &t.ops[which[n]]
			o.values = slices.Insert(o.values, 0, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range t.ranges {
		t.tr.ClearRange(r)
	}
	var folded []byte
	for i := range t.ops {
		o := &t.ops[i]
		switch o.kind {
		case opDelete:
			t.tr.Clear(o.key)
		case opSet:
			if n := len(o.values[0]); n > maxFolded { // operands that are appended later would be lost
				return fmt.Errorf("fdbkv: %x is set to %d bytes: %w", o.key[len(t.s.prefix):], n, kv.ErrTooLarge)
			}
			t.set(o.key, o.values[0])
		case opAppend:
			t.frames = t.frames[:0]
			for _, v := range o.values {
				t.frames = appendFrame(t.frames, v, true)
			}
			t.tr.AppendIfFits(o.key, t.frames)
			t.wrote(o.key)
		case opMerge:
			folded, err = t.s.o.Merger.Fold(folded[:0], o.key[len(t.s.prefix):], o.values, true)
			if err != nil {
				return fmt.Errorf("fdbkv: folding %x: %w", o.key[len(t.s.prefix):], err)
			}
			if len(folded) > maxFolded {
				return fmt.Errorf("fdbkv: %x folds to %d bytes: %w", o.key[len(t.s.prefix):], len(folded), kv.ErrTooLarge)
			}
			if len(folded) == 0 {
				t.tr.Clear(o.key)
			} else {
				t.set(o.key, folded)
			}
		}
	}
	size, err := t.tr.GetApproximateSize().Get()
	if err == nil && size > maxTxnBytes {
		return fmt.Errorf("fdbkv: a transaction of %d bytes: %w", size, kv.ErrTooLarge)
	}
	return err
}

func (t *txn) set(key fdb.Key, value []byte) {
	t.frames = appendFrame(t.frames[:0], value, false)
	t.tr.Set(key, t.frames)
	t.wrote(key)
}

func (t *txn) wrote(key fdb.Key) {
	if t.s.o.Wrote != nil {
		t.s.o.Wrote(key[len(t.s.prefix):], t.frames)
	}
}
