package algebra

import (
	"fmt"
	"math"

	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// MaxSized is the largest set that BySize sorts. Of a larger one it sorts a sample. By lists and listed, which it
// reads item by item, it sorts at most maxSizedLists.
const (
	MaxSized      = 20_000
	maxSizedLists = 1_000
)

// A Sized is a member of a set, with the size of a set of its own.
type Sized struct {
	ID   dict.ID
	Size uint64
}

// BySize returns a page of set, sorted by the sizes of the members' sets along via, such as the
// numbers of their followers: the largest first, equal ones by id. last is the Place of the next page,
// nil after the last one; its Micros are a size.
func (v *Evaluation) BySize(set sets.Set, via language.Via, after Place, limit int) (page []Sized, last *Place, err error) {
	most := MaxSized
	if via.IsList() {
		most = maxSizedLists
	}
	if size := set.Len() - sets.AndLen(v.Hidden(), set); size > uint64(most) {
		if v.Exact {
			return nil, nil, &LimitError{fmt.Sprintf("order=size(%s) with exact=true reads a set of every member, and fails for sets of more than %d members; this one has %d", via.Name, most, size)}
		}
		set = lowest(set, v.Hidden(), most, 0, named(v, &v.Expr.Root))
		v.samples = append(v.samples, fmt.Sprintf("order=size(%s) sorted %d of %d members", via.Name, most, size))
	}
	if set.Len() > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, nil, err
		}
	}
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	placed := make([]placedRecord, len(all))
	err = v.Sizes(via, IDs(all), func(i int, size uint64) error {
		placed[i].at, placed[i].ID = size, dict.ID(all[i])
		return v.Ended.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	placed, last = Order{}.page(placed, &after, limit, false)
	for _, m := range placed {
		page = append(page, Sized{m.ID, m.at})
	}
	return page, last, nil
}
