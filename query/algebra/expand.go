package algebra

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// A hop is one step of a ranking, from the members of a set along an edge. It has a budget of units:
// an edge costs 1 unit, an account whose records are read costs lookUpUnits, and a member costs
// memberUnits beside its edges.
//
// A hop within its budget is exact. If it exceeds the budget, it reads a sample, which depends only on the
// ids, so it is the same for the same question and state:
//
//   - Of a set with more members than its share of the budget (at least 1/256 of it), it reads one
//     in k, those with the lowest hashes. Each counts k times, and so does its weight.
//     It does not if the set of members is so large that enough of them can be read whole.
//   - It reads the members' sets in the order of the members' hashes, until the budget is spent. Then it
//     multiplies all counts and sums by the number of members, divided by the number of members read.
//
// Both are sampling with equal probabilities, scaled by their inverse (Horvitz and Thompson, "A
// generalization of sampling without replacement from a finite universe", 1952), so that counts and
// scores are right on average.
type hop struct {
	language.Weighing // zero if scores do not matter

	v *Evaluation
	t *Tally

	via       language.Via
	window    ask.Window          // of the records that make the edge
	effective ask.Window          // with decay, of those that add to a score
	exact     bool                // fail instead of reading a sample
	scores    map[uint64]float64  // of the members, with weigh=score
	authors   map[dict.ID]dict.ID // of the lists, if via leads along them

	limited bool // it ends when the budget is spent
	left    int  // units
	share   int  // units for one set; larger sets are thinned; 0: no set is

	thinned uint64 // sets that were sampled
	largest uint64 // the largest of them

	ids     []uint64  // scratch memory
	weights []float64 // of ids, with decay
}

// datesPerUnit is how many dates of a large set are read for one unit.
const datesPerUnit = 16

// DefaultHopUnits is the budget of a hop; a ranking of two steps has two hops.
const DefaultHopUnits = 4 << 20

// The costs of a hop, in units.
const (
	memberUnits = 16
	lookUpUnits = 84 // so that a hop reads the records of fewer than MaxWindowed accounts

	leastShares = 256 // no set's share is smaller than this part of the budget
)

var errSpent = errors.New("the hop has spent its budget")

// Expand counts how many members lead to each result of n, a rank(…), and adds up scores if they matter. members are of the
// namespace n.Rank.Via.From. It skips hidden members and leaves out hidden results. If n.Rank.Exact or v.Exact is set, it fails
// instead of reading a sample.
func (v *Evaluation) Expand(n *language.Node, members sets.Set) (*Tally, error) {
	h := hop{v: v, via: n.Rank.Via, window: Within(n.Window), exact: n.Rank.Exact || v.Exact, scores: v.weights[&n.Args[0]]}
	if n.Rank.Scored {
		h.Weighing = n.Rank.Weighing
	}
	// Older records add nothing: 2^-1075 is no float64.
	h.effective = h.window.And(ask.WindowOf(h.Now-1075*h.Decay.Microseconds(), language.LatestAt(time.UnixMicro(h.Now))+1))
	read := h.whole
	if h.via.Op == language.OpAuthors {
		read = h.byAuthors
	}
	t, err := read(members)
	if errors.Is(err, errSpent) {
		t, err = h.sample(members)
	}
	if err != nil {
		return nil, err
	}
	t.LeaveOut(v.hiddenIn(h.via.Is))
	return t, v.Ended.Err()
}

// start prepares to read members in a number of units; 0 units are unlimited.
func (h *hop) start(members sets.Set, units int) (err error) {
	h.t = &Tally{Heavy: h.v.budget.Heavy, Weighted: h.ByScore()}
	h.left, h.limited = units, units > 0
	if h.via.Op == language.OpListed && h.authors == nil {
		h.authors = map[dict.ID]dict.ID{}
		err = AuthorsOf(h.v, members, func(list, author dict.ID, _ ask.Path) { h.authors[list] = author })
	}
	return err
}

