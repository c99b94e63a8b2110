package query

import (
	"context"
	"math"
	"time"

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

// ranked returns the results of a ranking, in order.
func ranked(ctx context.Context, q *call) (any, error) {
	now := time.Now()
	r, err := rank.Read(q.Query, now)
	if err != nil {
		return nil, err
	}
	question := r.Question()
	if q.Values.Has("cursor") {
		after := new(rank.Place)
		if _, err := q.Cursors.Open(question, q.Values.Get("cursor"), after); err != nil {
			return nil, err
		}
		if after.Micros > 0 {
			now = time.UnixMicro(int64(after.Micros))
			if r, err = rank.Read(q.Query, now); err != nil {
				return nil, err
			}
		}
		r.After, r.Late = after, &after.Late
	}
	root, place := &r.Expr.Root, rank.Place{} // of the next page
	needs := evidence.Of(root)
	switch r.By {
	case language.ByShare:
		needs = append(needs, evidence.Need{Everybody: root, Window: root.Window, Kind: root.Kind})
	case language.ByLift: // the number of accounts counts, too
		needs = append(needs, evidence.Need{Everybody: root, Kind: root.Kind})
	}
	q.begin = func(v *algebra.Evaluation) { place.Late = r.Begin(v, q.Work) }
	out := rankAnswer{Type: root.Is.String()}
	err = q.evaluate(ctx, r.Expr, needs, &out.caveats, func(v *algebra.Evaluation) error {
		out.Items = []rankItem{}
		standing, err := rank.Rank(v, q.Work, r)
		if err != nil {
			return err
		}
		if r.By == language.ByShare || r.By == language.ByLift {
			out.Of, out.Accounts = &standing.Of, &standing.Accounts
		}
		var size algebra.PageSize
		more, err := standing.Page(r, func(e *rank.Result, member string) bool {
			if size.Exceeded(member) {
				return false
			}
			item := rankItem{Member: member, Count: e.Count}
			switch place.Result = *e; r.By {
			case language.ByShare:
				item.Total, item.Share = &e.Total, new(standing.Score(r.By, e))
			case language.ByLift:
				item.Total, item.Lift = &e.Total, new(standing.Score(r.By, e))
			case language.ByScore:
				if item.Score = new(uint64(math.Round(min(e.Score*1e9, 1<<62)))); r.Damp > 0 {
					item.Total = &e.Total
				}
			}
			out.Items = append(out.Items, item)
			return true
		})
		if more { // without an age, the same page has the same cursor
			if r.Expr.HasAge {
				place.Micros = uint64(now.UnixMicro())
			}
			out.Cursor = q.Cursors.Seal(question, place)
		}
		return err
	})
	return &out, err
}
