package language

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Via is the type of set that a ranking opens for each member, such as likes or followers.
type Via struct {
	Name string
	Op   Op // OpForward, OpReverse, OpListed, OpLists or OpAuthors
	Kind kinds.Kind
	Form kinds.Form     // of the members that it leads from
	From dict.Namespace // likewise
	Is   dict.Namespace // of the results
}

// IsList reports whether the set is read through list items.
func (v *Via) IsList() bool { return v.Op == OpListed || v.Op == OpLists }

// Vias returns the edges that lead from accounts, or from URIs.
func (v *Vocabulary) Vias(from dict.Namespace) []Via {
	return slices.DeleteFunc(slices.Clone(v.vias), func(via Via) bool { return via.From != from })
}

// Named returns the set of all that has a name. Its error is for the client: what says where the name stands, and
// why, if it is not "", for what all are all.
func (v *Vocabulary) Named(what, name, why string, all []Via) (Via, error) {
	name = Pasted(name)
	names := make([]string, len(all))
	for i := range all {
		if names[i] = all[i].Name; names[i] == name {
			return all[i], nil
		}
	}
	return Via{}, fmt.Errorf("%s is %q; %sit must be one of %s%s", what, Brief(name), why, strings.Join(names, ", "), v.didYouMean(name, names))
}

// NamedFrom is Named of the sets that lead from accounts, or from URIs.
func (v *Vocabulary) NamedFrom(what, name string, from dict.Namespace) (Via, error) {
	return v.Named(what, name, "for a set of "+Plural(from)+" ", v.Vias(from))
}

// viaFrom returns the set with a name that leads from the members of a part of the expression. If the set can have members of
// either namespace, it then has those from which there is such an edge. Its error is for the client.
func (e *Expr) viaFrom(name string, of *Node) (Via, error) {
	via, err := e.words.NamedFrom("via", name, of.Is)
	for _, ns := range dict.Namespaces {
		if err == nil || ns == of.Is || !of.canBecome(ns) {
			continue
		}
		if other, otherErr := e.words.NamedFrom("via", name, ns); otherErr == nil {
			e.become(of, ns)
			via, err = other, nil
		}
	}
	if via.Op == OpAuthors {
		e.nameAuthors(of)
	}
	if of.isList && err != nil {
		if _, fromAccounts := e.words.NamedFrom("via", name, dict.DID); fromAccounts == nil {
			err = fmt.Errorf("via=%s: %w", name, errNotItsMembers)
		}
	}
	return via, err
}

// A RankSpec has the arguments of a rank(…) or a blend(…), other than its sets and the window of its records.
type RankSpec struct {
	Weighing

	Via Via    // of blend(…), only Is
	Min uint32 // the lowest count
	Top int    // the number of results; 0: all that reach Min

	Exact bool // fail instead of reading a sample

	Weights []float64 // OpBlend: of its rankings

	Scored       bool // the order of its results matters, or their scores do
	KeepsWeights bool // another ranking uses its scores as weights

	// Of a ranking that stands alone (Vocabulary.ParseAlone):
	By       string // the order
	Subjects Window // of the results' own keys
}

// The orders of rankings. If c of the n members of a set have an edge to a result, and t of all N
// accounts do, both in the window if there is one, share is c / t, and lift is (c / n) / (t / N): the ratio of c to what chance would
// give. Lift, or interest, comes from association rules (Brin, Motwani, Ullman and Tsur, "Dynamic
// itemset counting and implication rules for market basket data", 1997). Both give the same
// order.
const (
	ByCount = "count"
	ByShare = "share"
	ByLift  = "lift"
	ByScore = "score" // see Weighing; without its parameters it is the count
)

// leastScored is the default of min with share and lift, which mean little for small counts.
const leastScored = 5

// ByScore reports whether results are ordered by score, not by count.
func (s *RankSpec) ByScore() bool { return s.Weights != nil || s.Weighing.ByScore() }

// Bounds of rankings in an expression.
const (
	MaxTop   = 10_000
	maxRanks = 8 // in one expression

	leastWeight, mostWeight = 0.001, 1000 // in blend(…)
)

// The arguments of rank(…): sets, others, and those that are only for a ranking that stands alone.
var (
	rankSets   = []string{"of", "except"}
	rankWords  = []string{"via", "min", "top", "since", "until", "weigh", "damp", "decay", "exact"}
	aloneWords = []string{"by", "subjectsSince"}

	RankArguments = slices.Concat(rankSets, rankWords, aloneWords)
)