// byAuthors counts members by their authors: all or, as each costs the same, the sample that is within the budget.
func (h *hop) byAuthors(members sets.Set) (*Tally, error) {
	if err := h.start(members, 0); err != nil {
		return h.t, err
	}
	all, most := members.Len(), max(h.v.HopUnits/(memberUnits+1), 1)
	if all > uint64(most) && !h.exact {
		members = lowest(members, sets.Set{}, most, 0, nil)
	}
	h.report(members.Len(), all)
	var failed error
	err := AuthorsOf(h.v, members, func(record, author dict.ID, key ask.Path) {
		if failed != nil || !h.window.Has(key) {
			return
		}
		weight := h.weightOf(uint64(record))
		if h.Decay > 0 {
			if weight = h.aged(weight, key.TID); !h.effective.Has(key) {
				weight = 0
			}
		}
		h.t.Next(weight, 1)
		h.ids = append(h.ids[:0], uint64(author))
		failed = h.t.Add(h.v.Ended, h.ids, nil)
	})
	if err = cmp.Or(err, failed); err != nil {
		return h.t, err
	}
	return h.t, h.t.Count()
}

// whole reads all members. Of many members, it reads the sets in the order of the members' hashes: if the
// budget is spent after enough of them, these are the sample.
func (h *hop) whole(members sets.Set) (*Tally, error) {
	units := h.v.HopUnits
	if h.exact {
		units = 0
	}
	if err := h.start(members, units); err != nil {
		return h.t, err
	}
	if err := h.foresee(members); err != nil {
		return h.t, err
	}
	order, byHash := members.All(), units > 0 && members.Len() > manyMembers
	if byHash {
		order = slices.Values(hashed(members))
	}
	read, err := h.read(order)
	if errors.Is(err, errSpent) && byHash && read >= enoughMembers {
		h.report(read, h.visible(members))
		err = nil
	}
	if err != nil {
		return h.t, err
	}
	return h.t, h.t.Count()
}

// foresee ends an attempt that is bound to end later, before it reads anything: the members of forward sets without a window are counted in
// the accounts' states.
func (h *hop) foresee(members sets.Set) error {
	if h.via.Op != language.OpForward || !h.window.All() || members.Len() > manyMembers {
		return nil
	}
	ids := slices.DeleteFunc(IDs(sets.AndNot(members, h.v.hiddenIn(h.via.From)).List(nil)), func(id dict.ID) bool { return id >= dict.FirstReserved })
	edges := uint64(0)
	err := h.v.View.RecordCounts(h.via.Kind, ids, func(_ int, n uint64) error { edges += n; return h.v.Ended.Err() })
	if err == nil && edges > lightResults {
		err = h.v.budget.Heavy()
	}
	if err == nil && h.limited && edges+uint64(len(ids)*memberUnits) > uint64(h.left) {
		err = errSpent
	}
	return err
}

// The members of a set from which on whole reads in the order of hashes, and those that are enough for a
// sample.
const (
	manyMembers   = 4096
	enoughMembers = 1024
)

// read expands members until the budget is spent, and returns how many it read.
func (h *hop) read(order iter.Seq[uint64]) (read uint64, err error) {
	hidden := h.v.hiddenIn(h.via.From)
	visible := func(yield func(uint64) bool) {
		for member := range order {
			if !hidden.Has(member) && dict.ID(member) < dict.FirstReserved && !yield(member) {
				return
			}
		}
	}
	begin := func(member uint64) { h.v.BeginSet(h.via.Op, h.via.Kind, dict.ID(member)) }
	for member := range ask.Ahead(h.v.View, visible, begin) {
		if err := h.expand(member); err != nil {
			return read, err
		}
		read++
	}
	return read, nil
}

// visible returns how many of the members read does not skip.
func (h *hop) visible(members sets.Set) (n uint64) {
	hidden := h.v.hiddenIn(h.via.From)
	for id := range members.All() {
		if !hidden.Has(id) && dict.ID(id) < dict.FirstReserved {
			n++
		}
	}
	return n
}

// hashed returns members in the order of their hashes.
func hashed(members sets.Set) []uint64 {
	ids := members.List(nil)
	slices.SortFunc(ids, func(x, y uint64) int { return cmp.Or(cmp.Compare(mix(x, 0), mix(y, 0)), cmp.Compare(x, y)) })
	return ids
}

