package write

import (
	"math/bits"
	"unsafe"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// A StateCache keeps the states of accounts as of the last commit, in two generations of
// flat hash tables that are filled to three quarters. When the young table is full,
// the old one's entries are dropped and the young table becomes the old one. It is not safe for
// concurrent use.
type StateCache struct {
	young, old []stateEntry
	used       int // of young
	limit      int // slots of a table
}

type stateEntry struct {
	id dict.ID // None: free
	format.RepoState
}

// bytesPerState is the size of an entry, firstStates the number of entries of a new table.
const bytesPerState, firstStates = int64(unsafe.Sizeof(stateEntry{})), 1024

// NewStateCache returns a cache that uses up to the given number of bytes.
func NewStateCache(bytes int64) *StateCache {
	limit := max(int(bytes/2/bytesPerState), 16)
	slots := min(limit, firstStates)
	return &StateCache{young: make([]stateEntry, slots), old: make([]stateEntry, 16), limit: limit}
}

// Get returns the state of an account, and copies it to the young table.
func (c *StateCache) Get(id dict.ID) (format.RepoState, bool) {
	if e := slotOf(c.young, id); e.id != dict.None {
		return e.RepoState, true
	}
	e := slotOf(c.old, id)
	if e.id == dict.None {
		return format.RepoState{}, false
	}
	st := e.RepoState
	c.Put(id, st)
	return st, true
}

// filling reports whether the tables are still growing. While they do, the other accounts of a group
// that was read are cached as well, so a freshly opened store reads each group only once.
func (c *StateCache) filling() bool { return len(c.old) < c.limit && len(c.young) < c.limit }

// offer stores the state of an account unless the young table has it.
func (c *StateCache) offer(id dict.ID, st format.RepoState) {
	if slotOf(c.young, id).id == dict.None {
		c.Put(id, st)
	}
}

// Put stores the state of an account.
func (c *StateCache) Put(id dict.ID, st format.RepoState) {
	e := slotOf(c.young, id)
	if e.id == dict.None {
		if 4*c.used >= 3*len(c.young) {
			c.makeRoom()
			e = slotOf(c.young, id)
		}
		c.used++
	}
	*e = stateEntry{id, st}
}

func (c *StateCache) makeRoom() {
	switch full := c.young; {
	case len(full) < c.limit:
		c.young = make([]stateEntry, min(2*len(full), c.limit))
		for i := range full {
			if full[i].id != dict.None {
				*slotOf(c.young, full[i].id) = full[i]
			}
		}
	case len(c.old) < c.limit:
		c.young, c.old, c.used = make([]stateEntry, c.limit), full, 0
	default:
		c.young, c.old, c.used = c.old, full, 0
		clear(c.young)
	}
}

// slotOf returns the slot of an account, or the free slot where it belongs.
func slotOf(table []stateEntry, id dict.ID) *stateEntry {
	hi, _ := bits.Mul64(uint64(id)*0x9e3779b97f4a7c15, uint64(len(table)))
	for i := int(hi); ; {
		if e := &table[i]; e.id == id || e.id == dict.None {
			return e
		}
		if i++; i == len(table) {
			i = 0
		}
	}
}
