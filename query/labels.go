package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
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

	// place is that among all labels: the type and the id of the subject, the id of the label's set, and how many labels of both come up to it.
	place [4]uint64
}

// labels returns the labels of accounts and records by the labelers that the index reads.
func labels(ctx context.Context, q *call) (any, error) {
	subjects, err := q.List("subject", maxLabeled, kinds.DID, kinds.ATURI)
	if err != nil {
		return nil, err
	}
	out := struct {
		Labels []label `json:"labels"`
		caveats
	}{}
	err = q.View(ctx, func(sn *ask.View) error {
		err := q.labelers(sn, &out.caveats, nil)
		if err == nil {
			out.Labels, err = readLabels(sn, subjects, false, make([]uint64, 4), labelsRead+1)
		}
		if err == nil && len(out.Labels) > labelsRead { // labelers choose how many
			out.Labels = out.Labels[:labelsRead]
			err = out.note(&evidence.Missing{Reason: fmt.Sprintf("these subjects have more than %d labels; not all were read", labelsRead)})
		}
		return err
	})
	slices.SortStableFunc(out.Labels, func(x, y label) int {
		return cmp.Or(strings.Compare(x.URI, y.URI), strings.Compare(x.Src, y.Src), strings.Compare(x.Val, y.Val), strings.Compare(x.CID, y.CID))
	})
	return out, err
}

// labelers says in c what is missing of the labels by some labelers, or by all that the index reads.
func (q *call) labelers(sn *ask.View, c *caveats, sources []language.Literal) error {
	all, err := sn.Labelers()
	if err == nil && len(all) == 0 {
		err = xrpc.Invalid("this server reads no labelers (operators: --labelers)")
	}
	if err != nil {
		return err
	}
	dids := slices.Sorted(maps.Keys(all))
	if len(sources) > 0 {
		dids = nil
	}
	for _, s := range sources {
		if dids = append(dids, s.S); all[s.S].Name == "" {
			return xrpc.Invalid("unknown labeler %s (getStats lists those that this server reads)", language.Brief(s.S))
		}
	}
	return q.rests(sn, c, func(cl *claim) error {
		for _, did := range dids {
			cl.labelers = append(cl.labelers, did)
			cl.lacks(evidence.Labeler(all[did], time.Now()))
		}
		cl.lacks(cl.index.Statuses())
		return nil
	})
}

// readLabels returns up to most labels after a place, those of subjects or of everything.
func readLabels(sn *ask.View, subjects []language.Literal, everything bool, after []uint64, most int) ([]label, error) {
	all, sets := []label{}, []dict.ID(nil)
	for i, kind := range []kinds.Kind{kinds.LabeledAccount, kinds.LabeledRecord} {
		ns := []dict.Namespace{dict.DID, dict.URI}[i]
		ids, err := algebra.Lookup(sn, slices.DeleteFunc(slices.Clone(subjects), func(l language.Literal) bool { return l.Is != ns }))
		if slices.Sort(ids); everything {
			if ids = []dict.ID{1}; uint64(i) == after[0] {
				ids[0] = dict.ID(max(after[1], 1))
			}
		}
		var members []dict.ID
		place, begin := [4]uint64{uint64(i)}, len(all)
		for _, id := range slices.Compact(ids) {
			if err != nil || id == dict.None || uint64(i) < after[0] || len(all) == most {
				continue
			}
			err = sn.Labels(kind, id, everything, func(member, set dict.ID, e *ask.LabelEntry) bool {
				if place[1] != uint64(member) || place[2] != uint64(set) {
					place[1], place[2], place[3] = uint64(member), uint64(set), 0
				}
				if place[3]++; slices.Compare(place[:], after) <= 0 || ns == dict.DID && sn.IsHidden(member) {
					return true
				}
				l := label{CID: e.CID, Cts: stamp(time.UnixMicro(e.Time)), place: place}
				if e.Expires != 0 {
					l.Exp = stamp(time.UnixMicro(e.Expires))
				}
				all, members, sets = append(all, l), append(members, member), append(sets, set)
				return len(all) < most
			})
		}
		err = cmp.Or(err, sn.Strings(ns, members, func(n int, s []byte) error { all[begin+n].URI = string(s); return nil }))
		if err != nil {
			return nil, err
		}
	}
	return all, sn.Strings(dict.URI, sets, func(n int, set []byte) error {
		all[n].Src, all[n].Val, _ = strings.Cut(string(set), " ")
		return nil
	})
}
