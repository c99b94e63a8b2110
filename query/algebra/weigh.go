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

// A Weight is the weight of a member, from 0 to 1.
type Weight struct {
	ID     uint64
	Weight float64
}

// weightOf returns the weight of a member.
func (w *Walk) weightOf(member uint64) float64 {
	if !w.OfScores {
		return 1
	}
	i, ok := slices.BinarySearchFunc(w.Weights, member, func(x Weight, id uint64) int { return cmp.Compare(x.ID, id) })
	if !ok {
		return 0
	}
	return w.Weights[i].Weight
}

// tallyWeight converts a weight to the unit of tallies (1/tallyOne), rounded down.
func tallyWeight(weight float64) uint64 { return uint64(weight * tallyOne) }

// aged returns the weight of an edge whose newest record with a time has the given TID.
func (w *Walk) aged(weight float64, tid uint64) uint64 {
	age := max(w.Now-int64(ask.MicrosOf(tid)), 0)
	return tallyWeight(weight * math.Exp2(-float64(age)/float64(w.Decay.Microseconds())))
}

// freshest is the number of half-lives that the newest edge may be old. If it is older, its age is the unit in which weights are
// counted (Tally.Unit): weights of 2^-20 would be too coarse, and those of 2^-41 are 0.
const freshest = 8

// halvings is the number of half-lives after which an edge adds nothing: 2^-41 is below 1/tallyOne.
const halvings = 41

// effective returns the part of the window whose records still add to a score.
func (w *Walk) effective() ask.Window {
	from := int64(math.MinInt64)
	if !w.wide {
		from = w.Now - halvings*w.Decay.Microseconds()
	}
	return w.Window.And(ask.WindowOf(from, language.LatestAt(time.UnixMicro(w.Now))+1))
}

// A Scored is a result of a ranking by score.
type Scored struct {
	Summed

	Total uint64 // total(x) of Weighing; 0 without damp
	Score float64
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

// Scores returns, best first, at most limit of the results to which at least minCount members lead. Results with equal scores are ordered by count, then by id. With damp, only the
// MaxScored (along a reverse set, maxScoredReverse) results with the highest sums are scored.
func (v *Evaluation) Scores(t *Tally, via language.Via, damp float64, minCount uint32, limit int) ([]Scored, error) {
	most := limit
	if damp > 0 {
		if most = MaxScored; via.Op == language.OpReverse {
			most = maxScoredReverse
		}
	}
	sums := t.TopSums(minCount, min(t.AtLeast(minCount), most))
	all := make([]Scored, len(sums))
	for i := range sums {
		all[i] = Scored{Summed: sums[i], Score: float64(sums[i].Sum) / tallyOne * max(t.Scale, 1) * t.Unit()}
	}
	if damp > 0 {
		if len(all) > manyTotals {
			if err := v.budget.Heavy(); err != nil {
				return nil, err
			}
		}
		damped := dampForward
		if via.Op == language.OpReverse {
			damped = dampReverse
		}
		if err := damped(v.Reader, all, via, damp, limit); err != nil {
			return nil, err
		}
		slices.SortFunc(all, CompareScores)
	}
	return all[:min(limit, len(all))], nil
}

// dampForward divides scores by a power of the results' totals.
func dampForward(r *Reader, all []Scored, via language.Via, damp float64, _ int) error {
	slices.SortFunc(all, func(x, y Scored) int { return cmp.Compare(x.ID, y.ID) })
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
func dampReverse(r *Reader, all []Scored, via language.Via, damp float64, limit int) error {
	counter := r.View.SubjectCounter(via.Kind)
	var best smallest[float64] // the highest scores so far, as negative numbers
	i := -1
	begin := func(s Scored) { r.View.BeginSubjects(via.Kind, dict.ID(s.ID), ask.Window{}) }
	for range ask.Ahead(r.View, slices.Values(all), begin) { // highest sums first
		i++
		most := uint64(math.MaxUint64)
		if len(best) == limit && best[0] < 0 {
			// The score is below -best[0] from this total on; rounding up leaves room for errors of Pow.
			if enough := math.Pow(-all[i].Score/best[0], 1/damp) + 1; enough < math.MaxInt64 {
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
		best.offer(-all[i].Score, limit)
	}
	return nil
}

// divide divides a score by a power of a total.
func (s *Scored) divide(total uint64, damp float64) {
	s.Total = total
	s.Score /= math.Pow(float64(max(total, 1)), damp)
}

// CompareScores compares results by rank.
func CompareScores(x, y Scored) int {
	return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
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

// weigh keeps the weights of the members of a ranking.
func (v *Evaluation) weigh(n *language.Node, results []Scored) {
	all := make([]Weight, len(results))
	for i := range results {
		all[i] = Weight{ID: results[i].ID}
		if highest := results[0].Score; highest > 0 {
			all[i].Weight = results[i].Score / highest
		}
	}
	slices.SortFunc(all, func(x, y Weight) int { return cmp.Compare(x.ID, y.ID) })
	if v.weights == nil {
		v.weights = map[*language.Node][]Weight{}
	}
	v.weights[n] = all
}

// Weights returns the weights of the members of a ranking that was evaluated, for weigh=score.
func (v *Evaluation) Weights(n *language.Node) []Weight { return v.weights[n] }
