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
			f, ok := pool.Get().(*folder)
			if !ok {
				f = new(folder)
			}
			f.merger, f.pool, f.oldest = m, pool, 0
			f.arena, f.spans = f.arena[:0], f.spans[:0]
			f.key = append(f.key[:0], key...)
			return f, f.MergeNewer(value)
		},
	}
}

// folder collects the operands of one key. Pebble delivers them from newest to
// oldest or from oldest to newest; add copies them into one arena.
type folder struct {
	merger kv.Merger
	pool   *sync.Pool
	key    []byte
	arena  []byte
	spans  []span
	oldest int // the number of spans, at the end, that MergeOlder added
	values [][]byte
	out    []byte
}

type span struct{ start, end int }

func (f *folder) add(value []byte) span {
	start := len(f.arena)
	f.arena = append(f.arena, value...)
	return span{start, len(f.arena)}
}

// MergeNewer implements pebble.ValueMerger.
func (f *folder) MergeNewer(value []byte) error {
	f.spans = slices.Insert(f.spans, len(f.spans)-f.oldest, f.add(value))
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (f *folder) MergeOlder(value []byte) error {
	f.spans = append(f.spans, f.add(value))
	f.oldest++
	return nil
}

// Finish implements pebble.ValueMerger. The folder returns to its pool when Pebble
// closes it.
func (f *folder) Finish(base bool) ([]byte, io.Closer, error) {
	f.values = f.values[:0]
	newer := f.spans[:len(f.spans)-f.oldest]
	for _, s := range slices.Backward(f.spans[len(newer):]) {
		f.values = append(f.values, f.arena[s.start:s.end])
	}
	for _, s := range newer {
		f.values = append(f.values, f.arena[s.start:s.end])
	}
	var err error
	f.out, err = f.merger.Fold(f.out[:0], f.key, f.values, base)
	return f.out, f, err
}

// Close implements io.Closer.
func (f *folder) Close() error {
	f.pool.Put(f)
	return nil
}
