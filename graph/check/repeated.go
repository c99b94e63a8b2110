package check

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// noteRepeated looks up the members of an actor and kind that have several records: their sets must say so. Writers rely on that when they
// delete records. subjects ascend, and have a subject once for each record.
func (v *checker) noteRepeated(k kinds.Kind, actor dict.ID, subjects []uint64) error {
	for i := 1; i < len(subjects); i++ {
		s := subjects[i]
		if s != subjects[i-1] || i > 1 && s == subjects[i-2] {
			continue
		}
		date, found, _, err := read.Date(v.r, v.Layout, k, dict.ID(s), actor)
		switch {
		case err != nil:
			if failure := v.damage.failure(); failure != nil {
				return fmt.Errorf("checking the repeated members: %w", failure)
			}
			v.unreadable = true // eachSet reports what is malformed
		case found && date != format.Undated:
			v.broken("actor %d has several %s records of %d, and its date in the set, %d, says that it has one", actor, v.kinds.Info(k).Name, s, date)
		}
	}
	return nil
}
