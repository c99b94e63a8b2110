package algebra

import (
	"skein.blue/graph/ask"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// A Walk is one step from the members of a set, along an edge.
type Walk struct {
	language.Weighing

	Via     language.Via
	Window  ask.Window         // of the records that make the edge
	Except  sets.Set           // of the results
	Weights map[uint64]float64 // of the members, with weigh=score
	Exact   bool               // fail instead of reading a sample
}

// leafSet returns the members of a leaf.
func (r *Reader) leafSet(l Leaf) (set sets.Set, err error) {
	op, err := r.Leaf(l)
	if err != nil {
		return set, err
	}
	return r.All(op)
}

// ranked evaluates a rank(…).
func ranked(v *Evaluation, n *language.Node) (set sets.Set, err error) {
	of, err := v.Set(&n.Args[0])
	if err != nil {
		return set, err
	}
	walk := Walk{Via: n.Rank.Via, Window: Within(n.Window), Exact: n.Rank.Exact}
	if len(n.Args) > 1 {
		if walk.Except, err = v.Set(&n.Args[1]); err != nil {
			return set, err
		}
	}
	if n.Rank.Top > 0 { // else all that reach min are in the set, whatever their scores
		walk.Weighing = n.Rank.Weighing
	}
	if walk.OfScores {
		walk.Weights = v.weights[&n.Args[0]]
	}
	t, err := v.Expand(of, walk)
	if err != nil {
		return set, err
	}
	if n.Rank.Top == 0 {
		set = t.Members(n.Rank.Min)
	} else {
		results, err := v.Scores(t, n.Rank.Via, n.Rank.Damp, n.Rank.Min, n.Rank.Top)
		if err != nil {
			return set, err
		}
		ids := make([]uint64, len(results))
		for i := range results {
			ids[i] = results[i].ID
		}
		if set = sets.FromUnsorted(ids); n.Rank.KeepsWeights {
			weigh(v, n, results)
		}
	}
	return set, nil
}
