package query

import (
	"context"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
	"skein.blue/query/xrpc"
)

// maxEdges is the number of sets that one call of counts may count for each subject.
const maxEdges = 8

type countedSubject struct {
	Subject string   `json:"subject"`
	Totals  []uint64 `json:"totals"` // in the order of the edges
}

// counts returns the sizes of several sets of many subjects, such as the likers and the reposters
// of the posts of a page.
func (s *Server) counts(ctx context.Context, q *xrpc.Query) (any, error) {
	edges, err := s.edges(q)
	if err != nil {
		return nil, err
	}
	subjects, err := q.List("subject", maxSubjects, edges[0].From)
	if err != nil {
		return nil, err
	}
	out := struct {
		Subjects []countedSubject `json:"subjects"`
		completeness
	}{Subjects: make([]countedSubject, len(subjects))}
	for i, subject := range subjects {
		out.Subjects[i] = countedSubject{subject.S, make([]uint64, len(edges))}
	}
	err = q.View(ctx, func(sn *ask.View) error {
		ids, err := algebra.Lookup(sn, subjects)
		if err != nil {
			return err
		}
		authors := make([]algebra.Literal, len(subjects)) // of lists
		for i, subject := range subjects {
			authors[i] = algebra.Literal{S: ask.AuthorityOf(subject.S), Is: dict.DID}
		}
		by, err := algebra.Lookup(sn, authors)
		if err != nil {
			return err
		}
		if out.completeness, err = s.countsMissing(sn, edges, authors, by); err != nil {
			return err
		}
		v := algebra.NewReader(ctx, sn, q.Work)
		for n, edge := range edges {
			add := func(i int, total uint64) error {
				out.Subjects[i].Totals[n] = total
				return v.Ended.Err()
			}
			switch edge.Op {
			case algebra.OpForward, algebra.OpReverse:
				err = v.Sizes(edge, ids, add)
			default:
				err = countListed(v, edge, ids, by, add)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// edges reads the parameter edge: names of sets that take one type of subject.
func (s *Server) edges(q *xrpc.Query) ([]algebra.Via, error) {
	names := q.Values["edge"]
	switch {
	case len(names) == 0:
		return nil, xrpc.Invalid("parameter \"edge\" is missing")
	case len(names) > maxEdges:
		return nil, xrpc.Invalid("parameter edge occurs %d times; at most %d are allowed", len(names), maxEdges)
	}
	from, known := dict.DID, map[string]algebra.Via{}
	var all []string
	for _, ns := range []dict.Namespace{dict.DID, dict.URI} {
		for _, v := range s.words.Vias(ns) {
			known[v.Name] = v
			all = append(all, v.Name)
		}
	}
	edges := make([]algebra.Via, len(names))
	for i, name := range names {
		edge, ok := known[name]
		switch {
		case !ok:
			return nil, xrpc.Invalid("parameter edge is %q; it must be one of %s", algebra.Brief(name), strings.Join(all, ", "))
		case i > 0 && edge.From != from:
			return nil, xrpc.Invalid("parameter edge: %s and %s cannot be in one call, because %s takes %s and %s takes %s; make one call for each", names[0], name, names[0], algebra.Singular(from), name, algebra.Singular(edge.From))
		}
		edges[i], from = edge, edge.From
	}
	return edges, nil
}

// countListed counts the lists that accounts are on, or the accounts on lists. by are the authors of
// the lists.
func countListed(v *algebra.Evaluation, edge algebra.Via, ids, by []dict.ID, each func(i int, total uint64) error) error {
	var hidden idset.Set
	if edge.Op == algebra.OpListed {
		hidden = v.View.Hidden()
	}
	for i, id := range ids {
		t, err := v.Leaf(algebra.Leaf{Op: edge.Op, Kind: edge.Kind, Of: id, By: by[i]})
		if err == nil {
			err = each(i, t.Set.Len()-idset.AndLen(hidden, t.Set))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countsMissing returns the completeness of counts. The authors of the subjects are the accounts
// themselves, or those who made the lists; by are their ids.
func (s *Server) countsMissing(sn *ask.View, edges []algebra.Via, authors []algebra.Literal, by []dict.ID) (c completeness, err error) {
	var of []kinds.Kind
	own := false // the authors' own records are counted
	for _, edge := range edges {
		of = append(of, edge.Kind)
		own = own || edge.Op == algebra.OpForward || edge.Op == algebra.OpListed
	}
	if own {
		beginAccounts(sn, by)
	}
	for i := 0; own && i < len(by); i++ {
		if c, err = missingOf(sn, authors[i].S, by[i]); err != nil || c.Incomplete {
			return c, err
		}
	}
	return s.ofEverybody(sn, of...)
}
