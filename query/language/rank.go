package language

import (
	"errors"
	"fmt"
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
func (v *Vocabulary) Vias(from dict.Namespace) (all []Via) {
	add := func(name string, op Op, k kinds.Kind, takes kinds.Form, is dict.Namespace) {
		if name != "" && takes.Is() == from {
			all = append(all, Via{name, op, k, takes, from, is})
		}
	}
	for i := range v.Table.All {
		if k := &v.Table.All[i]; k.HasSets() {
			add(k.Forward, OpForward, k.Kind, kinds.DID, k.To.Is())
			add(k.Reverse, OpReverse, k.Kind, k.To.Form, dict.DID)
			add(k.Records, OpLists, k.Kind, k.To.Form, dict.URI)
		}
	}
	add("lists", OpLists, kinds.ListItem, kinds.DID, dict.URI)
	add("listed", OpListed, kinds.ListMember, kinds.ATURI, dict.DID)
	add("authors", OpAuthors, 0, kinds.ATURI, dict.DID)
	return all
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

// ViaFrom returns the set with a name that leads from the members of a part of the expression. If the set can have members of
// either namespace, it then has those from which there is such an edge. Its error is for the client.
func (e *Expr) ViaFrom(name string, of *Node) (Via, error) {
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

// A RankSpec has the arguments of a rank(…), other than its sets and its window.
type RankSpec struct {
	Weighing

	Via Via
	Min uint32 // the lowest count
	Top int    // the number of results; 0: all that reach Min

	Exact bool // fail instead of reading a sample

	KeepsWeights bool // another ranking uses its scores as weights
}

// Bounds of rank(…) in an expression.
const (
	MaxTop   = 10_000
	maxRanks = 8 // in one expression
)

// rank reads the arguments of rank(of=E, via=NAME, …).
func (p *parser) rank(n *Node, depth int) error {
	start := n.Offset
	if p.ranks++; p.ranks > maxRanks {
		return p.errorf(start, "more than %d rank(…) in one expression", maxRanks)
	}
	n.Rank = &RankSpec{Min: 1}
	sets, words := map[string]*Node{}, map[string]string{} // as written
	var t times
	var viaAt, weighAt int
	err := p.options("rank", "expected name=value in rank(…", func(name string) (_ bool, err error) {
		p.space()
		at := p.i
		switch name {
		case "of", "except":
			var arg Node
			arg, err = p.expr(depth + 1)
			sets[name] = &arg
		case "via":
			viaAt = at
			words[name], err = p.value(name)
		case "weigh", "damp", "decay":
			weighAt = at
			words[name], err = p.value(name)
		case "exact":
			word := p.word()
			if n.Rank.Exact = word == "true"; word != "true" && word != "false" {
				err = p.errorf(at, "exact is %q; it must be true or false", Brief(word))
			}
		case "min":
			n.Rank.Min, err = number[uint32](p, name, 1<<30)
		case "top":
			n.Rank.Top, err = number[int](p, name, MaxTop)
		default:
			var known bool
			if known, err = t.option(p, name); !known {
				err = p.errorf(at, "rank(…) as a set does not take %q; it takes of, via, min, top, since, until, except, weigh, damp, decay and exact", Brief(name))
			}
		}
		return true, err
	})
	if err != nil {
		return err
	}
	of, except := sets["of"], sets["except"]
	if of == nil || words["via"] == "" {
		return p.errorf(start, "rank(…) needs of=SET and via=NAME")
	}
	if n.Rank.Via, err = p.e.ViaFrom(words["via"], of); errors.Is(err, errNotItsMembers) {
		return p.errorf(of.Offset, "%v", err)
	} else if err != nil {
		return p.errorf(viaAt, "%v", err)
	}
	n.Is, n.Kind, n.Args = n.Rank.Via.Is, n.Rank.Via.Kind, []Node{*of}
	if except != nil {
		if err := p.e.mustBe(except, n.Is, mustBeLikeResults); err != nil {
			return p.errorf(except.Offset, "%v", err)
		}
		n.Args = append(n.Args, *except)
	}
	if n.Window, err = t.window(p, start); err != nil {
		return err
	}
	if n.Rank.Weighing, err = ParseWeighing(words["weigh"], words["damp"], words["decay"], of, n.Rank.Via, p.e.Now); err != nil {
		return p.errorf(weighAt, "%v", err)
	}
	p.e.HasAge = p.e.HasAge || n.Rank.Decay > 0
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

// ParseWeighing parses weigh, damp and decay ("" if absent) for a ranking of the set `of` along
// via. With weigh=score it also marks `of`, so that its scores are kept. Its errors are for the
// client.
func ParseWeighing(weigh, damp, decay string, of *Node, via Via, now time.Time) (w Weighing, err error) {
	switch {
	case weigh == "":
	case weigh != "score":
		return w, fmt.Errorf("weigh is %q; it must be score", Brief(weigh))
	case of.Op != OpRank || of.Rank.Top == 0:
		return w, errors.New("weigh=score works only if of= is a ranking with top, such as of=rank(…, top=300)")
	default:
		w.OfScores, of.Rank.KeepsWeights = true, true
	}
	if damp != "" {
		w.Damped = true
		w.Damp, err = strconv.ParseFloat(damp, 64)
		if err != nil || !(w.Damp >= 0 && w.Damp <= 1) || len(damp) > 20 {
			return w, fmt.Errorf("damp is %q; it must be a number from 0 to 1, such as 0.5", Brief(damp))
		}
		if via.Op != OpForward && via.Op != OpReverse && w.Damp > 0 {
			return w, fmt.Errorf("damp does not work with via=%s", via.Name)
		}
	}
	if decay != "" {
		age, ok := ParseAge(decay)
		if !ok || age < shortestDecay || age > maxAge {
			return w, fmt.Errorf("decay is %q; it must be a half-life from one second to a hundred years, such as 6h or 7d", Brief(decay))
		}
		w.Decay, w.Now = age, now.Truncate(time.Microsecond).UnixMicro()
	}
	return w, nil
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
	switch {
	case err != nil:
		return err
	case !more:
		return p.errorf(n.Offset, usage)
	}
	if n.Least, err = number[int](p, "the number of members", MaxSample); err != nil {
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
