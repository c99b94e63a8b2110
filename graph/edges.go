package graph

import (
	"cmp"
	"fmt"
	"slices"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/graph/read"
	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/runs"
)

// decide notes what each change does to the records and their edges.
func (a *applier) decide() {
	e := &a.edges
	var records [kinds.Max + 1]int64
	for i := range a.changes {
		c := &a.changes[i]
		switch {
		case c.delete && c.existed:
			records[c.kind]--
		case !c.delete && !c.existed:
			records[c.kind]++
		}
		if c.old != dict.None && (c.delete || c.new != c.old) {
			e.gone = append(e.gone, edge{c.kind, c.actor, c.old})
		}
		if !c.delete && c.new != dict.None && c.new != c.old {
			e.come = append(e.come, edge{c.kind, c.actor, c.new})
		}
	}
	for _, k := range kinds.All {
		a.result.counts.Records[k.Name] += records[k.Kind]
	}
	e.gone, e.come = sortEdges(e.gone), sortEdges(e.come)
}

// sortEdges sorts edges that ascend by kind and actor already, and leaves each
// in once.
func sortEdges(edges []edge) []edge {
	for one := range runs.Of(edges, func(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }) {
		if len(one) > 1 {
			slices.SortFunc(one, compareEdges)
		}
	}
	return slices.Compact(edges)
}

// edge is an edge that a record names from now on, or does no longer.
type edge struct {
	kind    kinds.Kind
	actor   dict.ID
	subject dict.ID
}

func compareEdges(x, y edge) int {
	switch {
	case x.kind != y.kind:
		return cmp.Compare(x.kind, y.kind)
	case x.actor != y.actor:
		return cmp.Compare(x.actor, y.actor)
	}
	return cmp.Compare(x.subject, y.subject)
}

// setChange is a member that a reverse set gains or loses.
type setChange struct {
	kind    kinds.Kind
	remove  bool
	subject dict.ID
	member  dict.ID
}

type edgeSorter struct {
	gone, come []edge      // ascending, each once
	sets       []setChange // by set, then member
	spare      []setChange // scratch of sorting them
	add, less  []uint64    // of one set
	kbuf, vbuf []byte
}

func (s *edgeSorter) reset() { s.gone, s.come, s.sets = s.gone[:0], s.come[:0], s.sets[:0] }

// decideEdges decides each edge once: an edge that lost a record stays if this
// write brings another, or if the store has one that this write does not take.
func (a *applier) decideEdges(tx kv.Txn) error {
	e := &a.edges
	for _, c := range e.come {
		e.sets = append(e.sets, setChange{c.kind, false, c.subject, c.actor})
		a.result.added[c.kind]++
	}
	e.gone = slices.DeleteFunc(e.gone, func(g edge) bool {
		_, comes := slices.BinarySearchFunc(e.come, g, compareEdges)
		return comes
	})
	for gone := range runs.Of(e.gone, func(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }) {
		_, known := slices.BinarySearchFunc(a.scanned, edge{gone[0].kind, gone[0].actor, dict.None}, compareEdges)
		if known {
			a.remove(slices.DeleteFunc(gone, func(g edge) bool {
				_, lost := slices.BinarySearchFunc(a.lost, g, compareEdges)
				return !lost
			}))
			continue
		}
		if err := a.otherRecords(tx, gone); err != nil {
			return fmt.Errorf("graph: looking for other records of an edge: %w", err)
		}
	}
	e.spare = sortByID(&a.sorter, e.sets, e.spare, func(c *setChange) (kinds.Kind, dict.ID) { return c.kind, c.subject }, compareSetChanges)
	e.sets, e.spare = e.spare, e.sets
	return nil
}

func compareSetChanges(x, y setChange) int {
	switch {
	case x.kind != y.kind:
		return cmp.Compare(x.kind, y.kind)
	case x.subject != y.subject:
		return cmp.Compare(x.subject, y.subject)
	}
	return cmp.Compare(x.member, y.member)
}

