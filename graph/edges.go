package graph

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"skein/intern"
	"skein/internal/kv"
)

// asked is a chunk that is looked up for some of the changes.
type asked struct {
	changes []int32 // of one bucket
	depth   int
}

// readOld reads what the changed paths that are not fresh held before: one
// look-up for each chunk, and for those that were spilled one for each chunk
// below that may know more. Where an actor deletes records, all of the kind are
// read at once instead, as they have to be for the edges that are lost: by
// look-ups, together with those of the other actors, if it is known that they are
// in few buckets, else by a scan.
func (a *applier) readOld(tx kv.Txn) error {
	a.asked, a.index32 = a.asked[:0], slices.Grow(a.index32[:0], len(a.changes))
	a.scanned, a.lost, a.direct = a.scanned[:0], a.lost[:0], a.direct[:0]
	a.keys.reset()
	for i := range a.changes {
		if c := &a.changes[i]; c.subject >= 0 {
			c.new = a.strings.ID(int(c.subject))
		}
	}
	first := 0
	for one := range groups(a.changes, sameActor) {
		start := first
		first += len(one)
		if slices.ContainsFunc(one, func(c change) bool { return c.delete && !c.fresh }) {
			if err := a.readAll(tx, one); err != nil {
				return fmt.Errorf("graph: reading records: %w", err)
			}
			continue
		}
		for i := range one {
			if !one[i].fresh {
				a.ask(int32(start + i))
			}
		}
	}
	if err := a.readDirect(tx); err != nil {
		return fmt.Errorf("graph: reading records: %w", err)
	}
	slices.SortFunc(a.scanned, compareEdges)
	slices.SortFunc(a.lost, compareEdges)
	for ask := a.asked; len(ask) > 0; {
		var err error
		if ask, err = a.readChunks(tx, ask); err != nil {
			return fmt.Errorf("graph: reading records: %w", err)
		}
	}
	return nil
}

// direct is what is looked up for an actor and kind: the chunks of so many
// buckets.
type direct struct {
	changes []change
	chunks  int
}

// readAll reads all records of one actor and kind, or notes which chunks they are
// in.
func (a *applier) readAll(tx kv.Txn, changes []change) error {
	c := &changes[0]
	low, high, ok := a.states[a.index[c.actor]].was.buckets()
	if !ok {
		return a.scanOld(tx, changes)
	}
	for b := low; b <= high; b++ {
		a.kbuf = appendChunkKey(a.kbuf[:0], c.kind, c.actor, path{tid: uint64(b) << bucketShift}, 0)
		a.keys.add(a.kbuf)
	}
	a.direct = append(a.direct, direct{changes, int(high-low) + 1})
	return nil
}

// readDirect looks up the chunks that are noted. Of an actor of whom one was
// spilled, all records are scanned after all.
func (a *applier) readDirect(tx kv.Txn) error {
	var spilled []direct
	d, left, deep := 0, 0, false
	err := tx.MultiGet(a.keys.keys, func(_ int, v []byte, ok bool) (err error) {
		one := &a.direct[d]
		if left == 0 {
			a.records, left, deep = a.records[:0], one.chunks, false
		}
		c := &one.changes[0]
		if ok {
			bucket := a.states[a.index[c.actor]].was.low - 1 + uint16(one.chunks-left)
			var generation uint64
			if a.records, generation, err = coderOf(c.actor, bucket).read(a.records, v, 0); err != nil {
				return err
			}
			deep = deep || generation > 0
		}
		if left--; left > 0 {
			return nil
		}
		if d++; deep {
			spilled = append(spilled, *one)
			return nil
		}
		a.settleOld(one.changes, false)
		return nil
	})
	for _, one := range spilled {
		if err == nil {
			err = a.scanOld(tx, one.changes)
		}
	}
	return err
}

// ask notes that the chunk of a change is to be looked up. The changes ascend.
func (a *applier) ask(i int32) {
	a.index32 = append(a.index32, i) // does not move: it has room
	end := len(a.index32)
	if n := len(a.asked); n > 0 && sameChunk(a.changes[a.asked[n-1].changes[0]], a.changes[i]) {
		q := &a.asked[n-1]
		q.changes = a.index32[end-1-len(q.changes) : end]
		return
	}
	a.asked = append(a.asked, asked{a.index32[end-1 : end], 0})
}

// fewChanges is up to how many changes are looked for among an actor's records
// one by one; for more the records are sorted.
const fewChanges = 4

