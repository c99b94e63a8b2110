package query

import (
	"context"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
)

// Bounds of one rank.
const (
	maxRanked   = 4 << 20  // distinct results, of up to 32 bytes
	maxExpanded = 64 << 20 // results with repetitions

	checkEvery = 1 << 16 // results between two checks of the deadline
	manyScored = 1000    // accounts above which share and lift need the large queue
)

type rankItem struct {
	Member string  `json:"member"`
	Count  uint32  `json:"count"`
	Total  *uint64 `json:"total,omitempty"`
	Share  *uint64 `json:"share,omitempty"` // millionths: lexicons know no fractions
	Lift   *uint64 `json:"lift,omitempty"`  // likewise
}

// ranking are the parameters of rank.
type ranking struct {
	of, except *algebra.Expr
	via        via
	window     ask.Window // of the records that make the edges
	by         string
	min        uint32     // the lowest count
	subjects   ask.Window // of the results' record keys
	limit      int
	posts      bool // only results that are posts
	after      *rankPlace
}

// rankPlace is the last result of a page, after which the next page starts.
type rankPlace struct {
	scored

	micros uint64 // the time of the first page, from which ages are counted back; 0 if there are no ages
}

// rank expands every member of a set along an edge, and counts how often each
// result occurs.
func (s *Server) rank(ctx context.Context, q params) (any, error) {
	now := time.Now()
	r, err := q.ranking(now)
	if err != nil {
		return nil, err
	}
	question := q.rankQuestion(&r)
	if q.values.Has("cursor") {
		after, err := s.cursors.openRank(question, q.values.Get("cursor"))
		if err != nil {
			return nil, invalid("%v", err)
		}
		if after.micros > 0 {
			now = time.UnixMicro(int64(after.micros))
			if r, err = q.ranking(now); err != nil {
				return nil, err
			}
		}
		r.after = &after
	}
	out := struct {
		Type     string     `json:"type"`
		Of       *uint64    `json:"of,omitempty"`
		Accounts *uint64    `json:"accounts,omitempty"`
		Items    []rankItem `json:"items"`
		Cursor   string     `json:"cursor,omitempty"`
		completeness
	}{Type: r.via.is.String()}
	err = s.view(ctx, q.work, func(sn *ask.View) error {
		out.Items = []rankItem{}
		if out.completeness, err = s.rankMissing(ctx, sn, q.work, r); err != nil {
			return err
		}
		ranked, err := s.ranked(ctx, sn, q.work, r)
		if err != nil {
			return err
		}
		if r.by != byCount {
			out.Of, out.Accounts = &ranked.of, &ranked.accounts
		}
		var last scored
		more, err := ranked.strings(r, func(e *scored, member []byte) {
			item := rankItem{Member: string(member), Count: e.count}
			switch last = *e; r.by {
			case byShare:
				item.Total, item.Share = &e.total, new(ranked.score(r.by, e))
			case byLift:
				item.Total, item.Lift = &e.total, new(ranked.score(r.by, e))
			}
			out.Items = append(out.Items, item)
		})
		if more {
			place := rankPlace{last, 0} // without an age, the same page has the same cursor
			if r.hasAge(q) {
				place.micros = uint64(now.UnixMicro())
			}
			out.Cursor = s.cursors.sealRank(question, place)
		}
		return err
	})
	return out, err
}

// hasAge reports whether a ranking depends on the time of the query.
func (r *ranking) hasAge(q params) bool {
	for _, name := range []string{"since", "until", "subjectsSince"} {
		if _, age, err := algebra.ParseTime(q.values.Get(name), time.Time{}); err == nil && age {
			return true
		}
	}
	return r.of.HasAge || r.except != nil && r.except.HasAge
}

// rankMissing returns the completeness of a ranking.
func (s *Server) rankMissing(ctx context.Context, sn *ask.View, w *work, r ranking) (completeness, error) {
	v, err := algebra.NewEvaluation(ctx, sn, r.of, w)
	if err != nil {
		return completeness{}, err
	}
	if c, err := s.missing(v, !r.via.reverse); err != nil || c.Incomplete {
		return c, err
	}
	if r.except != nil {
		if v, err = algebra.NewEvaluation(ctx, sn, r.except, w); err != nil {
			return completeness{}, err
		}
		if c, err := s.missing(v, false); err != nil || c.Incomplete {
			return c, err
		}
	}
	return s.ofEverybody(sn, r.via.kind)
}