// otherRecords removes those edges, all of one actor and kind, of which the
// store has no record but on paths that this write changes to name another. The
// actor's records are read once, however many of its edges are in question.
func (a *applier) otherRecords(tx kv.Txn, gone []edge) (err error) {
	kind, actor := gone[0].kind, gone[0].actor
	first, _ := slices.BinarySearchFunc(a.changes, gone[0], func(c change, g edge) int {
		return cmp.Or(cmp.Compare(c.kind, g.kind), cmp.Compare(c.actor, g.actor))
	})
	a.remove(a.others(a.changes[first:], gone, func(wanted func(dict.ID) bool, each func(*format.Record) bool) {
		err = read.RecordsOf(tx, kind, actor, wanted, each)
	}))
	return err
}

// others returns those edges, all of one actor and kind, that no record names but
// on paths that changes make name another. scan calls each for the live records
// of the actor whose subject is wanted, until it returns false.
func (a *applier) others(changes []change, gone []edge, scan func(wanted func(dict.ID) bool, each func(*format.Record) bool)) []edge {
	if len(gone) == 0 {
		return nil
	}
	left := append(a.left[:0], gone...)
	wanted := func(subject dict.ID) bool {
		if len(left) == 1 {
			return left[0].subject == subject
		}
		_, lost := slices.BinarySearchFunc(left, subject, func(e edge, id dict.ID) int { return cmp.Compare(e.subject, id) })
		return lost
	}
	scan(wanted, func(r *format.Record) bool {
		g := edge{gone[0].kind, gone[0].actor, r.Subject}
		at, _ := slices.BinarySearchFunc(left, g, compareEdges)
		c := change{kind: g.kind, actor: g.actor, path: r.Path}
		i, changed := slices.BinarySearchFunc(changes, c, func(x, y change) int { return compareChanges(&x, &y) })
		if !changed || !changes[i].delete && changes[i].new == r.Subject { // or put again as it is
			left = slices.Delete(left, at, at+1)
		}
		return len(left) > 0
	})
	a.left = left
	return left
}

// remove takes edges out of their sets.
func (a *applier) remove(lost []edge) {
	for _, g := range lost {
		a.edges.sets = append(a.edges.sets, setChange{g.kind, true, g.subject, g.actor})
		a.result.removed[g.kind]++
	}
}

// writeRecords merges what changed of the records, one operand per chunk.
func (a *applier) writeRecords(tx kv.Txn) error {
	for changes := range runs.Of(a.changes, sameChunk) {
		a.records = a.records[:0]
		for i := range changes {
			c := &changes[i]
			if c.delete && !c.existed || !c.delete && c.existed && c.new == c.old {
				continue
			}
			r := format.Record{Path: c.path, Subject: c.new}
			if c.delete {
				r.Flags, r.Subject = format.Removed, dict.None
			} else if c.new == dict.None {
				r.Flags = format.NoSubject
			}
			a.records = append(a.records, r)
		}
		if len(a.records) == 0 {
			continue
		}
		c := &changes[0]
		a.kbuf = format.AppendChunkKey(a.kbuf[:0], c.kind, c.actor, c.path, 0)
		coder := format.CoderOf(c.actor, c.path.Bucket())
		if a.vbuf = coder.Append(a.vbuf[:0], 0, a.records); len(a.vbuf) <= maxOperandBytes {
			tx.Merge(a.kbuf, a.vbuf)
			continue
		}
		if err := place(tx, coder, a.kbuf, 0, a.records); err != nil {
			return err
		}
	}
	return nil
}

// merge merges what the sets gain and lose, one operand per row.
func (s *edgeSorter) merge(tx kv.Txn, st *Store) {
	sameRow := func(x, y setChange) bool {
		return x.kind == y.kind && x.subject == y.subject &&
			(!st.Shared() || st.Settings.PartitionOfID(x.member) == st.Settings.PartitionOfID(y.member))
	}
	for changes := range runs.Of(s.sets, sameRow) {
		s.add, s.less = s.add[:0], s.less[:0]
		for _, c := range changes {
			if c.remove {
				s.less = append(s.less, uint64(c.member))
			} else {
				s.add = append(s.add, uint64(c.member))
			}
		}
		c := changes[0]
		s.kbuf = st.AppendMemberKey(s.kbuf[:0], c.kind, c.subject, c.member)
		s.vbuf = format.AppendRow(s.vbuf[:0], c.subject, 0, s.less, s.add)
		tx.Merge(s.kbuf, s.vbuf)
		if len(changes) > st.merger.limits.Row {
			st.merger.note(s.kbuf)
		}
	}
}
