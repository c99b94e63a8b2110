package sets

import "github.com/RoaringBitmap/roaring/v2/roaring64"

// collectorLen is how many ids a Collector gathers before it adds them to its bitmap.
const collectorLen = 1 << 16

// A Collector makes a Set of ids that come one by one, in any order, without keeping them all as a list.
// Ids that mostly ascend cost least. The zero value is ready to use; it is for one goroutine.
type Collector struct {
	list []uint64
	bits *roaring64.Bitmap // nil: all ids are in list
}

// Add adds an id.
func (c *Collector) Add(id uint64) {
	if c.list = append(c.list, id); len(c.list) == collectorLen {
		c.flush()
	}
}

func (c *Collector) flush() {
	if c.bits == nil {
		c.bits = roaring64.New()
	}
	c.bits.AddMany(c.list)
	c.list = c.list[:0]
}

// Set returns the set of the ids. The Collector must not be used afterwards.
func (c *Collector) Set() Set {
	if c.bits == nil {
		return FromUnsorted(c.list)
	}
	c.flush()
	return FromBitmap(c.bits)
}
