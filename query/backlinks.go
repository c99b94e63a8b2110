package query

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/internal/syntax"
	"skein.blue/query/algebra"
)

// The methods of Constellation (at-microcosm/microcosm-rs, constellation/src/server and
// lexicons/blue.microcosm/links), with its names, parameters and JSON, so that a client
// changes its host and nothing else. docs/asking.md (Constellation) lists where the answers
// differ, and why.

// backlinkMethods are the methods, by their paths.
var backlinkMethods = []method{
	{nsid: "blue.microcosm.links.getBacklinks", serve: (*Server).getBacklinks},
	{nsid: "blue.microcosm.links.getBacklinksCount", serve: (*Server).getBacklinksCount},
	{nsid: "blue.microcosm.links.getBacklinkDids", serve: (*Server).getBacklinkDids},
	{nsid: "blue.microcosm.links.getManyToManyCounts", serve: (*Server).getManyToManyCounts},
	{nsid: "blue.microcosm.links.getManyToMany", serve: (*Server).getManyToMany},
	{nsid: "/links", serve: (*Server).links, takes: []string{"target", "collection", "path", "cursor", "did", "from_dids", "limit", "reverse"}, many: []string{"did"}},
	{nsid: "/links/count", serve: (*Server).linksCount, takes: []string{"target", "collection", "path", "cursor"}},
	{nsid: "/links/distinct-dids", serve: (*Server).linksDids, takes: []string{"target", "collection", "path", "cursor", "limit"}},
	{nsid: "/links/count/distinct-dids", serve: (*Server).linksCount, takes: []string{"target", "collection", "path", "cursor"}},
	{nsid: "/links/all", serve: (*Server).linksAll, takes: []string{"target"}},
	{nsid: "/links/all/count", serve: (*Server).linksAllCount, takes: []string{"target"}},
}

// A recordID is Constellation's name of a record.
type recordID struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
}

// backlinks are the parameters: the records of a collection that name a target at a path.
type backlinks struct {
	of      *algebra.Expr // the accounts that name the target; nil if that is not indexed
	dids    []algebra.Literal
	limit   int
	oldest  bool
	cursor  string
	hasDIDs bool
}

