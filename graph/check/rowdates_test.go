package check

import (
	"testing"

	"skein.blue/graph/format"
)

// A wrong date that only a row has is found, too.
func TestWrongDateInARow(t *testing.T) {
	tried := 0
	eachStore(t, func(t *testing.T, h healthy) {
		b, done := h.bench(t), false
		for key, v := range b.rows {
			if key[0] != format.KeyReverse {
				continue
			}
			k, subject, _, isRow, err := format.ParseReverseKey([]byte(key))
			if err != nil || !isRow {
				continue
			}
			r, err := format.ParseRow(subject, v)
			if err != nil || r.Generation == 0 || r.Dates == nil {
				continue
			}
			removed, _ := r.AppendRemoved(nil)
			members, _ := r.AppendMembers(nil)
			dates := make([]uint32, len(members))
			changed := false
			for i := range dates {
				if dates[i] = r.Date(i); dates[i] != format.Undated {
					dates[i] += 1000
					changed = true
				}
			}
			if !changed {
				continue
			}
			_ = k
			b.rows[key] = format.AppendDatedRow(nil, subject, r.Generation, removed, members, dates)
			tried++
			done = true
			break
		}
		if found := b.problems(); done && len(found) == 0 {
			t.Errorf("check accepts a row with wrong dates")
		}
	})
	t.Log(tried)
}
