package query

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
)

// The largest sets that list sorts by time: reverse sets, for which it reads records of every
// member, and forward sets, whose records are stored together.
const (
	MaxSortedActors   = 10_000  // members of a reverse set
	MaxSortedSubjects = 200_000 // members of a forward set
)

// newestFirst orders by the records' times, newest first. Records without a time come last.
// Ties are ordered by id.
func newestFirst(x, y algebra.MemberRecord) int {
	return cmp.Or(cmp.Compare(timeOf(y.Path), timeOf(x.Path)), cmp.Compare(x.ID, y.ID))
}

// oldestFirst is the reverse of newestFirst.
func oldestFirst(x, y algebra.MemberRecord) int { return newestFirst(y, x) }

// timeOf returns the time of a record in microseconds, 0 if it has none.
func timeOf(p format.Path) uint64 {
	if !p.HasTime() {
		return 0
	}
	return p.TID >> format.ClockBits
}

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
func (s *Server) list(ctx context.Context, q params) (any, error) {
	e, err := q.set()
	if err != nil {
		return nil, err
	}
	if !e.IsLeaf() {
		return nil, invalid("set: list takes one set, such as likers(at://…); only the members of a single set have records")
	}
	limit, err := q.integer("limit", 1, 1000, 50)
	if err != nil {
		return nil, err
	}
	var after listPlace
	if q.values.Has("cursor") {
		if e, after, err = s.cursors.openList(e, "", q.values.Get("cursor")); err != nil {
			return nil, invalid("%v", err)
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
	err = s.view(ctx, q.work, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, q.work)
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
		page, last, err := listed(v, set, &after, limit, newestFirst)
		if err != nil {
			return err
		}
		out.Order = after.order()
		ids := make([]dict.ID, len(page))
		for i, r := range page {
			ids[i] = r.ID
		}
		err = sn.Strings(e.Type(), ids, func(i int, member []byte) error {
			item := listItem{Member: string(member), Record: recordURI(e.AuthorOf(&e.Root, string(member)), *e.Info(&e.Root), page[i].Path.AppendRkey(nil))}
			if at := timeOf(page[i].Path); at > 0 {
				item.Time = time.UnixMicro(int64(at)).UTC().Format("2006-01-02T15:04:05.000000Z")
			}
			out.Items = append(out.Items, item)
			return nil
		})
		if last != nil {
			out.Cursor = s.cursors.sealList(e, "", *last)
		}
		return err
	})
	return out, err
}

// listPlace is the start of a page: the last member of the previous page. All pages have the
// order of the first.
type listPlace struct {
	begun  bool
	sorted bool
	micros uint64
	id     dict.ID
}

func (p *listPlace) order() string {
	if p.sorted {
		return "newest"
	}
	return "id"
}

// listed returns a page of a set in an order of the records, and the start of the next, nil after
// the last page.
func listed(v *algebra.Evaluation, set idset.Set, after *listPlace, limit int, order func(x, y algebra.MemberRecord) int) (page []algebra.MemberRecord, last *listPlace, err error) {
	most := uint64(MaxSortedActors)
	if v.Expr.Root.Op == algebra.OpForward || v.Expr.Root.Op == algebra.OpListed {
		most = MaxSortedSubjects
	}
	if !after.begun {
		after.sorted = set.Len() <= most
	}
	if after.sorted && set.Len() > most {
		return nil, nil, invalid("the set has grown past %d members since the first page and can no longer be sorted by time; start again without a cursor", most)
	}
	if !after.sorted {
		ids, more := set.Page(uint64(after.id), limit, v.Hidden())
		all := make([]dict.ID, len(ids))
		for i, id := range ids {
			all[i] = dict.ID(id)
		}
		if page, err = v.EdgeRecords(&v.Expr.Root, all); err != nil {
			return nil, nil, err
		}
		slices.SortFunc(page, func(x, y algebra.MemberRecord) int { return cmp.Compare(x.ID, y.ID) })
		if more {
			last = &listPlace{true, false, 0, all[len(all)-1]}
		}
		return page, last, nil
	}
	all, _ := set.Page(0, math.MaxInt, v.Hidden())
	ids := make([]dict.ID, len(all))
	for i, id := range all {
		ids[i] = dict.ID(id)
	}
	if page, err = v.EdgeRecords(&v.Expr.Root, ids); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(page, order)
	if after.begun {
		at, found := slices.BinarySearchFunc(page, *after, func(r algebra.MemberRecord, p listPlace) int {
			return order(r, algebra.MemberRecord{ID: p.id, Path: format.Path{TID: p.micros << format.ClockBits}})
		})
		if found {
			at++
		}
		page = page[at:]
	}
	if len(page) > limit {
		end := page[limit-1]
		page, last = page[:limit], &listPlace{true, true, timeOf(end.Path), end.ID}
	}
	return page, last, nil
}

// sealList seals the start of the next page of a list. more is what the list depends on besides
// the set.
func (c *cursors) sealList(e *algebra.Expr, more string, p listPlace) string {
	plain := []byte{0}
	if p.sorted {
		plain[0] = 1
	}
	plain = binary.BigEndian.AppendUint64(plain, p.micros)
	plain = binary.BigEndian.AppendUint64(plain, uint64(p.id))
	now := int64(0)
	if e.HasAge { // without an age, the same page has the same cursor
		now = e.Now.UnixMicro()
	}
	plain = binary.BigEndian.AppendUint64(plain, uint64(now))
	return c.sealBytes(plain, "list "+more+"\x00"+e.Question())
}

// openList opens a cursor of a list of this set.
func (c *cursors) openList(e *algebra.Expr, more, cursor string) (*algebra.Expr, listPlace, error) {
	plain, err := c.openBytes(cursor, "list "+more+"\x00"+e.Question())
	if err != nil || len(plain) != 25 {
		return e, listPlace{}, errCursor
	}
	p := listPlace{true, plain[0] == 1, binary.BigEndian.Uint64(plain[1:]), dict.ID(binary.BigEndian.Uint64(plain[9:]))}
	if e.HasAge {
		e, err = e.AsOf(time.UnixMicro(int64(binary.BigEndian.Uint64(plain[17:]))))
	}
	return e, p, err
}
