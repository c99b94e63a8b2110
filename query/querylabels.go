package query

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// With a prefix, the labels of all subjects are read: so many at a time, until a page is full, or so many are read for it.
const (
	labelsAtOnce = 1_000
	labelsRead   = 20_000
)

// queryLabels implements com.atproto.label.queryLabels.
func queryLabels(ctx context.Context, q *call) (any, error) {
	patterns := q.Values["uriPatterns"]
	question := "queryLabels " + url.Values{"of": patterns, "by": q.Values["sources"]}.Encode()
	prefixes, whole := []string(nil), []string(nil)
	for _, p := range patterns {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		if !isPrefix {
			whole = append(whole, p)
			continue
		}
		prefixes = append(prefixes, prefix)
		if begin := strings.TrimPrefix(prefix, "at://"); len(prefixes) > maxLabeled || strings.Contains(prefix, "*") ||
			!strings.HasPrefix(begin, "did:") && !strings.HasPrefix("did:", begin) && !strings.HasPrefix("at://did:", prefix) {
			return nil, xrpc.Invalid("uriPatterns %q: at most %d patterns are allowed that end with a *, the beginning of a DID or of at://DID/…", language.Brief(p), maxLabeled)
		}
	}
	var subjects, sources []language.Literal
	var err error
	if q.Values["uriPatterns"] = whole; len(whole) > 0 || len(prefixes) == 0 {
		subjects, err = q.List("uriPatterns", maxLabeled, kinds.DID, kinds.ATURI)
	}
	if err == nil && q.Values.Has("sources") {
		sources, err = q.List("sources", maxLabeled, kinds.DID)
	}
	limit, after := q.Integer("limit", 1, 250, 50), make([]uint64, 4)
	if err == nil && q.Values.Has("cursor") {
		_, err = q.Cursors.Open(question, q.Values.Get("cursor"), after)
	}
	if err != nil {
		return nil, err
	}
	among := func(list []language.Literal, s string) bool {
		return slices.ContainsFunc(list, func(l language.Literal) bool { return l.S == s })
	}
	out := struct {
		Cursor string  `json:"cursor,omitempty"`
		Labels []label `json:"labels"`
		caveats
	}{}
	return &out, q.View(ctx, func(sn *ask.View) error {
		out.Cursor, out.Labels = "", []label{} // an earlier attempt may have set them
		if err := q.labelers(sn, &out.caveats, sources); err != nil {
			return err
		}
		at := after
		for range labelsRead / labelsAtOnce {
			some, err := readLabels(sn, subjects, len(prefixes) > 0, at, labelsAtOnce)
			if err != nil {
				return err
			}
			for _, l := range some {
				matches := among(subjects, l.URI) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.URI, p) })
				if matches && (len(sources) == 0 || among(sources, l.Src)) {
					if len(out.Labels) == limit {
						out.Cursor = q.Cursors.Seal(question, at)
						return nil
					}
					out.Labels = append(out.Labels, l)
				}
				at = l.place[:]
			}
			if len(some) < labelsAtOnce {
				return nil
			}
		}
		out.Cursor = q.Cursors.Seal(question, at)
		return nil
	})
}
