package query

import (
	"context"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/xrpc"
)

// recordsOf takes members of a leaf, by id and name, and returns the URIs of the records that
// make them members.
func recordsOf(v *algebra.Evaluation, ids []uint64, members []string) ([]string, error) {
	all := make([]dict.ID, len(ids))
	for i, id := range ids {
		all[i] = dict.ID(id)
	}
	e := v.Expr
	n := &e.Root
	found, err := v.EdgeRecords(n, all)
	if err != nil {
		return nil, err
	}
	uris := make([]string, len(ids))
	for _, f := range found {
		i, _ := slices.BinarySearch(all, f.ID)
		uris[i] = recordURI(e.AuthorOf(n, members[i]), *e.Info(n), f.Path.AppendRkey(nil))
	}
	return uris, nil
}

type listItem struct {
	Member string `json:"member"`
	Record string `json:"record"`
	Time   string `json:"time,omitempty"` // of the record
}

// list returns the members of one set with the records that make them members, newest first.
func (s *Server) list(ctx context.Context, q *xrpc.Query) (any, error) {
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	if !e.IsLeaf() {
		return nil, xrpc.Invalid("set: list takes a single set, such as likers(at://…), and no operators")
	}
	limit, err := q.Integer("limit", 1, 1000, 50)
	if err != nil {
		return nil, err
	}
	var after algebra.Place
	if q.Values.Has("cursor") {
		if e, after, err = q.Cursors.OpenList(e, "", q.Values.Get("cursor")); err != nil {
			return nil, xrpc.Invalid("%v", err)
		}
	}
	out := struct {
		Type   string     `json:"type"`
		Total  uint64     `json:"total"`
		Order  string     `json:"order"`
		Items  []listItem `json:"items"`
		Cursor string     `json:"cursor,omitempty"`
		completeness
	}{Type: e.Type().String()}
	err = q.View(ctx, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
		if err != nil {
			return err
		}
		if out.completeness, err = s.missing(v, false); err != nil {
			return err
		}
		set, total, err := v.Result()
		if err != nil {
			return err
		}
		out.Total, out.Items = total, []listItem{}
		page, last, err := v.Records(set, &after, limit, algebra.NewestFirst)
		if err != nil {
			return err
		}
		out.Order = after.Order()
		ids := make([]dict.ID, len(page))
		for i, r := range page {
			ids[i] = r.ID
		}
		err = sn.Strings(e.Type(), ids, func(i int, member []byte) error {
			item := listItem{Member: string(member), Record: recordURI(e.AuthorOf(&e.Root, string(member)), *e.Info(&e.Root), page[i].Path.AppendRkey(nil))}
			if at := algebra.TimeOf(page[i].Path); at > 0 {
				item.Time = time.UnixMicro(int64(at)).UTC().Format("2006-01-02T15:04:05.000000Z")
			}
			out.Items = append(out.Items, item)
			return nil
		})
		if last != nil {
			out.Cursor = q.Cursors.SealList(e, "", *last)
		}
		return err
	})
	return out, err
}
