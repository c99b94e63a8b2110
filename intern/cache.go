package intern

import (
	"sync"

	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// cache has the ids of recently used strings. Any goroutine may use it.
//
// Each namespace has half of the memory. In one table for both, the URIs of an archive would replace the DIDs. A URI of an archive
// is rarely needed again, a DID often.
type cache struct {
	mu     sync.Mutex // guards the tables
	tables [len(dict.Namespaces) + 1]*sets.Recent[cacheKey, dict.ID]
}

func newCache(budget int64) *cache {
	c := &cache{}
	for _, ns := range dict.Namespaces {
		c.tables[ns] = sets.NewRecent[cacheKey, dict.ID](budget/int64(len(dict.Namespaces)), func(key cacheKey) uint64 { return key.hash(&tableKey) })
	}
	return c
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
		if id, ok := t.Get(b.settled(it)); ok {
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
			c.tables[it.ns].Put(b.settled(it), it.id)
			it.state = cached
		}
	}
}
