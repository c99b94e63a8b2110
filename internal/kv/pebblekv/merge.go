package pebblekv

import (
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"skein.blue/internal/kv"
)

// pebbleMerger adapts m to Pebble. It is a plain ValueMerger because the deletable
// one is broken in Pebble 2.1.7 (cockroachdb/pebble#6168). So an empty fold stays as
// an empty value, which kv.Merger allows.
func pebbleMerger(m kv.Merger) *pebble.Merger {
	pool := &sync.Pool{New: func() any { return new(folder) }}
	return &pebble.Merger{
		Name: m.Name(),
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			f, _ := pool.Get().(*folder)
			f.merger, f.pool, f.arena, f.key = m, pool, f.arena[:0], append(f.key[:0], key...)
			return f, f.MergeNewer(value)
		},
	}
}

// folder collects the operands of one key. Pebble delivers them from newest to
// oldest or from oldest to newest; keep copies them into one arena.
type folder struct {
	merger       kv.Merger
	pool         *sync.Pool
	key          []byte
	arena        []byte
	older, newer [][]byte // in the order of delivery
	out          []byte
}

func (f *folder) keep(value []byte) []byte {
	start := len(f.arena)
	f.arena = append(f.arena, value...) // if it grows, earlier operands stay in the old array
	return f.arena[start:]
}

// MergeNewer implements pebble.ValueMerger.
func (f *folder) MergeNewer(value []byte) error {
	f.newer = append(f.newer, f.keep(value))
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (f *folder) MergeOlder(value []byte) error {
	f.older = append(f.older, f.keep(value))
	return nil
}

// Finish implements pebble.ValueMerger. The folder returns to its pool when Pebble
// closes it.
func (f *folder) Finish(base bool) (_ []byte, _ io.Closer, err error) {
	slices.Reverse(f.older)
	f.older = append(f.older, f.newer...)
	f.out, err = f.merger.Fold(f.out[:0], f.key, f.older, base)
	return f.out, f, err
}

// Close implements io.Closer.
func (f *folder) Close() error {
	clear(f.older)
	clear(f.newer)
	f.older, f.newer = f.older[:0], f.newer[:0]
	f.pool.Put(f)
	return nil
}
