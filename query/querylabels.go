package query

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// labelsRead is how many labels are read for a page: with a prefix, those of all subjects are.
const labelsRead = 20_000

// queryLabels implements com.atproto.label.queryLabels. Labels come by the types and the ids of their subjects. A cursor has these of the last one, and how
// many labels of the subject came up to it.
func queryLabels(ctx context.Context, q *call) (any, error) {
	question := "queryLabels " + url.Values{"of": q.Values["uriPatterns"], "by": q.Values["sources"]}.Encode()
	var prefixes, whole []string
	for _, pattern := range q.Values["uriPatterns"] {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if strings.Contains(prefix, "*") {
			return nil, xrpc.Invalid("uriPatterns %q: a * works only at the end", language.Brief(pattern))
		}
		if isPrefix {
			prefixes = append(prefixes, prefix)
		} else {
			whole = append(whole, pattern)
		}
	}
	var subjects, sources []language.Literal
	var errs [3]error
	if q.Values["uriPatterns"] = whole; len(whole) > 0 || len(prefixes) == 0 {
		subjects, errs[0] = q.List("uriPatterns", maxLabeled, kinds.DID, kinds.ATURI)
	}
	if q.Values.Has("sources") {
		sources, errs[1] = q.List("sources", maxLabeled, kinds.DID)
	}
	limit, after := q.Integer("limit", 1, 250, 50), []uint64{0, 0, 0}
	if q.Values.Has("cursor") {
		after, _, errs[2] = q.Cursors.Open(question, q.Values.Get("cursor"))
	}
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	out := struct {
		Cursor string  `json:"cursor,omitempty"`
		Labels []label `json:"labels"`
	}{}
	err := q.View(ctx, func(sn *ask.View) error {
		out.Cursor, out.Labels = "", []label{} // an earlier attempt may have set them
		labelers, err := labelersOf(sn)
		for _, s := range sources {
			if err == nil && labelers[s.S].Name == "" {
				err = xrpc.Invalid("sources: unknown labeler %s (getStats lists those that this server reads)", s.S)
			}
		}
		if err != nil {
			return err
		}
		all, places, err := labelsAfter(sn, subjects, len(prefixes) > 0, after)
		for i := 0; i < len(all) && err == nil; i++ {
			l := &all[i]
			names := func(list []language.Literal, name string) bool {
				return slices.ContainsFunc(list, func(s language.Literal) bool { return s.S == name })
			}
			matches := names(subjects, l.URI) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.URI, p) })
			if !matches || len(sources) > 0 && !names(sources, l.Src) {
				continue
			}
			if out.Labels = append(out.Labels, *l); len(out.Labels) == limit && i < len(all)-1 {
				all = all[:i+1]
			}
		}
		if n := len(all); n > 0 && (n < len(places) || n >= labelsRead) {
			out.Cursor = q.Cursors.Seal(question, nil, places[n-1][:]...)
		}
		return err
	})
	return out, err
}

// labelsAfter reads at most labelsRead labels after a place, those of subjects or of everything, and their places.
func labelsAfter(sn *ask.View, subjects []language.Literal, everything bool, after []uint64) (all []label, places [][3]uint64, err error) {
	ids, err := algebra.Lookup(sn, subjects)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var members [2][]dict.ID
	var sets []dict.ID
	for i, kind := range []kinds.Kind{kinds.LabeledAccount, kinds.LabeledRecord} {
		place := [3]uint64{uint64(i)}
		add := func(member, set dict.ID, e *ask.LabelEntry) bool {
			if place[1] != uint64(member) {
				place[1], place[2] = uint64(member), 0
			}
			place[2]++
			if slices.Compare(place[:], after) > 0 && (kind == kinds.LabeledRecord || !sn.IsHidden(member)) {
				all, places, members[i], sets = append(all, labelOf("", e)), append(places, place), append(members[i], member), append(sets, set)
			}
			return len(all) < labelsRead
		}
		from := dict.None
		if uint64(i) == after[0] {
			from = dict.ID(after[1])
		}
		switch {
		case uint64(i) < after[0], len(all) >= labelsRead:
		case everything:
			err = cmp.Or(err, sn.LabelsFrom(kind, from, add))
		default:
			for _, id := range ids {
				err = cmp.Or(err, sn.Labels(kind, id, func(set dict.ID, e *ask.LabelEntry) { add(id, set, e) }))
			}
		}
	}
	named := 0
	for i, ns := range []dict.Namespace{dict.DID, dict.URI} {
		err = cmp.Or(err, sn.Strings(ns, members[i], func(n int, s []byte) error { all[named+n].URI = string(s); return nil }))
		named += len(members[i])
	}
	return all, places, cmp.Or(err, sn.Strings(dict.URI, sets, func(n int, s []byte) error {
		all[n].Src, all[n].Val, _ = strings.Cut(string(s), " ")
		return nil
	}))
}
