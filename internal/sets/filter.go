package sets

import (
	"math/bits"
	"sync/atomic"
)

// A Filter is a Bloom filter with one hash, in 16 to 32 bits for each member: it reports most ids
// that are not in a set, with one memory access. Members cannot be removed. A nil Filter reports
// that every id may be a member. Any number of goroutines may use one.
type Filter []uint64

// NewFilter returns a Filter for about n ids.
func NewFilter(n int) Filter { return make(Filter, 1<<bits.Len(uint(max(n, 1)/4))) }

func (f Filter) place(id uint64) uint64 {
	return id * 0x9e3779b97f4a7c15 >> (64 - 6 - bits.Len(uint(len(f)-1)))
}

// Add adds id.
func (f Filter) Add(id uint64) {
	h := f.place(id)
	atomic.OrUint64(&f[h>>6], 1<<(h&63))
}

// Has reports whether id may have been added.
func (f Filter) Has(id uint64) bool {
	if f == nil {
		return true
	}
	h := f.place(id)
	return atomic.LoadUint64(&f[h>>6])&(1<<(h&63)) != 0
}
