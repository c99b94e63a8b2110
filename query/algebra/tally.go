package algebra

import (
	"cmp"
	"fmt"
	"iter"
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

// A Result is a result of a ranking.
type Result struct {
	ID    uint64
	Count uint32  // the members that lead to it
	Total uint64  // total(x) of language.Weighing; 0 without damp
	Score float64 // the sum of the weights, or what it is divided by total(x)^damp; without weights, the count
}

// CompareResults compares results by rank: by score, then by count, then by id.
func CompareResults(x, y Result) int {
	return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
}

// Ended says why the work must end, nil if it goes on: a context.Context.
type Ended interface{ Err() error }

// A Tally is a ranking's inner loop: it counts how many members of a set (actors) lead to each id, each id once per actor, and
// adds up their weights. It gathers ids by the upper bits of their hashes, and then counts part by part, in tables that fit the
// processor's caches (partitioned aggregation, docs/decisions/0018).
type Tally struct {
	// Heavy, if set, is called before much is counted. Its error ends the work.
	Heavy func() error

	// Weighted says that it also adds up weights. It is set before anything is added.
	Weighted bool

	// Scale is what every count and sum is multiplied by, at least 1, if the actors are a sample; 0 is 1.
	Scale float64

	weight float64 // of the actor's ids, if they have none of their own

	parts    [tallyParts]tallyPart
	gathered int
	used     int
	actor    uint32
	expanded int
	times    []uint32 // how often an id counts, by actor; nil: all once
	perCount []int    // the number of results by count
	next     []uint64 // scratch memory of AddAll
}

const (
	// lightResults is the number of results that a query may count outside of the large queue.
	lightResults = 1_000_000

	tallyParts = 64      // a power of two
	gatherMost = 1 << 18 // ids, 16 bytes each, that are gathered before they are counted
)

type tallyPart struct {
	gathered []actorsID
	weights  []float64 // of gathered, if the Tally is weighted
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

// A sum adds up the weights of one result. Actors come in a fixed order, so equal states have equal sums, on every page.
type sum struct{ before, last float64 } // last is the highest weight of the last actor

func (s *sum) add(weight float64, again bool) {
	if !again {
		s.before += s.last
		s.last = 0
	}
	s.last = max(s.last, weight)
}

// Next starts another actor, and gives the weight of its ids. If only a sample of its ids is added, one in times, each counts
// times as much, and so does its weight.
func (t *Tally) Next(weight float64, times uint32) {
	t.weight = weight
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
	low := uint32(1)
	for int(low) < len(t.perCount) && t.counted(low) < count {
		low++
	}
	return low
}

// hashOf spreads ids: the upper bits choose the part, the bits below them the slot.
func hashOf(id uint64) uint64 { return id * 0x9e3779b97f4a7c15 }

// Add adds ids that the actor leads to. weights are theirs; nil: all have the actor's. If it adds an id several times, the highest
// weight counts.
func (t *Tally) Add(ended Ended, ids []uint64, weights []float64) error {
	for len(ids) > 0 {
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
		if t.expanded == MostExpanded {
			return &LimitError{fmt.Sprintf("of expands to more than %d results; ask about fewer members", MostExpanded)}
		}
		// As many as fit before the next check or count.
		n := min(len(ids), gatherMost-t.gathered, checkEvery-t.expanded%checkEvery)
		if t.expanded < lightResults {
			n = min(n, lightResults-t.expanded)
		}
		for i, id := range ids[:n] {
			p := &t.parts[hashOf(id)>>58]
			p.gathered = append(p.gathered, actorsID{id, t.actor})
			if t.Weighted {
				weight := t.weight
				if weights != nil {
					weight = weights[i]
				}
				p.weights = append(p.weights, weight)
			}
		}
		ids = ids[n:]
		if weights != nil {
			weights = weights[n:]
		}
		t.expanded += n
		if t.gathered += n; t.gathered == gatherMost {
			if err := t.Count(); err != nil {
				return err
			}
		}
	}
	return nil
}

// AddAll is Add for the members of a set, with the actor's weight.
func (t *Tally) AddAll(ended Ended, ids iter.Seq[uint64]) error {
	t.next = t.next[:0]
	for id := range ids {
		if t.next = append(t.next, id); len(t.next) == 1024 {
			if err := t.Add(ended, t.next, nil); err != nil {
				return err
			}
			t.next = t.next[:0]
		}
	}
	return t.Add(ended, t.next, nil)
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
				weight *= float64(times[g.actor])
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

// each calls f for every result, with its weights if the Tally is weighted.
func (t *Tally) each(f func(e *tallied, s sum)) {
	for i := range t.parts {
		p := &t.parts[i]
		for j := range p.table {
			if e := &p.table[j]; e.count > 0 && p.sums != nil {
				f(e, p.sums[j])
			} else if e.count > 0 {
				f(e, sum{})
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
	t.each(func(e *tallied, _ sum) {
		if set.Has(e.id) {
			out(e)
		}
	})
}

// AtLeast returns the number of results with at least a count.
func (t *Tally) AtLeast(count uint32) (n int) {
	for _, results := range t.perCount[min(int(t.uncounted(count)), len(t.perCount)):] {
		n += results
	}
	return n
}

// Members returns the results with at least a count.
func (t *Tally) Members(count uint32) sets.Set {
	var ids []uint64
	least := t.uncounted(count)
	t.each(func(e *tallied, _ sum) {
		if e.count >= least {
			ids = append(ids, e.id)
		}
	})
	return sets.FromUnsorted(ids)
}

// Top returns up to limit of the results with at least a count, in order (CompareResults).
func (t *Tally) Top(count uint32, limit int) []Result {
	if limit <= 0 {
		return nil
	}
	least := t.uncounted(count)
	if !t.Weighted { // the last result has the highest count that limit results reach
		n, c := 0, uint32(len(t.perCount))
		for ; c > least && n < limit; n += t.perCount[c] {
			c--
		}
		least = max(least, c)
	}
	first := top[Result]{most: limit, compare: CompareResults}
	t.each(func(e *tallied, s sum) {
		if e.count < least {
			return
		}
		r := Result{ID: e.id, Count: t.counted(e.count)}
		if r.Score = float64(r.Count); t.Weighted {
			r.Score = (s.before + s.last) * max(t.Scale, 1)
		}
		first.offer(r)
	})
	return first.sorted()
}

// A top keeps the first of many values in an order.
type top[T any] struct {
	most    int // at least 1
	compare func(x, y T) int
	kept    []T
	cut     bool // kept begins with the first of those before the last cut, in order
}

func (t *top[T]) offer(x T) {
	if t.cut && t.compare(x, t.kept[t.most-1]) > 0 {
		return
	}
	if t.kept = append(t.kept, x); len(t.kept)/2 == t.most {
		t.sorted()
		t.cut = true
	}
}

func (t *top[T]) sorted() []T {
	slices.SortFunc(t.kept, t.compare)
	t.kept = t.kept[:min(t.most, len(t.kept))]
	return t.kept
}
