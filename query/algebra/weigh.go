package algebra

import (
	"cmp"
	"math"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// weightOf returns the weight of a member, from 0 to 1.
func (w *Walk) weightOf(member uint64) float64 {
	if !w.OfScores {
		return 1
	}
	return w.Weights[member]
}

// aged returns the weight of an edge whose newest record with a time has the given TID.
func (w *Walk) aged(weight float64, tid uint64) float64 {
	age := max(w.Now-int64(ask.MicrosOf(tid)), 0)
	return weight * math.Exp2(-float64(age)/float64(w.Decay.Microseconds()))
}

// effective returns the part of the window whose records add to a score: 2^-1075 is no float64.
func (w *Walk) effective() ask.Window {
	return w.Window.And(ask.WindowOf(w.Now-1075*w.Decay.Microseconds(), language.LatestAt(time.UnixMicro(w.Now))+1))
}

const (
	// MaxScored is how many results, those with the highest sums, get a total. Along a reverse set,
	// such as likers, it is maxScoredReverse: there an account's total is the number of its likes,
	// and counting them means reading them.
	MaxScored        = 20_000
	maxScoredReverse = 5_000

	// manyTotals is how many totals a query may look up without a call of Budget.Heavy.
	manyTotals = 1000
)

// Scores returns at most limit of the results to which at least minCount members lead, in order. With damp, only the
// MaxScored (along a reverse set, maxScoredReverse) results with the highest sums are scored.
func (v *Evaluation) Scores(t *Tally, via language.Via, damp float64, minCount uint32, limit int) ([]Result, error) {
	if damp == 0 {
		return t.Top(minCount, limit), nil
	}
	most, damped := MaxScored, dampForward
	if via.Op == language.OpReverse {
		most, damped = maxScoredReverse, dampReverse
	}
	all := t.Top(minCount, most)
	if len(all) > manyTotals {
		if err := v.budget.Heavy(); err != nil {
			return nil, err
		}
	}
	if err := damped(v.Reader, all, via, damp, limit); err != nil {
		return nil, err
	}
	slices.SortFunc(all, CompareResults)
	return all[:min(limit, len(all))], nil
}

// dampForward divides scores by a power of the results' totals.
func dampForward(r *Reader, all []Result, via language.Via, damp float64, _ int) error {
	slices.SortFunc(all, func(x, y Result) int { return cmp.Compare(x.ID, y.ID) })
	ids := make([]dict.ID, len(all))
	for i := range all {
		ids[i] = dict.ID(all[i].ID)
	}
	return Totals(r.View, via, ids, func(i int, total uint64) error {
		all[i].divide(total, damp)
		return r.Ended.Err()
	})
}

// dampReverse is dampForward along a reverse set, where a total is the number of an account's own subjects,
// which have to be read. It stops counting those of a result that can no longer be among the first
// limit: its total is then too low, and its score too high, but lower than the scores of limit others.
func dampReverse(r *Reader, all []Result, via language.Via, damp float64, limit int) error {
	counter := r.View.SubjectCounter(via.Kind)
	var best []float64 // the highest scores so far, as negative numbers
	i := -1
	begin := func(x Result) { r.View.BeginSubjects(via.Kind, dict.ID(x.ID)) }
	for range ask.Ahead(r.View, slices.Values(all), begin) { // highest sums first
		i++
		most := uint64(math.MaxUint64)
		if len(best) == limit && best[limit-1] < 0 {
			// The score is below that of the last from this total on; rounding up leaves room for errors of Pow.
			if enough := math.Pow(-all[i].Score/best[limit-1], 1/damp) + 1; enough < math.MaxInt64 {
				most = uint64(enough) + 1
			}
		}
		total, err := counter.Count(dict.ID(all[i].ID), most)
		if err == nil {
			err = r.Ended.Err()
		}
		if err != nil {
			return err
		}
		all[i].divide(total, damp)
		if limit < len(all) {
			at, _ := slices.BinarySearch(best, -all[i].Score)
			best = slices.Insert(best, at, -all[i].Score)
			best = best[:min(limit, len(best))]
		}
	}
	return nil
}

// divide divides a score by a power of a total.
func (r *Result) divide(total uint64, damp float64) {
	r.Total = total
	r.Score /= math.Pow(float64(max(total, 1)), damp)
}

// Sizes calls each, in no order, with the number of active accounts, or of subjects, that an edge
// leads to from each of ids. It asks the budget before it reads a large reverse set, and after it has
// read a large forward set.
func (r *Reader) Sizes(via language.Via, ids []dict.ID, each func(i int, total uint64) error) error {
	switch {
	case via.IsList():
		return r.listSizes(via, ids, each)
	case via.Op == language.OpReverse:
		return r.View.ActorCounts(via.Kind, ids, r.budget.Heavy, each)
	}
	return r.View.SubjectCounts(via.Kind, ids, func(i int, total uint64) error {
		err := each(i, total)
		if err == nil && total > sets.ListMax { // as Leaf does after it has read a large forward set
			err = r.budget.Heavy()
		}
		return err
	})
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

// Weights returns the weights, from 0 to 1, of the members of a ranking that was evaluated, for weigh=score.
func (v *Evaluation) Weights(n *language.Node) map[uint64]float64 { return v.weights[n] }
