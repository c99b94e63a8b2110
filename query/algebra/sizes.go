package algebra

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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
	page = make([]Sized, len(all))
	err = v.Sizes(via, IDs(all), func(i int, size uint64) error {
		page[i] = Sized{dict.ID(all[i]), size}
		return v.Ended.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	order := func(x, y Sized) int { return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.ID, y.ID)) }
	slices.SortFunc(page, order)
	if after.Begun {
		at, _ := slices.BinarySearchFunc(page, Sized{after.ID, after.Micros}, func(x, y Sized) int { return cmp.Or(order(x, y), -1) })
		page = page[at:]
	}
	if len(page) > limit {
		end := page[limit-1]
		page, last = page[:limit], &Place{Begun: true, Sorted: true, Micros: end.Size, ID: end.ID}
	}
	return page, last, nil
}
