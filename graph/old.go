package graph

import (
	"fmt"
	"slices"

	"skein/graph/format"
	"skein/graph/read"
	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/runs"
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
	for one := range runs.Of(a.changes, sameActor) {
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
	low, high, ok := a.states[a.index[c.actor]].was.Buckets()
	if !ok {
		return a.scanOld(tx, changes)
	}
	for b := low; b <= high; b++ {
		a.kbuf = format.AppendChunkKey(a.kbuf[:0], c.kind, c.actor, format.Path{TID: uint64(b) << format.BucketShift}, 0)
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
			bucket := a.states[a.index[c.actor]].was.LowBucket - 1 + uint16(one.chunks-left)
			var generation uint64
			if a.records, generation, err = format.CoderOf(c.actor, bucket).Read(a.records, v, 0); err != nil {
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

// scanOld reads all records of one actor and kind, bucket after bucket.
func (a *applier) scanOld(tx kv.Txn, changes []change) error {
	kind, actor := changes[0].kind, changes[0].actor
	a.records, a.raw = a.records[:0], a.raw[:0]
	deep := false // records may be superseded by others
	err := read.Buckets(tx, format.AppendRecordsKey(nil, kind, actor), func(rr *read.Bucket) bool {
		start := len(a.records)
		a.records = append(a.records, rr.Records...)
		deep = deep || rr.Chunks > 1
		if rr.Number >= format.RawBucket { // the keys outlive the call
			for i := start; i < len(a.records); i++ {
				r := &a.records[i].Path
				at := len(a.raw)
				a.raw = append(a.raw, r.Raw...)
				r.Raw = a.raw[at:len(a.raw):len(a.raw)]
			}
		}
		return true
	})
	if err == nil {
		a.settleOld(changes, deep)
	}
	if cap(a.records) > maxKeptRecords {
		a.records, a.raw, a.newest, a.order = nil, nil, nil, nil
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
	found := a.findOld(changes)
	a.gone = a.gone[:0]
	for i := range changes {
		c := &changes[i]
		if c.fresh {
			continue
		}
		if r := a.newest[i]; r != nil {
			c.existed, c.old = r.Flags != format.Removed, r.Subject
		}
		if c.old != dict.None && (c.delete || c.new != c.old) {
			a.gone = append(a.gone, edge{kind, actor, c.old})
		}
	}
	slices.SortFunc(a.gone, compareEdges)
	a.gone = slices.Compact(a.gone)
	order := a.order[:0] // of the records, by path and age, once it is needed
	superseded := func(r *format.Record) bool {
		if i, ok := found(r.Path); ok {
			return a.newest[i] != r
		}
		if len(order) == 0 { // seldom: another record names the subject, too
			for n := range a.records {
				order = append(order, int32(n))
			}
			slices.SortFunc(order, func(x, y int32) int { return format.CompareRecords(a.records[x], a.records[y]) })
		}
		at, _ := slices.BinarySearchFunc(order, r.Path, func(n int32, p format.Path) int { return format.ComparePaths(a.records[n].Path, p) })
		return &a.records[order[at]] != r
	}
	left := a.others(changes, a.gone, func(wanted func(dict.ID) bool, each func(*format.Record) bool) {
		for i := range a.records {
			r := &a.records[i]
			if r.Flags == 0 && wanted(r.Subject) && (!deep || !superseded(r)) && !each(r) {
				return
			}
		}
	})
	a.order = order
	a.scanned = append(a.scanned, edge{kind, actor, dict.None})
	a.lost = append(a.lost, left...)
}

// findOld leaves in a.newest, for each of the changes, all of one actor and kind,
// what the least deep record in a.records of its path is, nil if there is none. It
// returns which change has a path.
func (a *applier) findOld(changes []change) (find func(format.Path) (i int32, ok bool)) {
	a.newest = append(a.newest[:0], make([]*format.Record, len(changes))...)
	a.byPath = a.byPath[:0]
	for i := range changes {
		a.byPath = append(a.byPath, int32(i))
	}
	ascending := func(x, y int32) int { return format.ComparePaths(changes[x].path, changes[y].path) }
	if !slices.IsSortedFunc(a.byPath, ascending) { // paths that are no TIDs come by bucket
		slices.SortFunc(a.byPath, ascending)
	}
	first, last := changes[a.byPath[0]].path, changes[a.byPath[len(changes)-1]].path
	find = func(p format.Path) (int32, bool) {
		if format.ComparePaths(p, first) < 0 || format.ComparePaths(p, last) > 0 {
			return 0, false
		}
		at, ok := slices.BinarySearchFunc(a.byPath, p, func(i int32, p format.Path) int { return format.ComparePaths(changes[i].path, p) })
		if !ok {
			return 0, false
		}
		return a.byPath[at], true
	}
	for n := range a.records {
		r := &a.records[n]
		if i, ok := find(r.Path); ok && (a.newest[i] == nil || r.Age < a.newest[i].Age) {
			a.newest[i] = r
		}
	}
	return find
}

// readChunks looks up the chunks asked for, and returns those to ask for next:
// below chunks that were spilled, for the paths that they did not know.
func (a *applier) readChunks(tx kv.Txn, ask []asked) (next []asked, err error) {
	a.keys.reset()
	for _, q := range ask {
		c := &a.changes[q.changes[0]]
		a.kbuf = format.AppendChunkKey(a.kbuf[:0], c.kind, c.actor, c.path, q.depth)
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
		if a.records, generation, err = format.CoderOf(first.actor, first.path.Bucket()).Read(a.records[:0], v, 0); err != nil {
			return fmt.Errorf("%x: %w", a.keys.keys[i], err)
		}
		var below []int32
		for _, j := range q.changes {
			c := &a.changes[j]
			at, found := slices.BinarySearchFunc(a.records, c.path, func(r format.Record, p format.Path) int { return format.ComparePaths(r.Path, p) })
			if found {
				r := &a.records[at]
				c.existed, c.old = r.Flags != format.Removed, r.Subject
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
	if len(changes) == 0 || depth == format.MaxChunkDepth {
		return next
	}
	place := func(j int32) byte { return byte(a.changes[j].path.Spread() >> (56 - 8*depth)) }
	slices.SortStableFunc(changes, func(x, y int32) int { return int(place(x)) - int(place(y)) })
	for group := range runs.Of(changes, func(x, y int32) bool { return place(x) == place(y) }) {
		next = append(next, asked{group, depth + 1})
	}
	return next
}
