package read

import (
	"cmp"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Dates calls each with the members of a reverse set, in no order, and with their dates. A date is
// format.Undated if the records of the member have to be read, as in a set without containers.
func Dates(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID, each func(id uint64, date uint32) error) error {
	t, err := OpenSet(r, l, k, subject)
	if err != nil {
		return err
	}
	date := func(i int) uint32 {
		if t.Dates == nil {
			return format.Undated
		}
		return t.Dates[i]
	}
	again := make([]bool, len(t.Members)) // members of rows that have another date in a block
	if t.Generation > 0 {
		prefix := format.AppendDatesKey(nil, k, subject)
		var failed error
		err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(key, v []byte) (bool, error) {
			_, _, block, err := format.ParseDatesKey(key)
			if err == nil {
				err = format.EachDate(block<<format.DateShift, v, func(id uint64, d uint32) {
					if i, over := slices.BinarySearch(t.Members, id); over {
						again[i] = again[i] || d != date(i)
					} else if _, over := slices.BinarySearch(t.Removed, id); !over && failed == nil {
						if d == format.OneRecord {
							d = format.Undated
						}
						failed = each(id, d)
					}
				})
			}
			if err != nil {
				err = fmt.Errorf("reading dates %x: %w", key, err)
			}
			return err == nil && failed == nil, err
		})
		if err != nil || failed != nil {
			return cmp.Or(err, failed)
		}
	}
	for i, id := range t.Members {
		d := date(i)
		if again[i] || t.Generation == 0 {
			d = format.Undated
		}
		if err := each(id, d); err != nil {
			return err
		}
	}
	return nil
}
