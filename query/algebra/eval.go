package algebra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// A Reader reads stored sets of one snapshot of the graph. It is for one goroutine.
type Reader struct {
	Ended     Ended // interrupts the work when the request is cancelled
	View      *ask.View
	budget    Budget
	dateAbove uint64            // of reverse sets with more members, dates are read, not records
	again     map[Leaf]*Operand // leaves that occur more than once, nil until opened, and those that were read through list items
}

// An Evaluation evaluates one expression.
//
// The operands of an intersection are read in order of cost. Small sets, which one read returns
// whole, come first. A large set that is not in memory comes last, and is only asked which of the
// remaining members it contains (ask.ActorSet.And). Other operators read their operands as written.
type Evaluation struct {
	*Reader

	Expr     *language.Expr
	IDs      []dict.ID                // of Expr.Strings, and of others; dict.None where a string has no id
	labelers map[string]graph.Labeler // by DID, of the expression's labeled(…)
	firsts   map[language.Literal]int // index of the first of equal Expr.Strings; see standIn

	Exact       bool                                  // fail instead of reading a sample
	HopUnits    int                                   // the budget of each hop of a ranking; see hop
	maxOfSecond int                                   // members of one second that are sorted by microsecond, for which their records are read; more are sorted by id
	samples     []string                              // what was sampled, for the client
	computed    map[*language.Node]sets.Set           // results of OpRank and the operators after it, which are evaluated once for each place where they stand
	weights     map[*language.Node]map[uint64]float64 // of the members of a ranking, where another ranking needs them
}

// A Budget limits the work of one query.
type Budget interface {
	// Heavy is called before expensive work: reading a large set, or expanding many sets. If only
	// the read shows that a set is large, Heavy is called after it. Its error ends the evaluation.
	Heavy() error
}

// NewReader returns a Reader. It calls b.Heavy for work that needs a shared, limited resource.
func NewReader(ctx context.Context, s *ask.View, b Budget) *Reader {
	return &Reader{Ended: ctx, View: s, budget: b, dateAbove: ask.LargeSet, again: map[Leaf]*Operand{}}
}

// A Leaf identifies one stored set.
type Leaf struct {
	Op     language.Op
	Kind   kinds.Kind
	Of     dict.ID // the argument
	By     dict.ID // OpListed: the list's author
	Window ask.Window
}

// LeafOf returns the set that a node reads; ids are those of Expr.Strings.
func LeafOf(n *language.Node, ids []dict.ID) Leaf {
	l := Leaf{Op: n.Op, Kind: n.Kind, Of: ids[n.Of], Window: Within(n.Window)}
	if n.Op == language.OpListed {
		l.By = ids[n.By]
	}
	return l
}

// Within returns the records' window of a span of time.
func Within(w language.Window) ask.Window {
	if w.All() {
		return ask.Window{}
	}
	return ask.WindowOf(w.From, w.To)
}

// NewEvaluation looks up the ids of the expression's strings, and of others, which follow them in IDs.
func NewEvaluation(ctx context.Context, s *ask.View, e *language.Expr, b Budget, others ...language.Literal) (*Evaluation, error) {
	ids, err := Lookup(s, slices.Concat(e.Strings, others))
	if err != nil {
		return nil, err
	}
	v := &Evaluation{
		Reader: NewReader(ctx, s, b), Expr: e, IDs: ids,
		HopUnits: DefaultHopUnits, maxOfSecond: MaxWindowed,
		computed: map[*language.Node]sets.Set{}, weights: map[*language.Node]map[uint64]float64{},
	}
	seen := map[Leaf]bool{}
	for n := range e.Root.All() {
		if n.Op.IsSet() {
			l := LeafOf(n, ids)
			if seen[l] {
				v.again[l] = nil
			}
			seen[l] = true
		}
	}
	return v, findLabelers(v)
}

