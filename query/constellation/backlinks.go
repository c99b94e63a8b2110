package constellation

import (
	"context"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// Methods returns the methods of Constellation.
func Methods() []xrpc.Method {
	return []xrpc.Method{
		{NSID: "blue.microcosm.links.getBacklinks", Serve: records(byNewer, "records")},
		{NSID: "blue.microcosm.links.getBacklinksCount", Serve: count(byNewer, false)},
		{NSID: "blue.microcosm.links.getBacklinkDids", Serve: dids(byNewer)},
		{NSID: "/links", Serve: records(byOlder, "linking_records"), Takes: []string{"target", "collection", "path", "cursor", "did", "from_dids", "limit", "reverse"}, Many: []string{"did"}},
		{NSID: "/links/count", Serve: count(byOlder, false), Takes: []string{"target", "collection", "path", "cursor"}},
		{NSID: "/links/distinct-dids", Serve: dids(byOlder), Takes: []string{"target", "collection", "path", "cursor", "limit"}},
		{NSID: "/links/count/distinct-dids", Serve: count(byOlder, true), Takes: []string{"target", "collection", "path", "cursor"}},
		{NSID: "/links/all", Serve: allLinks(func(n linkCount) any { return n }), Takes: []string{"target"}},
		{NSID: "/links/all/count", Serve: allLinks(func(n linkCount) any { return n.Records }), Takes: []string{"target"}},
	}
}

// A recordID is Constellation's name of a record.
type recordID struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
}

// backlinks are the parameters: the records of a collection that name a target at a path.
type backlinks struct {
	of      *language.Expr     // the accounts that name the target; nil if that is not indexed
	by      []language.Literal // if limited: those whose records are asked for
	limited bool
	limit   int
	oldest  bool
	cursor  string
	dids    bool // the authors are asked for, and not their records
}

// maxDIDs is the largest number of accounts that limit one call.
const maxDIDs = 100

func missing(name string) error { return xrpc.Invalid("parameter %q is missing", name) }

// parameters read which records a method is asked about: those of a collection that name a target at a path.
type parameters func(q *xrpc.Query) (target, collection, path string, err error)

// byNewer reads the parameters of a newer method.
func byNewer(q *xrpc.Query) (target, collection, path string, err error) {
	collection, path, ok := strings.Cut(q.Values.Get("source"), ":")
	if !ok {
		err = xrpc.Invalid("parameter source is %q; it must be a collection and a path, as in app.bsky.feed.like:subject.uri", language.Brief(q.Values.Get("source")))
	} else if !q.Values.Has("subject") {
		err = missing("subject")
	}
	return q.Values.Get("subject"), collection, path, err
}

// byOlder reads the parameters of an older method.
func byOlder(q *xrpc.Query) (target, collection, path string, err error) {
	for _, name := range []string{"target", "collection", "path"} {
		if !q.Values.Has(name) {
			return "", "", "", missing(name)
		}
	}
	path, ok := strings.CutPrefix(q.Values.Get("path"), ".")
	if !ok {
		err = xrpc.Invalid("parameter path is %q; it must begin with a dot, as in .subject.uri", language.Brief(q.Values.Get("path")))
	}
	return q.Values.Get("target"), q.Values.Get("collection"), path, err
}

// backlinksOf reads the parameters.
func backlinksOf(q *xrpc.Query, from parameters) (b backlinks, err error) {
	target, collection, path, err := from(q)
	if err != nil {
		return b, err
	}
	b.of = q.Words.ActorsOf(q.Words.KindAt(collection, path), target)
	b.limit, b.oldest = q.Integer("limit", 0, 1000, 100), q.Boolean("reverse")
	b.cursor = q.Values.Get("cursor")
	given := q.Values["did"]
	if q.Values.Has("from_dids") {
		if len(given) > 0 {
			return b, xrpc.Invalid("did and from_dids cannot be combined")
		}
		given = strings.Split(q.Values.Get("from_dids"), ",")
	}
	for _, did := range given {
		did = strings.TrimSpace(did)
		b.limited = b.limited || did != ""
		if dict.ValidDID(did) { // any other has no records
			b.by = append(b.by, language.Literal{S: did, Is: dict.DID})
		}
	}
	if len(b.by) > maxDIDs {
		return b, xrpc.Invalid("parameter did occurs %d times; at most %d are allowed", len(b.by), maxDIDs)
	}
	return b, q.Err()
}

// backlinkPage is a page of records, or of their authors.
type backlinkPage struct {
	total   uint64
	records []recordID
	cursor  *string
}

// more returns what a cursor is bound to, besides the set.
func (b *backlinks) more() string {
	parts := []string{"newest"}
	if b.oldest {
		parts[0] = "oldest"
	}
	for _, l := range b.by {
		parts = append(parts, l.S)
	}
	if b.limited && len(b.by) == 0 {
		parts = append(parts, "nobody")
	}
	return strings.Join(parts, " ")
}

