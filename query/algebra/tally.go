package algebra

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"skein.blue/internal/sets"
)

// Bounds of one Tally.
const (
	MostResults  = 4<<20 + 64<<10 // distinct results, of up to 32 bytes: what the budget of a hop can pay for, and more for chance in a sample
	MostExpanded = 64 << 20       // results with repetitions

	checkEvery = 1 << 16 // results between two checks of the deadline
)

// Counted is a result and its count.
type Counted struct {
	ID    uint64
	Count uint32
}

// Ended says why the work must end, nil if it goes on: a context.Context, or a kv.Interrupt.
type Ended interface{ Err() error }

// A Tally is a ranking's inner loop: it counts how many members of a set lead to each id, and adds up their weights. It counts ids, each once per actor. It gathers them by the upper bits of their hashes, and
// then counts part by part, in tables that fit the processor's caches (partitioned aggregation,
// docs/decisions/0018).
type Tally struct {
	// Heavy, if set, is called before much is counted. Its error ends the work.
	Heavy func() error

	// Weighted says that it also adds up weights, for TopSums. It is set before anything is added.
	Weighted bool

	// Scale is what every count is multiplied by, at least 1, if the actors are a sample; 0 is 1.
	Scale float64

	// Halvings is how often the unit of weights was halved, so that small weights can be told apart (Unit).
	Halvings float64

	weight uint64 // of the actor's ids, if they have none of their own

	parts    [tallyParts]tallyPart
	gathered int
	used     int
	actor    uint32
	expanded int
	times    []uint32 // how often an id counts, by actor; nil: all once
	perCount []int    // the number of results by count
}

// tallyParts is a power of two. gatherMost is the number of ids, 16 bytes each, that are gathered
// before they are counted.
const (
	// lightResults is the number of results that a query may count outside of the large queue.
	lightResults = 1_000_000

	tallyParts = 64
	// usuallyGathered is the initial capacity of a part.
	usuallyGathered = 1024
	gatherMost      = 1 << 18
)

type tallyPart struct {
	gathered []actorsID
	weights  []uint64  // of gathered, if the Tally is weighted
	table    []tallied // a power of two, doubled when it is three quarters full
	sums     []sum     // of table, if the Tally is weighted
	used     int
}

type actorsID struct {
	id    uint64
	actor uint32
}

type tallied struct {
	id    uint64
	count uint32 // 0: free
	actor uint32 // the last actor that it was counted for; leftOut
}

// leftOut is the actor of a result that was left out: its slot is not free, since others may lie behind it.
const leftOut = math.MaxUint32

// Next starts another actor. Each of its ids counts once.
func (t *Tally) Next() { t.next(1) }

func (t *Tally) next(times uint32) {
	t.actor++
	if t.times == nil && times != 1 {
		t.times = slices.Repeat([]uint32{1}, int(t.actor))
	}
	if t.times != nil {
		t.times = append(t.times, times)
	}
	for len(t.perCount) < int(t.actor)+1 { // an id counts once for each
		t.perCount = append(t.perCount, 0)
	}
}

// Expanded returns the number of results with repetitions so far.
func (t *Tally) Expanded() int { return t.expanded }

// counted returns a count as results have it: scaled, and rounded. Different counts stay different,
// because Scale is at least 1.
func (t *Tally) counted(count uint32) uint32 {
	if t.Scale <= 1 {
		return count
	}
	return uint32(min(math.Round(float64(count)*t.Scale), math.MaxUint32))
}

// uncounted returns the lowest count that results have as count or more.
func (t *Tally) uncounted(count uint32) uint32 {
	if t.Scale <= 1 {
		return count
	}
	low := uint32(float64(count) / t.Scale)
	for low > 0 && t.counted(low) >= count {
		low--
	}
	for t.counted(low) < count {
		low++
	}
	return low
}

// hashOf spreads ids: the upper bits choose the part, the bits below them the slot.
func hashOf(id uint64) uint64 { return id * 0x9e3779b97f4a7c15 }

