package read

import (
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
// format.Undated if the records of the member have to be read, as in a set without leaves. Dates returns the number of all
// members.
func Dates(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID, wanted *DateRange, each func(id uint64, date uint32) error) (members uint64, err error) {
	t, err := OpenSet(r, l, k, subject)
	if err != nil {
		return 0, err
	}
	members = uint64(len(t.Members))
	again := make([]bool, len(t.Members)) // members of rows that are in a leaf, too, and were not removed before they were added
	removed := sets.NewSparse(sets.FromList(t.Removed))
	if t.Generation > 0 {
		// There is a date for each member of a large set. Most questions want few of them, and hardly any member is in a row. So a
		// date that is not wanted costs a few comparisons.
		added := sets.NewSparse(sets.FromList(t.Members))
		var ids []uint64
		var dates []uint32
		err := t.eachLeaf(r, func(row *format.Row) (err error) {
			if ids, err = row.AppendMembers(ids[:0]); err == nil {
				dates, err = row.AppendDates(dates[:0], ids)
			}
			if err != nil {
				return err
			}
			for n, id := range ids {
				if added.Has(id) {
					i, _ := slices.BinarySearch(t.Members, id)
					_, over := slices.BinarySearch(t.Removed, id)
					again[i] = !over
					continue
				}
				if removed.Has(id) {
					continue
				}
				if members++; !wanted.Has(dates[n]) {
					continue
				}
				if err := each(id, unread(dates[n])); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return members, err
		}
	}
	for i, id := range t.Members {
		d := unread(t.Dates[i])
		if again[i] || t.Generation == 0 {
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

// unread returns a date, or Undated if the records have to be read to know it.
func unread(date uint32) uint32 {
	if date == format.OneRecord {
		return format.Undated
	}
	return date
}
