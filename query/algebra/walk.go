package algebra

import (
	"cmp"
	"slices"

	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// leafSet returns the members of a leaf.
func (r *Reader) leafSet(l Leaf) (set sets.Set, err error) {
	op, err := r.Leaf(l)
	if err != nil {
		return set, err
	}
	return r.All(op)
}

// ranked evaluates a rank(…) or a blend(…).
func ranked(v *Evaluation, n *language.Node) (set sets.Set, err error) {
	t, err := v.Tally(n)
	switch {
	case err != nil:
		return set, err
	case n.Rank.Top == 0:
		return t.Members(n.Rank.Min), nil
	}
	results, err := v.Scores(t, n.Rank, n.Rank.Top)
	if err != nil {
		return set, err
	}
	if n.Rank.KeepsWeights {
		weigh(v, n, results)
	}
	return sets.FromUnsorted(IDsOf(results)), nil
}

// Tally counts the results of a rank(…) or a blend(…), before its min and top. It adds up their scores if they matter: else all that reach
// min are in the set, whatever their scores.
func (v *Evaluation) Tally(n *language.Node) (*Tally, error) {
	if n.Op == language.OpBlend {
		return v.blend(n)
	}
	of, err := v.Set(&n.Args[0])
	if err != nil {
		return nil, err
	}
	var except sets.Set
	if len(n.Args) > 1 {
		if except, err = v.Set(&n.Args[1]); err != nil {
			return nil, err
		}
	}
	t, err := v.Expand(n, of)
	if err == nil {
		t.LeaveOut(except)
		t.Of = of.Len() - sets.AndLen(v.hiddenIn(n.Rank.Via.From), of)
	}
	return t, err
}

// blend adds up the results that each ranking of a blend(…) has alone: their counts, and their scores times the weight.
func (v *Evaluation) blend(n *language.Node) (*Tally, error) {
	sum := &Tally{Weighted: true}
	for i, weight := range n.Rank.Weights {
		arg := &n.Args[i]
		t, err := v.Tally(arg)
		if err != nil {
			return nil, err
		}
		results := t.reaching(t.uncounted(arg.Rank.Min))
		if arg.Rank.Top > 0 || arg.Rank.Scored && arg.Rank.Damp > 0 {
			first, err := v.Scores(t, arg.Rank, cmp.Or(arg.Rank.Top, MaxScored))
			if err != nil {
				return nil, err
			}
			slices.SortFunc(first, func(x, y Result) int { return cmp.Compare(x.ID, y.ID) })
			results = slices.Values(first)
		}
		if err := sum.take(v.Ended, results, weight); err != nil {
			return nil, err
		}
	}
	for i := len(n.Rank.Weights); i < len(n.Args); i++ {
		except, err := v.Set(&n.Args[i])
		if err != nil {
			return nil, err
		}
		sum.LeaveOut(except)
	}
	return sum, nil
}
