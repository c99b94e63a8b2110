package write

import (
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// previous is the phase that reads what the changed paths held before.
type previous struct {
	all     []change   // the changes of the write
	lookups [][2]int32 // heads to look up: the bounds of their changes, of one kind and actor
	keys    kv.Keys
	records []format.Record
	olds    []dict.ID // what removed records of keep's changes named, ascending,
	stays   []bool    // and whether another record of the head still names it
	below   []int32   // changes whose paths have to be looked up in leaves
	kbuf    []byte
}

// read reads what the changed paths held before and notes it in the changes, which ascend, unless they are
// fresh. It looks up the heads of all actors together; then, below a head that was spilled, each leaf
// that may have one of the paths.
func (p *previous) read(tx kv.Txn, changes []change) error {
	p.all = changes
	p.lookups, p.below = p.lookups[:0], p.below[:0]
	p.keys.Reset()
	from := int32(0)
	for one := range sets.Runs(changes, sameKindAndActor) {
		to := from + int32(len(one))
		if !one[0].kind.IsMany() && slices.ContainsFunc(one, func(c change) bool { return !c.fresh || c.loses() }) {
			p.lookups = append(p.lookups, [2]int32{from, to})
			p.kbuf = format.AppendRecordsKey(p.kbuf[:0], one[0].kind, one[0].actor)
			p.keys.Add(p.kbuf)
		}
		from = to
	}
	err := tx.MultiGet(p.keys.List(), func(i int, v []byte, ok bool) error {
		if !ok {
			return nil
		}
		if err := p.head(p.lookups[i][0], p.lookups[i][1], v); err != nil {
			return fmt.Errorf("%x: %w", p.keys.List()[i], err)
		}
		return nil
	})
	if err == nil {
		err = p.leaves(tx)
	}
	if err != nil {
		return fmt.Errorf("graph: reading records: %w", err)
	}
	return nil
}

// head notes what a head has of the paths of the changes in [from, to), which are of its actor and kind, and which paths its leaves may have.
func (p *previous) head(from, to int32, v []byte) (err error) {
	var reach uint64
	if p.records, reach, err = format.CoderOf(p.all[from].kind, p.all[from].actor).Read(p.records[:0], v); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		c := &p.all[i]
		if c.fresh {
			continue
		}
		at, found := slices.BinarySearchFunc(p.records, c.path, func(r format.Record, q format.Path) int { return format.ComparePaths(r.Path, q) })
		switch {
		case found:
			c.existed, c.old = p.records[at].Flags != format.Removed, p.records[at].Subject
		case format.Reaches(reach, c.path):
			p.below = append(p.below, i)
		}
	}
	if !p.all[from].kind.IsSelf() { // no other record has such an edge
		p.keep(p.all[from:to], reach == 0)
	}
	return nil
}

// leaves notes what the leaves have of the paths that the heads did not have.
func (p *previous) leaves(tx kv.Txn) error {
	for left := p.below; len(left) > 0; {
		c := &p.all[left[0]]
		p.kbuf = format.AppendRecordsKey(p.kbuf[:0], c.kind, c.actor)
		end := kv.PrefixEnd(p.kbuf)
		p.kbuf = format.AppendLeafKey(p.kbuf, c.path)
		left = left[1:]
		err := tx.Scan(p.kbuf, end, false, func(key, v []byte) (bool, error) {
			_, _, last, _, err := format.ParseChunkKey(key)
			if err == nil {
				p.records, _, err = format.CoderOf(c.kind, c.actor).Read(p.records[:0], v)
			}
			if err != nil {
				return false, fmt.Errorf("%x: %w", key, err)
			}
			for first := c; ; left = left[1:] {
				at, found := slices.BinarySearchFunc(p.records, c.path, func(r format.Record, q format.Path) int { return format.ComparePaths(r.Path, q) })
				if found {
					c.existed, c.old = true, p.records[at].Subject
				}
				if len(left) == 0 {
					return false, nil
				}
				if c = &p.all[left[0]]; !sameKindAndActor(*c, *first) || format.ComparePaths(c.path, last) > 0 {
					return false, nil
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keep sets kept in the changes of an actor and kind, whose head has p.records: if another record there names
// what the change's record named, and the write leaves that one as it is. If the head has all records, the others
// are lone. keep goes through the records once, because a stranger decides how many there are and what they name.
func (p *previous) keep(changes []change, all bool) {
	p.olds = p.olds[:0]
	for i := range changes {
		if c := &changes[i]; c.loses() {
			p.olds = append(p.olds, c.old)
		}
	}
	if len(p.olds) == 0 {
		return
	}
	slices.Sort(p.olds)
	p.olds = slices.Compact(p.olds)
	p.stays = append(p.stays[:0], make([]bool, len(p.olds))...)
	for i := range p.records {
		r := &p.records[i]
		at, found := slices.BinarySearch(p.olds, r.Subject)
		if !found || p.stays[at] || r.Flags != 0 {
			continue
		}
		n, changed := slices.BinarySearchFunc(changes, r.Path, func(c change, q format.Path) int { return format.ComparePaths(c.path, q) })
		p.stays[at] = !changed || !changes[n].delete && changes[n].new == r.Subject
	}
	for i := range changes {
		if c := &changes[i]; c.loses() {
			at, _ := slices.BinarySearch(p.olds, c.old)
			c.kept, c.lone = p.stays[at], all && !p.stays[at]
		}
	}
}
