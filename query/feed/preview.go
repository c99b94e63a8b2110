package feed

import (
	"context"
	"net/http"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// A preview answers as any viewer, without a token. That reveals no secret, because the graph is
// public. But it lets every client of the server send expensive queries without a name, and
// resolve handles. So the operator must turn it on, the server must listen on loopback, and a
// request that a proxy forwarded is rejected.

// forwarded are the headers that a proxy adds to a request.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "Via"}

// A Preview is a feed that can be previewed.
type Preview struct {
	Name  string `json:"name"`  // the key of its record
	URI   string `json:"uri"`   // of its record
	Shows string `json:"shows"` // its query, as in the file
	// Viewer reports that the feed depends on the viewer.
	Viewer bool `json:"viewer"`
}

// Previews returns the feeds that can be previewed: all with Options.Preview, else none.
func (f *Feeds) Previews() (all []Preview) {
	if f == nil || !f.o.Preview {
		return nil
	}
	for _, g := range *f.feeds.Load() {
		all = append(all, Preview{g.name, f.uri(g), g.shows, g.viewer})
	}
	return all
}

// previewParameter names the viewer of a preview. The lexicon of getFeedSkeleton does not have it.
const previewParameter = "viewer"

// viewerOf returns the DID of a feed's viewer, from the token, or from the parameter viewer of a
// preview.
func (f *Feeds) viewerOf(ctx context.Context, q *xrpc.Query) (string, error) {
	if q.Values.Has(previewParameter) {
		return previewer(q)
	}
	if f.o.Preview && q.Header.Get("Authorization") == "" {
		return "", xrpc.Errorf(http.StatusUnauthorized, "AuthMissing", "this feed differs by viewer: add viewer=DID (or a handle) to preview it, or a service auth token")
	}
	return q.Viewer(ctx)
}

// previewer returns the account in the parameter viewer. The parameter is unknown unless previews
// are on.
func previewer(q *xrpc.Query) (string, error) {
	for _, name := range forwarded {
		if q.Header.Get(name) != "" {
			return "", xrpc.Invalid("the parameter viewer works only in requests made on this machine, but a proxy forwarded this one (it has the header %s); send a service auth token instead", name)
		}
	}
	if v := language.Pasted(q.Values.Get(previewParameter)); dict.ValidHandle(v) {
		q.Values.Set(previewParameter, "@"+v)
	}
	list, err := q.List(previewParameter, 1, kinds.DID)
	if err != nil {
		return "", err
	}
	return list[0].S, nil
}