// page answers a page.
func (b *backlinks) page(ctx context.Context, q *xrpc.Query) (p backlinkPage, err error) {
	p.records = []recordID{}
	if b.of == nil {
		return p, nil
	}
	err = q.View(ctx, func(sn *ask.View) error {
		p = backlinkPage{records: []recordID{}}
		v, err := algebra.NewEvaluation(ctx, sn, b.of, q.Work)
		if err != nil {
			return err
		}
		set, _, err := v.Result()
		if err == nil && b.limited {
			set, err = b.byThese(sn, set)
		}
		if err != nil {
			return err
		}
		p.total = set.Len() - sets.AndLen(v.Hidden(), set)
		var page []algebra.MemberRecord
		switch {
		case b.listsAll(set):
			page, err = b.allRecords(q, v, set, &p)
		case b.limit > 0:
			page, err = b.oneOfEach(q, v, set, &p)
		}
		if err != nil {
			return err
		}
		ids := make([]uint64, len(page))
		for i, r := range page {
			ids[i] = uint64(r.ID)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		names, err := v.Names(dict.DID, ids)
		if err != nil {
			return err
		}
		for _, r := range page {
			at, _ := slices.BinarySearch(ids, uint64(r.ID))
			p.records = append(p.records, recordID{names[at], b.of.Info(&b.of.Root).Collection, string(r.Path.AppendRkey(nil))})
		}
		return nil
	})
	return p, err
}

// byThese returns which members of a set are in by.
func (b *backlinks) byThese(sn *ask.View, set sets.Set) (sets.Set, error) {
	ids, err := algebra.Lookup(sn, b.by)
	var by []uint64
	for _, id := range ids { // None is in no set
		by = append(by, uint64(id))
	}
	return sets.And(set, sets.FromUnsorted(by)), err
}

// oneOfEach returns a page with one record of each account in a set.
func (b *backlinks) oneOfEach(q *xrpc.Query, v *algebra.Evaluation, set sets.Set, p *backlinkPage) (page []algebra.MemberRecord, err error) {
	var after algebra.Place
	if b.cursor != "" {
		if _, after, err = q.Cursors.OpenList(b.of, b.more(), b.cursor); err != nil {
			return nil, err
		}
	}
	page, last, err := v.Records(&b.of.Root, set, &after, b.limit, algebra.OrderAt(after.At(time.Now()), b.oldest))
	if last != nil {
		p.cursor = new(q.Cursors.SealList(b.of, b.more(), *last))
	}
	return page, err
}

// handler answers one call.
type handler = func(context.Context, *xrpc.Query) (any, error)

// answer answers what shown returns of a page. change, which may be nil, changes what is asked.
func answer(from parameters, change func(*backlinks), shown func(*backlinkPage) any) handler {
	return func(ctx context.Context, q *xrpc.Query) (any, error) {
		b, err := backlinksOf(q, from)
		if err != nil {
			return nil, err
		}
		if change != nil {
			change(&b)
		}
		p, err := b.page(ctx, q)
		return shown(&p), err
	}
}

// records answers a page of records.
func records(from parameters, name string) handler {
	return answer(from, nil, func(p *backlinkPage) any {
		return map[string]any{"total": p.total, name: p.records, "cursor": p.cursor}
	})
}

// dids answers a page of authors.
func dids(from parameters) handler {
	return answer(from, func(b *backlinks) { b.dids = true }, func(p *backlinkPage) any {
		all := []string{}
		for _, r := range p.records {
			all = append(all, r.DID)
		}
		return map[string]any{"total": p.total, "linking_dids": all, "cursor": p.cursor}
	})
}

// count counts the records, or their authors.
func count(from parameters, dids bool) handler {
	return answer(from, func(b *backlinks) { b.limit, b.cursor, b.dids = 0, "", dids }, func(p *backlinkPage) any {
		return map[string]any{"total": p.total}
	})
}

// linkCount is the number of records that name a target at a path, and of their authors.
type linkCount struct {
	Records uint64 `json:"records"`
	DIDs    uint64 `json:"distinct_dids"`
}

// allLinks counts the records that name a target, by collection and path, without zeros.
func allLinks(shown func(linkCount) any) handler {
	return func(ctx context.Context, q *xrpc.Query) (any, error) {
		target := q.Values.Get("target")
		if target == "" {
			return nil, missing("target")
		}
		all := map[string]map[string]any{}
		err := q.View(ctx, func(sn *ask.View) error {
			clear(all)
			for i := range q.Words.Table.All {
				k := &q.Words.Table.All[i]
				b := backlinks{of: q.Words.ActorsOf(k, target)}
				if b.of == nil {
					continue
				}
				n, err := b.count(ctx, sn, q)
				if err != nil {
					return err
				}
				if n.DIDs > 0 && all[k.Collection] == nil {
					all[k.Collection] = map[string]any{}
				}
				if n.DIDs > 0 {
					all[k.Collection]["."+k.To.Path()] = shown(n)
				}
			}
			return nil
		})
		return map[string]any{"links": all}, err
	}
}

// count counts without reading a large set.
func (b *backlinks) count(ctx context.Context, sn *ask.View, q *xrpc.Query) (n linkCount, err error) {
	v, err := algebra.NewEvaluation(ctx, sn, b.of, q.Work)
	if err != nil || v.IDs[0] == dict.None {
		return n, err
	}
	err = sn.ActorCounts(b.of.Root.Kind, v.IDs, nil, func(_ int, total uint64) error { n = linkCount{total, total}; return nil })
	if err != nil || !b.namesAll() || n.DIDs == 0 || n.DIDs > maxAllRecords {
		return n, err
	}
	set, _, err := v.Result()
	if p := (backlinkPage{}); err == nil && b.listsAll(set) {
		_, err = b.allRecords(q, v, set, &p)
		n.Records = p.total
	}
	return n, err
}
