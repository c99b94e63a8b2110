package query

import (
	"context"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// memberURI returns the URI of a record that makes a member one.
func memberURI(v *algebra.Evaluation, member string, r algebra.MemberRecord) string {
	return recordURI(v.Expr.AuthorOf(r.By, member), *v.Expr.Info(r.By), r.Path)
}

type listItem struct {
	Member string  `json:"member"`
	Record string  `json:"record,omitempty"`
	Time   string  `json:"time,omitempty"` // of the record
	Size   *uint64 `json:"size,omitempty"` // with order=size(…)

	Created string `json:"created,omitempty"` // with order=created: the time of the member itself
}

// listAnswer is an answer of list.
type listAnswer struct {
	Type   string     `json:"type"`
	Total  uint64     `json:"total"`
	Order  string     `json:"order"`
	Items  []listItem `json:"items"`
	Cursor string     `json:"cursor,omitempty"`
	caveats
}

func (a *listAnswer) table() *table { return tableOf(a.Items, a.Cursor, a.Total) }

// The orders of list; size(NAME) is another.
const (
	newestFirst = "newest"
	oldestFirst = "oldest"
	created     = "created"
	byID        = "id"
)

// list returns the members of a set in an order. If their records make them members of one set, the
// items have these records.
func list(ctx context.Context, q *call) (any, error) {
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	limit, exact := q.Integer("limit", 1, 1000, 50), q.Boolean("exact")
	l, err := q.listing(e)
	if err != nil {
		return nil, err
	}
	q.begin = func(v *algebra.Evaluation) { v.Exact = exact }
	out := listAnswer{Type: e.Type().String()}
	needs := evidence.Of(&l.e.Root)
	if l.via != nil { // the order depends on each member's own set
		needs = append(needs, evidence.Sizes(&l.e.Root, *l.via)...)
	}
	err = q.evaluate(ctx, l.e, needs, &out.caveats, func(v *algebra.Evaluation) error {
		set, total, err := v.Result()
		if err != nil {
			return err
		}
		out.Items, out.Cursor, err = l.page(v, set, limit)
		out.Total, out.Order = total, l.order
		if l.via == nil && l.order != created && !l.after.Sorted {
			out.Order = byID
		}
		return err
	})
	return &out, err
}

// listing is a call of list: an expression, an order, and where the page starts.
type listing struct {
	place

	q   *call
	via *language.Via // of order=size(…), else nil
}

// listing reads the parameters order and cursor.
func (q *call) listing(e *language.Expr) (l *listing, err error) {
	l = &listing{place: place{order: q.Values.Get("order")}, q: q}
	hasRecords := e.Root.Source() != nil
	switch {
	case l.order == "" && q.Values.Has("order"):
		return nil, xrpc.Invalid("parameter order is empty; it must be newest, oldest, created, id or size(NAME)")
	case l.order == "" && !hasRecords:
		l.order = byID
	case l.order == "":
		l.order = newestFirst
	case l.order == newestFirst, l.order == oldestFirst:
		if !hasRecords {
			return nil, xrpc.Invalid("order=%s needs a set whose members come from records: a set without operators, such as likers(at://…), a union or atleast of such sets, or an intersect, except, sample or by whose first argument is one, not %s. For other sets, use order=id, order=created or order=size(NAME)", l.order, "members, rank or authors")
		}
	case l.order == created:
		if e.Type() != dict.URI {
			return nil, xrpc.Invalid("order=created works only for sets of %s; this one is a set of %s", language.Plural(dict.URI), language.Plural(e.Type()))
		}
	case l.order == byID:
	default:
		name, isSize := strings.CutPrefix(l.order, "size(")
		name, closed := strings.CutSuffix(name, ")")
		if !isSize || !closed {
			return nil, xrpc.Invalid("parameter order is %q; it must be newest, oldest, created, id or size(NAME)", language.Brief(l.order))
		}
		vias := slices.DeleteFunc(q.Words.Vias(e.Type()), func(v language.Via) bool { return v.Op == language.OpAuthors }) // a record has one
		via, err := q.Words.Named("order=size(NAME): NAME", name, "for a set of "+language.Plural(e.Type())+" ", vias)
		if err != nil {
			return nil, xrpc.Invalid("%v", err)
		}
		l.via = &via
	}
	l.place, err = q.place(e, l.order)
	return l, err
}

// page reads a page, and returns the cursor of the next one.
func (l *listing) page(v *algebra.Evaluation, set sets.Set, limit int) (items []listItem, cursor string, err error) {
	items = []listItem{}
	var ids []uint64                            // of the items
	var records map[uint64]algebra.MemberRecord // nil: not read yet
	var last *algebra.Place
	order := algebra.OrderAt(l.after.At(l.e.Now), l.order == oldestFirst)
	switch {
	case l.via != nil:
		var page []algebra.Sized
		page, last, err = v.BySize(set, *l.via, l.after, limit)
		for _, m := range page {
			ids, items = append(ids, uint64(m.ID)), append(items, listItem{Size: &m.Size})
		}
	case l.order == byID:
		ids, _, cursor, err = l.q.page(v, set, l.place, limit)
		items = make([]listItem, len(ids))
	case l.order == created:
		var page []algebra.MemberRecord
		page, last, err = v.Created(set, &l.after, limit, order)
		for _, r := range page {
			ids, items = append(ids, uint64(r.ID)), append(items, listItem{Created: timeOf(r.Path)})
		}
	default:
		var page []algebra.MemberRecord
		page, last, err = v.Records(l.e.Root.Source(), set, &l.after, limit, order)
		records = make(map[uint64]algebra.MemberRecord, len(page))
		for _, r := range page {
			ids, items = append(ids, uint64(r.ID)), append(items, listItem{})
			records[uint64(r.ID)] = r
		}
	}
	if err != nil {
		return nil, "", err
	}
	if last != nil {
		cursor = l.q.Cursors.SealList(l.e, l.order, *last)
	}
	err = describeItems(v, ids, items, records)
	var size algebra.PageSize
	if n := slices.IndexFunc(items, func(it listItem) bool { return size.Exceeded(it.Member) }); n > 0 && err == nil {
		return l.page(v, set, n) // the first n of them, and the cursor after these
	}
	return items, cursor, err
}

// describeItems adds the names and records of members.
func describeItems(v *algebra.Evaluation, ids []uint64, items []listItem, records map[uint64]algebra.MemberRecord) error {
	sorted := slices.Sorted(slices.Values(ids))
	names, err := v.Names(v.Expr.Root.Is, sorted)
	if source := v.Expr.Root.Source(); err == nil && source != nil && records == nil {
		records, err = v.EdgeRecords(source, sorted)
	}
	if err != nil {
		return err
	}
	for i, id := range ids {
		at, _ := slices.BinarySearch(sorted, id)
		items[i].Member = names[at]
		r, ok := records[id]
		if !ok {
			continue
		}
		if items[i].Time = timeOf(r.Path); !r.By.Kind.IsLabel() { // a label is not a record
			items[i].Record = memberURI(v, names[at], r)
		}
	}
	return nil
}

// timeOf returns the time in a record's key, "" if it has none.
func timeOf(p ask.Path) string {
	micros := ask.TimeOf(p)
	if micros == ask.Timeless {
		return ""
	}
	return time.UnixMicro(int64(micros)).UTC().Format("2006-01-02T15:04:05.000000Z")
}
