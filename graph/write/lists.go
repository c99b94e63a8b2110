package write

import (
	"cmp"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A ListChange names a list and an account that a write may have added to it or removed from it.
type ListChange struct {
	List, Member dict.ID
}

// listChanges returns, for each changed list item, every combination of its old or new list with
// its old or new account. The changes ascend by kind, actor and path.
func listChanges(changes []change) (all []ListChange) {
	of := func(k kinds.Kind) []change {
		from, _ := slices.BinarySearchFunc(changes, k, func(c change, k kinds.Kind) int { return cmp.Compare(c.kind, k) })
		to, _ := slices.BinarySearchFunc(changes, k+1, func(c change, k kinds.Kind) int { return cmp.Compare(c.kind, k) })
		return changes[from:to]
	}
	members, lists := of(kinds.ListMember), of(kinds.ListItem)
	for i := range members {
		m := members[i]
		m.kind = kinds.ListItem
		n, found := slices.BinarySearchFunc(lists, m, func(x, y change) int { return compareChanges(&x, &y) })
		if !found {
			continue
		}
		for _, list := range []dict.ID{lists[n].old, lists[n].new} {
			for _, member := range []dict.ID{m.old, m.new} {
				c := ListChange{list, member}
				if list != dict.None && member != dict.None && (len(all) == 0 || all[len(all)-1] != c) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}