// ranking reads the parameters of rank, with ages counted back from now.
func (q params) ranking(now time.Time) (r ranking, err error) {
	if r.of, err = q.exprAt("of", now); err != nil {
		return r, err
	}
	if r.of.Type() != dict.DID {
		return r, invalid("of: it is a set of %s; it must be a set of %s", algebra.Plural(r.of.Type()), algebra.Plural(dict.DID))
	}
	if r.via, err = parseVia(q.words, q.values.Get("via")); err != nil {
		return r, err
	}
	if q.values.Has("except") {
		if r.except, err = q.exprAt("except", now); err != nil {
			return r, err
		}
		if r.except.Type() != r.via.is {
			return r, invalid("except: it is a set of %s; the results are %s", algebra.Plural(r.except.Type()), algebra.Plural(r.via.is))
		}
	}
	if r.window, err = q.window(now); err != nil {
		return r, err
	}
	r.by = byCount
	if q.values.Has("by") {
		r.by = q.values.Get("by")
	}
	least := 1
	switch r.by {
	case byCount:
	case byShare, byLift:
		least = leastScored
	default:
		return r, invalid("parameter by is %q; it must be one of %s, %s, %s", algebra.Brief(r.by), byCount, byShare, byLift)
	}
	if least, err = q.integer("min", 1, 1<<30, least); err != nil {
		return r, err
	}
	r.min = uint32(least)
	if q.values.Has("subjectsSince") {
		if r.via.is != dict.URI {
			return r, invalid("subjectsSince: the results are %s; only %s have a time", algebra.Plural(r.via.is), algebra.Plural(dict.URI))
		}
		t, _, err := algebra.ParseTime(q.values.Get("subjectsSince"), now)
		if err != nil {
			return r, invalid("parameter subjectsSince: %v", err)
		}
		_, end := read.AnyTime()
		r.subjects = read.WindowOf(algebra.FirstMicro(t), end)
	}
	r.limit, err = q.integer("limit", 1, 1000, 100)
	return r, err
}

// via is the edge that rank follows, and the namespace of the results.
type via struct {
	kind    kinds.Kind
	reverse bool
	is      dict.Namespace
}

// vias returns the sets of an account, which rank can follow.
func vias(table *kinds.Table) (names []string, all []via) {
	for _, k := range table.All {
		if !k.HasSets() {
			continue
		}
		names, all = append(names, k.Forward), append(all, via{k.Kind, false, k.To.Is})
		if k.To.Is == dict.DID {
			names, all = append(names, k.Reverse), append(all, via{k.Kind, true, dict.DID})
		}
	}
	return names, all
}

// Vias returns the names of the built-in sets that the method rank can follow.
func Vias() []string { names, _ := vias(kinds.BuiltIn); return names }

// parseVia returns the set of an account with a name.
func parseVia(v *algebra.Vocabulary, name string) (via, error) {
	names, all := vias(v.Table)
	if i := slices.Index(names, name); i >= 0 {
		return all[i], nil
	}
	return via{}, invalid("parameter via is %q; it must be one of %s", algebra.Brief(name), strings.Join(names, ", "))
}

// ranked expands the members of a set, and orders the results.
func (s *Server) ranked(ctx context.Context, sn *ask.View, w *work, r ranking) (*standing, error) {
	v, err := algebra.NewEvaluation(ctx, sn, r.of, w)
	if err != nil {
		return nil, err
	}
	actors, of, err := v.Result()
	if err != nil {
		return nil, err
	}
	var without idset.Set
	if r.except != nil {
		e, err := algebra.NewEvaluation(ctx, sn, r.except, w)
		if err != nil {
			return nil, err
		}
		if without, err = e.Set(&r.except.Root); err != nil {
			return nil, err
		}
	}
	if r.by != byCount && actors.Len() > manyScored { // totals of thousands of results are looked up
		if err := w.Heavy(); err != nil {
			return nil, err
		}
	}
	t := &tally{heavy: w.Heavy}
	if err := expand(ctx, v, t, actors, r); err != nil {
		return nil, err
	}
	if r.via.is == dict.DID {
		t.leaveOut(sn.Hidden())
	}
	t.leaveOut(without)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st := &standing{ctx: ctx, sn: sn, tally: t, of: of}
	if r.by != byCount {
		err = st.measure(r)
	}
	return st, err
}

// expand counts the results that the actors lead to.
func expand(ctx context.Context, v *algebra.Evaluation, t *tally, actors idset.Set, r ranking) (err error) {
	var buf []uint64
	hidden := v.View.Hidden()
	for actor := range actors.All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if hidden.Has(actor) || dict.ID(actor) >= dict.FirstReserved {
			continue
		}
		t.next()
		if !r.via.reverse {
			if buf, err = v.View.AppendSubjects(buf[:0], r.via.kind, dict.ID(actor), r.window); err != nil {
				return err
			}
			err = t.addList(ctx, buf)
		} else {
			var op algebra.Operand
			if op, err = v.Leaf(algebra.Leaf{Op: algebra.OpReverse, Kind: r.via.kind, Of: dict.ID(actor), Window: r.window}); err != nil {
				return err
			}
			var set idset.Set
			if set, err = v.All(op); err == nil {
				err = t.add(ctx, set.All())
			}
		}
		if err != nil {
			return err
		}
	}
	return t.count()
}