// sample reads members in the order of their hashes, and thins large sets.
func (h *hop) sample(members sets.Set) (*Tally, error) {
	if err := h.v.budget.Heavy(); err != nil {
		return h.t, err
	}
	units, all := h.v.HopUnits, h.visible(members)
	order := members
	if most := units / memberUnits; all > uint64(most) {
		order = lowest(members, h.v.hiddenIn(h.via.From), most, 0, nil)
	}
	if err := h.start(order, units); err != nil {
		return h.t, err
	}
	h.share = max(units/int(max(all, 1))-memberUnits, units/leastShares)
	read, err := h.read(slices.Values(hashed(order)))
	if err != nil && !errors.Is(err, errSpent) {
		return h.t, err
	}
	h.report(read, all)
	return h.t, h.t.Count()
}

// report scales the counts by the members read, and notes in v.samples what was read.
func (h *hop) report(read, all uint64) {
	var what []string
	if h.thinned > 0 {
		what = append(what, fmt.Sprintf("sampled %d sets with up to %d members", h.thinned, h.largest))
	}
	if read < all {
		h.t.Scale = float64(all) / float64(max(read, 1))
		what = append(what, fmt.Sprintf("read the sets of %d of %d members", read, all))
	}
	if len(what) > 0 {
		h.v.samples = append(h.v.samples, "the ranking via "+h.via.Name+" "+strings.Join(what, " and "))
	}
}

// spend takes units from the budget before work is done for a member. The first member of a sample is
// read in any case.
func (h *hop) spend(units int) error {
	if h.left -= units; h.limited && h.left < 0 && (h.share == 0 || h.t.expanded > 0) {
		return errSpent
	}
	return nil
}

// look is spend for the records of accounts.
func (h *hop) look(accounts int) error { return h.spend(accounts * lookUpUnits) }

// thin returns k if one in k members of a set of n is read, each at a cost of units.
func (h *hop) thin(n uint64, units int) (k uint32) {
	if h.share == 0 || n*uint64(units) <= uint64(h.share) {
		return 1
	}
	h.thinned++
	h.largest = max(h.largest, n)
	return uint32((n*uint64(units) + uint64(h.share) - 1) / uint64(h.share))
}

// kept reports whether a member of a set belongs to the sample of one in k.
func kept(id, of uint64, k uint32) bool { return k == 1 || mix(id, of) <= math.MaxUint64/uint64(k) }

// thinned yields the sample of one in k members of a set.
func thinned(set sets.Set, of uint64, k uint32) iter.Seq[uint64] {
	if k == 1 {
		return set.All()
	}
	return func(yield func(uint64) bool) {
		for id := range set.All() {
			if kept(id, of, k) && !yield(id) {
				return
			}
		}
	}
}

// expand adds what a member leads to.
func (h *hop) expand(member uint64) error {
	if err := h.v.Ended.Err(); err != nil {
		return err
	}
	if err := h.spend(memberUnits); err != nil {
		return err
	}
	id, weight := dict.ID(member), h.weightOf(member)
	l := Leaf{Op: h.via.Op, Kind: h.via.Kind, Of: id, By: h.authors[id], Window: h.window}
	switch {
	case l.Op == language.OpReverse:
		return h.reverse(l, weight)
	case h.Decay > 0:
		return h.forwardAged(l, weight)
	case l.Op == language.OpForward:
		var err error
		if h.ids, err = h.v.View.AppendSubjects(h.ids[:0], l.Kind, id, h.window); err != nil {
			return err
		}
	default:
		set, err := h.v.lists(l, h.look) // of each member one: not kept
		if err != nil {
			return err
		}
		h.ids = set.List(h.ids[:0])
	}
	return h.add(member, weight)
}

// add adds h.ids, or a sample of them, with a weight or with h.weights.
func (h *hop) add(member uint64, weight float64) error {
	k := h.thin(uint64(len(h.ids)), 1)
	if k > 1 {
		n := 0
		for i, id := range h.ids {
			if !kept(id, member, k) {
				continue
			}
			if h.ids[n] = id; h.weights != nil {
				h.weights[n] = h.weights[i]
			}
			n++
		}
		h.ids = h.ids[:n]
	}
	if err := h.spend(len(h.ids)); err != nil {
		return err
	}
	h.t.Next(weight, k)
	return h.t.Add(h.v.Ended, h.ids, h.weights)
}

