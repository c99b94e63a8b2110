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
	MostResults  = 4<<20 + 64<<10 // distinct results, of 12 or 28 bytes: what the budget of a hop can pay for, and more for chance in a sample
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

// IDsOf returns the ids of results.
func IDsOf(results []Result) []uint64 {
	ids := make([]uint64, len(results))
	for i := range results {
		ids[i] = results[i].ID
	}
	return ids
}

// Ended says why the work must end, nil if it goes on: a context.Context.
type Ended interface{ Err() error }

// A Tally is a ranking's inner loop: it counts how many members of a set (actors) lead to each id, each id once per actor, and
// adds up their weights. It gathers ids by blocks of 65,536, since ids are handed out one after another, and then counts block by
// block, in memory that fits the processor's caches (partitioned aggregation, docs/decisions/0018).
type Tally struct {
	// Heavy, if set, is called before much is counted. Its error ends the work.
	Heavy func() error

	// Weighted says that it also adds up weights. It is set before anything is added.
	Weighted bool

	// Scale is what every count and sum is multiplied by, at least 1, if the actors are a sample; 0 is 1.
	Scale float64

	// Of is the number of members that it is of, inactive ones left out.
	Of uint64

	weight float64 // of the actor's ids, if they have none of their own

	blocks   []*tallyBlock // by the hashes of their numbers; a power of two, at most half full
	held     int           // blocks
	index    []uint16      // of the block that is counted: the place in its results, by the low bits of an id
	gathered int
	used     int
	actor    uint32
	first    uint32 // the actor of the first gathered id
	expanded int
	times    []uint32 // how often an id counts, by actor; nil: all once
	highest  uint32   // count of a result
	next     []uint64 // scratch memory of AddAll
}

const (
	// lightResults is the number of results that a query may count outside of the large queue.
	lightResults = 1_000_000

	blockIDs   = 1 << 16
	gatherMost = 1 << 20 // ids, of 4 or 12 bytes, that are gathered before they are counted
)

// A tallyBlock has the ids whose upper 48 bits are its number. Tally.index is a sparse set of them (Briggs and Torczon, "An efficient
// representation for sparse sets", 1993): it is never cleared, since the result at a place says which id it is.
type tallyBlock struct {
	number   uint64
	gathered []uint32  // the low bits of an id, and above them the actor, less Tally.first
	weights  []float64 // of gathered, if the Tally is weighted
	results  []tallied
	sums     []sum // of results, if the Tally is weighted
}

type tallied struct {
	count uint32 // 0: left out
	actor uint32 // the last actor that it was counted for
	low   uint16 // bits of the id
}

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
	low := max(uint32(float64(count)/max(t.Scale, 1)), 2) - 1 // not above it, as counted rounds
	for t.counted(low) < count {
		low++
	}
	return low
}

// block returns the block of a number. If there is none, it adds one.
func (t *Tally) block(number uint64) *tallyBlock {
	if old := t.blocks; 2*t.held >= len(old) {
		t.blocks = make([]*tallyBlock, max(16, 2*len(old)))
		for _, b := range old {
			if b != nil {
				*t.slot(b.number) = b
			}
		}
	}
	s := t.slot(number)
	if *s == nil {
		*s = &tallyBlock{number: number}
		t.held++
	}
	return *s
}

// slot returns the slot of a block, or the free one for it.
func (t *Tally) slot(number uint64) **tallyBlock {
	for i := number * 0x9e3779b97f4a7c15 >> 32; ; i++ {
		if s := &t.blocks[i&uint64(len(t.blocks)-1)]; *s == nil || (*s).number == number {
			return s
		}
	}
}

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
		if t.gathered == gatherMost || t.actor-t.first > math.MaxUint16 {
			if err := t.Count(); err != nil {
				return err
			}
		}
		if t.gathered == 0 {
			t.first = t.actor
		}
		// As many as fit before the next check or count.
		n := min(len(ids), gatherMost-t.gathered, checkEvery-t.expanded%checkEvery)
		if t.expanded < lightResults {
			n = min(n, lightResults-t.expanded)
		}
		var b *tallyBlock
		actor := (t.actor - t.first) << 16
		for i, id := range ids[:n] {
			if number := id / blockIDs; b == nil || b.number != number {
				b = t.block(number)
			}
			if len(b.gathered) == cap(b.gathered) {
				b.gathered = slices.Grow(b.gathered, max(64, len(b.gathered))) // append would grow it by a quarter
				if t.Weighted {
					b.weights = slices.Grow(b.weights, cap(b.gathered)-len(b.gathered))
				}
			}
			b.gathered = append(b.gathered, actor|uint32(uint16(id)))
			if t.Weighted {
				weight := t.weight
				if weights != nil {
					weight = weights[i]
				}
				b.weights = append(b.weights, weight)
			}
		}
		ids = ids[n:]
		if weights != nil {
			weights = weights[n:]
		}
		t.expanded += n
		t.gathered += n
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
	for _, b := range t.blocks {
		if b == nil || len(b.gathered) == 0 {
			continue
		}
		before := len(b.results)
		t.count(b)
		if t.used += len(b.results) - before; t.used > MostResults {
			return &LimitError{fmt.Sprintf("of expands to more than %d different results; ask about fewer members", MostResults)}
		}
	}
	return nil
}

// open makes index that of a block.
func (t *Tally) open(b *tallyBlock) {
	if t.index == nil {
		t.index = make([]uint16, blockIDs)
	}
	for i := range b.results {
		t.index[b.results[i].low] = uint16(i)
	}
}