// Lookup returns the ids of literals, dict.None for strings that have none.
func Lookup(s *ask.View, strings []language.Literal) ([]dict.ID, error) {
	var b intern.Batch
	index := make([]int, len(strings))
	for i, l := range strings {
		index[i] = b.Add(l.Is, []byte(l.S))
	}
	if err := s.Lookup(&b); err != nil {
		return nil, err
	}
	ids := make([]dict.ID, len(strings))
	for i := range strings {
		ids[i] = b.ID(index[i])
	}
	return ids, nil
}

// Hidden returns the accounts to remove from a result. Stored sets contain hidden accounts;
// removing them once at the end has the same effect as removing them from each operand.
func (v *Evaluation) Hidden() sets.Set { return v.hiddenIn(v.Expr.Root.Is) }

// hiddenIn returns the hidden accounts, if ids of a namespace are accounts.
func (r *Reader) hiddenIn(ns dict.Namespace) sets.Set {
	if ns == dict.DID {
		return r.View.Hidden()
	}
	return sets.Set{}
}

// Result returns the members, hidden accounts included, and the number of members without
// hidden accounts.
func (v *Evaluation) Result() (set sets.Set, total uint64, err error) {
	v.Begin()
	set, err = v.Set(&v.Expr.Root)
	if err != nil {
		return set, 0, err
	}
	return set, set.Len() - sets.AndLen(v.Hidden(), set), nil
}

// Set evaluates a node.
func (v *Evaluation) Set(n *language.Node) (sets.Set, error) {
	t, err := v.open(n)
	if err != nil {
		return sets.Set{}, err
	}
	return v.All(t)
}

// An Operand is a set in memory, or a large set that is still in the store.
type Operand struct {
	Set   sets.Set
	large *ask.ActorSet
}

// open evaluates a node, but leaves a large stored set unread.
func (v *Evaluation) open(n *language.Node) (t Operand, err error) {
	if err := v.Ended.Err(); err != nil {
		return t, err
	}
	if kept, ok := v.computed[n]; ok {
		return Operand{Set: kept}, nil
	}
	switch n.Op {
	case language.OpForward, language.OpReverse, language.OpListed, language.OpLists:
		return v.Leaf(LeafOf(n, v.IDs))
	case language.OpMembers:
		ids := make([]uint64, n.End-n.First)
		for i := range ids {
			ids[i] = uint64(literal(v, n.First+i))
		}
		return Operand{Set: sets.FromUnsorted(ids)}, nil
	case language.OpIntersect:
		t.Set, err = v.intersect(n)
	case language.OpUnion, language.OpAtLeast:
		t.Set, err = v.atLeast(n)
	case language.OpRank, language.OpBlend:
		t.Set, err = ranked(v, n)
	case language.OpSample:
		t.Set, err = sampled(v, n)
	case language.OpAuthors, language.OpBy:
		t.Set, err = authored(v, n)
	default:
		t.Set, err = v.except(n)
	}
	if err == nil && n.Op >= language.OpRank {
		if v.computed[n] = t.Set; t.Set.Len() > sets.ListMax {
			err = v.budget.Heavy()
		}
	}
	return t, err
}

// Leaf opens a leaf. A leaf that occurs several times is read only once.
func (r *Reader) Leaf(l Leaf) (t Operand, err error) {
	kept, keep := r.again[l]
	if kept != nil {
		return *kept, nil
	}
	switch {
	case l.Op == language.OpListed, l.Op == language.OpLists:
		keep = true
		t.Set, err = r.lists(l, nil)
	case l.Op == language.OpForward:
		t.Set, err = r.View.Subjects(l.Kind, l.Of, l.Window)
	case l.Window.All():
		t, err = r.OpenActors(l.Kind, l.Of)
	default:
		t.Set, err = r.actorsIn(l)
	}
	if err == nil && t.Set.Len() > sets.ListMax {
		err = r.budget.Heavy()
	}
	if err == nil && keep {
		r.again[l] = &t
	}
	return t, err
}