// scanOld reads all records of one actor and kind, bucket after bucket.
func (a *applier) scanOld(tx kv.Txn, changes []change) error {
	kind, actor := changes[0].kind, changes[0].actor
	a.records, a.raw = a.records[:0], a.raw[:0]
	deep := false // records may be superseded by others
	err := eachBucket(tx, appendRecordsKey(nil, kind, actor), func(rr *recordReader) bool {
		start := len(a.records)
		a.records = append(a.records, rr.records...)
		deep = deep || rr.chunks > 1
		if rr.bucket >= rawBucket { // the keys outlive the call
			for i := start; i < len(a.records); i++ {
				r := &a.records[i].path
				at := len(a.raw)
				a.raw = append(a.raw, r.raw...)
				r.raw = a.raw[at:len(a.raw):len(a.raw)]
			}
		}
		return true
	})
	if err == nil {
		a.settleOld(changes, deep)
	}
	if cap(a.records) > maxKeptRecords {
		a.records, a.raw = nil, nil
	}
	return err
}

// maxKeptRecords bounds the memory for an actor's records that is kept, 48 bytes
// each: a rare actor with millions does not take it for ever.
const maxKeptRecords = 200_000

// settleOld finds, among all records of an actor and kind, in a.records, what the
// changes find, and which of the edges that they take have no other record. deep
// says that a record may be superseded by one of the same path and a lower age.
func (a *applier) settleOld(changes []change, deep bool) {
	kind, actor := changes[0].kind, changes[0].actor
	sorted := len(changes) > fewChanges
	if sorted {
		slices.SortFunc(a.records, compareRecords)
	}
	find := func(p path) (newest *record) {
		if sorted { // the first of its path is the least deep
			i, ok := slices.BinarySearchFunc(a.records, p, func(r record, p path) int { return comparePaths(r.path, p) })
			if ok {
				newest = &a.records[i]
			}
			return newest
		}
		for i := range a.records {
			if r := &a.records[i]; comparePaths(r.path, p) == 0 && (newest == nil || r.age < newest.age) {
				newest = r
			}
		}
		return newest
	}
	a.gone = a.gone[:0]
	for i := range changes {
		c := &changes[i]
		if c.fresh {
			continue
		}
		if r := find(c.path); r != nil {
			c.existed, c.old = r.flags != flagRemoved, r.subject
		}
		if c.old != intern.None && (c.delete || c.new != c.old) {
			a.gone = append(a.gone, edge{kind, actor, c.old})
		}
	}
	slices.SortFunc(a.gone, compareEdges)
	a.gone = slices.Compact(a.gone)
	left := a.others(changes, a.gone, func(wanted func(intern.ID) bool, each func(*record) bool) {
		for i := range a.records {
			r := &a.records[i]
			if r.flags == 0 && wanted(r.subject) && (!deep || find(r.path) == r) && !each(r) {
				return
			}
		}
	})
	a.scanned = append(a.scanned, edge{kind, actor, intern.None})
	a.lost = append(a.lost, left...)
}

// readChunks looks up the chunks asked for, and returns those to ask for next:
// below chunks that were spilled, for the paths that they did not know.
func (a *applier) readChunks(tx kv.Txn, ask []asked) (next []asked, err error) {
	a.keys.reset()
	for _, q := range ask {
		c := &a.changes[q.changes[0]]
		a.kbuf = appendChunkKey(a.kbuf[:0], c.kind, c.actor, c.path, q.depth)
		a.keys.add(a.kbuf)
	}
	err = tx.MultiGet(a.keys.keys, func(i int, v []byte, ok bool) error {
		if !ok {
			return nil
		}
		q := ask[i]
		first := &a.changes[q.changes[0]]
		var generation uint64
		var err error
		if a.records, generation, err = coderOf(first.actor, first.path.bucket()).read(a.records[:0], v, 0); err != nil {
			return fmt.Errorf("%x: %w", a.keys.keys[i], err)
		}
		var below []int32
		for _, j := range q.changes {
			c := &a.changes[j]
			at, found := slices.BinarySearchFunc(a.records, c.path, func(r record, p path) int { return comparePaths(r.path, p) })
			if found {
				r := &a.records[at]
				c.existed, c.old = r.flags != flagRemoved, r.subject
			} else if generation > 0 {
				below = append(below, j)
			}
		}
		next = a.askBelow(next, below, q.depth)
		return nil
	})
	return next, err
}

// askBelow appends what is to be asked for below a chunk: each chunk once.
func (a *applier) askBelow(next []asked, changes []int32, depth int) []asked {
	if len(changes) == 0 || depth == maxChunkDepth {
		return next
	}
	place := func(j int32) byte { return byte(a.changes[j].path.spread() >> (56 - 8*depth)) }
	slices.SortStableFunc(changes, func(x, y int32) int { return int(place(x)) - int(place(y)) })
	for group := range groups(changes, func(x, y int32) bool { return place(x) == place(y) }) {
		next = append(next, asked{group, depth + 1})
	}
	return next
}

