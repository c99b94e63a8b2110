package query

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"skein/graph"
	"skein/graph/kinds"
	"skein/intern/dict"
	"skein/internal/idset"
)

// Bounds of one rank.
const (
	maxRanked   = 4 << 20  // different results, 32 bytes each at most
	maxExpanded = 64 << 20 // results in all

	checkEvery = 1 << 16 // results between two looks whether time is over
)

type rankItem struct {
	Member string `json:"member"`
	Count  uint32 `json:"count"`
}

// rank expands every member of a set along an edge, and counts how often each
// result occurs.
func (s *Server) rank(ctx context.Context, q params) (any, error) {
	of, err := q.expr("of")
	if err != nil {
		return nil, err
	}
	if of.Type() != dict.DID {
		return nil, invalid("of: is a set of %s, it must be one of %s", plural(of.Type()), plural(dict.DID))
	}
	via, err := parseVia(q.values.Get("via"))
	if err != nil {
		return nil, err
	}
	var except *Expr
	if q.values.Has("except") {
		if except, err = q.expr("except"); err != nil {
			return nil, err
		}
		if except.Type() != via.is {
			return nil, invalid("except: is a set of %s, the results are %s", plural(except.Type()), plural(via.is))
		}
	}
	limit, err := q.integer("limit", 1, 1000, 100)
	if err != nil {
		return nil, err
	}
	out := struct {
		Type  string     `json:"type"`
		Items []rankItem `json:"items"`
	}{via.is.String(), []rankItem{}}
	err = s.view(ctx, q.work, func(sn *graph.Snapshot) error {
		out.Items = []rankItem{}
		top, err := s.ranked(ctx, sn, q, of, via, except, limit)
		if err != nil {
			return err
		}
		ids := make([]dict.ID, len(top))
		for i, t := range top {
			ids[i] = dict.ID(t.id)
		}
		return sn.Strings(via.is, ids, func(i int, member []byte) error {
			out.Items = append(out.Items, rankItem{string(member), top[i].count})
			return nil
		})
	})
	return out, err
}

// via is the edge that rank goes along, and what it leads to.
type via struct {
	kind    kinds.Kind
	reverse bool
	is      dict.Namespace
}

// vias lists the sets of a DID, which rank goes along.
func vias() (names []string, all []via) {
	for _, k := range kinds.All {
		names, all = append(names, k.Forward), append(all, via{k.Kind, false, k.To.Is})
		if k.To.Is == dict.DID {
			names, all = append(names, k.Reverse), append(all, via{k.Kind, true, dict.DID})
		}
	}
	return names, all
}

// Vias lists the names of the sets that the method rank goes along.
func Vias() []string { names, _ := vias(); return names }

// parseVia finds the set that a name is of. It must be one of a DID.
func parseVia(name string) (v via, err error) {
	names, all := vias()
	if i := slices.Index(names, name); i >= 0 {
		return all[i], nil
	}
	return v, invalid("parameter via is %q, it must be one of %s", clip(name), strings.Join(names, ", "))
}

