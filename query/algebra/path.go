package algebra

import (
	"fmt"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// Path returns a shortest chain of at most `most` edges of a kind, whose subjects are accounts: it begins with from and ends with to, and each
// account in it has an edge to the next. It is nil if there is none. Inactive accounts are not in chains.
//
// Path searches from both ends, one step at a time, from the end whose last step reached fewer accounts. It costs a unit for each edge that it
// reads and memberUnits for each account, and fails once that is more than DefaultHopUnits.
func (r *Reader) Path(k kinds.Kind, from, to dict.ID, most int) (chain []dict.ID, err error) {
	hidden := r.View.Hidden()
	if from == dict.None || to == dict.None || hidden.Has(uint64(from)) || hidden.Has(uint64(to)) {
		return nil, nil
	}
	if from == to {
		return []dict.ID{from}, nil
	}
	p := paths{r: r, kind: k, hidden: hidden, units: DefaultHopUnits}
	p.steps[ahead] = []sets.Set{sets.FromList([]uint64{uint64(from)})}
	p.steps[back] = []sets.Set{sets.FromList([]uint64{uint64(to)})}
	p.reached = [2]sets.Set{p.steps[ahead][0], p.steps[back][0]}
	for range most {
		way := ahead
		if p.last(back).Len() < p.last(ahead).Len() {
			way = back
		}
		if p.last(way).Empty() {
			return nil, nil
		}
		at, met, err := p.step(way)
		if err != nil {
			return nil, err
		}
		if met != dict.None {
			middle := [2]dict.ID{at, met}
			if way == back {
				middle = [2]dict.ID{met, at}
			}
			return p.chain(middle)
		}
	}
	return nil, nil
}

// The two ways to search: along edges from the first account, and against them from the last.
const (
	ahead = iota
	back
)

// paths is the state of a search.
type paths struct {
	r       *Reader
	kind    kinds.Kind
	hidden  sets.Set
	steps   [2][]sets.Set // by way: what each step reached first; the first step is the end itself
	reached [2]sets.Set   // by way: all of them
	units   int           // that are left
	heavy   bool          // Budget.Heavy was called
}

func (p *paths) last(way int) sets.Set { return p.steps[way][len(p.steps[way])-1] }

// step takes a step from all accounts of the last step on one way, or finds an account there, at, that is next to one, met, of the last step on
// the other way. All shorter chains have been looked for: earlier steps of the other way cannot be met.
func (p *paths) step(way int) (at, met dict.ID, err error) {
	other := p.last(1 - way)
	var next sets.Collector
	op := [...]language.Op{language.OpForward, language.OpReverse}[way]
	begin := func(id uint64) { p.r.BeginSet(op, p.kind, dict.ID(id)) }
	for id := range ask.Ahead(p.r.View, p.last(way).All(), begin) {
		if err := p.r.Ended.Err(); err != nil {
			return 0, 0, err
		}
		both, set, err := p.beside(way, dict.ID(id), other)
		if err != nil {
			return 0, 0, err
		}
		if !both.Empty() {
			return dict.ID(id), lowestOf(both), nil
		}
		for id := range set.All() {
			next.Add(id)
		}
	}
	set := sets.AndNot(sets.AndNot(next.Set(), p.reached[way]), p.hidden)
	p.steps[way], p.reached[way] = append(p.steps[way], set), sets.Or(p.reached[way], set)
	return dict.None, dict.None, nil
}

// beside returns the accounts next to one: those in a set and, if there are none, all.
func (p *paths) beside(way int, id dict.ID, in sets.Set) (both, all sets.Set, err error) {
	if way == ahead {
		all, err = p.r.View.Subjects(p.kind, id, ask.Window{})
		both = sets.And(all, in)
	} else {
		var t *ask.ActorSet
		if t, err = p.r.View.Actors(p.kind, id); err == nil {
			both, err = t.And(in)
		}
		if err == nil && both.Empty() {
			all, err = t.All()
		}
	}
	if p.units -= memberUnits + int(all.Len()); err == nil && p.units < 0 {
		err = &LimitError{fmt.Sprintf("the search for a path read more than %d edges from both ends; use a lower max", DefaultHopUnits)}
	}
	if err == nil && !p.heavy && p.units < DefaultHopUnits-lightResults {
		p.heavy = true
		err = p.r.budget.Heavy()
	}
	return both, all, err
}

// chain returns the chain through the two accounts at which the ways met.
func (p *paths) chain(middle [2]dict.ID) (chain []dict.ID, err error) {
	for way, id := range middle {
		steps := p.steps[way]
		half := []dict.ID{id}
		for i := slices.IndexFunc(steps, func(s sets.Set) bool { return s.Has(uint64(id)) }) - 1; i >= 0; i-- {
			both, _, err := p.beside(1-way, id, steps[i]) // one step nearer to the end
			if err != nil {
				return nil, err
			}
			id = lowestOf(both)
			half = append(half, id)
		}
		if way == ahead {
			slices.Reverse(half)
		}
		chain = append(chain, half...)
	}
	return chain, nil
}

// lowestOf returns the lowest id of a set, which is not empty.
func lowestOf(set sets.Set) dict.ID {
	for id := range set.All() {
		return dict.ID(id)
	}
	return dict.None
}
