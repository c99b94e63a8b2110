package intern

import "math/bits"

// cache remembers the ids of strings that were met lately, in bounded memory
// and without pointers: two generations of flat tables. What is found in the
// old one moves to the young one; when the young one is full, it becomes the
// old one, and the old one's memory is used again. One goroutine uses it.
type cache struct {
	young, old *generation
}

// generation is an open table, filled up to three quarters.
type generation struct {
	entries []cacheEntry // a power of two
	used    int
}

type cacheEntry struct {
	key cacheKey
	id  ID // None: free
}

const bytesPerEntry = 24

func newCache(budget int64) *cache {
	size := uint64(max(budget/2/bytesPerEntry, 64))
	slots := 1 << (bits.Len64(size) - 1)
	return &cache{&generation{entries: make([]cacheEntry, slots)}, &generation{entries: make([]cacheEntry, slots)}}
}

func (c *cache) get(key cacheKey) ID {
	hash := key.hash()
	if id := c.young.slot(key, hash).id; id != None {
		return id
	}
	id := c.old.slot(key, hash).id
	if id != None {
		c.add(key, id)
	}
	return id
}

// add puts in a string that get did not find.
func (c *cache) add(key cacheKey, id ID) {
	if 4*c.young.used >= 3*len(c.young.entries) {
		c.young, c.old = c.old, c.young
		clear(c.young.entries)
		c.young.used = 0
	}
	*c.young.slot(key, key.hash()) = cacheEntry{key, id}
	c.young.used++
}

// slot returns the place of key, or the free one where it would be.
func (g *generation) slot(key cacheKey, hash uint64) *cacheEntry {
	mask := uint64(len(g.entries) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if e := &g.entries[i]; e.id == None || e.key == key {
			return e
		}
	}
}
