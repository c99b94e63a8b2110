package write

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// Limits are the sizes above which a value is spilled.
type Limits struct {
	Row   int // members of a set's row, or of its rows in all partitions together
	Chunk int // records of a chunk
	// Search is how many bytes of an account's records a commit may read to find an edge's other records; once in
	// searchEvery, wideSearch times as many. 0 means the default.
	Search int
	// Placing is how many more stored records than it has a part of a snapshot may replace; five times as many notes are read for it.
	Placing int
}

// DefaultLimits come from measurements. Chunk: a read of a head folds it with what was merged into it since, and so does a delete. Search: some
// 50,000 records, 5 ms. Placing: some 3 MB of a transaction.
var DefaultLimits = Limits{Row: format.RowMax, Chunk: 256, Search: 256 << 10, Placing: 20_000}

// row returns how many members a row may have, given its key or its group's. A store with several partitions has MaxPartitions.
func (l *Limits) row(key []byte) int {
	if format.IsOfPartition(key) {
		return max(l.Row/dict.MaxPartitions, 1)
	}
	return l.Row
}

// A Merger folds rows, chunks, groups of accounts, and the values of package intern.
// It implements kv.Merger. It also keeps the keys of values that have grown too large: they wait to be spilled.
type Merger struct {
	limits  Limits
	folders sync.Pool

	mu    sync.Mutex          // guards the fields below
	large map[string]struct{} // keys that wait to be spilled, at most maxLarge
}

// NewMerger returns a Merger, for one store. Zero limits are the default ones.
func NewMerger(l Limits) *Merger {
	l.Row, l.Chunk = cmp.Or(l.Row, DefaultLimits.Row), cmp.Or(l.Chunk, DefaultLimits.Chunk)
	l.Search, l.Placing = cmp.Or(l.Search, DefaultLimits.Search), cmp.Or(l.Placing, DefaultLimits.Placing)
	return &Merger{
		limits:  l,
		folders: sync.Pool{New: func() any { return new(format.Folder) }},
		large:   map[string]struct{}{},
	}
}

// Name implements kv.Merger. Each store records this name, and engines refuse to open it under another one. It names
// the format, so that no other program folds the values of a store that it cannot read.
func (*Merger) Name() string { return fmt.Sprintf("skein.graph.v%d", format.Newest) }

// Fold implements kv.Merger.
//
// If base is not set, a single small value is returned as it is, without decoding. Most rows that a compaction rewrites are
// such values. An entry of an operand takes at least a byte, so a small operand is not too large. A packed chunk is always a stored value: folds that include it have base set.
func (m *Merger) Fold(dst, key []byte, values [][]byte, base bool) (out []byte, err error) {
	if len(values) == 1 && !base && len(values[0]) < min(m.limits.row(key), m.limits.Chunk) {
		return append(dst, values[0]...), nil
	}
	f, _ := m.folders.Get().(*format.Folder)
	out, size, err := f.Fold(dst, key, values, base)
	m.folders.Put(f)
	if errors.Is(err, dict.ErrStored) && key[0] != dict.KeyString { // readers of strings would accept it
		return format.AppendUnreadable(dst, values), nil
	}
	if err != nil {
		return nil, fmt.Errorf("folding %x: %w", key, err)
	}
	if m.tooLarge(key, size) {
		m.MarkLarge(key)
	}
	return out, nil
}

// tooLarge reports whether a value must be spilled.
func (m *Merger) tooLarge(key []byte, size format.Folded) bool {
	if size.Entries == 0 {
		return false
	}
	if key[0] == format.KeyRecord {
		return size.Entries > m.limits.Chunk || size.Bytes > maxChunkBytes && size.Entries > 1
	}
	return size.Entries > m.limits.row(key)
}

// maxLarge bounds the keys that wait to be spilled. A further key replaces any of them, which is added again the next time its value is
// folded: many may be of other writers, whose values this one only reads.
const maxLarge = 4096

// MarkLarge adds a key, whose value is too large, to those that wait to be spilled.
func (m *Merger) MarkLarge(key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.large {
		if len(m.large) < maxLarge {
			break
		}
		delete(m.large, other)
	}
	m.large[string(key)] = struct{}{}
}

// TakeLarge removes and returns up to n of the keys that wait to be spilled, if mine accepts them.
func (m *Merger) TakeLarge(n int, mine func(key string) bool) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.large {
		if len(keys) == n {
			break
		}
		if !mine(key) {
			continue
		}
		keys = append(keys, key)
		delete(m.large, key)
	}
	return keys
}

// maxChunkBytes is the length of the byte form above which a chunk is too large, however few records it has: record
// keys may have 512 bytes, and FoundationDB's values 100,000.
const maxChunkBytes = 32 << 10
