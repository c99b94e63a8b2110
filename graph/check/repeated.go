package check

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// repeated looks up the members that have several records: in sets without containers, the row has to note
// them as repeated (format.Row); in those with containers, their date must not be OneRecord.
type repeated struct {
	all, large []repeatedMember
	keys, late kv.Keys
}

type repeatedMember struct {
	kind           kinds.Kind
	actor, subject dict.ID
}

// repeatedAtOnce is how many rows are looked up together.
const repeatedAtOnce = 4096

// noteRepeated adds the subjects that several records of an actor name; subjects ascend.
func (v *checker) noteRepeated(k kinds.Kind, actor dict.ID, subjects []uint64) error {
	if !format.HasRepeated(k) {
		return nil
	}
	r := &v.repeated
	for i := 1; i < len(subjects); i++ {
		if s := subjects[i]; s == subjects[i-1] && (i == 1 || s != subjects[i-2]) {
			r.all = append(r.all, repeatedMember{k, actor, dict.ID(s)})
			r.keys.Add(v.AppendMemberKey(nil, k, dict.ID(s), actor))
		}
	}
	if len(r.all) < repeatedAtOnce {
		return nil
	}
	return v.lookUpRepeated()
}

// lookUpRepeated looks up the members that were added.
func (v *checker) lookUpRepeated() error {
	r := &v.repeated
	r.large = r.large[:0]
	r.late.Reset()
	err := v.r.MultiGet(r.keys.List(), func(i int, value []byte, _ bool) error {
		m := r.all[i]
		row, err := format.ParseRow(m.subject, value)
		if err != nil {
			return nil //nolint:nilerr // eachSet reports it
		}
		if row.Generation > 0 && !row.Has(uint64(m.actor)) {
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
			_ = format.EachDate(uint64(m.actor)>>format.DateShift<<format.DateShift, value, func(id uint64, date uint32) { // eachDate reports a malformed block
				if id == uint64(m.actor) && date == format.OneRecord {
					v.broken("actor %d has several %s records of %d, but its date says that it has one", m.actor, v.kinds.Info(m.kind).Name, m.subject)
				}
			})
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("checking the repeated members: %w", err)
	}
	return nil
}
