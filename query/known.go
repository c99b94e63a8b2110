package query

import (
	"context"
	"errors"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

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

// known returns, for each subject, the accounts that an actor follows and that are in a set of the subject: that
// follow, like or repost it, or are on the list that it is.
func known(ctx context.Context, q *call) (any, error) {
	actor, err := q.List("actor", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	edges := slices.DeleteFunc(slices.Concat(q.Words.Vias(dict.DID), q.Words.Vias(dict.URI)), func(v language.Via) bool { return v.Is != dict.DID || v.Op == language.OpAuthors })
	edge, err := q.Words.Named("parameter edge", q.Values.Get("edge"), "", edges)
	if err != nil {
		return nil, xrpc.Invalid("%v", err)
	}
	subjects, err := q.List("subject", maxSubjects, edge.Form)
	if err != nil {
		return nil, err
	}
	limit := q.Integer("limit", 0, maxSample, defaultSample)
	out := struct {
		Subjects []knownSubject `json:"subjects"`
		caveats
	}{Subjects: make([]knownSubject, len(subjects))}
	err = q.View(ctx, func(sn *ask.View) error {
		ids, err := algebra.Lookup(sn, slices.Concat(actor, subjects, algebra.AuthorsIn(subjects)))
		if err != nil {
			return err
		}
		of, authors := ids[1:1+len(subjects)], ids[1+len(subjects):]
		sn.BeginAccount(ids[0])
		sn.BeginSubjects(followKind.Kind, ids[0])
		v := algebra.NewReader(ctx, sn, q.Work)
		for _, id := range of {
			v.BeginSet(edge.Op, edge.Kind, id)
		}
		follows, err := v.Leaf(algebra.Leaf{Op: language.OpForward, Kind: followKind.Kind, Of: ids[0]})
		if err != nil {
			return err
		}
		var sample []dict.ID
		var by []int // the subject of each sample
		for i, subject := range subjects {
			t, err := v.Leaf(algebra.Leaf{Op: edge.Op, Kind: edge.Kind, Of: of[i], By: authors[i]})
			if err != nil {
				return err
			}
			set, err := v.And(follows.Set, t)
			if err != nil {
				return err
			}
			out.Subjects[i] = knownSubject{subject.S, set.Len() - sets.AndLen(sn.Hidden(), set), []string{}}
			page, _ := set.Page(0, limit, sn.Hidden())
			for _, id := range page {
				sample, by = append(sample, dict.ID(id)), append(by, i)
			}
		}
		sn.BeginStrings(dict.DID, sample...)
		err = q.rests(sn, &out.caveats, func(cl *claim) error {
			if err := cl.own(actor, ids[:1], language.Window{}, followKind.Kind); err != nil || edge.Op == language.OpReverse {
				return errors.Join(err, cl.each(v.Ended, follows.Set, language.Window{}, edge.Kind)) // of the sets, those matter whom the account follows
			}
			return cl.sizes(v, []language.Via{edge}, subjects, of)
		})
		if err != nil {
			return err
		}
		return sn.Strings(dict.DID, sample, func(i int, did []byte) error {
			to := &out.Subjects[by[i]].Sample
			*to = append(*to, string(did))
			return nil
		})
	})
	return out, err
}
