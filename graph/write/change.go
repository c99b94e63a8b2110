package write

import (
	"cmp"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
)

// change is one change to a record's path. After lastWriteWins, each path has only its last
// change of the write.
type change struct {
	kind    kinds.Kind
	delete  bool
	existed bool // the path had a record; set by the phase previous, like old
	fresh   bool // no look-up needed: nothing can be stored under the path, or what is stored is known already
	kept    bool // another record, which the write leaves as it is, names old; set by the phase previous. False if that is unknown
	lone    bool // no record that the write leaves as it is names old. False if that is unknown
	actor   dict.ID
	path    format.Path // its bytes lie in the batch
	subject int32       // before addSubjects: index of the operation in the batch; after it: index of the subject in the write's strings; -1: no subject
	order   uint32      // index of the operation in the batch, which is stream order
	new     dict.ID     // the subject after the change, or None
	old     dict.ID     // the subject before, or None
}

// loses reports whether a record stops naming old.
func (c *change) loses() bool { return c.old != dict.None && (c.delete || c.new != c.old) }

// changes are the changes of a write, the last of each path, ascending (compareChanges).
type changes []change

// addSubjects adds the subjects to strings.
func (c changes) addSubjects(b *batch.Batch, strings *intern.Batch, t *kinds.Table) {
	for i := range c {
		if c := &c[i]; c.subject >= 0 {
			o := b.Op(uint32(c.subject))
			c.subject = int32(strings.Add(t.Info(o.Kind).To.Is(), b.Bytes(o.Subject)))
		}
	}
}

// takeSubjects sets new to the ids of the subjects.
func (c changes) takeSubjects(strings *intern.Batch) {
	for i := range c {
		if c := &c[i]; c.subject >= 0 {
			c.new = strings.ID(int(c.subject))
		}
	}
}

// compareChanges orders changes like their records in the store: by kind, actor and path.
func compareChanges(x, y *change) int {
	switch {
	case x.kind != y.kind:
		return cmp.Compare(x.kind, y.kind)
	case x.actor != y.actor:
		return cmp.Compare(x.actor, y.actor)
	}
	return format.ComparePaths(x.path, y.path)
}

func sameKindAndActor(x, y change) bool { return x.kind == y.kind && x.actor == y.actor }

// A ListChange names a list and an account that a write may have added to it or removed from it.
type ListChange struct {
	List, Member dict.ID
}

// ListChanges returns, for each list item that the last attempt changed, every combination of its old or new list with
// its old or new account. The changes ascend by kind, actor and path.
func (w *Writer) ListChanges() (all []ListChange) {
	changes := w.events.changes
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
