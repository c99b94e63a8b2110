//go:build fdb

package fdbkv

import (
	"sync"

	"skein/internal/kv"
)

// mergeCache remembers the values of keys that only this store merges into
// (kv.ExclusiveMerger), as of its last commit, so that they need not be read to
// be folded into: two generations of maps, in bounded memory. An empty value
// says that there is none.
type mergeCache struct {
	exclusive func(key []byte) bool
	limit     int // bytes of each generation

	mu         sync.Mutex
	young, old map[string][]byte
	size       int // of young
}

func newMergeCache(m kv.Merger, budget int64) *mergeCache {
	x, ok := m.(kv.ExclusiveMerger)
	if !ok || budget <= 0 {
		return nil
	}
	return &mergeCache{exclusive: x.Exclusive, limit: int(budget / 2), young: map[string][]byte{}}
}

// entryOverhead is about what a map's entry takes besides its bytes.
const entryOverhead = 80

// get returns the value of key, if it is known.
func (c *mergeCache) get(key []byte) (value []byte, known bool) {
	if v, ok := c.young[string(key)]; ok {
		return v, true
	}
	v, ok := c.old[string(key)]
	return v, ok
}

// put notes a value, which the cache keeps.
func (c *mergeCache) put(key, value []byte) {
	if c.size > c.limit {
		c.old, c.young, c.size = c.young, make(map[string][]byte, len(c.young)), 0
	}
	c.young[string(key)] = value
	c.size += len(key) + len(value) + entryOverhead
}

// settle takes over what a transaction has written, or if nobody knows whether
// it has, forgets it.
func (c *mergeCache) settle(t *txn, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(t.ranges) > 0 {
		c.young, c.old, c.size = map[string][]byte{}, nil, 0
		return
	}
	for i := range t.ops {
		o := &t.ops[i]
		key := o.key[len(t.s.prefix):]
		switch {
		case !c.exclusive(key):
		case known:
			c.put(key, o.result)
		default:
			delete(c.young, string(key))
			delete(c.old, string(key))
		}
	}
}
