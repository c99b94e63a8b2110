package idset

import "math/bits"

// A Filter knows of most ids that they are not in a set, at the cost of one look: a bit for the
// hash of each member, in sixteen to thirty-two bits a member. What was added is not taken out. nil
// knows nothing: every id may be in it.
type Filter []uint64

// NewFilter returns a Filter for about so many ids.
func NewFilter(n int) Filter { return make(Filter, 1<<bits.Len(uint(max(n, 1)/4))) }

func (f Filter) place(id uint64) uint64 {
	return id * 0x9e3779b97f4a7c15 >> (64 - 6 - bits.Len(uint(len(f)-1)))
}

// Add adds an id.
func (f Filter) Add(id uint64) {
	h := f.place(id)
	f[h>>6] |= 1 << (h & 63)
}

// Has reports whether an id may have been added.
func (f Filter) Has(id uint64) bool {
	if f == nil {
		return true
	}
	h := f.place(id)
	return f[h>>6]&(1<<(h&63)) != 0
}
