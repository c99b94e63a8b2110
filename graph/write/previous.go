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
	all     []change // the changes of the write
	lookups []chunkLookup
	index   []int32 // indexes of all changes to look up; chunkLookup.changes are slices of it
	keys    kv.Keys
	records []format.Record
	here    []int32   // scratch space of keep: the changes whose records are in a chunk,
	olds    []dict.ID // what these named, ascending,
	stays   []bool    // and whether another record of the chunk still names it
	scanned []edge    // kinds and actors whose records were all read, ascending; subject is None
	lost    []edge    // removed edges of those pairs that no record names any more, ascending
	kbuf    []byte
}

// chunkLookup is a chunk to look up for some of the changes.
type chunkLookup struct {
	changes []int32 // indexes of changes of one kind, actor and bucket
	depth   int
}

// read reads what the changed paths held before and notes it in the changes, which ascend. It
// skips fresh changes. It looks up each chunk once, those of all actors together. Below a spilled chunk,
// it also looks up each chunk that may have one of the paths.
func (p *previous) read(tx kv.Txn, changes []change, of *accounts) error {
	p.all = changes
	p.lookups, p.index = p.lookups[:0], slices.Grow(p.index[:0], len(changes))
	p.scanned, p.lost = p.scanned[:0], p.lost[:0]
	for i := range changes {
		if !changes[i].fresh {
			p.ask(int32(i))
		}
	}
	for ask := p.lookups; len(ask) > 0; {
		var err error
		if ask, err = p.readChunks(tx, ask, of); err != nil {
			return fmt.Errorf("graph: reading records: %w", err)
		}
	}
	slices.SortFunc(p.lost, compareEdges)
	return nil
}

// lostOf returns the removed edges that have no record left. All of removed have one actor and
// kind. known is false unless all records of that actor and kind were read.
func (p *previous) lostOf(removed []edge) (lost []edge, known bool) {
	if _, known = slices.BinarySearchFunc(p.scanned, edge{kind: removed[0].kind, actor: removed[0].actor, subject: dict.None}, compareEdges); !known {
		return nil, false
	}
	return slices.DeleteFunc(removed, func(g edge) bool {
		_, lost := slices.BinarySearchFunc(p.lost, g, compareEdges)
		return !lost
	}), true
}

// ask adds the chunk of a change to the look-ups. The changes ascend.
func (p *previous) ask(i int32) {
	p.index = append(p.index, i) // never reallocates: read reserved room, and chunkLookup.changes are slices of p.index
	end := len(p.index)
	if n := len(p.lookups); n > 0 && sameChunk(p.all[p.lookups[n-1].changes[0]], p.all[i]) {
		q := &p.lookups[n-1]
		q.changes = p.index[end-1-len(q.changes) : end]
		return
	}
	p.lookups = append(p.lookups, chunkLookup{p.index[end-1 : end], 0})
}

// readChunks looks up chunks. For the paths that a spilled chunk does not have, it returns the
// chunks below it, to look up next.
func (p *previous) readChunks(tx kv.Txn, ask []chunkLookup, of *accounts) (next []chunkLookup, err error) {
	p.keys.Reset()
	for _, q := range ask {
		c := &p.all[q.changes[0]]
		p.kbuf = format.AppendChunkKey(p.kbuf[:0], c.kind, c.actor, c.path, q.depth)
		p.keys.Add(p.kbuf)
	}
	err = tx.MultiGet(p.keys.List(), func(i int, v []byte, ok bool) error {
		if !ok {
			return nil
		}
		q := ask[i]
		first := &p.all[q.changes[0]]
		var generation uint64
		var err error
		if p.records, generation, err = format.CoderOf(first.kind, first.actor, first.path.Bucket()).Read(p.records[:0], v, 0); err != nil {
			return fmt.Errorf("%x: %w", p.keys.List()[i], err)
		}
		var below []int32
		p.here = p.here[:0]
		for _, j := range q.changes {
			c := &p.all[j]
			at, found := slices.BinarySearchFunc(p.records, c.path, func(r format.Record, q format.Path) int { return format.ComparePaths(r.Path, q) })
			if found {
				r := &p.records[at]
				c.existed, c.old = r.Flags != format.Removed, r.Subject
				c.alone = q.depth == 0 && generation == 0 && format.InOneBucket(format.DateOf(r.Path))
				p.here = append(p.here, j)
			} else if generation > 0 {
				below = append(below, j)
			}
		}
		if q.depth == 0 { // what lies deeper may have been removed since
			p.keep(generation == 0 && of.of(first.actor).was.InOneBucket())
		}
		next = p.askBelow(next, below, q.depth)
		return nil
	})
	return next, err
}

// keep sets kept in the changes p.here, whose records are in the topmost chunk of a bucket, in p.records: if another record there names
// what the change's record named, and the write leaves that one as it is. If the chunk has all records of the actor and kind, the other
// edges are lost. keep goes through the records once, because a stranger decides how many there are and what they name.
func (p *previous) keep(all bool) {
	p.olds = p.olds[:0]
	for _, j := range p.here {
		if c := &p.all[j]; c.loses() {
			p.olds = append(p.olds, c.old)
		}
	}
	if len(p.olds) == 0 {
		return
	}
	slices.Sort(p.olds)
	p.olds = slices.Compact(p.olds)
	p.stays = append(p.stays[:0], make([]bool, len(p.olds))...)
	from, to := int(p.here[0]), int(p.here[0])+1 // all changes of the bucket, fresh ones included
	for from > 0 && sameChunk(p.all[from-1], p.all[from]) {
		from--
	}
	for to < len(p.all) && sameChunk(p.all[to-1], p.all[to]) {
		to++
	}
	for i := range p.records {
		r := &p.records[i]
		at, found := slices.BinarySearch(p.olds, r.Subject)
		if !found || p.stays[at] || r.Flags != 0 {
			continue
		}
		n, changed := slices.BinarySearchFunc(p.all[from:to], r.Path, func(c change, q format.Path) int { return format.ComparePaths(c.path, q) })
		p.stays[at] = !changed || !p.all[from+n].delete && p.all[from+n].new == r.Subject
	}
	for _, j := range p.here {
		if c := &p.all[j]; c.loses() {
			at, _ := slices.BinarySearch(p.olds, c.old)
			if c.kept = p.stays[at]; all && !c.kept {
				p.lost = append(p.lost, edge{kind: c.kind, actor: c.actor, subject: c.old})
			}
		}
	}
	if c := &p.all[p.here[0]]; all {
		p.scanned = append(p.scanned, edge{kind: c.kind, actor: c.actor, subject: dict.None})
	}
}

// askBelow appends the chunks to look up below a chunk, each once.
func (p *previous) askBelow(next []chunkLookup, changes []int32, depth int) []chunkLookup {
	if len(changes) == 0 || depth == format.MaxChunkDepth {
		return next
	}
	place := func(j int32) byte { return byte(p.all[j].path.Spread() >> (56 - 8*depth)) }
	slices.SortStableFunc(changes, func(x, y int32) int { return int(place(x)) - int(place(y)) })
	for group := range sets.Runs(changes, func(x, y int32) bool { return place(x) == place(y) }) {
		next = append(next, chunkLookup{group, depth + 1})
	}
	return next
}
