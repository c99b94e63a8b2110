package query

import (
	"context"
	"net/http"
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
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

// Previews returns the feeds that can be previewed: all with FeedOptions.Preview, else none.
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

// methods returns the methods of this server. With previews, getFeedSkeleton takes viewer.
func (s *Server) methods() []method {
	all := allMethods()
	if s.o.Feeds == nil || !s.o.Feeds.o.Preview {
		return all
	}
	for i := range all {
		if all[i].nsid == getFeedSkeleton {
			all[i].takes = append(slices.Clone(all[i].takes), previewParameter)
		}
	}
	return all
}

// viewerOf returns the DID of a feed's viewer, from the token, or from the parameter viewer of a
// preview.
func (s *Server) viewerOf(ctx context.Context, q *params) (string, error) {
	if q.values.Has(previewParameter) {
		return previewer(q)
	}
	if s.o.Feeds.o.Preview && q.header.Get("Authorization") == "" {
		return "", &Error{http.StatusUnauthorized, "AuthMissing", "this feed differs by viewer: add viewer=DID (or a handle) to preview it, or a service auth token"}
	}
	return s.viewer(ctx, q)
}

// previewer returns the account in the parameter viewer. The parameter is unknown unless previews
// are on.
func previewer(q *params) (string, error) {
	for _, name := range forwarded {
		if q.header.Get(name) != "" {
			return "", invalid("viewer works only from this machine, and a proxy forwarded this request (it has the header %s); send a service auth token", name)
		}
	}
	if v := q.values.Get(previewParameter); syntax.ValidHandle(v) {
		q.values.Set(previewParameter, "@"+v)
	}
	list, err := q.list(previewParameter, 1, dict.DID)
	if err != nil {
		return "", err
	}
	return list[0].S, nil
}
