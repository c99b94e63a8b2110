package query

import (
	"context"
	"math"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/rank"
)

type rankItem struct {
	Member string  `json:"member"`
	Count  uint32  `json:"count"`
	Total  *uint64 `json:"total,omitempty"`
	Share  *uint64 `json:"share,omitempty"` // millionths: lexicons know no fractions
	Lift   *uint64 `json:"lift,omitempty"`  // likewise
	Score  *uint64 `json:"score,omitempty"` // billionths, rounded
}

// rankAnswer is an answer of rank.
type rankAnswer struct {
	Type     string     `json:"type"`
	Of       *uint64    `json:"of,omitempty"`
	Accounts *uint64    `json:"accounts,omitempty"`
	Items    []rankItem `json:"items"`
	Cursor   string     `json:"cursor,omitempty"`
	caveats
}

func (a *rankAnswer) table() *table { return tableOf(a.Items, a.Cursor, nil) }

// ranked expands every member of a set along an edge, and counts how often each
// result occurs.
func ranked(ctx context.Context, q *call) (any, error) {
	now := time.Now()
	r, err := rank.Read(q.Query, now)
	if err != nil {
		return nil, err
	}
	question := rank.Question(q.Query, &r)
	if q.Values.Has("cursor") {
		after, err := rank.OpenPlace(q.Cursors, question, q.Values.Get("cursor"))
		if err != nil {
			return nil, err
		}
		if after.Micros > 0 {
			now = time.UnixMicro(int64(after.Micros))
			if r, err = rank.Read(q.Query, now); err != nil {
				return nil, err
			}
		}
		r.After = &after
	}
	out := rankAnswer{Type: r.Via.Is.String()}
	q.Boolean("proof")
	err = q.View(ctx, func(sn *ask.View) error {
		out.Items = []rankItem{}
		if err := q.rests(sn, &out.caveats, func(cl *claim) error { return cl.ranking(ctx, &r) }); err != nil {
			return err
		}
		standing, err := rank.Rank(ctx, sn, q.Work, r)
		if err != nil {
			return err
		}
		out.sampled(standing.Sampled)
		if r.By == rank.ByShare || r.By == rank.ByLift {
			out.Of, out.Accounts = &standing.Of, &standing.Accounts
		}
		var last rank.Result
		more, err := standing.Page(r, func(e *rank.Result, member string) {
			item := rankItem{Member: member, Count: e.Count}
			switch last = *e; r.By {
			case rank.ByShare:
				item.Total, item.Share = &e.Total, new(standing.Score(r.By, e))
			case rank.ByLift:
				item.Total, item.Lift = &e.Total, new(standing.Score(r.By, e))
			case rank.ByScore:
				if item.Score = new(uint64(math.Round(e.Score * 1e9))); r.Damp > 0 {
					item.Total = &e.Total
				}
			}
			out.Items = append(out.Items, item)
		})
		if more {
			place := rank.Place{Result: last, Late: standing.Late} // without an age, the same page has the same cursor
			if r.HasAge(q.Query) {
				place.Micros = uint64(now.UnixMicro())
			}
			out.Cursor = rank.SealPlace(q.Cursors, question, place)
		}
		return err
	})
	return &out, err
}

// ranking notes what a ranking depends on.
func (c *claim) ranking(ctx context.Context, r *rank.Ranking) error {
	needs := evidence.Ranking(&r.Of.Root, r.Via, r.Window, r.Weighing)
	for _, e := range []*language.Expr{r.Of, r.Except} {
		if e == nil {
			break
		}
		v, err := algebra.NewEvaluation(ctx, c.sn, e, c.q.Work)
		if err != nil {
			return err
		}
		v.Begin()
		if e == r.Except {
			needs = evidence.Of(&e.Root)
		}
		if err := c.on(v, needs); err != nil {
			return err
		}
	}
	if r.Via.Op == language.OpAuthors && c.missing == nil { // of has no accounts, and the results are active ones
		c.lacks(c.index.Statuses())
	}
	switch r.By {
	case rank.ByShare:
		c.ofEverybody("", r.Window, r.Via.Kind)
	case rank.ByLift: // the number of accounts counts, too
		c.ofEverybody("", language.Window{}, r.Via.Kind)
	}
	return nil
}
