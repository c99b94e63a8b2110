package algebra

import (
	"cmp"
	"math"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

// weightOf returns the weight of a member, from 0 to 1.
func (h *hop) weightOf(member uint64) float64 {
	if !h.OfScores {
		return 1
	}
	return h.scores[member]
}

// aged returns the weight of an edge whose newest record with a time has the given TID.
func (h *hop) aged(weight float64, tid uint64) float64 {
	age := max(h.Now-int64(ask.MicrosOf(tid)), 0)
	return weight * math.Exp2(-float64(age)/float64(h.Decay.Microseconds()))
}

const (
	// MaxScored is how many results, those with the highest sums, get a total. Along a reverse set,
	// such as likers, it is maxScoredReverse.
	MaxScored        = 20_000
	maxScoredReverse = 5_000

	// manyTotals is how many totals a query may look up without a call of Budget.Heavy.
	manyTotals = 1000
)

// Scores returns at most limit of the results of a ranking with at least its lowest count, in order. With damp, only the
// MaxScored (along a reverse set, maxScoredReverse) results with the highest sums are scored.
func (v *Evaluation) Scores(t *Tally, r *language.RankSpec, limit int) ([]Result, error) {
	if r.Damp == 0 {
		return t.Top(r.Min, limit), nil
	}
	most := MaxScored
	if r.Via.Op == language.OpReverse {
		most = maxScoredReverse
	}
	all := t.Top(r.Min, most)
	if len(all) > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, err
		}
	}
	if err := v.damp(all, r.Via, r.Damp); err != nil {
		return nil, err
	}
	slices.SortFunc(all, CompareResults)
	return all[:min(limit, len(all))], nil
}

// damp divides scores by a power of the results' totals.
func (r *Reader) damp(all []Result, via language.Via, damp float64) error {
	slices.SortFunc(all, func(x, y Result) int { return cmp.Compare(x.ID, y.ID) })
	return Totals(r.View, via, IDs(IDsOf(all)), func(i int, total uint64) error {
		x := &all[i]
		x.Total = total
		x.Score /= math.Pow(float64(max(total, 1)), damp)
		return r.Ended.Err()
	})
}

// Sizes calls each, in no order, with the number of active accounts, or of subjects, that an edge
// leads to from each of ids. It asks the budget before it reads a large reverse set.
func (r *Reader) Sizes(via language.Via, ids []dict.ID, each func(i int, total uint64) error) error {
	switch {
	case via.IsList():
		return r.listSizes(via, ids, each)
	case via.Op == language.OpReverse:
		return r.View.ActorCounts(via.Kind, ids, r.budget.Heavy, each)
	}
	return r.View.SubjectCounts(via.Kind, ids, each)
}

// weigh keeps the weights of the members of a ranking, for one with weigh=score.
func weigh(v *Evaluation, n *language.Node, results []Result) {
	all := make(map[uint64]float64, len(results))
	for _, r := range results {
		if highest := results[0].Score; highest > 0 {
			all[r.ID] = r.Score / highest
		}
	}
	v.weights[n] = all
}