// rank reads the arguments of rank(of=E, via=NAME, …).
func (p *parser) rank(n *Node, depth int) error {
	if p.ranks++; p.ranks > maxRanks {
		return p.errorf(n.Offset, "more than %d rank(…) in one expression", maxRanks)
	}
	takes, as := rankWords, " as a set"
	if p.alone == depth {
		takes, as = slices.Concat(rankWords, aloneWords), ""
	}
	o := p.rankOptions("rank(…)"+as, rankSets, takes, depth)
	if err := p.options("rank", "expected name=value in rank(…", o.option); err != nil {
		return err
	}
	return p.ranking(n, o)
}

// Ranking is ParseAlone of a rank(…) whose arguments are given one by one. Each may be as large as an expression, but all
// share MaxGiven: the expression has the strings of all.
func (v *Vocabulary) Ranking(given map[string][]string, most int, now time.Time) (*Expr, error) {
	p := &parser{e: &Expr{words: v, Now: now, Root: Node{Op: OpRank}}}
	o := p.rankOptions("rank(…)", rankSets, slices.Concat(rankWords, aloneWords), 0)
	var source []string
	for _, name := range RankArguments {
		if given[name] == nil {
			continue
		}
		p.leaves, p.ranks = 0, 0
		if err := p.whole(given[name][0], most, func() error { _, err := o.option(name); return err }); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		source = append(source, name+"="+p.e.Source)
	}
	p.e.Source = strings.Join(source, "\x00")
	if wrong, ok := errors.AsType[*SyntaxError](p.ranking(&p.e.Root, o)); ok {
		return nil, errors.New(wrong.What) // it names the argument
	}
	p.e.Root.score()
	return p.e, nil
}

// blend reads the arguments of blend(W, RANKING, W, RANKING, …).
func (p *parser) blend(n *Node, depth int) error {
	const usage = "blend takes weights and rankings: blend(3, rank(of=E, via=NAME), 2, rank(of=E, via=NAME)), optionally followed by min, top and except"
	n.Rank = &RankSpec{By: ByScore}
	o := p.rankOptions("blend(…)", []string{"except"}, []string{"min", "top"}, depth)
	for more := true; more; {
		p.space()
		at, start := p.i, p.e.Source[p.i:]
		if name, _, _ := strings.Cut(start, "="); len(n.Args) > 0 && slices.Contains([]string{"min", "top", "except"}, strings.TrimSpace(name)) {
			if err := p.options("blend", usage, o.option); err != nil {
				return err
			}
			break
		}
		word := p.word()
		weight, err := strconv.ParseFloat(word, 64)
		if err != nil || !(weight >= leastWeight && weight <= mostWeight) || len(word) > 20 {
			return p.errorf(at, "the weight of a ranking in blend is %q; it must be a number from %v to %v. %s", Brief(word), leastWeight, mostWeight, usage)
		}
		if more, err = p.next("blend"); err != nil || !more {
			return cmp.Or(err, p.errorf(n.Offset, usage))
		}
		ranking, err := p.expr(depth + 1)
		switch {
		case err != nil:
			return err
		case ranking.Rank == nil:
			return p.errorf(ranking.Offset, "this is not a ranking. %s", usage)
		case len(n.Args) > 0 && ranking.Is != n.Is:
			return p.errorf(ranking.Offset, "blend cannot combine a ranking of %s with a ranking of %s", Plural(n.Is), Plural(ranking.Is))
		}
		n.Args, n.Rank.Weights, n.Is = append(n.Args, ranking), append(n.Rank.Weights, weight), ranking.Is
		if more, err = p.next("blend"); err != nil {
			return err
		}
	}
	n.Rank.Via.Is = n.Is
	if except := o.sets["except"]; except != nil {
		n.Args = append(n.Args, *except)
	}
	return p.bound(n, n.Args[len(n.Rank.Weights):], o)
}

// rankOptions are arguments of a ranking, as they are written.
type rankOptions struct {
	sets   map[string]*Node
	words  map[string]string
	places map[string]int
	option func(name string) (bool, error) // for parser.options
}

// rankOptions returns the reader of the arguments of a function that takes some names for sets, and some for words.
func (p *parser) rankOptions(function string, sets, words []string, depth int) *rankOptions {
	o := &rankOptions{sets: map[string]*Node{}, words: map[string]string{}, places: map[string]int{}}
	o.option = func(name string) (_ bool, err error) {
		p.space()
		switch o.places[name] = p.i; {
		case slices.Contains(sets, name):
			var arg Node
			arg, err = p.expr(depth + 1)
			o.sets[name], o.places[name] = &arg, arg.Offset
		case slices.Contains(words, name):
			o.words[name], err = p.value(name)
		default:
			err = p.errorf(p.i, "%s does not take %q; it takes %s", function, Brief(name), strings.Join(slices.Concat(sets, words), ", "))
		}
		return true, err
	}
	return o
}

