package feed

import (
	"net/http"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// A preview answers a line that the caller sends (lineParameter) as any viewer, without a token. It is a question like those of the
// other methods, in the same queues and with the same bounds. The graph is public: naming a viewer reveals as much as writing the
// DID into the line. Which posts the viewer has seen is not public: a line ignores it.

// The parameters of a preview, which the lexicon of getFeedSkeleton does not have.
const (
	lineParameter   = "line"   // a feed, as in the file, instead of a feed's URI
	viewerParameter = "viewer" // instead of a token
)

// maxSent is the most queries in a line that a caller sends.
const maxSent = 8

// asked returns the feed that a call asks for.
func (f *Feeds) asked(q *xrpc.Query) (g feed, err error) {
	named, given := q.Values.Get("feed"), q.Values.Get(lineParameter)
	switch {
	case q.Values.Has(lineParameter) && (named != "" || len(given) > language.MaxExpr):
		return g, xrpc.Invalid("line has one feed of at most %d bytes, without the parameter feed", language.MaxExpr)
	case q.Values.Has(lineParameter):
		if g, err = parseFeed(q.Words, strings.Join(strings.Split(given, "\n"), " ")); err != nil {
			err = xrpc.Invalid("line: %v", err)
		} else if len(g.sources) > maxSent {
			err = xrpc.Invalid("line: mix has %d queries; in a line that you send, it has at most %d", len(g.sources), maxSent)
		}
		return g, err
	case f == nil:
		return g, errNone
	case q.Values.Has(viewerParameter):
		return g, xrpc.Invalid("viewer previews a line: send the feed's line instead of the parameter feed, or a service auth token")
	}
	g, ok := f.find(named)
	if !ok {
		err = xrpc.Errorf(http.StatusBadRequest, "UnknownFeed", "unknown feed %q", language.Brief(named))
	}
	return g, err
}

// viewerOf returns the DID of the viewer of a feed: from the token or, in a preview, from the parameter.
func (f feed) viewerOf(q *xrpc.Query) (string, error) {
	if !q.Values.Has(viewerParameter) {
		if f.line == 0 && q.Header.Get("Authorization") == "" {
			return "", xrpc.Errorf(http.StatusUnauthorized, "AuthMissing", "this feed differs by viewer: add viewer=DID (or a handle) to preview it, or a service auth token")
		}
		return q.Viewer()
	}
	if v := language.Pasted(q.Values.Get(viewerParameter)); dict.ValidHandle(v) {
		q.Values.Set(viewerParameter, "@"+v)
	}
	list, err := q.List(viewerParameter, 1, kinds.DID)
	if err != nil {
		return "", err
	}
	return list[0].S, nil
}
