package export

import (
	"fmt"
	"math"
	"math/bits"

	"skein.blue/intern/dict"
)

// A numbering gives the ids of a namespace numbers from 0 on, in their order. It takes some 40 bytes
// for each 64 neighbouring ids.
type numbering struct {
	index  map[dict.ID]uint32 // position in groups, by the first id of the group
	groups []group
	n      uint64
}

type group struct {
	start dict.ID // the id of the lowest bit
	mask  uint64  // which ids of the group exist
	first uint32  // the number of the lowest of them
}

// add gives the next number to an id, which is above all before.
func (n *numbering) add(id dict.ID) (uint32, error) {
	if n.n > math.MaxUint32 {
		return 0, fmt.Errorf("export: the store has more than %d strings of one kind, and ids have 32 bits", uint64(math.MaxUint32)+1)
	}
	start := id &^ dict.GroupMask
	if len(n.groups) == 0 || n.groups[len(n.groups)-1].start != start {
		if n.index == nil {
			n.index = map[dict.ID]uint32{}
		}
		n.index[start] = uint32(len(n.groups))
		n.groups = append(n.groups, group{start, 0, uint32(n.n)})
	}
	n.groups[len(n.groups)-1].mask |= 1 << (id & dict.GroupMask)
	n.n++
	return uint32(n.n - 1), nil
}

// of returns the number of an id.
func (n *numbering) of(id dict.ID) (uint32, bool) {
	at, ok := n.index[id&^dict.GroupMask]
	if !ok {
		return 0, false
	}
	g := &n.groups[at]
	bit := uint64(1) << (id & dict.GroupMask)
	return g.first + uint32(bits.OnesCount64(g.mask&(bit-1))), g.mask&bit != 0
}

// split returns ids that divide the numbered ids into n ranges of about the same number: the first
// is 0, and the last above all.
func (n *numbering) split(parts int) []dict.ID {
	bounds := []dict.ID{0}
	for i := 1; i < parts && len(n.groups) >= parts; i++ {
		bounds = append(bounds, n.groups[i*len(n.groups)/parts].start)
	}
	return append(bounds, dict.FirstReserved)
}
