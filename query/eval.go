package query

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/graph"
	"skein/intern"
)

// evaluation is an expression in front of a snapshot of the graph.
type evaluation struct {
	ctx context.Context //nolint:containedctx // lives as long as one question
	e   *Expr
	s   *graph.Snapshot
	ids []intern.ID // of e.strings
}

// Strings that have no id, and so are in no set of the graph, may still be
// given as members. They take the ids at the end of the id space, which are
// never handed out: string i of the expression is literalID(i).
func literalID(i int) intern.ID { return intern.FirstReserved + intern.ID(i) }

// unseen says, by index in Expr.strings, which were without an id when the
// first page was made. They stay so for the pages after it, also when they
// have got one meanwhile: each would otherwise change its place.
type unseen []bool

// newEvaluation looks up the expression's strings.
func newEvaluation(ctx context.Context, s *graph.Snapshot, e *Expr) (*evaluation, error) {
	ids, err := lookup(s, e.strings)
	return &evaluation{ctx, e, s, ids}, err
}

func lookup(s *graph.Snapshot, strings []literal) ([]intern.ID, error) {
	var b intern.Batch
	index := make([]int, len(strings))
	for i, l := range strings {
		index[i] = b.Add(l.is, []byte(l.s))
	}
	if err := s.Lookup(&b); err != nil {
		return nil, err
	}
	ids := make([]intern.ID, len(strings))
	for i := range strings {
		ids[i] = b.ID(index[i])
	}
	return ids, nil
}

// result is the set that the expression names, hidden accounts left out.
func (v *evaluation) result() (*roaring64.Bitmap, error) {
	set, err := v.set(&v.e.root)
	if err == nil && v.e.root.is == intern.DID {
		set.AndNot(v.s.Hidden())
	}
	return set, err
}

// set evaluates a node. Hidden accounts are in its sets: leaving them out of
// every leaf, or once at the end, comes to the same.
func (v *evaluation) set(n *node) (*roaring64.Bitmap, error) {
	if err := v.ctx.Err(); err != nil {
		return nil, err
	}
	switch n.op {
	case opForward:
		return v.s.Subjects(n.kind, v.ids[n.of])
	case opReverse:
		return v.s.Actors(n.kind, v.ids[n.of])
	case opMembers:
		set := roaring64.New()
		for i := n.first; i < n.last; i++ {
			set.Add(uint64(v.literal(i)))
		}
		return set, nil
	default:
		return v.combine(n)
	}
}

// combine evaluates an operator.
func (v *evaluation) combine(n *node) (*roaring64.Bitmap, error) {
	set, err := v.set(&n.args[0])
	if err != nil {
		return nil, err
	}
	for i := range n.args[1:] {
		if n.op != opUnion && set.IsEmpty() {
			return set, nil
		}
		other, err := v.set(&n.args[1+i])
		if err != nil {
			return nil, err
		}
		switch n.op {
		case opIntersect:
			set.And(other)
		case opUnion:
			set.Or(other)
		default:
			set.AndNot(other)
		}
	}
	return set, nil
}

// literal returns the id of a string given as a member: the first of its
// equals stands for all, if it has none of its own.
func (v *evaluation) literal(i int) intern.ID {
	if v.ids[i] != intern.None {
		return v.ids[i]
	}
	for j := range i {
		if v.e.strings[j] == v.e.strings[i] {
			return literalID(j)
		}
	}
	return literalID(i)
}

// contains reports whether the string x is in the set, asking about x alone.
func (v *evaluation) contains(x literal, id intern.ID) (bool, error) {
	if x.is == intern.DID && id != intern.None && v.s.IsHidden(id) {
		return false, nil
	}
	return v.has(&v.e.root, x, id)
}

func (v *evaluation) has(n *node, x literal, id intern.ID) (bool, error) {
	if err := v.ctx.Err(); err != nil {
		return false, err
	}
	switch n.op {
	case opForward:
		actor := v.ids[n.of]
		if v.s.IsHidden(actor) {
			return false, nil
		}
		return v.s.HasEdge(n.kind, actor, id)
	case opReverse:
		return v.s.HasEdge(n.kind, id, v.ids[n.of])
	case opMembers:
		return slices.Contains(v.e.strings[n.first:n.last], x), nil
	default:
		return v.hasAll(n, x, id)
	}
}

// hasAll asks an operator's parts, and no more of them than need be.
func (v *evaluation) hasAll(n *node, x literal, id intern.ID) (bool, error) {
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

// pin makes literal strings that were unseen on the first page stay so: in
// the set they stand under their reserved id.
func (v *evaluation) pin(set *roaring64.Bitmap, u unseen) {
	for i := range v.e.strings {
		if i < len(u) && u[i] && v.ids[i] != intern.None && set.CheckedRemove(uint64(v.ids[i])) {
			set.Add(uint64(literalID(i)))
		}
	}
}

// unseen returns which strings have no id now.
func (v *evaluation) unseen() unseen {
	u := make(unseen, len(v.ids))
	for i, id := range v.ids {
		u[i] = id == intern.None
	}
	return u
}

// page returns up to limit members after the one with id after, in the order
// of their ids, and whether there are more.
func page(set *roaring64.Bitmap, after intern.ID, limit int) (ids []intern.ID, more bool) {
	it := set.Iterator()
	if after != intern.None {
		it.AdvanceIfNeeded(uint64(after) + 1)
	}
	for it.HasNext() {
		if len(ids) == limit {
			return ids, true
		}
		ids = append(ids, intern.ID(it.Next()))
	}
	return ids, false
}

// strings returns the strings of ids, reserved ones included.
func (v *evaluation) strings(ids []intern.ID) ([]string, error) {
	out := make([]string, len(ids))
	known := ids
	for i, id := range ids {
		if id >= intern.FirstReserved { // they come last
			known = ids[:i]
			break
		}
	}
	for i := len(known); i < len(ids); i++ {
		out[i] = v.e.strings[ids[i]-intern.FirstReserved].s
	}
	err := v.s.Strings(v.e.root.is, known, func(i int, s []byte) error {
		out[i] = string(s)
		return nil
	})
	return out, err
}