// AddList is Add for a slice.
func (t *Tally) AddList(ended Ended, ids []uint64) error {
	for len(ids) > 0 {
		// As many as fit before the next check or count.
		n := min(len(ids), gatherMost-t.gathered, checkEvery-t.expanded%checkEvery, MostExpanded-t.expanded)
		if t.expanded < lightResults {
			n = min(n, lightResults-t.expanded)
		}
		if n <= 0 || t.expanded%checkEvery == 0 || t.expanded == lightResults {
			if err := t.add(ended, ids[0]); err != nil {
				return err
			}
			ids = ids[1:]
			continue
		}
		for _, id := range ids[:n] {
			p := &t.parts[hashOf(id)>>58]
			if p.gathered == nil {
				p.gathered = make([]actorsID, 0, usuallyGathered)
			}
			p.gathered = append(p.gathered, actorsID{id, t.actor})
			if t.Weighted {
				p.weights = append(p.weights, t.weight)
			}
		}
		ids = ids[n:]
		t.expanded += n
		if t.gathered += n; t.gathered == gatherMost {
			if err := t.Count(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Add adds the ids that the actor leads to.
func (t *Tally) Add(ended Ended, ids func(func(uint64) bool)) (err error) {
	ids(func(id uint64) bool {
		err = t.add(ended, id)
		return err == nil
	})
	return err
}

func (t *Tally) add(ended Ended, id uint64) error {
	if t.expanded%checkEvery == 0 {
		if err := ended.Err(); err != nil {
			return err
		}
	}
	if t.expanded == lightResults && t.Heavy != nil {
		if err := t.Heavy(); err != nil {
			return err
		}
	}
	if t.expanded++; t.expanded > MostExpanded {
		return &LimitError{fmt.Sprintf("of expands to more than %d results; ask about fewer members", MostExpanded)}
	}
	p := &t.parts[hashOf(id)>>58]
	p.gathered = append(p.gathered, actorsID{id, t.actor})
	if t.Weighted {
		p.weights = append(p.weights, t.weight)
	}
	if t.gathered++; t.gathered == gatherMost {
		return t.Count()
	}
	return nil
}

// Count counts the gathered ids.
func (t *Tally) Count() error {
	t.gathered = 0
	for i := range t.parts {
		p := &t.parts[i]
		before := p.used
		t.perCount = p.count(t.perCount, t.times)
		if t.used += p.used - before; t.used > MostResults {
			return &LimitError{fmt.Sprintf("of expands to more than %d different results; ask about fewer members", MostResults)}
		}
	}
	return nil
}

// count counts the gathered ids of the part, each as often as times has for its actor. It returns
// perCount, which grows if ids count several times.
func (p *tallyPart) count(perCount []int, times []uint32) []int {
	if len(p.gathered) == 0 {
		return perCount
	}
	if len(p.table) == 0 { // most of the first ids may be distinct
		p.make(1 << bits.Len(uint(max(64, len(p.gathered)*5/4))))
	}
	for i, g := range p.gathered {
		if 4*p.used >= 3*len(p.table) {
			p.grow()
		}
		at := p.slot(g.id)
		e := &p.table[at]
		again := e.count > 0 && e.actor == g.actor
		if p.weights != nil {
			weight := p.weights[i]
			if times != nil {
				weight *= uint64(times[g.actor])
			}
			p.sums[at].add(weight, again)
		}
		switch {
		case again:
			continue
		case e.count == 0:
			e.id = g.id
			p.used++
		default:
			perCount[e.count]--
		}
		if e.count++; times != nil {
			e.count += times[g.actor] - 1
			if more := int(e.count) + 1 - len(perCount); more > 0 {
				perCount = append(perCount, make([]int, more)...)
			}
		}
		perCount[e.count]++
		e.actor = g.actor
	}
	p.gathered, p.weights = p.gathered[:0], p.weights[:0]
	return perCount
}

// make makes an empty table.
func (p *tallyPart) make(size int) {
	p.table = make([]tallied, size)
	if p.weights != nil {
		p.sums = make([]sum, size)
	}
}

// slot returns the index of the entry of an id.
func (p *tallyPart) slot(id uint64) uint64 {
	mask := uint64(len(p.table) - 1)
	for i := hashOf(id) >> 20 & mask; ; i = (i + 1) & mask {
		if e := &p.table[i]; e.count == 0 && e.actor != leftOut || e.id == id {
			return i
		}
	}
}

func (p *tallyPart) grow() {
	old, sums := p.table, p.sums
	p.make(max(64, 2*len(old)))
	for i, e := range old {
		if e.count > 0 {
			at := p.slot(e.id)
			p.table[at] = e
			if sums != nil {
				p.sums[at] = sums[i]
			}
		}
	}
}

// each calls f for every result.
func (t *Tally) each(f func(e *tallied)) {
	for i := range t.parts {
		table := t.parts[i].table
		for j := range table {
			if e := &table[j]; e.count > 0 {
				f(e)
			}
		}
	}
}

// LeaveOut removes a set from the results. No id may be added afterwards.
func (t *Tally) LeaveOut(set sets.Set) {
	out := func(e *tallied) {
		t.perCount[e.count]--
		e.count, e.actor = 0, leftOut
	}
	if set.Len() < uint64(t.used) {
		for id := range set.All() {
			p := &t.parts[hashOf(id)>>58]
			if len(p.table) == 0 {
				continue
			}
			if e := &p.table[p.slot(id)]; e.count > 0 {
				out(e)
			}
		}
		return
	}
	t.each(func(e *tallied) {
		if set.Has(e.id) {
			out(e)
		}
	})
}

// AtLeast returns the number of results with at least a count.
func (t *Tally) AtLeast(count uint32) (n int) {
	count = t.uncounted(count)
	all := t.perCount
	for _, results := range all[min(int(count), len(all)):] {
		n += results
	}
	return n
}

// Top returns up to limit of the results with the highest counts, ordered by count, then by id.
// It scans the tables once, and holds no more than it returns and the results that tie with the
// last.
func (t *Tally) Top(limit int) []Counted {
	perCount := t.perCount
	if len(perCount) == 0 {
		return nil
	}
	most := uint32(len(perCount) - 1)
	for most > 0 && perCount[most] == 0 {
		most--
	}
	last, above := most, 0 // the count of the last result, and how many have a higher one
	for last > 1 && above+perCount[last] < limit {
		above += perCount[last]
		last--
	}
	all := make([]Counted, 0, above)
	var lowest smallest[uint64]
	t.each(func(e *tallied) {
		switch {
		case e.count > last:
			all = append(all, Counted{e.id, t.counted(e.count)})
		case e.count == last:
			lowest.offer(e.id, limit-above)
		}
	})
	for _, id := range lowest {
		all = append(all, Counted{id, t.counted(last)})
	}
	slices.SortFunc(all, func(x, y Counted) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
	})
	return all
}

// smallest is a heap of the smallest of some numbers so far, with the largest of them on top.
type smallest[T cmp.Ordered] []T

func (s *smallest[T]) offer(id T, most int) {
	h := *s
	if len(h) < most {
		h = append(h, id)
		for i := len(h) - 1; i > 0 && h[(i-1)/2] < h[i]; i = (i - 1) / 2 {
			h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		}
		*s = h
		return
	}
	if most == 0 || id >= h[0] {
		return
	}
	h[0] = id
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1] > h[c] {
			c++
		}
		if c >= len(h) || h[c] <= h[i] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
