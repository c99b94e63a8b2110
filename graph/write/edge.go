package write

import (
	"cmp"
	"errors"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// edge identifies an edge that some record starts or stops naming.
type edge struct {
	kind kinds.Kind
	// repeated says that several records of the write start or stop naming it. It does not identify the edge.
	repeated bool
	// date is that of the record that starts or stops naming it: format.Undated if several do and differ, or,
	// for a removed edge, if another record of the same second may name it. It does not identify the edge.
	date uint32
	// tid is that of a removed edge's record, or of one of them; 0 if its key is not a TID. It does not identify
	// the edge.
	tid uint64
	// oneSecond says that all records of a removed edge are of tid's second. It does not identify the edge.
	oneSecond bool

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

// otherRecords finds, among removed edges, those that no remaining record names. It holds scratch
// memory.
type otherRecords struct{ left []edge }

// unnamed returns those of the removed edges that no record names once the changes are applied.
// removed ascends and has one actor and kind. scan must call each for every live record of that
// actor and kind whose subject wanted accepts, until each returns false.
func (o *otherRecords) unnamed(changes []change, removed []edge, scan func(wanted func(dict.ID) bool, each func(*format.Record) bool)) []edge {
	if len(removed) == 0 {
		return nil
	}
	left := append(o.left[:0], removed...)
	wanted := func(subject dict.ID) bool {
		if len(left) == 1 {
			return left[0].subject == subject
		}
		_, found := slices.BinarySearchFunc(left, subject, func(e edge, id dict.ID) int { return cmp.Compare(e.subject, id) })
		return found
	}
	scan(wanted, func(r *format.Record) bool {
		g := edge{kind: removed[0].kind, actor: removed[0].actor, subject: r.Subject}
		at, _ := slices.BinarySearchFunc(left, g, compareEdges)
		c := change{kind: g.kind, actor: g.actor, path: r.Path}
		i, changed := slices.BinarySearchFunc(changes, c, func(x, y change) int { return compareChanges(&x, &y) })
		if !changed || !changes[i].delete && changes[i].new == r.Subject { // unchanged, or written again as it was
			left = slices.Delete(left, at, at+1)
		}
		return len(left) > 0
	})
	o.left = left
	return left
}

// errFar is the error of a metered Reader that may read no more.
var errFar = errors.New("graph: an edge's other records are too far away")

// metered ends scans once they have read more than so many bytes.
type metered struct {
	kv.Reader

	left int
}

// Scan implements kv.Reader.
func (m *metered) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	return m.Reader.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		if m.left -= len(k) + len(v); m.left < 0 {
			return false, errFar
		}
		return each(k, v)
	})
}
