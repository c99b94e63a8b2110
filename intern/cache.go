package intern

import (
	"hash/maphash"
	"math/bits"
)

// cache remembers the ids of strings that were met lately, in bounded memory
// and without pointers: two generations of flat tables. What is found in the
// old one moves to the young one; when the young one is full, it becomes the
// old one, and the old one's memory is used again. One goroutine uses it.
type cache struct {
	young, old *generation
}

// bytesPerEntry is what an entry takes, its string, slot and record together,
// for strings of the network's usual length.
const bytesPerEntry, stringBytes = 112, 64

func newCache(budget int64) *cache {
	entries := max(int(budget/2/bytesPerEntry), 64)
	return &cache{newGeneration(entries), newGeneration(entries)}
}

func (c *cache) get(hash uint64, ns Namespace, s []byte) ID {
	if id := c.young.get(hash, ns, s); id != None {
		return id
	}
	id := c.old.get(hash, ns, s)
	if id != None {
		c.add(hash, ns, s, id)
	}
	return id
}

// add puts in a string that get did not find.
func (c *cache) add(hash uint64, ns Namespace, s []byte, id ID) {
	if !c.young.add(hash, ns, s, id) {
		c.young, c.old = c.old, c.young
		c.young.reset()
		c.young.add(hash, ns, s, id) // longer than a whole arena: not cached
	}
}

type generation struct {
	slots   []uint32 // 1 + an index of entries; 0: free
	entries []entry
	arena   []byte
}

type entry struct {
	hash  uint64
	id    ID
	start uint32
	len   uint16
	ns    Namespace
}

func newGeneration(entries int) *generation {
	return &generation{
		slots:   make([]uint32, 1<<bits.Len(uint(entries*4/3))),
		entries: make([]entry, 0, entries),
		arena:   make([]byte, 0, min(entries*stringBytes, 1<<31)),
	}
}

func (g *generation) reset() {
	clear(g.slots)
	g.entries, g.arena = g.entries[:0], g.arena[:0]
}

func (g *generation) get(hash uint64, ns Namespace, s []byte) ID {
	mask := uint64(len(g.slots) - 1)
	for i := hash & mask; g.slots[i] != 0; i = (i + 1) & mask {
		e := &g.entries[g.slots[i]-1]
		if e.hash == hash && e.ns == ns && string(g.arena[e.start:e.start+uint32(e.len)]) == string(s) {
			return e.id
		}
	}
	return None
}

func (g *generation) add(hash uint64, ns Namespace, s []byte, id ID) bool {
	if len(g.entries) == cap(g.entries) || len(g.arena)+len(s) > cap(g.arena) {
		return false
	}
	g.entries = append(g.entries, entry{hash, id, uint32(len(g.arena)), uint16(len(s)), ns})
	g.arena = append(g.arena, s...)
	mask := uint64(len(g.slots) - 1)
	i := hash & mask
	for g.slots[i] != 0 {
		i = (i + 1) & mask
	}
	g.slots[i] = uint32(len(g.entries))
	return true
}

// hashSeed is one per process: the hash lives in memory only.
var hashSeed = maphash.MakeSeed()

func hashString(ns Namespace, s []byte) uint64 {
	return maphash.Bytes(hashSeed, s) + uint64(ns)
}