// score says that the order of a ranking's results matters. Then so do the scores in the rankings that it blends.
func (n *Node) score() {
	n.Rank.Scored = true
	for i := range n.Rank.Weights {
		n.Args[i].score()
	}
}

// ranking makes n the ranking with some arguments.
func (p *parser) ranking(n *Node, o *rankOptions) (err error) {
	if o.sets["of"] == nil {
		return p.errorf(n.Offset, "rank(…) needs of=SET and via=NAME")
	}
	n.Args = []Node{*o.sets["of"]}
	if except := o.sets["except"]; except != nil {
		n.Args = append(n.Args, *except)
	}
	n.Rank = new(RankSpec)
	s, of := n.Rank, &n.Args[0]
	if s.Via, err = p.e.viaFrom(o.words["via"], of); errors.Is(err, errNotItsMembers) {
		return p.errorf(o.places["of"], "%v", err)
	} else if err != nil {
		return p.errorf(cmp.Or(o.places["via"], n.Offset), "%v", err)
	}
	n.Is, n.Kind = s.Via.Is, s.Via.Kind
	window := times{o.words["since"], o.words["until"]}
	if n.Window, err = window.window(p, cmp.Or(o.places["since"], o.places["until"])); err != nil {
		return err
	}
	if err := p.weigh(s, of, o); err != nil {
		return err
	}
	p.e.HasAge = p.e.HasAge || s.Decay > 0
	if exact, given := o.words["exact"]; given && exact != "true" && exact != "false" {
		return p.errorf(o.places["exact"], "exact is %q; it must be true or false", Brief(exact))
	}
	s.Exact = o.words["exact"] == "true"
	if err := p.standsAlone(s, o); err != nil {
		return err
	}
	return p.bound(n, n.Args[1:], o)
}

// standsAlone reads the arguments that only a ranking that stands alone has.
func (p *parser) standsAlone(s *RankSpec, o *rankOptions) error {
	by, given := o.words["by"]
	orders := []string{ByCount, ByShare, ByLift, ByScore}
	switch edge := s.Via.Op == OpForward || s.Via.Op == OpReverse; {
	case s.ByScore() && given && by != ByScore:
		return p.errorf(o.places["by"], "by=%s does not work with weigh, damp or decay, which order by score", Brief(by))
	case given && !slices.Contains(orders, by):
		return p.errorf(o.places["by"], "by is %q; it must be one of %s", Brief(by), strings.Join(orders, ", "))
	case !edge && (by == ByShare || by == ByLift):
		return p.errorf(o.places["by"], "by=%s does not work with via=%s", by, s.Via.Name)
	case !given && s.ByScore():
		by = ByScore
	}
	s.By = cmp.Or(by, ByCount)
	since, given := o.words["subjectsSince"]
	if !given {
		return nil
	}
	at := o.places["subjectsSince"]
	if s.Via.Is != dict.URI {
		return p.errorf(at, "subjectsSince works only for results that are %s; these are %s, which have no time", Plural(dict.URI), Plural(s.Via.Is))
	}
	t, isAge, err := ParseTime(since, p.e.Now)
	if err != nil {
		return p.errorf(at, "subjectsSince: %v", err)
	}
	s.Subjects, p.e.HasAge = Window{FirstMicro(t), EndSince(isAge, p.e.Now)}, p.e.HasAge || isAge
	return nil
}

// bound reads what limits the results of a ranking. except is the set to leave out, if there is one.
func (p *parser) bound(n *Node, except []Node, o *rankOptions) (err error) {
	for i := range except {
		if err := p.e.mustBe(&except[i], n.Is, "except must be a set of %s, like the results"); err != nil {
			return p.errorf(o.places["except"], "%v", err)
		}
	}
	least := 1
	if n.Rank.By == ByShare || n.Rank.By == ByLift {
		least = leastScored
	}
	if word, given := o.words["min"]; given {
		if least, err = number("min", word, 1<<30); err != nil {
			return p.errorf(o.places["min"], "%v", err)
		}
	}
	if n.Rank.Min = uint32(least); o.words["top"] != "" {
		if n.Rank.Top, err = number("top", o.words["top"], MaxTop); err != nil {
			return p.errorf(o.places["top"], "%v", err)
		}
		n.score()
	}
	return nil
}

