package write

import (
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// loneEdges divides the edges that a deleted or changed record named: those that surely have no other record,
// and those that may have one. The date of the member in the set tells (package format, dates.go). loneEdges holds scratch memory.
type loneEdges struct {
	lone, others []edge
	keys         kv.Keys
	buf          []byte
}

// read divides the edges, which ascend.
func (l *loneEdges) read(tx kv.Txn, layout format.Layout, removed []edge) (lone, others []edge, err error) {
	l.lone, l.others = l.lone[:0], l.others[:0]
	l.keys.Reset()
	for _, g := range removed {
		l.buf = layout.AppendMemberKey(l.buf[:0], g.kind, g.subject, g.actor)
		l.keys.Add(l.buf)
	}
	err = tx.MultiGet(l.keys.List(), func(i int, v []byte, _ bool) error {
		g := removed[i]
		date, found, _, err := read.DateIn(tx, layout, g.kind, g.subject, g.actor, v)
		if found && date != format.Undated {
			l.lone = append(l.lone, g)
		} else {
			l.others = append(l.others, g)
		}
		return err
	})
	return l.lone, l.others, err
}
