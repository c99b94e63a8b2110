package query

import (
	"context"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// maxEdges is the number of sets that one call of counts may count for each subject.
const maxEdges = 8

type countedSubject struct {
	Subject string   `json:"subject"`
	Totals  []uint64 `json:"totals"` // in the order of the edges
}

// countsAnswer is an answer of counts.
type countsAnswer struct {
	Subjects []countedSubject `json:"subjects"`
	caveats

	edges []language.Via
}

func (a *countsAnswer) table() *table {
	t := &table{columns: []column{{name: "subject"}}, rows: make([][]any, len(a.Subjects))}
	for i := range a.Subjects {
		t.rows[i] = []any{a.Subjects[i].Subject}
	}
	for n, edge := range a.edges {
		t.add(column{edge.Name, true}, n+1, func(i int) any { return a.Subjects[i].Totals[n] })
	}
	return t
}

// counts returns the sizes of several sets of many subjects, such as the likers and the reposters
// of the posts of a page.
func counts(ctx context.Context, q *call) (any, error) {
	edges, err := q.edges()
	if err != nil {
		return nil, err
	}
	forms := make([]kinds.Form, len(edges))
	for i := range edges {
		forms[i] = edges[i].Form
	}
	subjects, err := q.List("subject", maxSubjects, forms...)
	if err != nil {
		return nil, err
	}
	out := countsAnswer{edges: edges, Subjects: make([]countedSubject, len(subjects))}
	for i, subject := range subjects {
		out.Subjects[i] = countedSubject{subject.S, make([]uint64, len(edges))}
	}
	err = q.View(ctx, func(sn *ask.View) error {
		ids, err := algebra.Lookup(sn, subjects)
		if err != nil {
			return err
		}
		v := algebra.NewReader(ctx, sn, q.Work)
		for _, edge := range edges {
			for _, id := range ids {
				v.BeginSet(edge.Op, edge.Kind, id)
			}
		}
		if err := q.rests(sn, &out.caveats, func(cl *claim) error { return cl.sizes(v, edges, subjects, ids) }); err != nil {
			return err
		}
		for n, edge := range edges {
			if edge.Op == language.OpAuthors {
				authors, by, err := v.Authors(subjects)
				if err != nil {
					return err
				}
				for i := range by { // a record has one
					if dict.ValidDID(authors[i].S) && !sn.IsHidden(by[i]) {
						out.Subjects[i].Totals[n] = 1
					}
				}
				continue
			}
			add := func(i int, total uint64) error {
				out.Subjects[i].Totals[n] = total
				return v.Ended.Err()
			}
			if err := v.Sizes(edge, ids, add); err != nil {
				return err
			}
		}
		return nil
	})
	return &out, err
}

// edges reads the parameter edge: names of sets that take one type of subject.
func (q *call) edges() ([]language.Via, error) {
	names := q.Values["edge"]
	switch {
	case len(names) == 0:
		return nil, xrpc.Invalid("parameter \"edge\" is missing")
	case len(names) > maxEdges:
		return nil, xrpc.Invalid("parameter edge occurs %d times; at most %d are allowed", len(names), maxEdges)
	}
	edges := make([]language.Via, len(names))
	for i, name := range names {
		edge, err := q.Words.Named("parameter edge", name, "", slices.Concat(q.Words.Vias(dict.DID), q.Words.Vias(dict.URI)))
		switch first := edges[0]; {
		case err != nil:
			return nil, xrpc.Invalid("%v", err)
		case i > 0 && edge.From != first.From:
			return nil, xrpc.Invalid("parameter edge: %s and %s cannot be in one call, because %[1]s takes %[3]s and %[2]s takes %[4]s; make one call for each", first.Name, edge.Name, language.Singular(first.From), language.Singular(edge.From))
		}
		edges[i] = edge
	}
	return edges, nil
}

// sizes notes what the sizes of sets of subjects depend on: the subjects' own records, those of the authors of lists, or those of
// everybody.
func (c *claim) sizes(v *algebra.Reader, edges []language.Via, subjects []language.Literal, ids []dict.ID) error {
	for _, edge := range edges {
		var err error
		if edge.Is == dict.DID {
			c.lacks(c.index.Statuses())
		}
		switch edge.Op {
		case language.OpForward:
			err = c.own(subjects, ids, language.Window{}, edge.Kind)
		case language.OpListed:
			var authors []language.Literal
			var by []dict.ID
			if authors, by, err = v.Authors(subjects); err == nil {
				err = c.own(authors, by, language.Window{}, edge.Kind)
			}
		case language.OpAuthors:
		default:
			c.ofEverybody("", language.Window{}, edge.Kind)
			if edge.Op == language.OpLists {
				c.lacks(c.index.Kind(c.sn.Self(edge.Kind), language.Window{}, false))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
