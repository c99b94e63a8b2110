package query

import (
	"context"
	"fmt"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/internal/kv"
)

// evaluation is an expression in front of a snapshot of the graph.
//
// Sets are taken in the order of what they cost: small ones, which come whole
// with their first read, lead; a large one that is not in memory is asked only
// about what is left when its turn comes (graph.ActorSet.And).
type evaluation struct {
	ended     kv.Interrupt
	expr      *Expr
	view      *ask.View
	ids       []dict.ID // of e.strings
	budget    Budget
	listsRead map[leaf]idset.Set // those that are of lists
	again     map[leaf]*operand  // those that occur more than once, when they have been opened
	firsts    map[literal]int    // the first place of each of e.strings, see first
}

// A Budget says how much a question may do.
type Budget interface {
	// Heavy is called before something expensive: before a large set is read, or many are
	// expanded. Its error ends the question.
	Heavy() error
}

// newReader returns an evaluation without an expression, for reading single sets.
func newReader(ctx context.Context, s *ask.View, b Budget) *evaluation {
	return &evaluation{ended: kv.InterruptOf(ctx), view: s, budget: b}
}

// leaf is a set that the graph has.
type leaf struct {
	op     op
	kind   kinds.Kind
	of     dict.ID
	by     dict.ID // of listed: the list's author
	window ask.Window
}

// leafAt returns the set that a node is.
func leafAt(n *node, ids []dict.ID) leaf {
	l := leaf{op: n.op, kind: n.kind, of: ids[n.of], window: n.window}
	if n.op == opListed {
		l.by = ids[n.by]
	}
	return l
}

// Strings that have no id, and so are in no set of the graph, may still be
// given as members. They take the ids at the end of the id space, which are
// never handed out: string i of the expression is literalID(i).
func literalID(i int) dict.ID { return dict.FirstReserved + dict.ID(i) }

// unseen says, by index in Expr.strings, which were without an id when the
// first page was made. They stay so for the pages after it, also when they
// have got one meanwhile: each would otherwise change its place.
type unseen []bool

// newEvaluation looks up the expression's strings. Before what is bounded for
// all questions together it asks w.
func newEvaluation(ctx context.Context, s *ask.View, e *Expr, b Budget) (*evaluation, error) {
	ids, err := lookup(s, e.strings)
	if err != nil {
		return nil, err
	}
	v := &evaluation{ended: kv.InterruptOf(ctx), expr: e, view: s, ids: ids, budget: b, again: map[leaf]*operand{}, listsRead: map[leaf]idset.Set{}}
	v.repeated(&e.root, map[leaf]bool{})
	return v, nil
}

// repeated notes which leaves occur more than once.
func (v *evaluation) repeated(n *node, seen map[leaf]bool) {
	if n.op.isSet() {
		l := leafAt(n, v.ids)
		if seen[l] {
			v.again[l] = nil
		}
		seen[l] = true
	}
	for i := range n.args {
		v.repeated(&n.args[i], seen)
	}
}