// backlinks reads the parameters of a newer method, or of an older one.
func (q params) backlinks(older bool) (b backlinks, err error) {
	var target, collection, path string
	if older {
		target, collection = q.values.Get("target"), q.values.Get("collection")
		var ok bool
		if path, ok = strings.CutPrefix(q.values.Get("path"), "."); !ok {
			return b, invalid("parameter path is %q; it must begin with a dot, as in .subject.uri", algebra.Brief(q.values.Get("path")))
		}
		for _, name := range []string{"target", "collection", "path"} {
			if !q.values.Has(name) {
				return b, invalid("parameter %s is missing", name)
			}
		}
	} else {
		target = q.values.Get("subject")
		var ok bool
		if collection, path, ok = strings.Cut(q.values.Get("source"), ":"); !ok {
			return b, invalid("parameter source is %q; it must be a collection and a path, as in app.bsky.feed.like:subject.uri", algebra.Brief(q.values.Get("source")))
		}
		if !q.values.Has("subject") {
			return b, invalid("parameter subject is missing")
		}
	}
	b.of = q.words.ActorsOf(q.words.KindAt(collection, path), target)
	if b.limit, err = q.integer("limit", 0, 1000, 100); err != nil {
		return b, err
	}
	if b.oldest, err = q.boolean("reverse"); err != nil {
		return b, err
	}
	b.cursor = q.values.Get("cursor")
	given := q.values["did"]
	if q.values.Has("from_dids") {
		if len(given) > 0 {
			return b, invalid("did and from_dids exclude each other")
		}
		given = strings.Split(q.values.Get("from_dids"), ",")
	}
	for _, did := range given {
		if did = strings.TrimSpace(did); did != "" {
			b.hasDIDs = true
			if syntax.ValidDID(did) { // others have no records
				b.dids = append(b.dids, algebra.Literal{S: did, Is: dict.DID})
			}
		}
	}
	if len(b.dids) > maxMembers {
		return b, invalid("parameter did occurs %d times; at most %d are allowed", len(b.dids), maxMembers)
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
	for _, l := range b.dids {
		parts = append(parts, l.S)
	}
	return strings.Join(parts, " ")
}

// backlinkPage answers a page.
func (s *Server) backlinkPage(ctx context.Context, q params, b backlinks) (p backlinkPage, err error) {
	p.records = []recordID{}
	e := b.of
	if e == nil {
		return p, nil
	}
	var after listPlace
	if b.cursor != "" {
		if e, after, err = s.cursors.openList(e, b.more(), b.cursor); err != nil {
			return p, invalid("%v", err)
		}
	}
	err = s.view(ctx, q.work, func(sn *ask.View) error {
		p = backlinkPage{records: []recordID{}}
		v, err := algebra.NewEvaluation(ctx, sn, e, q.work)
		if err != nil {
			return err
		}
		set, total, err := v.Result()
		if err != nil {
			return err
		}
		if b.hasDIDs {
			some, err := idsOf(sn, b.dids)
			if err != nil {
				return err
			}
			set = idset.And(set, some)
			total = set.Len() - idset.AndLen(v.Hidden(), set)
		}
		p.total = total
		if b.limit == 0 {
			return nil
		}
		order := newestFirst
		if b.oldest {
			order = oldestFirst
		}
		page, last, err := listed(v, set, &after, b.limit, order)
		if err != nil {
			return err
		}
		if last != nil {
			p.cursor = new(s.cursors.sealList(e, b.more(), *last))
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

func (s *Server) getBacklinks(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(false)
	if err != nil {
		return nil, err
	}
	p, err := s.backlinkPage(ctx, q, b)
	return struct {
		Total   uint64     `json:"total"`
		Records []recordID `json:"records"`
		Cursor  *string    `json:"cursor"`
	}{p.total, p.records, p.cursor}, err
}

func (s *Server) links(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(true)
	if err != nil {
		return nil, err
	}
	p, err := s.backlinkPage(ctx, q, b)
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

func (s *Server) dids(ctx context.Context, q params, b backlinks) (any, error) {
	p, err := s.backlinkPage(ctx, q, b)
	out := linkingDids{p.total, []string{}, p.cursor}
	for _, r := range p.records {
		out.DIDs = append(out.DIDs, r.DID)
	}
	return out, err
}

func (s *Server) getBacklinkDids(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(false)
	if err != nil {
		return nil, err
	}
	return s.dids(ctx, q, b)
}

func (s *Server) linksDids(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(true)
	if err != nil {
		return nil, err
	}
	return s.dids(ctx, q, b)
}

type linkTotal struct {
	Total uint64 `json:"total"`
}

func (s *Server) getBacklinksCount(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(false)
	if err != nil {
		return nil, err
	}
	b.limit, b.cursor = 0, ""
	p, err := s.backlinkPage(ctx, q, b)
	return linkTotal{p.total}, err
}

func (s *Server) linksCount(ctx context.Context, q params) (any, error) {
	b, err := q.backlinks(true)
	if err != nil {
		return nil, err
	}
	b.limit, b.cursor = 0, ""
	p, err := s.backlinkPage(ctx, q, b)
	return linkTotal{p.total}, err
}

// linkCounts counts the accounts that name a target, by collection and path, without zeros.
func (s *Server) linkCounts(ctx context.Context, q params) (map[string]map[string]uint64, error) {
	target := q.values.Get("target")
	if target == "" {
		return nil, &Error{http.StatusBadRequest, "InvalidRequest", "parameter target is missing"}
	}
	all := map[string]map[string]uint64{}
	err := s.view(ctx, q.work, func(sn *ask.View) error {
		clear(all)
		for i := range q.words.Table.All {
			k := &q.words.Table.All[i]
			if q.words.ActorsOf(k, target) == nil {
				continue
			}
			var b intern.Batch
			n := b.Add(k.To.Is, []byte(target))
			if err := sn.Lookup(&b); err != nil {
				return err
			}
			if b.ID(n) == dict.None {
				continue
			}
			err := sn.ActorCounts(k.Kind, []dict.ID{b.ID(n)}, func(_ int, total uint64) error {
				if total > 0 {
					if all[k.Collection] == nil {
						all[k.Collection] = map[string]uint64{}
					}
					all[k.Collection]["."+strings.Join(k.To.Field, ".")] = total
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

func (s *Server) linksAllCount(ctx context.Context, q params) (any, error) {
	all, err := s.linkCounts(ctx, q)
	return map[string]any{"links": all}, err
}

func (s *Server) linksAll(ctx context.Context, q params) (any, error) {
	all, err := s.linkCounts(ctx, q)
	type counts struct {
		Records uint64 `json:"records"`
		DIDs    uint64 `json:"distinct_dids"`
	}
	out := map[string]map[string]counts{}
	for collection, paths := range all {
		out[collection] = map[string]counts{}
		for path, n := range paths {
			out[collection][path] = counts{n, n}
		}
	}
	return map[string]any{"links": out}, err
}

// allMethods returns all methods.
func allMethods() []method {
	all := slices.Concat(methods, backlinkMethods)
	for i := range all {
		all[i] = withLexicon(all[i])
	}
	return all
}

// path returns a method's URL path.
func (m *method) path() string {
	if strings.HasPrefix(m.nsid, "/") {
		return m.nsid
	}
	return "/xrpc/" + m.nsid
}
