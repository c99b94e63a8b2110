package sets

import "math/bits"

// A Distinct counts different ids. It keeps its memory for the next count, and is made for one count after
// another of some hundreds to some hundred thousands each: a sort takes five times as long. Each count begins with Reset.
type Distinct struct {
	slots []distinctSlot // a power of two, at most half full
	round uint32         // of the slots in use
	n     int
}

type distinctSlot struct {
	id    uint64
	round uint32
}

// Reset forgets all ids.
func (d *Distinct) Reset() {
	if d.round++; d.round == 0 { // slots of 2^32 counts ago would count again
		clear(d.slots)
		d.round = 1
	}
	d.n = 0
}

// Add counts an id, unless it has been counted.
func (d *Distinct) Add(id uint64) {
	if 2*d.n >= len(d.slots) {
		d.grow()
	}
	if s := d.slot(id); s.round != d.round {
		*s = distinctSlot{id, d.round}
		d.n++
	}
}

// slot returns the slot of an id, or the free one for it.
func (d *Distinct) slot(id uint64) *distinctSlot {
	mask := uint64(len(d.slots) - 1)
	for i := id * 0x9e3779b97f4a7c15 >> (64 - bits.Len64(mask)); ; i = (i + 1) & mask {
		if s := &d.slots[i]; s.round != d.round || s.id == id {
			return s
		}
	}
}

func (d *Distinct) grow() {
	old := d.slots
	d.slots = make([]distinctSlot, max(1024, 2*len(old)))
	for _, s := range old {
		if s.round == d.round {
			*d.slot(s.id) = s
		}
	}
}

// Len returns how many different ids were added.
func (d *Distinct) Len() uint64 { return uint64(d.n) }