// OpenActors opens the reverse set of a subject: followers, likers, …
func (r *Reader) OpenActors(k kinds.Kind, subject dict.ID) (Operand, error) {
	t, err := r.View.Actors(k, subject)
	if err != nil {
		return Operand{}, err
	}
	if set, known := t.Known(); known {
		return Operand{Set: set}, nil
	}
	return Operand{large: t}, nil
}

// A LimitError says which limit a query exceeds. The client can fix the query.
type LimitError struct {
	What string // a sentence for the client
}

// Error implements error.
func (e *LimitError) Error() string { return e.What }

// MaxWindowed is the largest number of accounts whose records are read for a window on a reverse set,
// such as followers(…).
const MaxWindowed = 50_000

// actorsIn reads the members of a reverse set in a window.
func (r *Reader) actorsIn(l Leaf) (sets.Set, error) {
	t, err := r.OpenActors(l.Kind, l.Of)
	if err != nil {
		return sets.Set{}, err
	}
	if t.large == nil && t.Set.Len() <= r.dateAbove {
		return r.View.ActorsIn(l.Kind, l.Of, l.Window, t.Set)
	}
	if t.large != nil || t.Set.Len() > sets.ListMax {
		if err := r.budget.Heavy(); err != nil {
			return sets.Set{}, err
		}
	}
	in, unsure, err := r.View.DatedIn(l.Kind, l.Of, l.Window)
	if err != nil {
		return sets.Set{}, err
	}
	if unsure.Len() > MaxWindowed {
		return sets.Set{}, &LimitError{fmt.Sprintf("%s with since or until reads the records of the members whose time is not stored with the set, and fails above %d such members; this set has %d", r.View.Kind(l.Kind).Reverse, MaxWindowed, unsure.Len())}
	}
	found, err := r.View.ActorsIn(l.Kind, l.Of, l.Window, unsure)
	return sets.Or(in, found), err
}

// All returns the operand's members. It asks the budget before it reads a large set.
func (r *Reader) All(t Operand) (sets.Set, error) {
	if t.large == nil {
		return t.Set, nil
	}
	if err := r.budget.Heavy(); err != nil {
		return sets.Set{}, err
	}
	return t.large.All()
}

// And returns the members of set that are also in t.
func (r *Reader) And(set sets.Set, t Operand) (sets.Set, error) {
	if t.large == nil {
		return sets.And(set, t.Set), nil
	}
	if err := r.Ended.Err(); err != nil {
		return sets.Set{}, err
	}
	if err := r.budget.Heavy(); err != nil {
		return sets.Set{}, err
	}
	return t.large.And(set)
}

func (v *Evaluation) intersect(n *language.Node) (set sets.Set, err error) {
	var small, large []Operand
	for stage := range stages {
		for i := range n.Args {
			if stageOf(&n.Args[i]) != stage {
				continue
			}
			t, done, err := v.probe(&n.Args[i], small)
			if err == nil && !done {
				t, err = v.open(&n.Args[i])
			}
			if err != nil {
				return set, err
			}
			switch {
			case done: // t has the members that both operands have
				small[0] = t
			case t.large != nil:
				large = append(large, t)
			case t.Set.Len() > sets.ListMax && len(small) > 1 && small[0].Set.Len() > sets.ListMax:
				small[0].Set = sets.And(small[0].Set, t.Set) // never hold more than two large sets
				t = small[0]
			default:
				small = append(small, t)
				if t.Set.Len() > sets.ListMax { // keep the large one at index 0
					small[0], small[len(small)-1] = small[len(small)-1], small[0]
				}
			}
			if t.large == nil && t.Set.Empty() {
				return set, nil
			}
		}
	}
	slices.SortFunc(small, func(x, y Operand) int { return int(int64(x.Set.Len()) - int64(y.Set.Len())) })
	all := append(small, large...)
	if set, err = v.All(all[0]); err != nil {
		return set, err
	}
	for _, t := range all[1:] {
		if set, err = v.And(set, t); err != nil || set.Empty() {
			return set, err
		}
	}
	return set, nil
}

// intersect opens its operands in stages of rising cost: sets that one read returns, then
// sets that are read record by record, then operators.
const stages = 3