// ranked returns the results that occur the most often.
func (s *Server) ranked(ctx context.Context, sn *graph.Snapshot, q params, of *Expr, along via, except *Expr, limit int) ([]counted, error) {
	v, err := newEvaluation(ctx, sn, of, q.work)
	if err != nil {
		return nil, err
	}
	actors, _, err := v.result()
	if err != nil {
		return nil, err
	}
	var without idset.Set
	if except != nil {
		e, err := newEvaluation(ctx, sn, except, q.work)
		if err != nil {
			return nil, err
		}
		if without, err = e.set(&except.root); err != nil {
			return nil, err
		}
	}
	if err := q.work.heavy(); err != nil {
		return nil, err
	}
	var t tally
	var buf []uint64
	hidden := sn.Hidden()
	for actor := range actors.All() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if hidden.Has(actor) || dict.ID(actor) >= dict.FirstReserved {
			continue
		}
		t.next()
		if !along.reverse {
			if buf, err = sn.AppendSubjects(buf[:0], along.kind, dict.ID(actor)); err != nil {
				return nil, err
			}
			err = t.add(ctx, slices.Values(buf))
		} else {
			var set idset.Set
			if set, err = v.actors(along.kind, dict.ID(actor)); err == nil {
				err = t.add(ctx, set.All())
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if along.is == dict.DID {
		t.leaveOut(hidden)
	}
	t.leaveOut(without)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return t.top(limit), ctx.Err()
}

// actors reads a whole reverse set.
func (v *evaluation) actors(k kinds.Kind, subject dict.ID) (idset.Set, error) {
	t, err := v.openActors(k, subject)
	if err != nil {
		return idset.Set{}, err
	}
	return v.all(t)
}

// counted is a result and how often it occurred.
type counted struct {
	id    uint64
	count uint32
}

// tally counts ids: an open table, doubled when it is three quarters full. An
// id counts once for each actor.
type tally struct {
	table    []tallied // a power of two
	used     int
	actor    uint32
	expanded int
}

type tallied struct {
	id    uint64
	count uint32 // 0: free
	actor uint32 // the last that it was counted for
}

func (t *tally) next() { t.actor++ }

func (t *tally) add(ctx context.Context, ids func(func(uint64) bool)) (err error) {
	ids(func(id uint64) bool {
		if t.expanded%checkEvery == 0 {
			if err = ctx.Err(); err != nil {
				return false
			}
		}
		if t.expanded++; t.expanded > maxExpanded {
			err = invalid("of expands to more than %d results; ask about fewer actors", maxExpanded)
			return false
		}
		if 4*t.used >= 3*len(t.table) {
			t.grow()
		}
		e := t.slot(id)
		if e.count == 0 {
			if t.used == maxRanked {
				err = invalid("of expands to more than %d different results; ask about fewer actors", maxRanked)
				return false
			}
			e.id = id
			t.used++
		} else if e.actor == t.actor {
			return true
		}
		e.count++
		e.actor = t.actor
		return true
	})
	return err
}

// slot returns the place of id.
func (t *tally) slot(id uint64) *tallied {
	mask := uint64(len(t.table) - 1)
	for i := id * 0x9e3779b97f4a7c15 >> 20 & mask; ; i = (i + 1) & mask {
		if e := &t.table[i]; e.count == 0 || e.id == id {
			return e
		}
	}
}

func (t *tally) grow() {
	old := t.table
	t.table = make([]tallied, max(1024, 2*len(old)))
	for _, e := range old {
		if e.count > 0 {
			*t.slot(e.id) = e
		}
	}
}

// leaveOut takes a set out of the results. Nothing can be added after it.
func (t *tally) leaveOut(set idset.Set) {
	if set.Empty() {
		return
	}
	for i := range t.table {
		if e := &t.table[i]; e.count > 0 && set.Has(e.id) {
			e.count = 0
		}
	}
}

// top returns up to limit of the results that occur the most often: by count,
// then by id. It goes over the table twice, and holds no more than it returns
// and those that count as little as the last.
func (t *tally) top(limit int) []counted {
	most := uint32(0)
	for _, e := range t.table {
		most = max(most, e.count)
	}
	perCount := make([]int, most+1)
	for _, e := range t.table {
		perCount[e.count]++
	}
	last, above := most, 0 // the count of the last result, and how many have a higher one
	for last > 1 && above+perCount[last] < limit {
		above += perCount[last]
		last--
	}
	all := make([]counted, 0, above)
	var lowest smallest
	for _, e := range t.table {
		switch {
		case e.count > last:
			all = append(all, counted{e.id, e.count})
		case e.count == last && e.count > 0:
			lowest.offer(e.id, limit-above)
		}
	}
	for _, id := range lowest {
		all = append(all, counted{id, last})
	}
	slices.SortFunc(all, func(x, y counted) int {
		return cmp.Or(cmp.Compare(y.count, x.count), cmp.Compare(x.id, y.id))
	})
	return all
}

// smallest keeps the smallest ids that it was offered: a heap, the largest of
// them on top.
type smallest []uint64

func (s *smallest) offer(id uint64, most int) {
	h := *s
	if len(h) < most {
		h = append(h, id)
		for i := len(h) - 1; i > 0 && h[(i-1)/2] < h[i]; i = (i - 1) / 2 {
			h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		}
		*s = h
		return
	}
	if most == 0 || id >= h[0] {
		return
	}
	h[0] = id
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1] > h[c] {
			c++
		}
		if c >= len(h) || h[c] <= h[i] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
