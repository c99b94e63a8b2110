package intern

import (
	"math/bits"
	"sync"

	"skein.blue/intern/dict"
)

// cache has the ids of recently used strings. Any goroutine may use it.
//
// Each namespace has half of the memory. In one table for both, the URIs of an archive would replace the DIDs. A URI of an archive
// is rarely needed again, a DID often.
type cache struct {
	mu     sync.Mutex // guards the tables
	tables [len(dict.Namespaces) + 1]*table
}

// table has the ids of recently used strings of a namespace, in bounded memory without pointers: two generations. A hit
// in the old one moves the entry to the young one. A full young one doubles until it has slots slots; from then on it
// becomes the old one when it is full, and the old one's memory is reused.
type table struct {
	slots      int // of a full-grown generation
	young, old *generation
}

// generation is a hash table with open addressing, at most three quarters full.
type generation struct {
	entries []cacheEntry
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
	c := &cache{}
	for _, ns := range dict.Namespaces {
		c.tables[ns] = newTable(budget / int64(len(dict.Namespaces)))
	}
	return c
}

func newTable(budget int64) *table {
	return &table{slots: int(max(budget/2/bytesPerEntry, firstSlots)), young: newGeneration(firstSlots), old: newGeneration(firstSlots)}
}

func newGeneration(slots int) *generation { return &generation{entries: make([]cacheEntry, slots)} }

// get returns the id of a string, or None.
func (t *table) get(key cacheKey) dict.ID {
	hash := key.hash(&tableKey)
	if id := t.young.slot(key, hash).id; id != dict.None {
		return id
	}
	id := t.old.slot(key, hash).id
	if id != dict.None {
		t.add(key, id)
	}
	return id
}

// add adds a string that get did not find.
func (t *table) add(key cacheKey, id dict.ID) {
	if 4*(t.young.used+1) > 3*len(t.young.entries) {
		t.makeRoom()
	}
	*t.young.slot(key, key.hash(&tableKey)) = cacheEntry{key, id}
	t.young.used++
}

// makeRoom doubles the full young generation, or begins a new one.
func (t *table) makeRoom() {
	full := t.young
	if n := len(full.entries); n < t.slots {
		t.young = newGeneration(min(2*n, t.slots))
		for _, e := range full.entries {
			if e.id != dict.None {
				*t.young.slot(e.key, e.key.hash(&tableKey)) = e
			}
		}
		t.young.used = full.used
		return
	}
	t.young, t.old = t.old, full
	if len(t.young.entries) < t.slots {
		t.young = newGeneration(t.slots)
	}
	clear(t.young.entries)
	t.young.used = 0
}

// slot returns the slot of key, or the free slot for it.
func (g *generation) slot(key cacheKey, hash uint64) *cacheEntry {
	at, _ := bits.Mul64(hash, uint64(len(g.entries)))
	for i := int(at); ; {
		if e := &g.entries[i]; e.id == dict.None || e.key == key {
			return e
		}
		if i++; i == len(g.entries) {
			i = 0
		}
	}
}

// resolve sets the ids of a namespace's items that are in the cache.
func (c *cache) resolve(b *Batch, ns dict.Namespace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[ns]
	for i := range b.items {
		it := &b.items[i]
		if it.ns != ns || it.state != unresolved {
			continue
		}
		if id := t.get(b.settled(it)); id != dict.None {
			it.id, it.state = id, cached
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
			c.tables[it.ns].add(b.settled(it), it.id)
			it.state = cached
		}
	}
}
