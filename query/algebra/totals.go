package algebra

import (
	"fmt"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// Totals calls each, in no order, with the size of the opposite set of each of ids: the number of
// active accounts with an edge to it or, if via is a reverse set, its number of records, which the account's state has.
func Totals(s *ask.View, via language.Via, ids []dict.ID, each func(i int, total uint64) error) error {
	if via.Op == language.OpReverse {
		return s.RecordCounts(via.Kind, ids, each)
	}
	return s.ActorCounts(via.Kind, ids, nil, each)
}

// TotalsIn is Totals of the edges with a record in a window. It costs as much as a hop and has a budget as large (hop): it
// reads ids in order, all members of each if that is within the budget; else it reads the records of a sample of the members of each,
// and ends once the budget is spent. It returns how many ids were counted, at least the first. With v.Exact it fails instead.
func (v *Evaluation) TotalsIn(via language.Via, ids []dict.ID, w ask.Window, each func(i int, total uint64)) (counted int, err error) {
	var t windowTotals
	for _, most := range []int{MaxWindowed, max(v.HopUnits/lookUpUnits/max(len(ids), 1), leastTotal)} {
		t = windowTotals{v: v, via: via, w: w, units: v.HopUnits, most: most}
		for counted = 0; counted < len(ids); counted++ {
			t.inAnyCase = counted == 0 && most < MaxWindowed
			total, err := t.one(ids[counted])
			if err != nil {
				return counted, err
			}
			if t.units < 0 && !t.inAnyCase {
				break
			}
			each(counted, total)
		}
		if counted == len(ids) && t.sampled == 0 {
			return counted, nil
		}
		if v.Exact {
			return 0, &LimitError{fmt.Sprintf("share and lift in a window read the records of the members of the results' own sets, and more than %d units of them here; use a higher min, or leave out exact=true", v.HopUnits)}
		}
		if err := v.budget.Heavy(); err != nil {
			return 0, err
		}
	}
	sampled := ""
	if t.sampled > 0 {
		sampled = fmt.Sprintf(", %d of them from a sample of their sets", t.sampled)
	}
	v.samples = append(v.samples, fmt.Sprintf("the totals of %d of %d results were counted in the window%s", counted, len(ids), sampled))
	return counted, nil
}

// leastTotal is the least that a sample of a set has members.
const leastTotal = 256

// windowTotals counts totals in a window.
type windowTotals struct {
	v       *Evaluation
	via     language.Via
	w       ask.Window
	units   int // that are left
	most    int // members whose records are read, for each total
	ids     []uint64
	sampled int // totals

	inAnyCase bool // the next total is counted, even if there are too few units: the first one of samples
}

func (t *windowTotals) one(id dict.ID) (total uint64, err error) {
	v, k := t.v, t.via.Kind
	if err := v.Ended.Err(); err != nil {
		return 0, err
	}
	t.units -= memberUnits
	if t.via.Op == language.OpReverse {
		if t.ids, err = v.View.AppendSubjects(t.ids[:0], k, id, t.w); err != nil {
			return 0, err
		}
		t.units -= len(t.ids)
		set := sets.FromUnsorted(slices.Clone(t.ids))
		return set.Len() - sets.AndLen(v.hiddenIn(v.View.Kind(k).To.Is()), set), nil
	}
	hidden := v.View.Hidden()
	set, err := v.leafSet(Leaf{Op: language.OpReverse, Kind: k, Of: id})
	if err != nil {
		return 0, err
	}
	if set.Len() > v.dateAbove {
		t.units -= int(set.Len() / datesPerUnit)
		var dated sets.Set
		if dated, set, err = v.View.DatedIn(k, id, t.w); err != nil {
			return 0, err
		}
		total = dated.Len() - sets.AndLen(hidden, dated)
	}
	set = sets.AndNot(set, hidden)
	n := set.Len()
	if most := uint64(t.most); n > most {
		set = lowest(set, sets.Set{}, t.most, uint64(id), nil)
	}
	if t.units -= int(set.Len()) * lookUpUnits; t.units < 0 && !t.inAnyCase {
		return 0, nil // not counted
	}
	if set.Len() < n {
		t.sampled++
	}
	in, err := v.View.ActorsIn(k, id, t.w, set)
	if err != nil {
		return 0, err
	}
	return total + in.Len()*n/max(set.Len(), 1), nil
}