// forwardAged adds the members of a forward set or of lists, each with the weight of its newest record.
func (h *hop) forwardAged(l Leaf, weight float64) (err error) {
	h.ids, h.weights = h.ids[:0], h.weights[:0]
	offer := func(id dict.ID, p ask.Path) {
		h.ids, h.weights = append(h.ids, uint64(id)), append(h.weights, 0)
		if h.effective.Has(p) {
			h.weights[len(h.weights)-1] = h.aged(weight, p.TID)
		}
	}
	if l.Op == language.OpForward {
		err = h.v.View.EachSubject(l.Kind, l.Of, l.Window, func(id dict.ID, p ask.Path) error { offer(id, p); return nil })
	} else {
		err = h.v.eachListed(l, h.look, offer)
	}
	if err != nil {
		return err
	}
	return h.add(uint64(l.Of), 0)
}

// reverse adds the members of a reverse set. With a window or a decay, it reads the records of every
// member.
func (h *hop) reverse(l Leaf, weight float64) error {
	within := l.Window
	l.Window = ask.Window{}
	set, err := h.v.leafSet(l)
	if err != nil {
		return err
	}
	if h.Decay == 0 && within.All() {
		k := h.thin(set.Len(), 1)
		if err := h.spend(int(set.Len() / uint64(k))); err != nil {
			return err
		}
		h.t.Next(weight, k)
		return h.t.AddAll(h.v.Ended, thinned(set, uint64(l.Of), k))
	}
	var dated sets.Set // members in the window, by their dates
	if !within.All() && set.Len() > h.v.dateAbove {
		if err := h.spend(int(set.Len() / datesPerUnit)); err != nil {
			return err
		}
		if dated, set, err = h.v.View.DatedIn(l.Kind, l.Of, within); err != nil {
			return err
		}
		if h.Decay > 0 { // it needs their records
			dated, set = sets.Set{}, sets.Or(dated, set)
		}
	}
	k := h.thin(set.Len()+dated.Len()/lookUpUnits, lookUpUnits)
	if k > 1 {
		dated = sets.FromList(slices.Collect(thinned(dated, uint64(l.Of), k)))
		set = sets.FromList(slices.Collect(thinned(set, uint64(l.Of), k)))
	}
	if err := h.spend(int(set.Len()*lookUpUnits + dated.Len())); err != nil {
		return err
	}
	if set.Len() > MaxWindowed {
		return &LimitError{fmt.Sprintf("since, until and decay read the records of every member of %s, and fail on sets above %d members; one set has %d", h.via.Name, MaxWindowed, set.Len())}
	}
	if h.Decay == 0 {
		if set, err = h.v.View.ActorsIn(l.Kind, l.Of, within, set); err != nil {
			return err
		}
		h.t.Next(weight, k)
		return h.t.AddAll(h.v.Ended, sets.Or(dated, set).All())
	}
	h.t.Next(0, k)
	begin := func(actor uint64) { h.v.View.BeginSubjects(l.Kind, dict.ID(actor)) }
	for actor := range ask.Ahead(h.v.View, set.All(), begin) {
		score, in := 0.0, within.All() // records without a time, of the future, and old ones add to the count but not to the score
		tid, found, err := h.v.View.NewestTo(l.Kind, dict.ID(actor), l.Of, h.effective)
		if found {
			score, in = h.aged(weight, tid), true
		} else if err == nil && !in {
			_, in, err = h.v.View.NewestTo(l.Kind, dict.ID(actor), l.Of, within)
		}
		if err == nil && in {
			err = h.t.Add(h.v.Ended, []uint64{actor}, []float64{score})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Sampled returns what was sampled so far, "" if everything was read. It says once what a page that was read twice has sampled.
func (v *Evaluation) Sampled() string {
	return strings.Join(slices.Compact(slices.Clone(v.samples)), "; ")
}
