package check

import (
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// A member with several records whose date says that it has one, or is that of one only, is found.
func TestWrongOneRecord(t *testing.T) {
	tried := 0
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		for key, v := range b.rows {
			k, subject, block, err := format.ParseDatesKey([]byte(key))
			if err != nil || !format.HasRepeated(k) {
				continue
			}
			var present []format.Dated
			if err := format.EachDate(0, v, func(id uint64, date uint32) {
				present = append(present, format.Dated{Member: uint16(id), Date: date})
			}); err != nil || len(present) == 0 {
				continue
			}
			want, date := "but its date says that it has one", uint32(format.OneRecord)
			if tried%2 == 1 {
				want, date = "is not that of all of them", 1234
			}
			present[0].Date = date
			actor := dict.ID(block<<format.DateShift | uint64(present[0].Member))
			value, err := b.RowIn(k, subject, b.rows[string(b.AppendMemberKey(nil, k, subject, actor))])
			if err != nil {
				t.Fatal(err)
			}
			if row, err := format.ParseRow(subject, value); err != nil || row.Has(uint64(actor)) || row.HasRemoved(uint64(actor)) {
				continue
			}
			b.rows[key] = format.AppendDates(nil, nil, present)
			const free = 9
			b.chunk(k, actor, free, 0, at(free, 7, subject))
			if found := b.problems(); !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, want) }) {
				t.Errorf("%q, want %q among them", found, want)
			}
			tried++
			return
		}
	})
	if tried < 2 {
		t.Error("fewer than two stores have dates")
	}
}

// Of a set whose row was spilled when it had no members left, no dates are in blocks. The date in the row is compared
// with the member's records.
func TestDatesWithoutBlocks(t *testing.T) {
	const free, second, problem = 9, 1_000_000 << format.ClockBits, "is not that of all of them"
	eachStore(t, func(t *testing.T, h healthy) {
		for _, test := range []struct {
			apart uint64 // the second record is that much later than the first
			wrong bool
		}{{1 << format.ClockBits, false}, {3 * second, true}} {
			b := h.bench(t)
			member, subject := b.id(alice), b.id(zoe)
			first, other := at(free, second, subject), at(free, second+test.apart, subject)
			b.rows[string(b.row(4, subject, member))] = format.AppendDatedRow(nil, subject, 1, nil, []uint64{uint64(member)}, []uint32{format.DateOf(first.Path)})
			b.chunk(4, member, free, 0, first, other)
			found := b.problems()
			if got := slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, problem) }); got != test.wrong {
				t.Errorf("records %d apart: %q, want %q among them: %t", test.apart, found, problem, test.wrong)
			}
		}
	})
}
