package query

import (
	"context"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
	"skein.blue/query/xrpc"
)

// knownEdges are the edges that the method known supports, by the names of their sets.
var knownEdges = func() map[string]kinds.Info {
	edges := map[string]kinds.Info{}
	for _, k := range kinds.All {
		if k.Known {
			edges[k.Reverse] = k
		}
	}
	return edges
}()

// KnownEdges returns the names of the sets that the method known supports.
func KnownEdges() (names []string) {
	for _, k := range kinds.All {
		if k.Known {
			names = append(names, k.Reverse)
		}
	}
	return names
}

// followKind is the edge from an actor to the accounts that known considers.
var followKind = kindNamed("follow").Kind

const (
	maxSubjects   = 100 // in one call
	maxSample     = 100 // accounts per subject
	defaultSample = 5
)

type knownSubject struct {
	Subject string   `json:"subject"`
	Total   uint64   `json:"total"`
	Sample  []string `json:"sample"`
}

// known returns, for each subject, the accounts that an actor follows and that follow, like or
// repost the subject.
func (s *Server) known(ctx context.Context, q *xrpc.Query) (any, error) {
	actor, err := q.List("actor", 1, dict.DID)
	if err != nil {
		return nil, err
	}
	edge, ok := knownEdges[q.Values.Get("edge")]
	if !ok {
		return nil, xrpc.Invalid("parameter edge is %q; it must be one of %s", algebra.Brief(q.Values.Get("edge")), strings.Join(KnownEdges(), ", "))
	}
	subjects, err := q.List("subject", maxSubjects, edge.To.Is())
	if err != nil {
		return nil, err
	}
	limit, err := q.Integer("limit", 0, maxSample, defaultSample)
	if err != nil {
		return nil, err
	}
	out := struct {
		Subjects []knownSubject `json:"subjects"`
		completeness
	}{Subjects: make([]knownSubject, len(subjects))}
	err = q.View(ctx, func(sn *ask.View) error {
		ids, err := algebra.Lookup(sn, append(slices.Clip(subjects), actor[0]))
		if err != nil {
			return err
		}
		sn.BeginAccount(ids[len(subjects)])
		sn.BeginSubjects(followKind, ids[len(subjects)], ask.Window{})
		for i := range subjects {
			sn.BeginActors(edge.Kind, ids[i])
		}
		if out.completeness, err = missingOf(sn, actor[0].S, ids[len(subjects)]); err == nil && !out.Incomplete {
			out.completeness, err = s.ofEverybody(sn, followKind, edge.Kind)
		}
		if err != nil {
			return err
		}
		v := algebra.NewReader(ctx, sn, q.Work)
		t, err := v.Leaf(algebra.Leaf{Op: algebra.OpForward, Kind: followKind, Of: ids[len(subjects)]})
		if err != nil {
			return err
		}
		follows := t.Set
		var sample []dict.ID
		var of []int // the subject of each sample
		for i, subject := range subjects {
			out.Subjects[i] = knownSubject{subject.S, 0, []string{}}
			t, err := v.Leaf(algebra.Leaf{Op: algebra.OpReverse, Kind: edge.Kind, Of: ids[i]})
			if err != nil {
				return err
			}
			set, err := v.And(follows, t)
			if err != nil {
				return err
			}
			out.Subjects[i].Total = set.Len() - idset.AndLen(sn.Hidden(), set)
			page, _ := set.Page(0, limit, sn.Hidden())
			for _, id := range page {
				sample, of = append(sample, dict.ID(id)), append(of, i)
			}
		}
		return sn.Strings(dict.DID, sample, func(i int, did []byte) error {
			to := &out.Subjects[of[i]].Sample
			*to = append(*to, string(did))
			return nil
		})
	})
	return out, err
}