// A Weighing says how a ranking computes scores:
//
//   - Each member m of the set has a weight w(m), which is 1. With weigh=score it is m's score in the
//     ranking that the set is, divided by the highest score in it.
//   - An edge from m to x whose newest record is t old adds w(m) · 2^(−t/Decay) to x. Without
//     Decay it adds w(m). A record that is up to five minutes ahead of the present is 0 old. An edge none of
//     whose records has a TID as its key, or only ones further ahead, adds nothing.
//   - The score of x is this sum, divided by total(x)^Damp, where total(x) is the number of
//     active accounts with an edge to x; if via is a reverse set, the number of x's own records.
//
// The zero Weighing ranks by count. SALSA (Lempel and Moran, "SALSA: The Stochastic Approach for
// Link-Structure Analysis", 2001) is the special case of two such rankings, from items to accounts
// and on to items, with damping. GraphJet (Sharma and others, "GraphJet: Real-Time Content
// Recommendations at Twitter", 2016) approximates it by sampling; here it is computed in full.
type Weighing struct {
	OfScores bool          // weigh=score
	Damped   bool          // by Damp, which may be 0: then scores are not damped
	Damp     float64       // from 0 to 1
	Decay    time.Duration // the half-life of an edge; 0: edges do not age

	Now int64 // ages of edges are measured up to this time, in microseconds since 1970
}

// ByScore reports whether results are ordered by score, not by count.
func (w *Weighing) ByScore() bool { return w.OfScores || w.Damped || w.Decay > 0 }

// shortestDecay is the shortest half-life. Shorter ones mean nothing: record keys count
// microseconds, but clocks differ by more.
const shortestDecay = time.Second

// weigh reads weigh, damp and decay. With weigh=score it also marks the set `of`, so that its scores are kept.
func (p *parser) weigh(s *RankSpec, of *Node, o *rankOptions) (err error) {
	w := &s.Weighing
	switch weigh, given := o.words["weigh"]; {
	case !given:
	case weigh != "score":
		return p.errorf(o.places["weigh"], "weigh is %q; it must be score", Brief(weigh))
	case of.Rank == nil || of.Rank.Top == 0:
		return p.errorf(o.places["weigh"], "weigh=score works only if of= is a ranking with top, such as of=rank(…, top=300)")
	default:
		w.OfScores, of.Rank.KeepsWeights = true, true
	}
	if damp, given := o.words["damp"]; given {
		w.Damped = true
		w.Damp, err = strconv.ParseFloat(damp, 64)
		if err != nil || !(w.Damp >= 0 && w.Damp <= 1) || len(damp) > 20 {
			return p.errorf(o.places["damp"], "damp is %q; it must be a number from 0 to 1, such as 0.5", Brief(damp))
		}
		if s.Via.Op != OpForward && s.Via.Op != OpReverse && w.Damp > 0 {
			return p.errorf(o.places["damp"], "damp does not work with via=%s", s.Via.Name)
		}
	}
	if decay, given := o.words["decay"]; given {
		age, ok := ParseAge(decay)
		if !ok || age < shortestDecay || age > maxAge {
			return p.errorf(o.places["decay"], "decay is %q; it must be a half-life from one second to a hundred years, such as 6h or 7d", Brief(decay))
		}
		w.Decay, w.Now = age, p.e.Now.Truncate(time.Microsecond).UnixMicro()
	}
	return nil
}

// MaxSample is the largest sample.
const MaxSample = 100_000

// sample parses the arguments of sample(E, N), or sample(E, N, seed=S).
func (p *parser) sample(n *Node, depth int) error {
	of, err := p.expr(depth + 1)
	if err != nil {
		return err
	}
	n.Args, n.Is = []Node{of}, of.Is
	const usage = "sample takes a set and a number: sample(E, 1000), or sample(E, 1000, seed=2) for another sample"
	more, err := p.next("sample")
	if err != nil || !more {
		return cmp.Or(err, p.errorf(n.Offset, usage))
	}
	if n.Least, err = p.number("the number of members", MaxSample); err != nil {
		return err
	}
	if more, err = p.next("sample"); err != nil || !more {
		return err
	}
	return p.options("sample", usage, func(name string) (bool, error) {
		if name != "seed" {
			return false, nil
		}
		at := p.i
		word := p.word()
		if n.Seed, err = strconv.ParseUint(word, 10, 64); err != nil {
			return true, p.errorf(at, "seed is %q; it must be a number from 0 to 18446744073709551615", Brief(word))
		}
		return true, nil
	})
}
