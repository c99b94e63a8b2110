package rank

import (
	"cmp"
	"time"

	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// manyScored is the number of members above which share and lift need the large queue.
const manyScored = 1000

// A Ranking is a call of the method rank.
type Ranking struct {
	*language.RankSpec // of the root of Expr

	Expr  *language.Expr // a rank(…) or blend(…)
	Limit int            // of a page
	Posts bool           // only results that are posts
	After *Place         // the end of the previous page; nil for the first
	Late  *uint64        // what Begin returned for the first page; nil for that page
}

// A Place is the last result of a page, after which the next page starts. Cursors hold it.
type Place struct {
	Result

	Micros uint64 // the time of the first page, from which ages are counted back; 0 if there are no ages
	Late   uint64 // Ranking.Late
}

// scored reports whether results are ordered by share or by lift.
func (r *Ranking) scored() bool { return r.By == language.ByShare || r.By == language.ByLift }

// listed reports whether all results are in a list, in order, which is not needed by count.
func (r *Ranking) listed() bool { return r.scored() || r.ByScore() || r.Top > 0 }

// Read reads the parameters of rank, with ages counted back from now.
func Read(q *xrpc.Query, now time.Time) (r Ranking, err error) {
	if r.Expr, err = read(q, now); err != nil {
		return r, err
	}
	r.RankSpec = r.Expr.Root.Rank
	r.Exact = q.Boolean("exact") || r.Exact
	r.Limit = q.Integer("limit", 1, 1000, 100)
	return r, q.Err()
}

// read parses the parameter set, which is a ranking, or those that are arguments of a rank(…).
func read(q *xrpc.Query, now time.Time) (*language.Expr, error) {
	if !q.Values.Has("set") {
		e, err := q.Words.Ranking(q.Values, q.MaxExpr, now)
		if err != nil {
			return nil, xrpc.Invalid("%v", err)
		}
		return e, q.Resolve(e.Strings, func(int) string { return "" })
	}
	for _, name := range language.RankArguments {
		if q.Values.Has(name) && name != "exact" {
			return nil, xrpc.Invalid("parameter %s does not go together with set, which is a whole ranking: write %[1]s in it, as in rank(of=E, via=likes)", name)
		}
	}
	e, err := q.Parsed("set", q.Values.Get("set"), now, q.Words.ParseAlone)
	if err == nil && e.Root.Rank == nil {
		err = xrpc.Invalid("set: at position %d: expected a ranking: rank(…) or blend(…)", e.Root.Offset)
	}
	return e, err
}

// Begin prepares the evaluation of r.Expr. A query that waited for its slots has half the budget for each second, so
// that the queue gets shorter: it reads a smaller sample. The next pages have the budget of the first.
func (r *Ranking) Begin(v *algebra.Evaluation, w *xrpc.Work) (late uint64) {
	late = w.Late()
	if r.Late != nil {
		late = *r.Late
	}
	if v.Exact = r.Exact; !r.Exact {
		v.HopUnits >>= late
	}
	return late
}

// Rank evaluates r.Expr, and orders the results.
func Rank(v *algebra.Evaluation, w *xrpc.Work, r Ranking) (*Standing, error) {
	t, err := v.Tally(&r.Expr.Root)
	if err != nil {
		return nil, err
	}
	st := &Standing{v: v, tally: t, Of: t.Of}
	switch {
	case r.scored():
		if t.Of > manyScored { // totals of thousands of results are looked up
			err = w.Heavy()
		}
		if err == nil {
			err = st.measure(r)
		}
		if r.Top > 0 {
			st.results = st.results[:min(r.Top, len(st.results))]
		}
	case r.listed():
		st.results, err = v.Scores(t, r.RankSpec, cmp.Or(r.Top, algebra.MaxScored))
	}
	return st, err
}
