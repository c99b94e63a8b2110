package write

import (
	"cmp"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/radix"
)

// change is a change of a path; after lastWriteWins, the last one within the write.
type change struct {
	kind    kinds.Kind
	delete  bool
	existed bool // the path had a record; set by the phase previous, like old
	fresh   bool // no look-up needed: nothing can be stored under the path, or it is known
	actor   dict.ID
	path    format.Path // its bytes lie in the batch
	subject int32       // index among the write's strings (walk: of the batch's operations), or -1
	order   uint32      // position in the stream
	new     dict.ID     // the subject from now on, or None
	old     dict.ID     // the subject before, or None
}

// changes are the changes of a write, the last of each path, ascending (compareChanges).
type changes []change

// addSubjects adds the subjects to strings.
func (c changes) addSubjects(b *batch.Batch, strings *intern.Batch, t *kinds.Table) {
	for i := range c {
		if c := &c[i]; c.subject >= 0 {
			o := b.Op(uint32(c.subject))
			c.subject = int32(strings.Add(t.Info(o.Kind).To.Is, b.Bytes(o.Subject)))
		}
	}
}

// takeSubjects takes the ids of the subjects from strings.
func (c changes) takeSubjects(strings *intern.Batch) {
	for i := range c {
		if c := &c[i]; c.subject >= 0 {
			c.new = strings.ID(int(c.subject))
		}
	}
}

// sortByID sorts a list into spare: by kind and id with a radix sort, then by compare.
func sortByID[T any](s *radix.Sorter, list, spare []T, of func(*T) (kinds.Kind, dict.ID), compare func(x, y T) int) []T {
	s.Reset()
	for i := range list {
		_, id := of(&list[i])
		s.Add(uint64(id), i)
	}
	s.Sort()
	s.Rekey(func(at uint32) uint64 { kind, _ := of(&list[at]); return uint64(kind) })
	spare = spare[:0]
	for _, it := range s.Sort() {
		spare = append(spare, list[it.At])
	}
	for rest := spare; len(rest) > 0; {
		kind, id := of(&rest[0])
		n := 1
		for ; n < len(rest); n++ {
			if k, i := of(&rest[n]); k != kind || i != id {
				break
			}
		}
		if n > 1 {
			slices.SortFunc(rest[:n], compare)
		}
		rest = rest[n:]
	}
	return spare
}

// compareChanges orders changes like their records in the store: by kind, actor, bucket and
// path.
func compareChanges(x, y *change) int {
	switch {
	case x.kind != y.kind:
		return cmp.Compare(x.kind, y.kind)
	case x.actor != y.actor:
		return cmp.Compare(x.actor, y.actor)
	}
	if x.path.Raw != nil || y.path.Raw != nil { // the order of TIDs is that of their buckets
		if c := cmp.Compare(x.path.Bucket(), y.path.Bucket()); c != 0 {
			return c
		}
	}
	return format.ComparePaths(x.path, y.path)
}

func sameActor(x, y change) bool { return x.kind == y.kind && x.actor == y.actor }

func sameChunk(x, y change) bool { return sameActor(x, y) && x.path.Bucket() == y.path.Bucket() }