func stageOf(n *language.Node) int {
	switch {
	case n.Op == language.OpMembers, n.Op == language.OpReverse && n.Window.All():
		return 0
	case n.Op.IsSet():
		return 1
	default:
		return 2
	}
}

// probeMembers is the number of members up to which probe looks them up one by one; above
// it, intersect reads all records of the actor.
const probeMembers = 8

// probe intersects a forward set with the only operand so far by looking up that operand's
// members. done is false if there are several operands or more than probeMembers members.
func (v *Evaluation) probe(n *language.Node, small []Operand) (t Operand, done bool, err error) {
	if n.Op != language.OpForward || len(small) != 1 || small[0].Set.Len() > probeMembers {
		return t, false, nil
	}
	l := LeafOf(n, v.IDs)
	var left []uint64
	begin := func(id uint64) { v.View.BeginEdge(l.Kind, l.Of, dict.ID(id), l.Window) }
	for id := range ask.Ahead(v.View, small[0].Set.All(), begin) {
		has, err := v.has(n, language.Literal{}, dict.ID(id)) // an id that stands in for a string without one has no edge
		if err != nil {
			return t, false, err
		}
		if has {
			left = append(left, id)
		}
	}
	return Operand{Set: sets.FromList(left)}, true, nil
}

// Begin begins the reads of the expression's stored sets (ask.Ahead), and of the accounts whose sets they
// are.
func (v *Evaluation) Begin() {
	for n := range v.Expr.Root.All() {
		if n.Op == language.OpForward {
			v.View.BeginAccount(v.IDs[n.Of])
		}
		if n.Op.IsSet() {
			v.BeginSet(n.Op, n.Kind, v.IDs[n.Of])
		}
	}
}

// BeginSet begins the read of a stored set.
func (r *Reader) BeginSet(op language.Op, k kinds.Kind, of dict.ID) {
	switch op {
	case language.OpForward:
		r.View.BeginSubjects(k, of)
	case language.OpReverse:
		r.View.BeginActors(k, of)
	default:
	}
}

// atLeast evaluates atleast(…) or union(…).
func (v *Evaluation) atLeast(n *language.Node) (sets.Set, error) {
	t := sets.NewThreshold(max(n.Least, 1), len(n.Args))
	for i := range n.Args {
		set, err := v.Set(&n.Args[i])
		if err != nil {
			return set, err
		}
		t.Add(set)
	}
	return t.Members(), nil
}

func (v *Evaluation) except(n *language.Node) (set sets.Set, err error) {
	if set, err = v.Set(&n.Args[0]); err != nil {
		return set, err
	}
	for i := range n.Args[1:] {
		if set.Empty() {
			return set, nil
		}
		t, err := v.open(&n.Args[1+i])
		if err == nil && t.large != nil {
			t.Set, err = v.And(set, t)
		}
		if err != nil {
			return set, err
		}
		set = sets.AndNot(set, t.Set)
	}
	return set, nil
}

// findLabelers reads the states of the labelers of the expression. It fails if the labels of one of them are
// not read.
func findLabelers(v *Evaluation) (err error) {
	for n := range v.Expr.Root.All() {
		if !n.Op.IsSet() || !n.Kind.IsLabel() {
			continue
		}
		if v.labelers == nil {
			if v.labelers, err = v.View.Labelers(); err != nil {
				return err
			}
		}
		if did := v.Expr.LabelerOf(n); v.labelers[did].Name == "" {
			has := "no labels of any labeler"
			if len(v.labelers) > 0 {
				has = "labels of " + strings.Join(slices.Sorted(maps.Keys(v.labelers)), ", ")
			}
			return &LimitError{"unknown labeler " + did + ": this server has " + has + " (operators: add it to --labelers)"}
		}
	}
	return nil
}

// Labeler returns how far the labels of a leaf that is labeled(…) are read.
func (v *Evaluation) Labeler(n *language.Node) graph.Labeler { return v.labelers[v.Expr.LabelerOf(n)] }
