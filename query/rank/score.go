package rank

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// A Result is a result of a ranking. With share and lift, its total is the number of accounts with an edge to it.
type Result = algebra.Result

// A Standing has the results of a ranking, in order.
type Standing struct {
	v        *algebra.Evaluation // of the set
	tally    *algebra.Tally
	Of       uint64 // members of the expanded set
	Accounts uint64 // visible accounts of the index; 0 with ByCount
	results  []Result
}

// measure looks up the totals of the results, and orders them by score. In a window, the results with the highest
// counts come first: those that are not counted before the budget is spent are left out.
func (st *Standing) measure(r Ranking) error {
	window, known := r.Expr.Root.Window, st.v.View.Known()
	st.Accounts = uint64(max(known.Counts.Accounts-known.Counts.Hidden, 1))
	st.results = st.tally.Top(r.Min, algebra.MaxScored)
	if window.All() {
		slices.SortFunc(st.results, func(x, y Result) int { return cmp.Compare(x.ID, y.ID) })
	}
	ids := algebra.IDs(algebra.IDsOf(st.results))
	total := func(i int, total uint64) error {
		e := &st.results[i]
		if st.v.Sampled() != "" { // the count is an estimate
			e.Count = uint32(min(uint64(e.Count), max(total, 1)))
		}
		e.Total = max(total, uint64(e.Count)) // a total may be one, too
		return st.v.Ended.Err()
	}
	var err error
	if window.All() {
		err = algebra.Totals(st.v.View, r.Via, ids, total)
	} else {
		var counted int
		counted, err = st.v.TotalsIn(r.Via, ids, algebra.Within(window), func(i int, n uint64) { _ = total(i, n) })
		st.results = st.results[:counted]
	}
	st.results = slices.DeleteFunc(st.results, func(e Result) bool { return e.Count < r.Min }) // its estimate was higher
	slices.SortFunc(st.results, func(x, y Result) int { return inOrder(r.By, x, y) })
	return err
}

// Score returns a result's share or lift, in millionths, rounded down.
func (st *Standing) Score(by string, e *Result) uint64 {
	n, d := uint64(e.Count), max(e.Total, 1)
	hi, lo := bits.Mul64(n, 1_000_000)
	if by == language.ByLift {
		over, under := bits.Mul64(n*1_000_000, st.Accounts)
		if of := max(st.Of, 1); d <= (1<<63)/of { // else the quotient is nearly zero
			hi, lo, d = over, under, d*of
		}
	}
	if hi >= d {
		return 1<<63 - 1
	}
	score, _ := bits.Div64(hi, lo, d)
	return min(score, 1<<63-1)
}

// first returns the first n results.
func (st *Standing) first(r Ranking, n int) []Result {
	if r.listed() {
		return st.results[:min(n, len(st.results))]
	}
	return st.tally.Top(r.Min, n)
}

// inOrder compares two results by rank.
func inOrder(by string, x, y Result) int {
	if by != language.ByShare && by != language.ByLift {
		return algebra.CompareResults(x, y)
	}
	share := cmp.Compare(uint64(y.Count)*max(x.Total, 1), uint64(x.Count)*max(y.Total, 1)) // Count / Total, exactly
	return cmp.Or(share, cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID))
}

// Page calls each for the results of a page, in order, and reports whether more follow. each returns false if the page has no room for the
// result.
func (st *Standing) Page(r Ranking, each func(e *Result, member string) bool) (more bool, err error) {
	n := r.Limit + 1
	if r.After != nil && r.listed() {
		n += len(st.results)
	} else if r.After != nil {
		n += st.tally.AtLeast(r.After.Count)
	}
	var ids []uint64
	for given, done := 0, 0; ; n *= 2 {
		all := st.first(r, n)
		if r.After != nil && done == 0 {
			done, _ = slices.BinarySearchFunc(all, r.After.Result, func(e, after Result) int { return cmp.Or(inOrder(r.By, e, after), -1) })
		}
		for ; done < len(all) && given <= r.Limit; done += len(ids) { // usually one round: few results are left out
			ids = algebra.IDsOf(all[done:min(done+max(r.Limit+1, 64), len(all))])
			names, err := st.v.Names(r.Via.Is, ids)
			if err != nil {
				return false, err
			}
			for i, member := range names {
				if given <= r.Limit && r.isRecent(member) && (!r.Posts || IsPost(member)) {
					if given < r.Limit && !each(&all[done+i], member) {
						r.Limit = given
					}
					given++
				}
			}
		}
		if given > r.Limit || len(all) < n {
			return given > r.Limit, nil
		}
	}
}

// Question returns the text that a cursor of a Ranking is bound to.
func (r *Ranking) Question() string { return fmt.Sprintf("rank %v\x00%s", r.Exact, r.Expr.Question()) }

// isRecent reports whether a result is a record in the window subjectsSince.
func (r *Ranking) isRecent(uri string) bool {
	return r.Subjects.All() || algebra.Within(r.Subjects).Has(ask.Path{TID: ask.TIDOf(dict.URI, uri)})
}

// IsPost reports whether a URI names a post.
func IsPost(uri string) bool {
	parts := strings.Split(uri, "/")
	return len(parts) == 5 && parts[3] == "app.bsky.feed.post"
}
