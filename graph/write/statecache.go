package write

import (
	"math/bits"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// stateCache remembers the states of accounts as of the last commit, for the
// writer: two generations of flat tables, filled up to three quarters. A table
// grows to its limit; what is put when the young one is full makes it the old
// one.
type StateCache struct {
	young, old []stateEntry
	Used       int // of young
	limit      int // slots of a table
}

type stateEntry struct {
	id dict.ID // None: free
	format.RepoState
}

// bytesPerState is what an entry takes, and firstStates the slots of a table at
// first.
const bytesPerState, firstStates = 80, 1024

func NewStateCache(bytes int64) StateCache {
	limit := max(int(bytes/2/bytesPerState), 16)
	slots := min(limit, firstStates)
	return StateCache{young: make([]stateEntry, slots), old: make([]stateEntry, 16), limit: limit}
}

// get returns the state of an account. That of one that was not asked for lately
// moves among the young.
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

// filling reports whether nothing was forgotten yet, so that there is room for what
// is not asked for: the other accounts of a group that had to be read. Then a
// store that was just opened reads each group once.
func (c *StateCache) filling() bool { return len(c.old) < c.limit && len(c.young) < c.limit }

// offer puts the state of an account that is not among the young.
func (c *StateCache) offer(id dict.ID, st format.RepoState) {
	if slotOf(c.young, id).id == dict.None {
		c.Put(id, st)
	}
}

func (c *StateCache) Put(id dict.ID, st format.RepoState) {
	e := slotOf(c.young, id)
	if e.id == dict.None {
		if 4*c.Used >= 3*len(c.young) {
			c.makeRoom()
			e = slotOf(c.young, id)
		}
		c.Used++
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
		c.young, c.old, c.Used = make([]stateEntry, c.limit), full, 0
	default:
		c.young, c.old, c.Used = c.old, full, 0
		clear(c.young)
	}
}

// slotOf returns the place of an account, or the free one where it would be.
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
