package query

import (
	"bytes"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// edgeRecords finds the records by which the members of a leaf are in it. ids are members,
// and ascend.
func (v *evaluation) edgeRecords(n *node, ids []dict.ID) (found []recordOf, err error) {
	add := func(i int, p format.Path) error {
		found = append(found, recordOf{ids[i], p})
		return v.ended.Err()
	}
	subject, info := v.expr.strings[n.of].s, v.expr.info(n)
	switch n.op {
	case opReverse:
		err = v.view.RecordsTo(n.kind, v.ids[n.of], tidOf(info.To.Is, subject), n.window, ids, add)
		return found, err
	case opListed, opLists:
		return v.listRecords(n, ids)
	default:
	}
	since := make([]uint64, len(ids))
	if to := info.To.Is; to == dict.URI {
		if err = v.view.Strings(to, ids, func(i int, s []byte) error { since[i] = tidOf(to, s); return nil }); err != nil {
			return nil, err
		}
	}
	err = v.view.RecordsFrom(n.kind, v.ids[n.of], ids, func(i int) uint64 { return since[i] }, n.window, add)
	return found, err
}

// tidOf returns the TID that a string names a record by, 0 if it does not.
func tidOf[S ~string | ~[]byte](is dict.Namespace, s S) uint64 {
	if is != dict.URI {
		return 0
	}
	b := []byte(s)
	tid, _ := syntax.ParseTID(b[bytes.LastIndexByte(b, '/')+1:])
	return tid
}

// isLeaf reports whether an expression is one set that the index has.
func (e *Expr) isLeaf() bool { return e.root.op.isSet() }

// authorOf returns whose record it is by which a member is in a leaf.
func (e *Expr) authorOf(n *node, member string) string {
	switch n.op {
	case opForward:
		return e.strings[n.of].s
	case opReverse:
		return member
	case opListed:
		return e.strings[n.by].s
	default: // opLists
		return ask.AuthorityOf(member)
	}
}
