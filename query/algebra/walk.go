package algebra

import (
	"errors"
	"fmt"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/tally"
)

// A Via is the type of set that a ranking opens for each member, such as likes or followers.
type Via struct {
	Name string
	Op   Op // OpForward, OpReverse, OpListed or OpLists
	Kind kinds.Kind
	Form kinds.Form     // of the members that it leads from
	From dict.Namespace // likewise
	Is   dict.Namespace // of the results
}

// isList reports whether the set is read through list items.
func (v *Via) isList() bool { return v.Op == OpListed || v.Op == OpLists }

// Vias returns the edges that lead from accounts, or from URIs.
func (v *Vocabulary) Vias(from dict.Namespace) (all []Via) {
	add := func(name string, op Op, k kinds.Kind, takes kinds.Form, is dict.Namespace) {
		if takes.Is() == from {
			all = append(all, Via{name, op, k, takes, from, is})
		}
	}
	for i := range v.Table.All {
		if k := &v.Table.All[i]; k.HasSets() {
			add(k.Forward, OpForward, k.Kind, kinds.DID, k.To.Is())
			add(k.Reverse, OpReverse, k.Kind, k.To.Form, dict.DID)
		}
	}
	add("lists", OpLists, kinds.ListItem, kinds.DID, dict.URI)
	add("listed", OpListed, kinds.ListMember, kinds.ATURI, dict.DID)
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
			return other, nil
		}
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

	keepsWeights bool // another ranking uses its scores as weights
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
	var of, except *Node
	var via, since, until, weigh, damp, decay string
	viaAt, weighAt, seen := 0, 0, map[string]bool{}
	for more := true; more; {
		p.space()
		at := p.i
		name, ok := p.name()
		switch {
		case !ok:
			return p.errorf(at, "expected name=value in rank(…")
		case seen[name]:
			return p.errorf(at, "%s is given twice in rank(…)", name)
		}
		seen[name] = true
		p.space()
		valueAt := p.i
		var err error
		switch name {
		case "of", "except":
			var arg Node
			if arg, err = p.expr(depth + 1); name == "of" {
				of = &arg
			} else {
				except = &arg
			}
		case "via":
			via, viaAt = p.word(), valueAt
		case "since":
			since = p.word()
		case "until":
			until = p.word()
		case "weigh", "damp", "decay":
			weighAt = valueAt
			word := p.word()
			if word == "" {
				err = p.errorf(valueAt, "expected a value after %s=", name)
			}
			*map[string]*string{"weigh": &weigh, "damp": &damp, "decay": &decay}[name] = word
		case "exact":
			if word := p.word(); word == "true" || word == "false" {
				n.Rank.Exact = word == "true"
			} else {
				err = p.errorf(valueAt, "exact is %q; it must be true or false", Brief(word))
			}
		case "min":
			n.Rank.Min, err = number[uint32](p, name, 1<<30)
		case "top":
			n.Rank.Top, err = number[int](p, name, MaxTop)
		default:
			err = p.errorf(at, "rank(…) as a set does not take %q; it takes of, via, min, top, since, until, except, weigh, damp, decay and exact", Brief(name))
		}
		if err != nil {
			return err
		}
		if more, err = p.next("rank"); err != nil {
			return err
		}
	}
	if of == nil || via == "" {
		return p.errorf(start, "rank(…) needs of=SET and via=NAME")
	}
	var err error
	if n.Rank.Via, err = p.e.ViaFrom(via, of); errors.Is(err, errNotItsMembers) {
		return p.errorf(of.Offset, "%v", err)
	} else if err != nil {
		return p.errorf(viaAt, "%v", err)
	}
	n.Is, n.Kind, n.Args = n.Rank.Via.Is, n.Rank.Via.Kind, []Node{*of}
	if except != nil {
		if err := p.e.except(except, n.Is); err != nil {
			return p.errorf(except.Offset, "%v", err)
		}
		n.Args = append(n.Args, *except)
	}
	w, isAge, err := ParseWindow(since, until, p.e.Now)
	if err != nil {
		return p.errorf(start, "%v", err)
	}
	n.Window = w
	if n.Rank.Weighing, err = ParseWeighing(weigh, damp, decay, of, n.Rank.Via, p.e.Now); err != nil {
		return p.errorf(weighAt, "%v", err)
	}
	p.e.HasAge = p.e.HasAge || isAge || n.Rank.Decay > 0
	return nil
}