func lookup(s *ask.View, strings []literal) ([]dict.ID, error) {
	var b intern.Batch
	index := make([]int, len(strings))
	for i, l := range strings {
		index[i] = b.Add(l.is, []byte(l.s))
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

// hidden returns what is left out of a result: hidden accounts are in the sets
// that it is made of. To leave them out of each, or once at the end, comes to
// the same.
func (v *evaluation) hidden() idset.Set {
	if v.expr.root.is == dict.DID {
		return v.view.Hidden()
	}
	return idset.Set{}
}

// result returns the set that the expression names, hidden accounts included,
// and how many members it has without them.
func (v *evaluation) result() (set idset.Set, total uint64, err error) {
	set, err = v.set(&v.expr.root)
	if err != nil {
		return set, 0, err
	}
	return set, set.Len() - idset.AndLen(v.hidden(), set), nil
}

// count returns how many members the result has. Where it is an intersection,
// the last step of it is counted and not made.
func (v *evaluation) count() (uint64, error) {
	n := &v.expr.root
	if n.op != opIntersect {
		_, total, err := v.result()
		return total, err
	}
	set, last, err := v.intersect(n, true)
	if err != nil {
		return 0, err
	}
	total := idset.AndLen(set, last)
	if h := v.hidden(); !h.Empty() {
		total -= idset.AndLen(idset.And(h, set), last)
	}
	return total, nil
}

// set evaluates a node.
func (v *evaluation) set(n *node) (idset.Set, error) {
	t, err := v.open(n)
	if err != nil {
		return idset.Set{}, err
	}
	return v.all(t)
}

// operand is a set, or a large one that is not in memory.
type operand struct {
	set   idset.Set
	large *ask.ActorSet
}

// open evaluates a node, unless it is a large set that is not in memory.
func (v *evaluation) open(n *node) (operand, error) {
	if err := v.ended.Err(); err != nil {
		return operand{}, err
	}
	switch n.op {
	case opForward, opReverse, opListed, opLists:
		return v.leaf(leafAt(n, v.ids))
	case opMembers:
		ids := make([]uint64, n.last-n.first)
		for i := range ids {
			ids[i] = uint64(v.literal(n.first + i))
		}
		return operand{set: idset.FromUnsorted(ids)}, nil
	case opIntersect:
		set, _, err := v.intersect(n, false)
		return operand{set: set}, err
	case opUnion:
		set, err := v.union(n)
		return operand{set: set}, err
	default:
		set, err := v.except(n)
		return operand{set: set}, err
	}
}

// leaf opens a leaf. What occurs more than once is read once.
func (v *evaluation) leaf(l leaf) (t operand, err error) {
	kept, repeated := v.again[l]
	if kept != nil {
		return *kept, nil
	}
	switch {
	case l.op == opListed, l.op == opLists:
		t.set, err = v.lists(l)
	case l.op == opForward:
		t.set, err = v.view.SubjectsIn(l.kind, l.of, l.window)
	case l.window.All():
		t, err = v.openActors(l.kind, l.of)
	default:
		t.set, err = v.actorsIn(l)
	}
	if err == nil && t.set.Len() > idset.ListMax {
		err = v.budget.Heavy()
	}
	if err == nil && repeated {
		v.again[l] = &t
	}
	return t, err
}

func (v *evaluation) openActors(k kinds.Kind, subject dict.ID) (operand, error) {
	t, err := v.view.Actors(k, subject)
	if err != nil {
		return operand{}, err
	}
	if set, known := t.Known(); known {
		return operand{set: set}, nil
	}
	return operand{large: t}, nil
}

// A LimitError says which limit a question exceeds. It is a client's error.
type LimitError struct{ What string }

// Error implements error.
func (e *LimitError) Error() string { return e.What }

// MaxWindowed bounds the set of who has an edge to a subject of which those in a window are
// asked for: the records of each are read.
const MaxWindowed = 50_000

// actorsIn reads the members of a reverse set in a window.
func (v *evaluation) actorsIn(l leaf) (idset.Set, error) {
	t, err := v.openActors(l.kind, l.of)
	if err != nil {
		return idset.Set{}, err
	}
	set, err := v.all(t)
	if err != nil {
		return idset.Set{}, err
	}
	if set.Len() > MaxWindowed {
		return idset.Set{}, &LimitError{fmt.Sprintf("%s with since or until reads the records of every member, and fails on sets above %d members; this set has %d", v.expr.words.table.Info(l.kind).Reverse, MaxWindowed, set.Len())}
	}
	return v.view.ActorsIn(l.kind, l.of, l.window, set)
}

func (v *evaluation) all(t operand) (idset.Set, error) {
	if t.large == nil {
		return t.set, nil
	}
	if err := v.budget.Heavy(); err != nil {
		return idset.Set{}, err
	}
	return t.large.All()
}

// and returns what of set is in t.
func (v *evaluation) and(set idset.Set, t operand) (idset.Set, error) {
	if t.large == nil {
		return idset.And(set, t.set), nil
	}
	if err := v.ended.Err(); err != nil {
		return idset.Set{}, err
	}
	if err := v.budget.Heavy(); err != nil {
		return idset.Set{}, err
	}
	return t.large.And(set)
}

// intersect evaluates an intersection. If two is set it leaves the last step
// undone, and returns the two sets that are to be intersected; else the second
// is empty, and the first the result.
func (v *evaluation) intersect(n *node, two bool) (set, last idset.Set, err error) {
	var small, large []operand
	for stage := range stages {
		for i := range n.args {
			if n.args[i].stage() != stage {
				continue
			}
			t, done, err := v.probe(&n.args[i], small)
			if err == nil && !done {
				t, err = v.open(&n.args[i])
			}
			if err != nil {
				return set, last, err
			}
			switch {
			case done: // what is left of the smallest stands for both
				small[0] = t
			case t.large != nil:
				large = append(large, t)
			case t.set.Len() > idset.ListMax && len(small) > 1 && small[0].set.Len() > idset.ListMax:
				small[0].set = idset.And(small[0].set, t.set) // two of the large ones at most are held
				t = small[0]
			default:
				small = append(small, t)
				if t.set.Len() > idset.ListMax { // the large ones come first, for now
					small[0], small[len(small)-1] = small[len(small)-1], small[0]
				}
			}
			if t.large == nil && t.set.Empty() {
				return set, last, nil
			}
		}
	}
	slices.SortFunc(small, func(x, y operand) int { return int(int64(x.set.Len()) - int64(y.set.Len())) })
	all := append(small, large...)
	if set, err = v.all(all[0]); err != nil {
		return set, last, err
	}
	for i, t := range all[1:] {
		if two && i == len(all)-2 {
			if t.large != nil && set.Len() <= idset.ListMax {
				last, err = v.and(set, t)
			} else {
				last, err = v.all(t)
			}
			return set, last, err
		}
		if set, err = v.and(set, t); err != nil || set.Empty() {
			return set, idset.Set{}, err
		}
	}
	if two { // an intersection of one
		return set, set, nil
	}
	return set, last, nil
}

// An intersection's operands are opened in stages, by what they cost: sets that
// come with one read, then those that are read record by record, then operators.
const stages = 3

func (n *node) stage() int {
	switch {
	case n.op == opMembers, n.op == opReverse && n.window.All():
		return 0
	case n.op.isSet():
		return 1
	default:
		return 2
	}
}

// probeMembers is up to how many members of another operand are looked up one
// by one, rather than an actor's records read, all of them.
const probeMembers = 8

// probe intersects a forward set with the only operand that is there, if that
// is very small, by asking about its members. done is false if it is not.
func (v *evaluation) probe(n *node, small []operand) (t operand, done bool, err error) {
	if n.op != opForward || len(small) != 1 || small[0].set.Len() > probeMembers {
		return t, false, nil
	}
	actor := v.ids[n.of]
	var left []uint64
	for id := range small[0].set.All() {
		has := false
		if !v.view.IsHidden(actor) && dict.ID(id) < dict.FirstReserved {
			if has, err = v.view.HasEdgeIn(n.kind, actor, dict.ID(id), n.window); err != nil {
				return t, false, err
			}
		}
		if has {
			left = append(left, id)
		}
	}
	return operand{set: idset.FromList(left)}, true, nil
}

func (v *evaluation) union(n *node) (sum idset.Set, err error) {
	for i := range n.args {
		set, err := v.set(&n.args[i])
		if err != nil {
			return sum, err
		}
		sum = idset.Or(sum, set)
	}
	return sum, nil
}

func (v *evaluation) except(n *node) (set idset.Set, err error) {
	if set, err = v.set(&n.args[0]); err != nil {
		return set, err
	}
	for i := range n.args[1:] {
		if set.Empty() {
			return set, nil
		}
		t, err := v.open(&n.args[1+i])
		if err != nil {
			return set, err
		}
		if t.large != nil {
			if t.set, err = v.and(set, t); err != nil {
				return set, err
			}
		}
		set = idset.AndNot(set, t.set)
	}
	return set, nil
}

// literal returns the id of a string given as a member: the first of its
// equals stands for all, if it has none of its own.
func (v *evaluation) literal(i int) dict.ID {
	if v.ids[i] != dict.None {
		return v.ids[i]
	}
	return literalID(v.first(i))
}

// first returns the index of the first of the strings that equal string i.
func (v *evaluation) first(i int) int {
	if v.firsts == nil { // thousands may be given
		v.firsts = make(map[literal]int, len(v.expr.strings))
		for n, l := range slices.Backward(v.expr.strings) {
			v.firsts[l] = n
		}
	}
	return v.firsts[v.expr.strings[i]]
}

// pin makes literal strings that were unseen on the first page stay so: in
// the set they stand under their reserved id.
func (v *evaluation) pin(set idset.Set, u unseen) idset.Set {
	var from, to []uint64
	for i := range v.expr.strings {
		if i < len(u) && u[i] && v.expr.strings[i].is == v.expr.root.is && v.ids[i] != dict.None && set.Has(uint64(v.ids[i])) {
			from, to = append(from, uint64(v.ids[i])), append(to, uint64(literalID(v.first(i))))
		}
	}
	if len(from) == 0 {
		return set
	}
	return idset.Or(idset.AndNot(set, idset.FromUnsorted(from)), idset.FromUnsorted(to))
}

// unseen returns which strings have no id now.
func (v *evaluation) unseen() unseen {
	u := make(unseen, len(v.ids))
	for i, id := range v.ids {
		u[i] = id == dict.None
	}
	return u
}

// page returns the strings of up to limit members, and of no more than maxPageBytes, of a result after the one
// with id after, in the order of their ids, and the last of these if there are
// more, else None.
func (v *evaluation) page(set idset.Set, after dict.ID, limit int, pinned unseen) (ids []uint64, members []string, last dict.ID, err error) {
	ids, more := v.pin(set, pinned).Page(uint64(after), limit, v.pinnedHidden(pinned))
	if members, err = v.strings(ids); err != nil {
		return nil, nil, dict.None, err
	}
	bytes := 0
	for i := range members {
		if bytes += len(members[i]); bytes > maxPageBytes && i > 0 {
			members, ids, more = members[:i], ids[:i], true
			break
		}
	}
	if more {
		last = dict.ID(ids[len(ids)-1])
	}
	return ids, members, last, nil
}

// maxPageBytes bounds the members of a page: URIs of up to 8 KiB would make pages
// of many megabytes. Of posts' URIs a page of a thousand has 70 KB.
const maxPageBytes = 512 << 10

// pinnedHidden is hidden, with the strings that are pinned under the ids that
// they stand under.
func (v *evaluation) pinnedHidden(u unseen) idset.Set {
	h := v.hidden()
	if h.Empty() {
		return h
	}
	var more []uint64
	for i := range v.expr.strings {
		if i < len(u) && u[i] && v.ids[i] != dict.None && h.Has(uint64(v.ids[i])) {
			more = append(more, uint64(literalID(i)))
		}
	}
	if len(more) == 0 {
		return h
	}
	return idset.Or(h, idset.FromUnsorted(more))
}

// strings returns the strings of ids, which ascend, reserved ones included.
func (v *evaluation) strings(ids []uint64) ([]string, error) {
	out := make([]string, len(ids))
	known := make([]dict.ID, 0, len(ids))
	for i, id := range ids {
		if dict.ID(id) >= dict.FirstReserved { // they come last
			out[i] = v.expr.strings[dict.ID(id)-dict.FirstReserved].s
		} else {
			known = append(known, dict.ID(id))
		}
	}
	err := v.view.Strings(v.expr.root.is, known, func(i int, s []byte) error {
		out[i] = string(s)
		return nil
	})
	return out, err
}
