package write

import (
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// loneEdges divides the edges that a deleted or changed record named: those that surely have no other record,
// and those that may have one. The date of the member in the set tells (package format, dates.go). loneEdges holds scratch memory.
type loneEdges struct {
	lone, others []edge
	spilled      []spilledEdge
	keys         kv.Keys
	buf          []byte
}

// spilledEdge is a removed edge whose set has leaves.
type spilledEdge struct {
	edge
	has bool // the row has the member
}

// read divides the edges, which ascend. It reads the row of each, and then, if the set has leaves, the leaf of the member.
func (l *loneEdges) read(tx kv.Txn, layout format.Layout, removed []edge) (lone, others []edge, err error) {
	l.lone, l.others, l.spilled = l.lone[:0], l.others[:0], l.spilled[:0]
	l.keys.Reset()
	for _, g := range removed {
		l.buf = layout.AppendMemberKey(l.buf[:0], g.kind, g.subject, g.actor)
		l.keys.Add(l.buf)
	}
	if err := tx.MultiGet(l.keys.List(), func(i int, v []byte, _ bool) error { return l.row(removed[i], v) }); err != nil {
		return nil, nil, err
	}
	for _, g := range l.spilled {
		date, found, err := read.LeafDate(tx, layout, g.kind, g.subject, g.actor)
		if err != nil {
			return nil, nil, err
		}
		l.decide(g.edge, found != g.has && date != format.Undated)
	}
	slices.SortFunc(l.others, compareEdges)
	return l.lone, l.others, nil
}

func (l *loneEdges) decide(g edge, lone bool) {
	if lone {
		l.lone = append(l.lone, g)
	} else {
		l.others = append(l.others, g)
	}
}

// row decides about an edge by the row of its set, or adds it to spilled.
func (l *loneEdges) row(g edge, v []byte) error {
	v, err := format.RowOf(g.kind, g.subject, v)
	if err != nil {
		return err
	}
	row, err := format.ParseRow(g.subject, v)
	if err != nil {
		return err
	}
	id := uint64(g.actor)
	date, has := row.Date(id)
	gone := row.HasRemoved(id)
	switch {
	case row.Generation == 0 || has && (gone || date == format.Undated) || gone:
		l.decide(g, has && date != format.Undated)
	default:
		l.spilled = append(l.spilled, spilledEdge{g, has})
	}
	return nil
}