// name reads the name before an equals sign, and the sign.
func (p *parser) name() (name string, ok bool) {
	start := p.i
	for p.i < len(p.e.Source) && p.e.Source[p.i] >= 'a' && p.e.Source[p.i] <= 'z' {
		p.i++
	}
	name = p.e.Source[start:p.i]
	p.space()
	if p.i == len(p.e.Source) || p.e.Source[p.i] != '=' || name == "" {
		return name, false
	}
	p.i++
	return name, true
}

// number reads a number from 1 to most.
func number[T int | uint32](p *parser, name string, most int) (T, error) {
	at := p.i
	word := p.word()
	n := 0
	for i := range len(word) {
		if word[i] < '0' || word[i] > '9' || n > most {
			n = 0
			break
		}
		n = n*10 + int(word[i]-'0')
	}
	if n < 1 || n > most {
		return 0, p.errorf(at, "%s is %q; it must be a number from 1 to %d", name, Brief(word), most)
	}
	return T(n), nil
}

// A Walk is one step from the members of a set, along an edge.
type Walk struct {
	Weighing

	Via     Via
	Window  ask.Window // of the records that make the edge
	Weights []Weight   // of the members, ascending, with weigh=score
	Exact   bool       // fail instead of reading a sample
	wide    bool       // read records whose weight is 0, too
}

// leafSet returns the members of a leaf.
func (v *Evaluation) leafSet(l Leaf) (set sets.Set, err error) {
	op, err := v.Leaf(l)
	if err != nil {
		return set, err
	}
	return v.All(op)
}

// Authors returns the accounts that made lists, and their ids.
func (v *Evaluation) Authors(lists []Literal) (authors []Literal, ids []dict.ID, err error) {
	authors = make([]Literal, len(lists))
	for i, l := range lists {
		authors[i] = Literal{S: ask.AuthorityOf(l.S), Is: dict.DID}
	}
	ids, err = Lookup(v.View, authors)
	return authors, ids, err
}

// authors returns the accounts that made lists.
func (v *Evaluation) authors(lists sets.Set) (map[dict.ID]dict.ID, error) {
	ids := make([]dict.ID, 0, lists.Len())
	for id := range lists.All() {
		if dict.ID(id) < dict.FirstReserved {
			ids = append(ids, dict.ID(id))
		}
	}
	named := make([]Literal, len(ids))
	err := v.View.Strings(dict.URI, ids, func(i int, s []byte) error {
		named[i].S = string(s)
		return v.Ended.Err()
	})
	if err != nil {
		return nil, err
	}
	_, by, err := v.Authors(named)
	if err != nil {
		return nil, err
	}
	all := make(map[dict.ID]dict.ID, len(ids))
	for i, id := range ids {
		all[id] = by[i]
	}
	return all, nil
}

// ranked evaluates a rank(…), once for each place where it stands.
func (v *Evaluation) ranked(n *Node) (set sets.Set, err error) {
	if kept, ok := v.computed[n]; ok {
		return kept, nil
	}
	of, err := v.Set(&n.Args[0])
	if err != nil {
		return set, err
	}
	var except sets.Set
	if len(n.Args) > 1 {
		if except, err = v.Set(&n.Args[1]); err != nil {
			return set, err
		}
	}
	walk := Walk{Via: n.Rank.Via, Window: n.Window, Exact: n.Rank.Exact}
	if n.Rank.Top > 0 { // else all that reach min are in the set, whatever their scores
		walk.Weighing = n.Rank.Weighing
	}
	if walk.OfScores {
		walk.Weights = v.Weights(&n.Args[0])
	}
	t, err := v.Expand(v.Ended, of, walk)
	if err != nil {
		return set, err
	}
	if n.Is == dict.DID {
		t.LeaveOut(v.View.Hidden())
	}
	t.LeaveOut(except)
	count := t.AtLeast(n.Rank.Min)
	if n.Rank.Top > 0 {
		count = min(count, n.Rank.Top)
	}
	var results []Scored
	if walk.ByScore() {
		if results, err = v.Scores(t, n.Rank.Via, n.Rank.Damp, n.Rank.Min, count); err != nil {
			return set, err
		}
	} else {
		for _, c := range t.Top(count) {
			results = append(results, Scored{Summed: tally.Summed{Counted: c}, Score: float64(c.Count)})
		}
	}
	ids := make([]uint64, len(results))
	for i := range results {
		ids[i] = results[i].ID
	}
	set = sets.FromUnsorted(ids)
	v.keep(n, set)
	if n.Rank.keepsWeights {
		v.weigh(n, results)
	}
	if set.Len() > sets.ListMax {
		err = v.budget.Heavy()
	}
	return set, err
}
