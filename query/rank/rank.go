package rank

import (
	"context"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// manyScored is the number of members above which share and lift need the large queue.
const manyScored = 1000

// A Ranking expands every member of a set along an edge, and orders the results by how often each
// occurs.
type Ranking struct {
	language.Weighing

	Of     *language.Expr
	Except *language.Expr // without its members; nil for none
	Via    language.Via
	Window language.Window // of the records that make the edges
	By     string          // ByCount, ByShare, ByLift or ByScore
	Limit  int             // of a page
	Posts  bool            // only results that are posts
	Exact  bool            // fail instead of reading a sample
	After  *Place          // the end of the previous page; nil for the first

	min      uint32     // the lowest count
	subjects ask.Window // of the results' record keys
}

// A Place is the last result of a page, after which the next page starts.
type Place struct {
	Result

	Micros uint64 // the time of the first page, from which ages are counted back; 0 if there are no ages
	Late   uint64 // Standing.Late of the first page
}

// HasAge reports whether a Ranking depends on the time of the query.
func (r *Ranking) HasAge(q *xrpc.Query) bool {
	for _, name := range []string{"since", "until", "subjectsSince"} {
		if _, age, err := language.ParseTime(q.Values.Get(name), time.Time{}); err == nil && age {
			return true
		}
	}
	return r.Decay > 0 || r.Of.HasAge || r.Except != nil && r.Except.HasAge
}

// scored reports whether results are ordered by share or by lift.
func (r *Ranking) scored() bool { return r.By == ByShare || r.By == ByLift }

// listed reports whether all results are in a list, in order, which is not needed by count.
func (r *Ranking) listed() bool { return r.scored() || r.ByScore() }

// Read reads the parameters of rank, with ages counted back from now.
func Read(q *xrpc.Query, now time.Time) (r Ranking, err error) {
	if r.Of, err = q.ExprAt("of", now); err != nil {
		return r, err
	}
	if r.Via, err = r.Of.ViaFrom(q.Values.Get("via"), &r.Of.Root); err != nil {
		return r, xrpc.Invalid("parameter %v", err)
	}
	if q.Values.Has("except") {
		if r.Except, err = q.ExprAt("except", now); err != nil {
			return r, err
		}
		if err := r.Except.Except(r.Via.Is); err != nil {
			return r, xrpc.Invalid("%v", err)
		}
		r.Of.Adopt(r.Except)
	}
	r.Window = q.Window(now)
	for _, name := range []string{"weigh", "damp", "decay"} {
		if q.Values.Has(name) && q.Values.Get(name) == "" {
			return r, xrpc.Invalid("parameter %s is empty", name)
		}
	}
	r.Weighing, err = language.ParseWeighing(q.Values.Get("weigh"), q.Values.Get("damp"), q.Values.Get("decay"), &r.Of.Root, r.Via, now)
	if err != nil {
		return r, xrpc.Invalid("parameter %v", err)
	}
	r.By = ByCount
	if r.ByScore() {
		r.By = ByScore
	}
	if q.Values.Has("by") {
		if r.By = q.Values.Get("by"); r.ByScore() && r.By != ByScore {
			return r, xrpc.Invalid("by=%s does not work with weigh, damp or decay, which order by score", language.Brief(r.By))
		}
	}
	r.Exact = q.Boolean("exact")
	least := 1
	switch r.By {
	case ByCount, ByScore:
	case ByShare, ByLift:
		least = leastScored
	default:
		return r, xrpc.Invalid("parameter by is %q; it must be one of %s, %s, %s, %s", language.Brief(r.By), ByCount, ByShare, ByLift, ByScore)
	}
	if counts := r.Via.Op == language.OpForward || r.Via.Op == language.OpReverse; !counts && (r.By == ByShare || r.By == ByLift) {
		return r, xrpc.Invalid("by=%s does not work with via=%s", r.By, r.Via.Name)
	}
	r.min = uint32(q.Integer("min", 1, 1<<30, least))
	if q.Values.Has("subjectsSince") {
		if r.Via.Is != dict.URI {
			return r, xrpc.Invalid("subjectsSince works only for results that are %s; these are %s, which have no time", language.Plural(dict.URI), language.Plural(r.Via.Is))
		}
		t, isAge, err := language.ParseTime(q.Values.Get("subjectsSince"), now)
		if err != nil {
			return r, xrpc.Invalid("parameter subjectsSince: %v", err)
		}
		r.subjects = ask.WindowOf(language.FirstMicro(t), language.EndSince(isAge, now))
	}
	r.Limit = q.Integer("limit", 1, 1000, 100)
	return r, q.Err()
}

// Rank expands the members of a set, and orders the results. A query that waited for its slots has half the budget for each second, so
// that the queue gets shorter: it reads a smaller sample. The next pages have the budget of the first.
func Rank(ctx context.Context, sn *ask.View, w *xrpc.Work, r Ranking) (*Standing, error) {
	v, err := algebra.NewEvaluation(ctx, sn, r.Of, w)
	if err != nil {
		return nil, err
	}
	late := w.Late()
	if r.After != nil {
		late = r.After.Late
	}
	if v.Exact = r.Exact; !r.Exact {
		v.HopUnits >>= late
	}
	actors, of, err := v.Result()
	if err != nil {
		return nil, err
	}
	var without sets.Set
	if r.Except != nil {
		if err := algebra.CheckLabelers(sn, r.Except); err != nil {
			return nil, err
		}
		if without, err = v.Set(&r.Except.Root); err != nil {
			return nil, err
		}
	}
	if r.scored() && actors.Len() > manyScored { // totals of thousands of results are looked up
		if err := w.Heavy(); err != nil {
			return nil, err
		}
	}
	walk := algebra.Walk{Weighing: r.Weighing, Via: r.Via, Window: algebra.Within(r.Window), Except: without}
	if r.OfScores {
		walk.Weights = v.Weights(&r.Of.Root)
	}
	t, err := v.Expand(actors, walk)
	if err != nil {
		return nil, err
	}
	st := &Standing{v: v, tally: t, Of: of, Late: late}
	st.Sampled = v.Sampled()
	switch {
	case r.scored():
		err = st.measure(r)
		st.Sampled = v.Sampled()
	case r.ByScore():
		st.results, err = v.Scores(t, r.Via, r.Damp, r.min, algebra.MaxScored)
	}
	return st, err
}
