package constellation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// Constellation's methods about records that name two things, such as a list item, which names an
// account and a list. They return, for records that name a subject at one path, what the records
// name at another.

// manyToMany are the parameters.
type manyToMany struct {
	of        *language.Expr // the accounts that name the subject; nil if that is not indexed
	to        *kinds.Info    // the kind of the other path; nil if it is not indexed
	by        authors
	others    []language.Literal // only records that name one of these, if hasOthers
	hasOthers bool
	limit     int
	cursor    string
	more      string // what a cursor is bound to, besides the set
}

// manyToManyOf reads the parameters. by is the name of the parameter that limits the answer to the
// records of some accounts.
func manyToManyOf(q *xrpc.Query, by string) (m manyToMany, err error) {
	for _, name := range []string{"subject", "source", "pathToOther"} {
		if !q.Values.Has(name) {
			return m, missing(name)
		}
	}
	collection, path, err := sourceOf(q)
	if err != nil {
		return m, err
	}
	m.of = q.Words.ActorsOf(q.Words.KindAt(collection, path), q.Values.Get("subject"))
	m.to = q.Words.KindAt(collection, q.Values.Get("pathToOther"))
	m.limit = q.Integer("limit", 1, 1000, 100)
	for _, name := range []string{by, "otherSubject"} {
		if n := len(q.Values[name]); n > maxDIDs {
			return m, xrpc.Invalid("parameter %s occurs %d times; at most %d are allowed", name, n, maxDIDs)
		}
	}
	m.by = authorsOf(q.Values[by])
	for _, other := range q.Values["otherSubject"] {
		if m.to != nil && m.to.To.Form.IsString() {
			m.hasOthers = true
			if m.to.To.Form.Valid([]byte(other)) {
				m.others = append(m.others, language.Literal{S: other, Is: dict.URI})
			}
			continue
		}
		if other = strings.TrimSpace(other); other != "" {
			m.hasOthers = true
			if l, ok := language.LiteralOf(other); ok && l.Handle == "" && m.to != nil && l.Is == m.to.To.Is() {
				m.others = append(m.others, l)
			}
		}
	}
	m.cursor = q.Values.Get("cursor")
	m.more = fmt.Sprintf("many2 %s %q %q %q ", by, q.Values.Get("pathToOther"), q.Values[by], q.Values["otherSubject"]) // quoted, so that no two questions have the same text
	return m, q.Err()
}

// compareLinks orders the links of one actor: by record, then by the other subject. A record may
// name several.
func compareLinks(x, y twoLinks) int {
	return cmp.Or(ask.ComparePaths(x.path, y.path), cmp.Compare(x.other, y.other))
}

// twoLinks is a record that names the subject and something else.
type twoLinks struct {
	actor, other dict.ID
	path         ask.Path
}

