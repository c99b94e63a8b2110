package intern

import (
	"math/bits"
	"sync"

	"skein.blue/intern/dict"
)

// cache has the ids of recently used strings, in bounded memory without pointers: two
// generations of flat tables. A hit in the old table moves the entry to the young one. A full
// young table doubles until it has slots slots; from then on it becomes the old one when it is
// full, and the old one's memory is reused. Any goroutine may use it.
type cache struct {
	slots      int        // of a full-grown table
	mu         sync.Mutex // guards both tables
	young, old *generation
}

// generation is a table with open addressing, at most three quarters full.
type generation struct {
	entries []cacheEntry // a power of two
	used    int
}

type cacheEntry struct {
	key cacheKey
	id  dict.ID // None: free
}

const (
	bytesPerEntry = 24
	firstSlots    = 64 // of a new table
)

func newCache(budget int64) *cache {
	size := uint64(max(budget/2/bytesPerEntry, firstSlots))
	return &cache{slots: 1 << (bits.Len64(size) - 1), young: newGeneration(firstSlots), old: newGeneration(firstSlots)}
}

func newGeneration(slots int) *generation { return &generation{entries: make([]cacheEntry, slots)} }

// get returns the id of a string, or None. The caller holds mu.
func (c *cache) get(key cacheKey) dict.ID {
	hash := key.hash(&tableKey)
	if id := c.young.slot(key, hash).id; id != dict.None {
		return id
	}
	id := c.old.slot(key, hash).id
	if id != dict.None {
		c.add(key, id)
	}
	return id
}

// add adds a string that get did not find. The caller holds mu.
func (c *cache) add(key cacheKey, id dict.ID) {
	if 4*c.young.used >= 3*len(c.young.entries) {
		c.makeRoom()
	}
	*c.young.slot(key, key.hash(&tableKey)) = cacheEntry{key, id}
	c.young.used++
}

// makeRoom doubles the full young table, or begins a new one.
func (c *cache) makeRoom() {
	full := c.young
	if n := len(full.entries); n < c.slots {
		c.young = newGeneration(2 * n)
		for _, e := range full.entries {
			if e.id != dict.None {
				*c.young.slot(e.key, e.key.hash(&tableKey)) = e
			}
		}
		c.young.used = full.used
		return
	}
	c.young, c.old = c.old, full
	if len(c.young.entries) < c.slots {
		c.young = newGeneration(c.slots)
	}
	clear(c.young.entries)
	c.young.used = 0
}

// slot returns the slot of key, or the free slot for it.
func (g *generation) slot(key cacheKey, hash uint64) *cacheEntry {
	mask := uint64(len(g.entries) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if e := &g.entries[i]; e.id == dict.None || e.key == key {
			return e
		}
	}
}

// resolve sets the ids of a namespace's items that are in the cache.
func (c *cache) resolve(b *Batch, ns dict.Namespace, m *Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.items {
		it := &b.items[i]
		if it.ns != ns || it.state != unresolved {
			continue
		}
		if id := c.get(b.settled(it)); id != dict.None {
			it.id, it.state = id, cached
			m.lookup(it.ns, lookupCache)
		}
	}
}

// remember adds the items of b that were found or created.
func (c *cache) remember(b *Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.items {
		it := &b.items[i]
		if it.state == stored || it.state == created {
			c.add(b.settled(it), it.id)
			it.state = cached
		}
	}
}
