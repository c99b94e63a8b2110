package constellation

import (
	"context"
	"net/http"
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
	all := []xrpc.Method{
		{NSID: "blue.microcosm.links.getBacklinks", Serve: getBacklinks},
		{NSID: "blue.microcosm.links.getBacklinksCount", Serve: getBacklinksCount},
		{NSID: "blue.microcosm.links.getBacklinkDids", Serve: getBacklinkDids},
		{NSID: "blue.microcosm.links.getManyToManyCounts", Serve: getManyToManyCounts},
		{NSID: "blue.microcosm.links.getManyToMany", Serve: getManyToMany},
		{NSID: "/links", Serve: links, Takes: []string{"target", "collection", "path", "cursor", "did", "from_dids", "limit", "reverse"}, Many: []string{"did"}},
		{NSID: "/links/count", Serve: linksCount, Takes: []string{"target", "collection", "path", "cursor"}},
		{NSID: "/links/distinct-dids", Serve: linksDids, Takes: []string{"target", "collection", "path", "cursor", "limit"}},
		{NSID: "/links/count/distinct-dids", Serve: linksDidCount, Takes: []string{"target", "collection", "path", "cursor"}},
		{NSID: "/links/all", Serve: linksAll, Takes: []string{"target"}},
		{NSID: "/links/all/count", Serve: linksAllCount, Takes: []string{"target"}},
	}
	for i := range all {
		all[i] = all[i].Described()
	}
	return all
}

// A recordID is Constellation's name of a record.
type recordID struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
}

// backlinks are the parameters: the records of a collection that name a target at a path.
type backlinks struct {
	of     *language.Expr // the accounts that name the target; nil if that is not indexed
	by     authors
	limit  int
	oldest bool
	cursor string
	dids   bool // the authors are asked for, and not their records
}

// backlinksOf reads the parameters of a newer method, or of an older one.
func backlinksOf(q *xrpc.Query, older bool) (b backlinks, err error) {
	var target, collection, path string
	if older {
		target, collection = q.Values.Get("target"), q.Values.Get("collection")
		var ok bool
		if path, ok = strings.CutPrefix(q.Values.Get("path"), "."); !ok {
			return b, xrpc.Invalid("parameter path is %q; it must begin with a dot, as in .subject.uri", language.Brief(q.Values.Get("path")))
		}
		for _, name := range []string{"target", "collection", "path"} {
			if !q.Values.Has(name) {
				return b, xrpc.Invalid("parameter %q is missing", name)
			}
		}
	} else {
		target = q.Values.Get("subject")
		if collection, path, err = sourceOf(q); err != nil {
			return b, err
		}
		if !q.Values.Has("subject") {
			return b, xrpc.Invalid("parameter \"subject\" is missing")
		}
	}
	b.of = q.Words.ActorsOf(q.Words.KindAt(collection, path), target)
	if b.limit, err = q.Integer("limit", 0, 1000, 100); err != nil {
		return b, err
	}
	if b.oldest, err = q.Boolean("reverse"); err != nil {
		return b, err
	}
	b.cursor = q.Values.Get("cursor")
	given := q.Values["did"]
	if q.Values.Has("from_dids") {
		if len(given) > 0 {
			return b, xrpc.Invalid("did and from_dids cannot be combined")
		}
		given = strings.Split(q.Values.Get("from_dids"), ",")
	}
	b.by = authorsOf(given)
	if len(b.by.dids) > maxDIDs {
		return b, xrpc.Invalid("parameter did occurs %d times; at most %d are allowed", len(b.by.dids), maxDIDs)
	}
	return b, nil
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
	for _, l := range b.by.dids {
		parts = append(parts, l.S)
	}
	if b.by.given && len(b.by.dids) == 0 {
		parts = append(parts, "nobody")
	}
	return strings.Join(parts, " ")
}

// page answers a page.
func (b *backlinks) page(ctx context.Context, q *xrpc.Query) (p backlinkPage, err error) {
	p.records = []recordID{}
	e := b.of
	if e == nil {
		return p, nil
	}
	err = q.View(ctx, func(sn *ask.View) error {
		p = backlinkPage{records: []recordID{}}
		v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
		if err != nil {
			return err
		}
		set, total, err := v.Result()
		if err != nil {
			return err
		}
		if b.by.given {
			if set, err = b.by.of(sn, set); err != nil {
				return err
			}
			total = set.Len() - sets.AndLen(v.Hidden(), set)
		}
		if b.listsAll(set) {
			p, err = b.allRecords(q, v, set, e)
			return err
		}
		if p.total = total; b.limit == 0 {
			return nil
		}
		var after algebra.Place
		if b.cursor != "" {
			if _, after, err = q.Cursors.OpenList(e, b.more(), b.cursor); err != nil {
				return xrpc.Invalid("%v", err)
			}
		}
		order := algebra.NewestFirst
		if b.oldest {
			order = algebra.OldestFirst
		}
		page, last, err := v.Records(&v.Expr.Root, set, &after, b.limit, order(after.At(time.Now())))
		if err != nil {
			return err
		}
		if last != nil {
			p.cursor = new(q.Cursors.SealList(e, b.more(), *last))
		}
		ids := make([]dict.ID, len(page))
		for i, r := range page {
			ids[i] = r.ID
		}
		k := e.Info(&e.Root)
		return sn.Strings(dict.DID, ids, func(i int, did []byte) error {
			p.records = append(p.records, recordID{string(did), k.Collection, string(page[i].Path.AppendRkey(nil))})
			return nil
		})
	})
	return p, err
}