// decide notes what each change does to the records and their edges.
func (a *applier) decide() {
	e := &a.edges
	var records [maxKind + 1]int64
	for i := range a.changes {
		c := &a.changes[i]
		switch {
		case c.delete && c.existed:
			records[c.kind]--
		case !c.delete && !c.existed:
			records[c.kind]++
		}
		if c.old != intern.None && (c.delete || c.new != c.old) {
			e.gone = append(e.gone, edge{c.kind, c.actor, c.old})
		}
		if !c.delete && c.new != intern.None && c.new != c.old {
			e.come = append(e.come, edge{c.kind, c.actor, c.new})
		}
	}
	for _, k := range Kinds {
		a.result.counts.Records[k.Name] += records[k.Kind]
	}
	e.gone, e.come = sortEdges(e.gone), sortEdges(e.come)
}

// sortEdges sorts edges that ascend by kind and actor already, and leaves each
// in once.
func sortEdges(edges []edge) []edge {
	for one := range groups(edges, func(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }) {
		if len(one) > 1 {
			slices.SortFunc(one, compareEdges)
		}
	}
	return slices.Compact(edges)
}

// edge is an edge that a record names from now on, or does no longer.
type edge struct {
	kind    Kind
	actor   intern.ID
	subject intern.ID
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
	kind    Kind
	remove  bool
	subject intern.ID
	member  intern.ID
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
	for gone := range groups(e.gone, func(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }) {
		_, known := slices.BinarySearchFunc(a.scanned, edge{gone[0].kind, gone[0].actor, intern.None}, compareEdges)
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
	e.spare = sortByID(&a.sorter, e.sets, e.spare, func(c *setChange) (Kind, intern.ID) { return c.kind, c.subject }, compareSetChanges)
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
	a.remove(a.others(a.changes[first:], gone, func(wanted func(intern.ID) bool, each func(*record) bool) {
		err = eachRecordOf(tx, kind, actor, wanted, each)
	}))
	return err
}

// others returns those edges, all of one actor and kind, that no record names but
// on paths that changes make name another. scan calls each for the live records
// of the actor whose subject is wanted, until it returns false.
func (a *applier) others(changes []change, gone []edge, scan func(wanted func(intern.ID) bool, each func(*record) bool)) []edge {
	if len(gone) == 0 {
		return nil
	}
	left := append(a.left[:0], gone...)
	wanted := func(subject intern.ID) bool {
		if len(left) == 1 {
			return left[0].subject == subject
		}
		_, lost := slices.BinarySearchFunc(left, subject, func(e edge, id intern.ID) int { return cmp.Compare(e.subject, id) })
		return lost
	}
	scan(wanted, func(r *record) bool {
		g := edge{gone[0].kind, gone[0].actor, r.subject}
		at, _ := slices.BinarySearchFunc(left, g, compareEdges)
		c := change{kind: g.kind, actor: g.actor, path: r.path}
		i, changed := slices.BinarySearchFunc(changes, c, func(x, y change) int { return compareChanges(&x, &y) })
		if !changed || !changes[i].delete && changes[i].new == r.subject { // or put again as it is
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

// writeRecords merges what changed of the records, one operand per chunk.
func (a *applier) writeRecords(tx kv.Txn) error {
	for changes := range groups(a.changes, sameChunk) {
		a.records = a.records[:0]
		for i := range changes {
			c := &changes[i]
			if c.delete && !c.existed || !c.delete && c.existed && c.new == c.old {
				continue
			}
			r := record{path: c.path, subject: c.new}
			if c.delete {
				r.flags, r.subject = flagRemoved, intern.None
			} else if c.new == intern.None {
				r.flags = flagNoSubject
			}
			a.records = append(a.records, r)
		}
		if len(a.records) == 0 {
			continue
		}
		c := &changes[0]
		a.kbuf = appendChunkKey(a.kbuf[:0], c.kind, c.actor, c.path, 0)
		coder := coderOf(c.actor, c.path.bucket())
		if a.vbuf = coder.append(a.vbuf[:0], 0, a.records); len(a.vbuf) <= maxOperandBytes {
			tx.Merge(a.kbuf, a.vbuf)
			continue
		}
		if err := coder.place(tx, a.kbuf, 0, a.records); err != nil {
			return err
		}
	}
	return nil
}

// merge merges what the sets gain and lose, one operand per row.
func (s *edgeSorter) merge(tx kv.Txn, st *Store) {
	sameRow := func(x, y setChange) bool {
		return x.kind == y.kind && x.subject == y.subject &&
			(!st.shared() || st.settings.PartitionOfID(x.member) == st.settings.PartitionOfID(y.member))
	}
	for changes := range groups(s.sets, sameRow) {
		s.add, s.less = s.add[:0], s.less[:0]
		for _, c := range changes {
			if c.remove {
				s.less = append(s.less, uint64(c.member))
			} else {
				s.add = append(s.add, uint64(c.member))
			}
		}
		c := changes[0]
		s.kbuf = st.appendMemberKey(s.kbuf[:0], c.kind, c.subject, c.member)
		s.vbuf = appendRow(s.vbuf[:0], c.subject, 0, s.less, s.add)
		tx.Merge(s.kbuf, s.vbuf)
		if len(changes) > st.merger.limits.Row {
			st.merger.note(s.kbuf)
		}
	}
}
