package write

import (
	"slices"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// loneEdges divides the edges that a deleted or changed record named: those that surely have no other record,
// and those that may have one. The sets tell. In a set without containers, the row notes repeated members
// (format.Row). In one with containers, the date of a member (package format, dates.go) is OneRecord, or the second of all
// of the member's records. In the second case another record can only lie in the chunk that the phase previous has already
// read, or, if that chunk was spilled, in those below it of that second. loneEdges holds scratch memory.
type loneEdges struct {
	lone, others []edge
	asked        []edge
	rows         []dateLookup
	keys         kv.Keys
	buf          []byte
	ids          []uint64
}

// dateLookup is a removed edge whose set has containers, so that the date of the member decides.
type dateLookup struct {
	edge
	date uint32 // of the member in the row
	has  bool   // the row has the member
}

// read divides the edges into those that surely have no other record and the others, which ascend, for each actor those with
// oneSecond first. It reads the row of each, and then, if the set has containers, the block with the member's date.
func (l *loneEdges) read(tx kv.Txn, layout format.Layout, removed []edge) (lone, others []edge, err error) {
	l.lone, l.others, l.asked, l.rows = l.lone[:0], l.others[:0], l.asked[:0], l.rows[:0]
	l.keys.Reset()
	for _, g := range removed {
		if g.repeated || !format.HasRepeated(g.kind) {
			l.others = append(l.others, g)
			continue
		}
		l.asked = append(l.asked, g)
		l.buf = layout.AppendMemberKey(l.buf[:0], g.kind, g.subject, g.actor)
		l.keys.Add(l.buf)
	}
	if len(l.asked) == 0 {
		return nil, l.others, nil
	}
	if err := tx.MultiGet(l.keys.List(), func(i int, v []byte, _ bool) error {
		v, err := layout.RowIn(l.asked[i].kind, l.asked[i].subject, v)
		if err != nil {
			return err
		}
		return l.row(l.asked[i], v)
	}); err != nil {
		return nil, nil, err
	}
	if err := l.dates(tx); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(l.others, func(x, y edge) int { // one search for those with oneSecond, one for the others
		if x.kind == y.kind && x.actor == y.actor && x.oneSecond != y.oneSecond {
			if x.oneSecond {
				return -1
			}
			return 1
		}
		return compareEdges(x, y)
	})
	return l.lone, l.others, nil
}

// row decides about an edge by the row of its set, or adds it to rows.
func (l *loneEdges) row(g edge, v []byte) error {
	row, err := format.ParseRow(g.subject, v)
	if err != nil {
		return err
	}
	id := uint64(g.actor)
	switch {
	case row.Generation == 0 && row.Has(id) && !row.IsRepeated(id):
		l.lone = append(l.lone, g)
	case row.Generation == 0:
		l.others = append(l.others, g)
	default:
		if l.ids, err = row.AppendMembers(l.ids[:0]); err != nil {
			return err
		}
		one := dateLookup{edge: g, date: format.Undated}
		var at int
		if at, one.has = slices.BinarySearch(l.ids, id); one.has {
			one.date = row.Date(at)
		}
		l.rows = append(l.rows, one)
	}
	return nil
}

// dates decides about the edges in rows.
func (l *loneEdges) dates(tx kv.Txn) error {
	if len(l.rows) == 0 {
		return nil
	}
	l.keys.Reset()
	for i := range l.rows {
		g := &l.rows[i]
		l.buf = format.AppendDateBlock(format.AppendDatesKey(l.buf[:0], g.kind, g.subject), uint64(g.actor)>>format.DateShift)
		l.keys.Add(l.buf)
	}
	return tx.MultiGet(l.keys.List(), func(i int, v []byte, _ bool) error {
		g := &l.rows[i]
		in, date := g.has, g.date
		err := format.EachDate(uint64(g.actor)>>format.DateShift<<format.DateShift, v, func(id uint64, d uint32) {
			if id == uint64(g.actor) {
				if in && d != date {
					d = format.Undated
				}
				in, date = true, d
			}
		})
		if err != nil {
			return err
		}
		if in && (date == format.OneRecord || date == g.edge.date && date != format.Undated) {
			l.lone = append(l.lone, g.edge)
		} else {
			g.oneSecond = in && date != format.Undated && date == format.DateOf(format.Path{TID: g.tid})
			l.others = append(l.others, g.edge)
		}
		return nil
	})
}
