package graph

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"

	"skein/intern"
	"skein/internal/kv"
)

// readOld reads what each changed path held before.
func (a *applier) readOld(tx kv.Txn, b *Batch) error {
	a.keys.reset()
	a.asked = a.asked[:0]
	for i := range a.changes {
		c := &a.changes[i]
		if c.subject >= 0 {
			c.new = a.strings.ID(int(c.subject))
		}
		if c.fresh {
			continue
		}
		a.kbuf = appendRecordKey(a.kbuf[:0], c.kind, c.actor, b.bytes(c.rkey))
		a.keys.add(a.kbuf)
		a.asked = append(a.asked, int32(i))
	}
	return tx.MultiGet(a.keys.keys, func(i int, v []byte, ok bool) (err error) {
		c := &a.changes[a.asked[i]]
		c.existed = ok
		c.old, err = decodeSubject(v)
		return err
	})
}

// decide notes what each change does to the records and their edges.
func (a *applier) decide(b *Batch) {
	for i := range a.changes {
		c := &a.changes[i]
		records := a.result.counts.Records
		switch {
		case c.delete && c.existed:
			records[c.kind.String()]--
		case !c.delete && !c.existed:
			records[c.kind.String()]++
		}
		if c.old != intern.None && (c.delete || c.new != c.old) {
			a.edges.gone = append(a.edges.gone, edgeChange{c.kind, c.actor, c.old, c.rkey})
		}
		if !c.delete && c.new != intern.None && c.new != c.old {
			a.edges.come = append(a.edges.come, edgeChange{c.kind, c.actor, c.new, c.rkey})
		}
	}
	a.edges.sort(b)
}

// edgeChange is a record that names a subject from now on, or does no longer.
type edgeChange struct {
	kind    Kind
	actor   intern.ID
	subject intern.ID
	rkey    span
}

func compareEdges(x, y edgeChange) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.actor, y.actor), cmp.Compare(x.subject, y.subject))
}

func sameEdge(x, y edgeChange) bool { return compareEdges(x, y) == 0 }

// setChange is a member that a reverse set gains or loses.
type setChange struct {
	kind    Kind
	remove  bool
	subject intern.ID
	member  intern.ID
}

type edgeSorter struct {
	gone, come []edgeChange // by edge, then rkey
	sets       []setChange  // by container, then member
	add, less  []uint16     // of one container
}

func (s *edgeSorter) reset() { s.gone, s.come, s.sets = s.gone[:0], s.come[:0], s.sets[:0] }

func (s *edgeSorter) sort(b *Batch) {
	byRkey := func(x, y edgeChange) int {
		if c := compareEdges(x, y); c != 0 {
			return c
		}
		return bytes.Compare(b.bytes(x.rkey), b.bytes(y.rkey))
	}
	slices.SortFunc(s.gone, byRkey)
	slices.SortFunc(s.come, byRkey)
}

// decideEdges decides each edge once: an edge that lost a record stays if this
// write brings another, or if the store has one that this write does not take.
func (a *applier) decideEdges(tx kv.Txn, b *Batch) error {
	e := &a.edges
	for come := range groups(e.come, sameEdge) {
		c := come[0]
		e.sets = append(e.sets, setChange{c.kind, false, c.subject, c.actor})
		a.result.added[c.kind]++
	}
	for gone := range groups(e.gone, sameEdge) {
		c := gone[0]
		if _, comes := slices.BinarySearchFunc(e.come, c, compareEdges); comes {
			continue
		}
		other, err := a.otherRecord(tx, b, gone)
		if err != nil {
			return fmt.Errorf("graph: looking for other records of an edge: %w", err)
		}
		if !other {
			e.sets = append(e.sets, setChange{c.kind, true, c.subject, c.actor})
			a.result.removed[c.kind]++
		}
	}
	slices.SortFunc(e.sets, func(x, y setChange) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.subject, y.subject), cmp.Compare(x.member, y.member))
	})
	return nil
}

// otherRecord reports whether the store has a record of the edge that gone,
// all of one edge, by rkey, does not take away.
func (a *applier) otherRecord(tx kv.Txn, b *Batch, gone []edgeChange) (other bool, err error) {
	c := gone[0]
	a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, nil)
	err = tx.Scan(a.kbuf, kv.PrefixEnd(a.kbuf), false, func(k, _ []byte) (bool, error) {
		if len(gone) > 0 && bytes.Equal(b.bytes(gone[0].rkey), k[forwardKeyPrefix:]) {
			gone = gone[1:]
			return true, nil
		}
		other = true
		return false, nil
	})
	return other, err
}

// groups yields the runs of list whose neighbours are the same.
func groups[T any](list []T, same func(x, y T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && same(list[n-1], list[n]) {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// writeRecords writes the records, and the same by subject.
func (a *applier) writeRecords(tx kv.Txn, b *Batch) {
	for i := range a.changes {
		c := &a.changes[i]
		if c.delete && !c.existed || !c.delete && c.existed && c.new == c.old {
			continue
		}
		a.kbuf = appendRecordKey(a.kbuf[:0], c.kind, c.actor, b.bytes(c.rkey))
		if c.delete {
			tx.Delete(a.kbuf)
			continue
		}
		a.vbuf = appendSubject(a.vbuf[:0], c.new)
		tx.Set(a.kbuf, a.vbuf)
	}
	for _, c := range a.edges.gone {
		a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, b.bytes(c.rkey))
		tx.Delete(a.kbuf)
	}
	for _, c := range a.edges.come {
		a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, b.bytes(c.rkey))
		tx.Set(a.kbuf, emptyValue)
	}
}

// writeEdges merges what the sets gain and lose, one operand per container.
func (a *applier) writeEdges(tx kv.Txn) { a.edges.merge(tx, &a.kbuf, &a.vbuf) }

func (s *edgeSorter) merge(tx kv.Txn, kbuf, vbuf *[]byte) {
	for changes := range groups(s.sets, sameContainer) {
		s.add, s.less = s.add[:0], s.less[:0]
		for _, c := range changes {
			if c.remove {
				s.less = append(s.less, uint16(c.member))
			} else {
				s.add = append(s.add, uint16(c.member))
			}
		}
		c := changes[0]
		*kbuf = appendReverseKey((*kbuf)[:0], c.kind, c.subject, blockOf(c.member))
		*vbuf = appendOperand((*vbuf)[:0], s.add, s.less)
		tx.Merge(*kbuf, *vbuf)
	}
}

func sameContainer(x, y setChange) bool {
	return x.kind == y.kind && x.subject == y.subject && blockOf(x.member) == blockOf(y.member)
}
