package graph

import (
	"fmt"
	"sync"

	"skein/intern/dict"
	"skein/internal/kv"
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
	limits Limits
	rows   sync.Pool
	chunks sync.Pool

	mu  sync.Mutex
	big map[string]struct{} // keys, at most maxNoted
}

// NewMerger returns a Merger, for one store. Zero limits are the default ones.
func NewMerger(l Limits) *Merger {
	if l == (Limits{}) {
		l = DefaultLimits
	}
	return &Merger{
		limits: l,
		rows:   sync.Pool{New: func() any { return new(rowFolder) }},
		chunks: sync.Pool{New: func() any { return new(chunkFolder) }},
		big:    map[string]struct{}{},
	}
}

// Name implements kv.Merger. It is in every store: a change of the values'
// forms is a new name.
func (*Merger) Name() string { return "skein.graph.v3" }

// Fold implements kv.Merger.
func (m *Merger) Fold(dst, key []byte, values [][]byte, base bool) (out []byte, err error) {
	size, limit := 0, 0
	switch {
	case len(key) > 2 && key[0] == keyRecord:
		f, _ := m.chunks.Get().(*chunkFolder)
		out, size, err = f.fold(dst, key, values, base)
		m.chunks.Put(f)
		if _, _, _, depth, kerr := parseChunkKey(key); kerr == nil && depth < maxChunkDepth {
			if limit = m.limits.Chunk; len(out)-len(dst) > maxChunkBytes {
				limit = 1
			}
		}
	case isRowKey(key):
		subject, _ := dict.ReadID(key[2:])
		f, _ := m.rows.Get().(*rowFolder)
		out, size, err = f.fold(dst, subject, values, base)
		m.rows.Put(f)
		limit = m.limits.Row
	case len(key) > 0 && key[0] == keyAccount:
		out, err = foldAccounts(dst, values)
	case len(key) > 0 && key[0] == dict.KeyString:
		out, err = dict.FoldGroups(dst, values)
	default:
		out, err = foldContainers(dst, values, base)
	}
	if err != nil {
		return nil, fmt.Errorf("folding %x: %w", key, err)
	}
	if limit > 0 && size > limit {
		m.note(key)
	}
	return out, nil
}

// maxNoted bounds how many keys wait to be spilled. What finds no place is
// noted again when it is folded again.
const maxNoted = 4096

// note remembers a key whose value is too large.
func (m *Merger) note(key []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.big) < maxNoted {
		m.big[string(key)] = struct{}{}
	}
}

// noted takes up to n of the keys noted that mine says are the caller's.
func (m *Merger) noted(n int, mine func(key string) bool) (keys []string) {
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
