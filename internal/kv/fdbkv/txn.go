//go:build fdb

package fdbkv

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"skein.blue/internal/kv"
)

// maxTxnBytes limits the size of a transaction as FoundationDB counts it, conflict
// ranges included. FoundationDB's own limit is 10,000,000.
const maxTxnBytes = 9_000_000

type opKind uint8

const (
	opSet opKind = iota
	opDelete
	opMerge  // folded
	opAppend // merged by appending
)

// op is the write of one key.
type op struct {
	kind opKind
	// base means that the stored value does not count: the transaction set or
	// deleted the key before, or deleted a range around it.
	base   bool
	key    fdb.Key
	values [][]byte // of a set: one; of merges: the operands, oldest first
}

// txn implements kv.Txn. It collects the writes and hands them to FoundationDB
// after all reads.
type txn struct {
	reader

	ops    []op
	at     map[string]int // key → index in ops
	ranges []fdb.KeyRange // deleted, before all ops
	arena  []byte
	frames []byte // scratch
	// seed decides which merges are folded. All attempts have the same seed: else a
	// conflicting fold into a busy key would be retried as an append, and the key
	// would never be folded.
	seed    maphash.Seed
	failed  error // of Conflict, which cannot return it
	touched bool
}

func (t *txn) begin(tr fdb.Transaction) {
	t.reader = reader{s: t.s, tr: tr, from: tr, ctx: context.Background()}
	t.ops, t.ranges, t.arena, t.failed, t.touched = t.ops[:0], t.ranges[:0], t.arena[:0], nil, false
	if t.at == nil {
		t.at = map[string]int{}
	}
	clear(t.at)
}

// Snapshot implements kv.Txn.
func (t *txn) Snapshot() kv.Reader {
	return &reader{s: t.s, tr: t.tr, from: t.tr.Snapshot(), ctx: t.ctx}
}

// Conflict implements kv.Txn.
func (t *txn) Conflict(key []byte) {
	if err := t.tr.AddReadConflictKey(t.s.key(key)); err != nil {
		t.failed = err
	}
}

// Touch implements kv.Txn.
func (t *txn) Touch() { t.touched = true }

// keep copies the caller's bytes into the arena. If the arena grows, earlier copies
// stay valid in the old array.
func (t *txn) keep(parts ...[]byte) []byte {
	start := len(t.arena)
	for _, p := range parts {
		t.arena = append(t.arena, p...)
	}
	return t.arena[start:len(t.arena):len(t.arena)]
}

// op returns the write of key, a new one if the transaction has none yet.
func (t *txn) op(key []byte) (o *op, isNew bool) {
	if i, ok := t.at[string(key)]; ok {
		return &t.ops[i], false
	}
	t.at[string(key)] = len(t.ops)
	t.ops = slices.Grow(t.ops, 1)[:len(t.ops)+1] // the op may have the content of an earlier attempt
	o = &t.ops[len(t.ops)-1]
	*o = op{key: t.keep(t.s.prefix, key), values: o.values[:0]}
	for _, r := range t.ranges {
		o.base = o.base || bytes.Compare(o.key, r.Begin.FDBKey()) >= 0 && bytes.Compare(o.key, r.End.FDBKey()) < 0
	}
	return o, true
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

// finish hands all writes to FoundationDB. It appends a merge to the value without
// reading it. Large merges, and one in foldEvery of the small ones, are folded into
// the value instead, which keeps it short. That read adds a conflict, so a
// concurrent append is not lost.
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
			if n := len(o.values[0]); n > maxFolded { // later appends would not fit, and be lost
				return fmt.Errorf("fdbkv: a value of %d bytes under %x: %w", n, o.key[len(t.s.prefix):], kv.ErrTooLarge)
			}
			t.set(o.key, o.values[0])
		case opAppend:
			t.frames = t.frames[:0]
			for _, v := range o.values {
				t.frames = appendFrame(t.frames, v, true)
			}
			t.tr.AppendIfFits(o.key, t.frames)
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
	if t.touched {
		t.tr.SetVersionstampedValue(stampKey, make([]byte, 14)) // FoundationDB takes no other value for this key
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
}
