package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/xrpc"
)

// maxLabeled is the most subjects of one call of labels.
const maxLabeled = 100

// label is a label in effect, with the fields of com.atproto.label.defs#label.
type label struct {
	Src string `json:"src"` // the labeler
	URI string `json:"uri"`
	CID string `json:"cid,omitempty"` // of the version of the record, if it is on one version
	Val string `json:"val"`
	Cts string `json:"cts"`
	Exp string `json:"exp,omitempty"`
}

// labels returns the labels of accounts and records by the labelers that the index reads.
func labels(ctx context.Context, q *call) (any, error) {
	subjects, err := q.List("subject", maxLabeled, kinds.DID, kinds.ATURI)
	if err != nil {
		return nil, err
	}
	q.Boolean("proof")
	out := struct {
		Labels []label `json:"labels"`
		caveats
	}{}
	err = q.View(ctx, func(sn *ask.View) error {
		out.Labels = []label{} // an earlier attempt may have set it
		ids, err := algebra.Lookup(sn, subjects)
		if err != nil {
			return err
		}
		labelers, err := sn.Labelers()
		if err == nil && len(labelers) == 0 {
			err = xrpc.Invalid("this server reads no labelers (operators: --labelers)")
		}
		if err != nil {
			return err
		}
		err = q.rests(sn, &out.caveats, func(cl *claim) error {
			for _, did := range slices.Sorted(maps.Keys(labelers)) {
				cl.labelers = append(cl.labelers, did)
				cl.lacks(evidence.Labeler(labelers[did], time.Now()))
			}
			cl.lacks(cl.index.Statuses())
			return nil
		})
		if err != nil {
			return err
		}
		var sets []dict.ID // of out.Labels
		for i, id := range ids {
			kind := kinds.LabeledRecord
			if subjects[i].Is == dict.DID {
				kind = kinds.LabeledAccount
			}
			if id == dict.None || kind == kinds.LabeledAccount && sn.IsHidden(id) {
				continue
			}
			err := sn.Labels(kind, id, func(set dict.ID, e *ask.LabelEntry) {
				l := label{URI: subjects[i].S, CID: e.CID, Cts: stamp(time.UnixMicro(e.Time))}
				if e.Expires != 0 {
					l.Exp = stamp(time.UnixMicro(e.Expires))
				}
				sets, out.Labels = append(sets, set), append(out.Labels, l)
			})
			if err != nil {
				return err
			}
		}
		return sn.Strings(dict.URI, sets, func(i int, set []byte) error {
			out.Labels[i].Src, out.Labels[i].Val, _ = strings.Cut(string(set), " ")
			return nil
		})
	})
	slices.SortStableFunc(out.Labels, func(x, y label) int {
		return cmp.Or(strings.Compare(x.URI, y.URI), strings.Compare(x.Src, y.Src), strings.Compare(x.Val, y.Val), strings.Compare(x.CID, y.CID))
	})
	return out, err
}
