package read

import (
	"cmp"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A DateRange says which dates are wanted, First and Last included. Members whose records have to be read are always
// wanted, and so are those dated From or later, if it is not 0. The caller of Dates may narrow the range meanwhile.
type DateRange struct{ First, Last, From uint32 }

// Has reports whether a date is wanted.
func (w *DateRange) Has(date uint32) bool {
	return date-w.First <= w.Last-w.First || date >= format.OneRecord || w.From > 0 && date >= w.From
}

// Dates calls each with those members of a reverse set whose dates are wanted, in no order, and with their dates. A date is
// format.Undated if the records of the member have to be read, as in a set without containers. Dates returns the number of all
// members.
func Dates(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID, wanted *DateRange, each func(id uint64, date uint32) error) (members uint64, err error) {
	t, err := OpenSet(r, l, k, subject)
	if err != nil {
		return 0, err
	}
	members = uint64(len(t.Members))
	date := func(i int) uint32 {
		if t.Dates == nil {
			return format.Undated
		}
		return t.Dates[i]
	}
	again := make([]bool, len(t.Members)) // members of rows that have another date in a block
	if t.Generation > 0 {
		// There is a date for each member of a large set. Most questions want few of them, and hardly any member is in a row. So a
		// date that is not wanted costs a few comparisons.
		added, removed := sets.NewSparse(sets.FromList(t.Members)), sets.NewSparse(sets.FromList(t.Removed))
		prefix := format.AppendDatesKey(nil, k, subject)
		var failed error
		err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(key, v []byte) (bool, error) {
			_, _, block, err := format.ParseDatesKey(key)
			if err == nil {
				err = format.EachDate(block<<format.DateShift, v, func(id uint64, d uint32) {
					if added.Has(id) {
						i, _ := slices.BinarySearch(t.Members, id)
						again[i] = again[i] || d != date(i)
						return
					}
					if removed.Has(id) {
						return
					}
					if members++; !wanted.Has(d) || failed != nil {
						return
					}
					if d == format.OneRecord {
						d = format.Undated
					}
					failed = each(id, d)
				})
			}
			if err != nil {
				err = fmt.Errorf("reading dates %x: %w", key, err)
			}
			return err == nil && failed == nil, err
		})
		if err != nil || failed != nil {
			return members, cmp.Or(err, failed)
		}
	}
	for i, id := range t.Members {
		d := date(i)
		if again[i] || t.Generation == 0 || d == format.OneRecord { // a valid row has no OneRecord
			d = format.Undated
		}
		if !wanted.Has(d) {
			continue
		}
		if err := each(id, d); err != nil {
			return members, err
		}
	}
	return members, nil
}
