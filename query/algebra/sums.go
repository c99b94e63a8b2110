package algebra

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// tallyOne is the weight 1. Weights are fixed-point numbers, so that a sum does not depend on the order
// in which they were added: equal states have equal scores, on every page.
const tallyOne = 1 << 40

// Unit returns the weight that sums are counted in, above 0 however small it is.
func (t *Tally) Unit() float64 { return math.Exp2(-min(t.Halvings, 900)) }

// Summed is a result, its count, and the sum of its weights.
type Summed struct {
	Counted

	Sum uint64 // in units of 1/tallyOne
}

// sum adds up the weights of one result.
type sum struct {
	all  uint64
	last uint64 // what the last actor added
}

// add adds a weight. If the same actor leads to the id again, the higher of its weights counts. A
// sum that does not fit stays at the highest value.
func (s *sum) add(weight uint64, again bool) {
	more := weight
	if again {
		if weight <= s.last {
			return
		}
		more -= s.last
	}
	s.last = weight
	var carry uint64
	if s.all, carry = bits.Add64(s.all, more, 0); carry > 0 {
		s.all = math.MaxUint64
	}
}

// NextWeighing starts another actor, whose ids have a weight.
func (t *Tally) NextWeighing(weight uint64) { t.NextThinned(weight, 1) }

// NextThinned starts another actor of whose ids only a sample is added, one in times: each counts
// times as much, and so does its weight.
func (t *Tally) NextThinned(weight uint64, times uint32) {
	t.next(times)
	t.weight = weight
}

// AddWeighing adds one id that the actor leads to, with a weight of its own. If it adds an id
// several times, the highest weight counts.
func (t *Tally) AddWeighing(ended Ended, id, weight uint64) error {
	usual := t.weight
	t.weight = weight
	err := t.add(ended, id)
	t.weight = usual
	return err
}

// TopSums returns up to limit of the results with at least a count, those with the highest sums,
// ordered by sum, then by count, then by id.
func (t *Tally) TopSums(count uint32, limit int) []Summed {
	if limit <= 0 {
		return nil
	}
	count = t.uncounted(count)
	var top []Summed
	var last *Summed // of the first limit so far, once there are as many
	for i := range t.parts {
		p := &t.parts[i]
		for j := range p.table {
			e := &p.table[j]
			if e.count < max(count, 1) {
				continue
			}
			s := Summed{Counted{e.id, t.counted(e.count)}, p.sums[j].all}
			if last != nil && compareSums(s, *last) > 0 {
				continue
			}
			if top = append(top, s); len(top) == 2*limit {
				slices.SortFunc(top, compareSums)
				top = top[:limit]
				last = &Summed{top[limit-1].Counted, top[limit-1].Sum}
			}
		}
	}
	slices.SortFunc(top, compareSums)
	return top[:min(limit, len(top))]
}

func compareSums(x, y Summed) int {
	return cmp.Or(cmp.Compare(y.Sum, x.Sum), cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
}
