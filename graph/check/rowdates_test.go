package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// datedMember returns a member of a leaf of famous' followers that has a date, and is not in a row: the leaf's key, and the member's place.
func (b *bench) datedMember() (key string, members []uint64, dates []uint32, place int) {
	b.t.Helper()
	set, err := read.OpenSet(b.table, b.Layout, 1, b.id(famous))
	must(b.t, err)
	key = b.first(format.KeyReverse, func(k string, v []byte) bool {
		if !strings.HasPrefix(k, string(format.Leaves(set.Key))) {
			return false
		}
		_, _, members, dates, err = format.MergeRows(b.id(famous), v)
		for place = range members {
			if err == nil && dates[place] < format.OneRecord && !slices.Contains(set.Members, members[place]) && !slices.Contains(set.Removed, members[place]) {
				return true
			}
		}
		return false
	})
	if key == "" {
		b.t.Fatal("no leaf has such a date")
	}
	return key, members, dates, place
}

// TestDates: the date of a member in a leaf, or in a row above leaves, is that of its only record, or says less.
func TestDates(t *testing.T) {
	tried := 0
	eachStore(t, func(t *testing.T, h healthy) {
		if !h.spilled {
			return
		}
		tried++
		for _, inRow := range []bool{false, true} {
			for name, c := range map[string]struct {
				date  func(right uint32) uint32
				again bool   // it has a second record
				says  string // "": nothing
			}{
				"right":           {func(d uint32) uint32 { return d }, false, ""},
				"a second late":   {func(d uint32) uint32 { return d + 1 }, false, "wrong"},
				"one record":      {func(uint32) uint32 { return format.OneRecord }, false, ""},
				"undated":         {func(uint32) uint32 { return format.Undated }, false, ""},
				"right, of two":   {func(d uint32) uint32 { return d }, true, "several"},
				"wrong, of two":   {func(d uint32) uint32 { return d + 1 }, true, "several"},
				"one record, two": {func(uint32) uint32 { return format.OneRecord }, true, "several"},
				"undated, of two": {func(uint32) uint32 { return format.Undated }, true, ""},
			} {
				b := h.bench(t)
				subject := b.id(famous)
				key, members, dates, i := b.datedMember()
				member, right := dict.ID(members[i]), dates[i]
				dates[i] = c.date(right)
				if inRow {
					row := string(b.row(1, subject, member))
					generation, removed, added, of, err := format.MergeRows(subject, b.rows[row],
						format.AppendRow(nil, subject, 0, []uint64{members[i]}, []uint64{members[i]}, dates[i:i+1]))
					must(t, err)
					b.rows[row] = format.AppendRow(nil, subject, generation, removed, added, of)
				} else {
					b.rows[key] = format.AppendRow(nil, subject, 0, nil, members, dates)
				}
				var wants []string
				if c.again {
					b.add(1, member, at(7, subject))
					wants = []string{"the states count the records of", fmt.Sprintf("account %d does not have 1 follow", member), fmt.Sprintf("account %d has 2", member), "the counts are"}
				}
				switch c.says {
				case "several":
					wants = append(wants, fmt.Sprintf("actor %d has several follow records of %d, and its date in the set, %d, says that it has one", member, subject, dates[i]))
				case "wrong":
					wants = append(wants, fmt.Sprintf("actor %d has the date %d in the follow set of %d, and no such record", member, dates[i], subject))
				}
				found := b.problems()
				for _, want := range wants {
					if !slices.ContainsFunc(found, func(p string) bool { return strings.HasPrefix(p, want) }) {
						t.Errorf("%s, in a row: %t: %q, want %q", name, inRow, found, want)
					}
				}
				if c.says == "" && len(found) != len(wants) {
					t.Errorf("%s, in a row: %t: %q", name, inRow, found)
				}
			}
		}
	})
	if tried < 3 {
		t.Error("fewer than three stores have leaves")
	}
}
