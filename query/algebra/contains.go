package algebra

import (
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

// Contains reports whether x, whose id is id, is a member. It looks up x only; it reads
// whole sets only for listed, lists, rank, sample, authors and by.
func (v *Evaluation) Contains(x language.Literal, id dict.ID) (bool, error) {
	if x.Is == dict.DID && id != dict.None && v.View.IsHidden(id) {
		return false, nil
	}
	return v.has(&v.Expr.Root, x, id)
}

// BeginContains begins the reads of Contains (ask.Ahead).
func (v *Evaluation) BeginContains(id dict.ID) {
	if !v.View.IsHidden(id) {
		v.beginHas(&v.Expr.Root, id)
	}
}

func (v *Evaluation) beginHas(n *language.Node, id dict.ID) {
	switch n.Op {
	case language.OpForward:
		if actor := v.IDs[n.Of]; !v.View.IsHidden(actor) {
			v.View.BeginAccount(actor) // the answer rests on it
			v.View.BeginEdge(n.Kind, actor, id, Within(n.Window))
		}
	case language.OpReverse:
		v.View.BeginEdge(n.Kind, id, v.IDs[n.Of], Within(n.Window))
	case language.OpIntersect, language.OpUnion, language.OpExcept, language.OpAtLeast:
		for i := range n.Args {
			v.beginHas(&n.Args[i], id)
		}
	default: // whole sets
	}
}

func (v *Evaluation) has(n *language.Node, x language.Literal, id dict.ID) (bool, error) {
	if err := v.Ended.Err(); err != nil {
		return false, err
	}
	switch n.Op {
	case language.OpForward:
		actor := v.IDs[n.Of]
		if v.View.IsHidden(actor) {
			return false, nil
		}
		return v.View.HasEdge(n.Kind, actor, id, Within(n.Window))
	case language.OpReverse:
		return v.View.HasEdge(n.Kind, id, v.IDs[n.Of], Within(n.Window))
	case language.OpMembers:
		return slices.Contains(v.Expr.Strings[n.First:n.End], x), nil
	case language.OpListed, language.OpLists, language.OpRank, language.OpBlend, language.OpSample, language.OpAuthors, language.OpBy:
		set, err := v.Set(n)
		if id == dict.None {
			id = standIn(v, x)
		}
		return set.Has(uint64(id)), err
	default:
		return v.hasAll(n, x, id)
	}
}

// hasAll evaluates an operator for one member, and stops at the first operand that decides.
func (v *Evaluation) hasAll(n *language.Node, x language.Literal, id dict.ID) (bool, error) {
	sets := 0 // that x is in
	for i := range n.Args {
		in, err := v.has(&n.Args[i], x, id)
		if err != nil {
			return false, err
		}
		switch {
		case n.Op == language.OpAtLeast, n.Op == language.OpUnion:
			if in {
				sets++
			}
			if sets == max(n.Least, 1) {
				return true, nil
			}
		case in == (n.Op == language.OpExcept && i > 0):
			return false, nil
		}
	}
	return n.Op != language.OpUnion && n.Op != language.OpAtLeast, nil
}