func getBacklinks(ctx context.Context, q *xrpc.Query) (any, error) {
	b, err := backlinksOf(q, false)
	if err != nil {
		return nil, err
	}
	p, err := b.page(ctx, q)
	return struct {
		Total   uint64     `json:"total"`
		Records []recordID `json:"records"`
		Cursor  *string    `json:"cursor"`
	}{p.total, p.records, p.cursor}, err
}

func links(ctx context.Context, q *xrpc.Query) (any, error) {
	b, err := backlinksOf(q, true)
	if err != nil {
		return nil, err
	}
	p, err := b.page(ctx, q)
	return struct {
		Total   uint64     `json:"total"`
		Records []recordID `json:"linking_records"`
		Cursor  *string    `json:"cursor"`
	}{p.total, p.records, p.cursor}, err
}

type linkingDids struct {
	Total  uint64   `json:"total"`
	DIDs   []string `json:"linking_dids"`
	Cursor *string  `json:"cursor"`
}

// didsOf answers a page of authors.
func didsOf(ctx context.Context, q *xrpc.Query, b backlinks) (any, error) {
	b.dids = true
	p, err := b.page(ctx, q)
	out := linkingDids{p.total, []string{}, p.cursor}
	for _, r := range p.records {
		out.DIDs = append(out.DIDs, r.DID)
	}
	return out, err
}

func getBacklinkDids(ctx context.Context, q *xrpc.Query) (any, error) {
	b, err := backlinksOf(q, false)
	if err != nil {
		return nil, err
	}
	return didsOf(ctx, q, b)
}

func linksDids(ctx context.Context, q *xrpc.Query) (any, error) {
	b, err := backlinksOf(q, true)
	if err != nil {
		return nil, err
	}
	return didsOf(ctx, q, b)
}

type linkTotal struct {
	Total uint64 `json:"total"`
}

func getBacklinksCount(ctx context.Context, q *xrpc.Query) (any, error) {
	b, err := backlinksOf(q, false)
	if err != nil {
		return nil, err
	}
	b.limit, b.cursor = 0, ""
	p, err := b.page(ctx, q)
	return linkTotal{p.total}, err
}

func linksCount(ctx context.Context, q *xrpc.Query) (any, error) { return olderCount(ctx, q, false) }

func linksDidCount(ctx context.Context, q *xrpc.Query) (any, error) { return olderCount(ctx, q, true) }

// olderCount counts the records, or their authors.
func olderCount(ctx context.Context, q *xrpc.Query, dids bool) (any, error) {
	b, err := backlinksOf(q, true)
	if err != nil {
		return nil, err
	}
	b.limit, b.cursor, b.dids = 0, "", dids
	p, err := b.page(ctx, q)
	return linkTotal{p.total}, err
}

// linkCount is the number of records that name a target at a path, and of their authors.
type linkCount struct {
	Records uint64 `json:"records"`
	DIDs    uint64 `json:"distinct_dids"`
}

// linkCounts counts the records that name a target, by collection and path, without zeros.
func linkCounts(ctx context.Context, q *xrpc.Query) (map[string]map[string]linkCount, error) {
	target := q.Values.Get("target")
	if target == "" {
		return nil, xrpc.Errorf(http.StatusBadRequest, "InvalidRequest", "parameter \"target\" is missing")
	}
	all := map[string]map[string]linkCount{}
	err := q.View(ctx, func(sn *ask.View) error {
		clear(all)
		for i := range q.Words.Table.All {
			k := &q.Words.Table.All[i]
			e := q.Words.ActorsOf(k, target)
			if e == nil {
				continue
			}
			v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
			if err != nil {
				return err
			}
			if v.IDs[0] == dict.None {
				continue
			}
			var n linkCount
			if err := sn.ActorCounts(k.Kind, v.IDs, nil, func(_ int, total uint64) error { n = linkCount{total, total}; return nil }); err != nil {
				return err
			}
			b := backlinks{of: e}
			if n.DIDs == 0 {
				continue
			}
			if b.namesAll() && n.DIDs <= maxAllRecords {
				set, _, err := v.Result()
				if err != nil {
					return err
				}
				if b.listsAll(set) {
					p, err := b.allRecords(q, v, set, e)
					if err != nil {
						return err
					}
					n.Records = p.total
				}
			}
			if all[k.Collection] == nil {
				all[k.Collection] = map[string]linkCount{}
			}
			all[k.Collection]["."+k.To.Path()] = n
		}
		return nil
	})
	return all, err
}

func linksAllCount(ctx context.Context, q *xrpc.Query) (any, error) {
	all, err := linkCounts(ctx, q)
	out := map[string]map[string]uint64{}
	for collection, paths := range all {
		out[collection] = map[string]uint64{}
		for path, n := range paths {
			out[collection][path] = n.Records
		}
	}
	return map[string]any{"links": out}, err
}

func linksAll(ctx context.Context, q *xrpc.Query) (any, error) {
	all, err := linkCounts(ctx, q)
	return map[string]any{"links": all}, err
}
