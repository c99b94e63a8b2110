package write

import (
	"fmt"
	"sync"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Limits say when a value is too large, and is spilled: how many members of a
// row, and records of a chunk, it may hold.
type Limits struct{ Row, Chunk int }

// DefaultLimits are from measurements: containers take fewer bytes than a row
// above about 2,000 members, and a chunk of
// 2,000 records is 20 KB, which is what a delete reads.
var DefaultLimits = Limits{Row: 2048, Chunk: 2048}

// A Merger folds rows, containers, chunks and groups of accounts, and what
// package intern merges. It implements kv.Merger. It also notes which of them
// have grown too large, for the writer to spill.
type Merger struct {
	limits  Limits
	folders sync.Pool

	mu  sync.Mutex
	big map[string]struct{} // keys, at most maxNoted
}

// NewMerger returns a Merger, for one store. Zero limits are the default ones.
func NewMerger(l Limits) *Merger {
	if l == (Limits{}) {
		l = DefaultLimits
	}
	return &Merger{
		limits:  l,
		folders: sync.Pool{New: func() any { return new(format.Folder) }},
		big:     map[string]struct{}{},
	}
}

// Name implements kv.Merger. It is in every store that was ever made, and engines
// refuse another: it stays as it is. Which format a store has says its header.
func (*Merger) Name() string { return "skein.graph.v3" }

// Fold implements kv.Merger.
func (m *Merger) Fold(dst, key []byte, values [][]byte, base bool) (out []byte, err error) {
	f, _ := m.folders.Get().(*format.Folder)
	out, size, err := f.Fold(dst, key, values, base)
	m.folders.Put(f)
	if err != nil {
		return nil, fmt.Errorf("folding %x: %w", key, err)
	}
	if m.tooLarge(key, size) {
		m.Note(key)
	}
	return out, nil
}

// tooLarge reports whether a value is to be spilled.
func (m *Merger) tooLarge(key []byte, size format.Folded) bool {
	if size.Entries == 0 {
		return false
	}
	if key[0] == format.KeyRecord {
		return size.Entries > m.limits.Chunk || size.Bytes > maxChunkBytes && size.Entries > 1
	}
	return size.Entries > m.limits.Row
}

// maxNoted bounds how many keys wait to be spilled. What finds no place is
// noted again when it is folded again.
const maxNoted = 4096

// note remembers a key whose value is too large.
func (m *Merger) Note(key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.big) < maxNoted {
		m.big[string(key)] = struct{}{}
	}
}

// noted takes up to n of the keys noted that mine says are the caller's.
func (m *Merger) Noted(n int, mine func(key string) bool) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.big {
		if len(keys) == n {
			break
		}
		if !mine(key) {
			continue
		}
		keys = append(keys, key)
		delete(m.big, key)
	}
	return keys
}

var _ kv.Merger = (*Merger)(nil)

// maxChunkBytes is from how many bytes on a chunk is too large, however few its
// records: keys may have 512 bytes, and FoundationDB's values 100,000.
const maxChunkBytes = 32 << 10
