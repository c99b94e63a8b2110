package query

import (
	"slices"

	"skein.blue/intern/dict"
)

// contains reports whether the string x is in the set, asking about x alone.
func (v *evaluation) contains(x literal, id dict.ID) (bool, error) {
	if x.is == dict.DID && id != dict.None && v.view.IsHidden(id) {
		return false, nil
	}
	return v.has(&v.expr.root, x, id)
}

func (v *evaluation) has(n *node, x literal, id dict.ID) (bool, error) {
	if err := v.ended.Err(); err != nil {
		return false, err
	}
	switch n.op {
	case opForward:
		actor := v.ids[n.of]
		if v.view.IsHidden(actor) {
			return false, nil
		}
		return v.view.HasEdgeIn(n.kind, actor, id, n.window)
	case opReverse:
		return v.view.HasEdgeIn(n.kind, id, v.ids[n.of], n.window)
	case opListed, opLists:
		t, err := v.leaf(leafAt(n, v.ids))
		return t.set.Has(uint64(id)), err
	case opMembers:
		if x.s == "" { // it is known by its id alone
			return slices.Contains(v.ids[n.first:n.last], id), nil
		}
		return slices.Contains(v.expr.strings[n.first:n.last], x), nil
	default:
		return v.hasAll(n, x, id)
	}
}

// hasAll asks an operator's parts, and no more of them than need be.
func (v *evaluation) hasAll(n *node, x literal, id dict.ID) (bool, error) {
	// intersect is in all; union in any; except in the first and in no other.
	for i := range n.args {
		in, err := v.has(&n.args[i], x, id)
		if err != nil {
			return false, err
		}
		switch {
		case n.op == opUnion:
			if in {
				return true, nil
			}
		case in == (n.op == opExcept && i > 0):
			return false, nil
		}
	}
	return n.op != opUnion, nil
}