// place returns the place of an id in the results of the block that is open, and whether it is there.
func (t *Tally) place(b *tallyBlock, low uint16) (at int, ok bool) {
	at = int(t.index[low])
	return at, at < len(b.results) && b.results[at].low == low
}

// count counts the gathered ids of a block, each as often as times has for its actor.
func (t *Tally) count(b *tallyBlock) {
	t.open(b)
	more := min(len(b.gathered), blockIDs-len(b.results))
	b.results = slices.Grow(b.results, more)
	if t.Weighted {
		b.sums = slices.Grow(b.sums, more)
	}
	for i, g := range b.gathered {
		low, actor := uint16(g), t.first+g>>16
		at, again := t.place(b, low)
		if !again {
			at = len(b.results)
			t.index[low] = uint16(at)
			b.results = append(b.results, tallied{low: low})
			if t.Weighted {
				b.sums = append(b.sums, sum{})
			}
		}
		e := &b.results[at]
		again = again && e.actor == actor
		if t.Weighted {
			weight := b.weights[i]
			if t.times != nil {
				weight *= float64(t.times[actor])
			}
			b.sums[at].add(weight, again)
		}
		if again {
			continue
		}
		if e.count++; t.times != nil {
			e.count += t.times[actor] - 1
		}
		e.actor = actor
		t.highest = max(t.highest, e.count)
	}
	b.gathered, b.weights = b.gathered[:0], b.weights[:0]
}

// LeaveOut removes a set from the results. No id may be added afterwards.
func (t *Tally) LeaveOut(set sets.Set) {
	if set.Len() < uint64(t.used) {
		var b *tallyBlock
		for id := range set.All() {
			if number := id / blockIDs; b == nil || b.number != number {
				b = t.block(number)
				t.open(b)
			}
			if at, ok := t.place(b, uint16(id)); ok {
				b.results[at].count = 0
			}
		}
		return
	}
	for _, b := range t.blocks {
		for i := 0; b != nil && i < len(b.results); i++ {
			if e := &b.results[i]; set.Has(b.number*blockIDs + uint64(e.low)) {
				e.count = 0
			}
		}
	}
}

// AtLeast returns the number of results with at least a count.
func (t *Tally) AtLeast(count uint32) (n int) {
	for range t.reaching(t.uncounted(count)) {
		n++
	}
	return n
}

// Members returns the results with at least a count.
func (t *Tally) Members(count uint32) sets.Set {
	var ids []uint64
	least := t.uncounted(count)
	blocks := slices.DeleteFunc(slices.Clone(t.blocks), func(b *tallyBlock) bool { return b == nil })
	slices.SortFunc(blocks, func(x, y *tallyBlock) int { return cmp.Compare(x.number, y.number) })
	for _, b := range blocks { // a bit for each id sorts them
		var in [blockIDs / 64]uint64
		for _, e := range b.results {
			if e.count >= least {
				in[e.low/64] |= 1 << (e.low % 64)
			}
		}
		for i, word := range in {
			for ; word != 0; word &= word - 1 {
				ids = append(ids, b.number*blockIDs+uint64(64*i+bits.TrailingZeros64(word)))
			}
		}
	}
	return sets.FromList(ids)
}

// Top returns up to limit of the results with at least a count, in order (CompareResults).
func (t *Tally) Top(count uint32, limit int) []Result {
	if limit <= 0 {
		return nil
	}
	least := t.uncounted(count)
	if !t.Weighted { // the last result has the highest count that limit results reach
		perCount := make([]int, t.highest+1)
		for _, b := range t.blocks {
			for i := 0; b != nil && i < len(b.results); i++ {
				perCount[b.results[i].count]++
			}
		}
		n, c := 0, t.highest+1
		for ; c > least && n < limit; n += perCount[c] {
			c--
		}
		least = max(least, c)
	}
	first := top[Result]{most: limit, compare: CompareResults}
	for r := range t.reaching(least) {
		first.offer(r)
	}
	return first.sorted()
}

// reaching yields the results that were counted so often, block by block.
func (t *Tally) reaching(least uint32) iter.Seq[Result] {
	return func(yield func(Result) bool) {
		for _, b := range t.blocks {
			if b == nil {
				continue
			}
			for i := range b.results {
				e := &b.results[i]
				if e.count < least {
					continue
				}
				r := Result{ID: b.number*blockIDs + uint64(e.low), Count: t.counted(e.count)}
				if r.Score = float64(r.Count); t.Weighted {
					r.Score = (b.sums[i].before + b.sums[i].last) * max(t.Scale, 1)
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}

// take adds the results of another ranking, block by block: their counts, and their scores times a weight.
func (t *Tally) take(ended Ended, results iter.Seq[Result], weight float64) error {
	var b *tallyBlock
	for r := range results {
		if number := r.ID / blockIDs; b == nil || b.number != number {
			if err := ended.Err(); err != nil {
				return err
			}
			b = t.block(number)
			t.open(b)
		}
		at, known := t.place(b, uint16(r.ID))
		if !known {
			if t.used++; t.used > MostResults {
				return &LimitError{fmt.Sprintf("blend has more than %d different results; give its rankings a min or a top", MostResults)}
			}
			at = len(b.results)
			t.index[uint16(r.ID)] = uint16(at)
			if at == cap(b.results) { // append would grow it by a quarter
				b.results, b.sums = slices.Grow(b.results, max(64, at)), slices.Grow(b.sums, max(64, at))
			}
			b.results, b.sums = append(b.results, tallied{low: uint16(r.ID)}), append(b.sums, sum{})
		}
		b.results[at].count += min(r.Count, math.MaxUint32-b.results[at].count)
		b.sums[at].before += weight * r.Score
	}
	return ended.Err()
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
