package query

import (
	"fmt"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
)

// MaxListers bounds how many have put an account on lists, of which those that it is on are
// asked for: the records of each are read.
const MaxListers = 50_000

// lists reads a leaf that is of lists: who is on one, or on which an account is.
func (v *evaluation) lists(l leaf) (idset.Set, error) {
	if kept, ok := v.listsRead[l]; ok {
		return kept, nil
	}
	var ids []uint64
	err := v.eachListed(l, func(id dict.ID, _ format.Path) { ids = append(ids, uint64(id)) })
	if err != nil {
		return idset.Set{}, err
	}
	set := idset.FromUnsorted(ids)
	v.listsRead[l] = set
	return set, nil
}

// eachListed calls each with the members of such a leaf, and the records by which they are
// in it. What is hidden by its author is left out.
func (v *evaluation) eachListed(l leaf, each func(id dict.ID, p format.Path)) error {
	if l.op == opListed {
		if v.view.IsHidden(l.by) {
			return nil
		}
		return v.view.Listed(l.of, l.by, l.window, each)
	}
	t, err := v.openActors(kinds.ListMember, l.of)
	if err != nil {
		return err
	}
	set, err := v.all(t)
	if err != nil {
		return err
	}
	if set.Len() > MaxListers {
		return &LimitError{fmt.Sprintf("lists reads the records of every account that has put this one on a list, and fails above %d accounts; there are %d", MaxListers, set.Len())}
	}
	if set.Len() > idset.ListMax {
		if err := v.budget.Heavy(); err != nil {
			return err
		}
	}
	from := make([]dict.ID, 0, set.Len())
	for id := range set.All() {
		from = append(from, dict.ID(id))
	}
	return v.view.Lists(l.of, from, l.window, each)
}

// recordOf is a member, and the record that makes the edge.
type recordOf struct {
	id   dict.ID
	path format.Path
}

// listRecords finds the records by which the members of such a leaf are in it. ids are
// members, and ascend.
func (v *evaluation) listRecords(n *node, ids []dict.ID) (found []recordOf, err error) {
	shown := make(map[dict.ID]*ask.ShownRecord, len(ids))
	for _, id := range ids {
		shown[id] = &ask.ShownRecord{}
	}
	err = v.eachListed(leafAt(n, v.ids), func(id dict.ID, p format.Path) {
		if e := shown[id]; e != nil {
			e.Offer(p, 0) // the edge goes to an account
		}
	})
	for _, id := range ids {
		if p, ok := shown[id].Path(); ok {
			found = append(found, recordOf{id, p})
		}
	}
	return found, err
}
