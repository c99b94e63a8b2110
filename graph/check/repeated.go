package check

import (
	"cmp"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// repeated looks up the members that have several records: in sets without containers, the row has to note
// them as repeated (format.Row); in those with containers, their date must be that of all their records, or
// Undated. Writers rely on both when they delete records, so each such member is looked up.
type repeated struct {
	all, large []repeatedMember
	keys, late kv.Keys
}

type repeatedMember struct {
	kind           kinds.Kind
	actor, subject dict.ID
	date           uint32 // of all its records, in a set with blocks of dates; Undated if they differ
	inRow          bool   // the row of the set has the member,
	rowDate        uint32 // with this date
}

// repeatedAtOnce is how many rows are looked up together. Their values are in memory: row groups have up to 200 KB, nearly all far less.
const repeatedAtOnce = 256

// noteRepeated adds the subjects that several records of an actor name; subjects ascend. dated has the records
// whose subjects have large sets, ascending by subject.
func (v *checker) noteRepeated(k kinds.Kind, actor dict.ID, subjects []uint64, dated []datedSubject) error {
	if !format.HasRepeated(k) {
		return nil
	}
	r := &v.repeated
	for i := 1; i < len(subjects); i++ {
		if s := subjects[i]; s == subjects[i-1] && (i == 1 || s != subjects[i-2]) {
			m := repeatedMember{kind: k, actor: actor, subject: dict.ID(s), date: format.Undated}
			at, _ := slices.BinarySearchFunc(dated, s, func(d datedSubject, s uint64) int { return cmp.Compare(d.subject, s) })
			for first := at; at < len(dated) && dated[at].subject == s; at++ {
				if m.date = dated[at].date; m.date != dated[first].date {
					m.date = format.Undated
					break
				}
			}
			r.all = append(r.all, m)
			r.keys.Add(v.AppendMemberKey(nil, k, dict.ID(s), actor))
		}
	}
	if len(r.all) < repeatedAtOnce {
		return nil
	}
	return v.ofDates().lookUpRepeated()
}

// lookUpRepeated looks up the members that were added.
func (v dateCheck) lookUpRepeated() error {
	r := &v.repeated
	r.large = r.large[:0]
	r.late.Reset()
	err := v.r.MultiGet(r.keys.List(), func(i int, value []byte, _ bool) error {
		m := r.all[i]
		var row format.Row
		value, err := v.RowIn(m.kind, m.subject, value)
		if err == nil {
			row, err = format.ParseRow(m.subject, value)
		}
		if err != nil {
			return nil //nolint:nilerr // eachSet reports it
		}
		if row.Generation > 0 {
			members, err := row.AppendMembers(nil)
			if err != nil {
				return nil //nolint:nilerr // likewise
			}
			var at int
			if at, m.inRow = slices.BinarySearch(members, uint64(m.actor)); m.inRow {
				m.rowDate = row.Date(at)
			}
			r.large = append(r.large, m)
			r.late.Add(format.AppendDateBlock(format.AppendDatesKey(nil, m.kind, m.subject), uint64(m.actor)>>format.DateShift))
		}
		if id := uint64(m.actor); row.Generation == 0 && row.Has(id) && !row.IsRepeated(id) {
			v.broken("actor %d has several %s records of %d, but is not a repeated member of the subject's set", m.actor, v.kinds.Info(m.kind).Name, m.subject)
		}
		return nil
	})
	r.all = r.all[:0]
	r.keys.Reset()
	if err == nil {
		err = v.r.MultiGet(r.late.List(), func(i int, value []byte, _ bool) error {
			m := r.large[i]
			in, date := m.inRow, m.rowDate
			_ = format.EachDate(uint64(m.actor)>>format.DateShift<<format.DateShift, value, func(id uint64, d uint32) { // eachDate reports a malformed block
				if id != uint64(m.actor) {
					return
				}
				if in && d != date {
					d = format.Undated
				}
				in, date = true, d
			})
			if !in || date == format.Undated || date == m.date {
				return nil
			}
			if date == format.OneRecord {
				v.broken("actor %d has several %s records of %d, but its date says that it has one", m.actor, v.kinds.Info(m.kind).Name, m.subject)
			} else if !v.isDateOf(&m, date) {
				v.broken("actor %d has several %s records of %d, and its date %d is not that of all of them", m.actor, v.kinds.Info(m.kind).Name, m.subject, date)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("checking the repeated members: %w", err)
	}
	return nil
}

// isDateOf reports whether a date is that of all records of a repeated member, or that is unknown. If the set has no blocks of
// dates, because all of its members had been removed when its row was spilled, the records were not gathered, and are read.
func (v dateCheck) isDateOf(m *repeatedMember, date uint32) bool {
	if v.dates.isLarge(m.kind, uint64(m.subject)) {
		return date == m.date
	}
	right := true
	err := read.RecordsNaming(v.r, m.kind, m.actor, read.Window{}, func(id dict.ID) bool { return id == m.subject }, func(r *format.Record) bool {
		right = format.DateOf(r.Path) == date
		return right
	})
	if err != nil { // eachActor reports malformed records, and meets what else makes reads fail
		return true
	}
	return right
}
