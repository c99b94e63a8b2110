// Package sets is the algebra of sets of ids: sorted lists for small sets,
// Roaring bitmaps for large ones. Sets are immutable values, so any number of
// readers may share one.
//
// Why both: most sets of the network have a handful of members, scattered over
// many blocks of ids, and making a bitmap of them takes longer than the whole
// query.
//
// It also sorts by 64-bit keys (Sorter), splits lists into runs (Runs), and caches (Recent). It knows no graph.
package sets

import (
	"iter"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// ListMax is the largest number of members that FromList keeps as a list.
const ListMax = 8192

// A Set is a set of ids. The zero Set is empty.
type Set struct {
	list []uint64          // ascending; used if bits is nil
	bits *roaring64.Bitmap // never changed
}

// FromList returns the set of ids, which must be ascending and distinct. It keeps the
// slice.
func FromList(ids []uint64) Set {
	if len(ids) <= ListMax {
		return Set{list: ids}
	}
	b := roaring64.New()
	b.AddMany(ids)
	return Set{bits: b}
}

// FromUnsorted is FromList for ids in any order, with or without duplicates. It
// sorts the slice in place.
func FromUnsorted(ids []uint64) Set {
	slices.Sort(ids)
	return FromList(slices.Compact(ids))
}

// FromBitmap returns the set of a bitmap. The caller must not change it afterwards.
func FromBitmap(b *roaring64.Bitmap) Set { return Set{bits: b} }

// Len returns the number of members.
func (s Set) Len() uint64 {
	if s.bits != nil {
		return s.bits.GetCardinality()
	}
	return uint64(len(s.list))
}

// Empty reports whether the set has no member.
func (s Set) Empty() bool {
	if s.bits != nil {
		return s.bits.IsEmpty()
	}
	return len(s.list) == 0
}

// Has reports whether id is a member.
func (s Set) Has(id uint64) bool {
	if s.bits != nil {
		return s.bits.Contains(id)
	}
	_, found := slices.BinarySearch(s.list, id)
	return found
}

// List appends the members to dst in ascending order.
func (s Set) List(dst []uint64) []uint64 {
	if s.bits == nil {
		return append(dst, s.list...)
	}
	return slices.AppendSeq(slices.Grow(dst, int(s.bits.GetCardinality())), s.All())
}

// All yields the members in ascending order.
func (s Set) All() iter.Seq[uint64] {
	if s.bits == nil {
		return slices.Values(s.list)
	}
	return func(yield func(uint64) bool) {
		var buf [256]uint64
		for it := s.bits.ManyIterator(); ; {
			n := it.NextMany(buf[:])
			if n == 0 {
				return
			}
			for _, id := range buf[:n] {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// gallop is a ratio of sizes. Above it, the members of the shorter list are looked up in
// the longer one; below, both lists are walked.
const gallop = 16

// And returns the intersection.
func And(a, b Set) Set {
	switch {
	case a.bits != nil && b.bits != nil:
		return Set{bits: roaring64.And(a.bits, b.bits)}
	case a.bits != nil:
		return b.filter(a, true)
	case b.bits != nil:
		return a.filter(b, true)
	}
	if len(a.list) > len(b.list) {
		a, b = b, a
	}
	if len(b.list) > gallop*len(a.list) {
		return a.filter(b, true)
	}
	out := make([]uint64, 0, len(a.list))
	for x, y := a.list, b.list; len(x) > 0 && len(y) > 0; {
		switch {
		case x[0] < y[0]:
			x = x[1:]
		case x[0] > y[0]:
			y = y[1:]
		default:
			out, x, y = append(out, x[0]), x[1:], y[1:]
		}
	}
	return Set{list: out}
}

// AndLen returns the size of the intersection, without building that of two bitmaps.
func AndLen(a, b Set) uint64 {
	if a.bits != nil && b.bits != nil {
		return a.bits.AndCardinality(b.bits)
	}
	return And(a, b).Len()
}

// filter returns the members of a list that are in o, or if in is false, those that are not.
func (s Set) filter(o Set, in bool) Set {
	out := make([]uint64, 0, len(s.list))
	rest := o.list // from the id on
	for _, id := range s.list {
		has := o.bits != nil && o.bits.Contains(id)
		if o.bits == nil {
			rest = rest[ahead(rest, id):]
			has = len(rest) > 0 && rest[0] == id
		}
		if has == in {
			out = append(out, id)
		}
	}
	return Set{list: out}
}

// ahead returns the number of ids at the beginning of list that are less than id. It expects few.
func ahead(list []uint64, id uint64) int {
	step := 1
	for step < len(list) && list[step] < id {
		step *= 2
	}
	n, _ := slices.BinarySearch(list[:min(step+1, len(list))], id)
	return n
}

// A Sparse looks up ascending ids in a set that has few of them, such as the hidden accounts among the members of a large
// set: for an id between two members, one comparison suffices. Other ids, and other orders, cost more, but are answered right. A
// Sparse is for one goroutine.
type Sparse struct {
	// The set has no member in [begin, begin+gap).
	begin, gap uint64

	set  Set
	list []uint64 // the members from begin on, if the set is a list
	bits roaring64.IntPeekable64
}

// NewSparse returns a Sparse of a set.
func NewSparse(set Set) *Sparse {
	p := &Sparse{set: set, list: set.list}
	if set.bits != nil {
		p.bits = set.bits.Iterator()
	}
	p.move(0)
	return p
}

// Has reports whether id is a member.
func (p *Sparse) Has(id uint64) bool { return id-p.begin >= p.gap && p.look(id) }

// look is Has for ids that are not in the gap.
func (p *Sparse) look(id uint64) bool {
	if id < p.begin {
		return p.set.Has(id)
	}
	return p.move(id)
}

// move finds the first member from id on, and makes all before it the gap. It reports whether it is id itself.
func (p *Sparse) move(id uint64) bool {
	var next uint64
	var some bool
	if p.bits == nil {
		p.list = p.list[ahead(p.list, id):]
		if some = len(p.list) > 0; some {
			next = p.list[0]
		}
	} else {
		p.bits.AdvanceIfNeeded(id)
		if some = p.bits.HasNext(); some {
			next = p.bits.PeekNext()
		}
	}
	if p.begin, p.gap = id, math.MaxUint64-id; some {
		p.gap = next - id
	}
	return some && next == id
}

// Or returns the union.
func Or(a, b Set) Set {
	switch {
	case a.Empty():
		return b
	case b.Empty():
		return a
	case a.bits == nil && b.bits == nil:
		out := make([]uint64, 0, len(a.list)+len(b.list))
		x, y := a.list, b.list
		for len(x) > 0 && len(y) > 0 {
			switch {
			case x[0] < y[0]:
				out, x = append(out, x[0]), x[1:]
			case x[0] > y[0]:
				out, y = append(out, y[0]), y[1:]
			default:
				out, x, y = append(out, x[0]), x[1:], y[1:]
			}
		}
		return FromList(append(append(out, x...), y...))
	}
	if a.bits == nil {
		a, b = b, a
	}
	if b.bits != nil {
		return Set{bits: roaring64.Or(a.bits, b.bits)}
	}
	sum := a.bits.Clone()
	sum.AddMany(b.list)
	return Set{bits: sum}
}

// AndNot returns the members of a that are not in b.
func AndNot(a, b Set) Set {
	switch {
	case a.bits == nil:
		return a.filter(b, false)
	case b.bits != nil:
		return Set{bits: roaring64.AndNot(a.bits, b.bits)}
	case len(b.list) == 0:
		return a
	}
	rest := a.bits.Clone()
	for _, id := range b.list {
		rest.Remove(id)
	}
	return Set{bits: rest}
}

// Page returns up to limit members greater than after, which is not the highest id, that are not
// in hidden, and whether there are more.
func (s Set) Page(after uint64, limit int, hidden Set) (ids []uint64, more bool) {
	for id := range s.from(after + 1) {
		if hidden.Has(id) {
			continue
		}
		if len(ids) == limit {
			return ids, true
		}
		ids = append(ids, id)
	}
	return ids, false
}

// from yields the members from first on, in ascending order.
func (s Set) from(first uint64) iter.Seq[uint64] {
	if s.bits == nil {
		at, _ := slices.BinarySearch(s.list, first)
		return slices.Values(s.list[at:])
	}
	return func(yield func(uint64) bool) {
		it := s.bits.Iterator()
		it.AdvanceIfNeeded(first)
		for it.HasNext() && yield(it.Next()) {
		}
	}
}

// Bytes estimates the memory that the set takes.
func (s Set) Bytes() int {
	if s.bits != nil {
		return int(s.bits.GetSizeInBytes())
	}
	return 8 * len(s.list)
}

// A Threshold finds the ids that are in at least some of several sets.
type Threshold struct {
	in   []Set // in[i]: the ids that were in at least i+1 of the sets so far
	left int   // sets that are still to come
}

// NewThreshold returns the Threshold of at least some, 1 or more, of a number of sets.
func NewThreshold(some, sets int) *Threshold { return &Threshold{make([]Set, some), sets} }

// Add adds the next set.
func (t *Threshold) Add(set Set) {
	t.left--
	for i := len(t.in) - 1; i >= 0 && i+1+t.left >= len(t.in); i-- { // others come too late
		more := set
		if i > 0 {
			more = And(t.in[i-1], set)
		}
		t.in[i] = Or(t.in[i], more)
	}
}

// Members returns the ids that are in at least as many sets, once all were added.
func (t *Threshold) Members() Set { return t.in[len(t.in)-1] }