// each calls fn for the records of the accounts from the id from on, account by account in the
// order of the records' keys, until fn returns false.
func (m *manyToMany) each(ctx context.Context, sn *ask.View, w *xrpc.Work, from dict.ID, fn func(twoLinks) bool) error {
	v, err := algebra.NewEvaluation(ctx, sn, m.of, w)
	if err != nil {
		return err
	}
	set, _, err := v.Result()
	if err != nil {
		return err
	}
	if set, err = m.by.of(sn, set); err != nil {
		return err
	}
	only, err := idsOf(sn, m.others)
	if err != nil {
		return err
	}
	if set.Len() > algebra.MaxListers {
		return xrpc.Invalid("%d accounts link to the subject, but one query can read the records of at most %d accounts; select accounts with did or linkDid", set.Len(), algebra.MaxListers)
	}
	if set.Len() > sets.ListMax {
		if err := w.Heavy(); err != nil {
			return err
		}
	}
	hidden := sn.Hidden()
	subject := v.IDs[0]
	for id := range set.All() {
		if dict.ID(id) < from || hidden.Has(id) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var of []twoLinks
		err := sn.Joined(dict.ID(id), m.of.Root.Kind, m.to.Kind, subject, ask.Window{}, func(p ask.Path, other dict.ID) error {
			if m.hasOthers && !only.Has(uint64(other)) || m.to.To.Is() == dict.DID && sn.IsHidden(other) {
				return nil
			}
			p.Raw = slices.Clone(p.Raw)
			of = append(of, twoLinks{dict.ID(id), other, p})
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(of, compareLinks)
		for _, r := range of {
			if !fn(r) {
				return nil
			}
		}
	}
	return nil
}

// isEmpty reports whether one of the paths is not indexed, so that the answer is empty.
func (m *manyToMany) isEmpty() bool { return m.of == nil || m.to == nil }

type countOfOther struct {
	Subject  string `json:"subject"`
	Total    uint64 `json:"total"`
	Distinct uint64 `json:"distinct"`
}

// getManyToManyCounts takes the records that name a subject, and counts what they name at the
// other path.
func getManyToManyCounts(ctx context.Context, q *xrpc.Query) (any, error) {
	m, err := manyToManyOf(q, "did")
	if err != nil {
		return nil, err
	}
	out := struct {
		Counts []countOfOther `json:"counts_by_other_subject"`
		Cursor *string        `json:"cursor"`
	}{Counts: []countOfOther{}}
	if m.isEmpty() {
		return out, nil
	}
	var after dict.ID
	if m.cursor != "" {
		at, _, err := q.Cursors.Open(m.more+m.of.Question(), m.cursor)
		if err != nil || len(at) != 1 {
			return nil, xrpc.ErrCursor
		}
		after = dict.ID(at[0])
	}
	err = q.View(ctx, func(sn *ask.View) error {
		out.Counts, out.Cursor = []countOfOther{}, nil
		type count struct {
			total, distinct uint64
			last            dict.ID
		}
		counts := map[dict.ID]count{}
		err := m.each(ctx, sn, q.Work, dict.None, func(r twoLinks) bool {
			c := counts[r.other]
			if c.total++; c.last != r.actor {
				c.distinct++
			}
			c.last = r.actor
			counts[r.other] = c
			return true
		})
		if err != nil {
			return err
		}
		ids := slices.Sorted(maps.Keys(counts))
		from, found := slices.BinarySearch(ids, after)
		if found {
			from++
		}
		if ids = ids[from:]; len(ids) > m.limit {
			ids = ids[:m.limit]
			out.Cursor = new(q.Cursors.Seal(m.more+m.of.Question(), nil, uint64(ids[len(ids)-1])))
		}
		return sn.Strings(m.to.To.Is(), ids, func(i int, other []byte) error {
			out.Counts = append(out.Counts, countOfOther{string(other), counts[ids[i]].total, counts[ids[i]].distinct})
			return nil
		})
	})
	return out, err
}

type linkToOther struct {
	Record recordID `json:"linkRecord"`
	Other  string   `json:"otherSubject"`
}

// getManyToMany lists the records that name a subject, and what each names at the other path.
func getManyToMany(ctx context.Context, q *xrpc.Query) (any, error) {
	m, err := manyToManyOf(q, "linkDid")
	if err != nil {
		return nil, err
	}
	out := struct {
		Items  []linkToOther `json:"items"`
		Cursor *string       `json:"cursor"`
	}{Items: []linkToOther{}}
	if m.isEmpty() {
		return out, nil
	}
	var after twoLinks
	if m.cursor != "" {
		actor, other, path, err := open(q, m.more+m.of.Question())
		if err != nil {
			return nil, err
		}
		after = twoLinks{dict.ID(actor), dict.ID(other), path}
	}
	err = q.View(ctx, func(sn *ask.View) error {
		out.Items, out.Cursor = []linkToOther{}, nil
		var page []twoLinks
		more := false
		err := m.each(ctx, sn, q.Work, after.actor, func(r twoLinks) bool {
			if m.cursor != "" && r.actor == after.actor && compareLinks(r, after) <= 0 {
				return true
			}
			if len(page) == m.limit {
				more = true
				return false
			}
			page = append(page, r)
			return true
		})
		if err != nil {
			return err
		}
		if more {
			last := page[len(page)-1]
			out.Cursor = seal(q, m.more+m.of.Question(), uint64(last.actor), uint64(last.other), last.path)
		}
		dids, err := stringsOf(sn, dict.DID, page, func(r twoLinks) dict.ID { return r.actor })
		if err != nil {
			return err
		}
		others, err := stringsOf(sn, m.to.To.Is(), page, func(r twoLinks) dict.ID { return r.other })
		for _, r := range page {
			out.Items = append(out.Items, linkToOther{recordID{dids[r.actor], m.to.Collection, string(r.path.AppendRkey(nil))}, others[r.other]})
		}
		return err
	})
	return out, err
}

// stringsOf looks up strings of a page's records.
func stringsOf[R any](sn *ask.View, ns dict.Namespace, page []R, of func(R) dict.ID) (map[dict.ID]string, error) {
	names := map[dict.ID]string{}
	for _, r := range page {
		names[of(r)] = ""
	}
	ids := slices.Sorted(maps.Keys(names))
	err := sn.Strings(ns, ids, func(i int, name []byte) error { names[ids[i]] = string(name); return nil })
	return names, err
}
