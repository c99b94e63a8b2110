package query

import (
	"context"
	"net/http"
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// A preview answers as any viewer, without a token. That reveals no secret, because the graph
// is public. It does let whoever reaches the server ask expensive questions without a name, and
// have handles resolved. So the operator has to turn it on, the server has to listen on
// loopback, and a request that a proxy forwards is refused.

// forwarded are the headers by which a proxy says that it forwards a request.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "Via"}

// A Preview is a feed that may be previewed.
type Preview struct {
	Name  string `json:"name"`
	URI   string `json:"uri"`
	Shows string `json:"shows"` // its line in the file
	// Viewer says that the feed differs by viewer.
	Viewer bool `json:"viewer"`
}

// Previews returns the feeds that may be previewed: all, or none without Preview.
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

// methods returns the methods of this server, with the parameters that they take here.
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

// viewerOf returns who views a feed: whom the token names, or in a preview the parameter viewer.
func (s *Server) viewerOf(ctx context.Context, q *params) (string, error) {
	if q.values.Has(previewParameter) {
		return previewer(q)
	}
	if s.o.Feeds.o.Preview && q.header.Get("Authorization") == "" {
		return "", &Error{http.StatusUnauthorized, "AuthMissing", "this feed differs by viewer: add viewer=DID (or a handle) to preview it, or a service auth token"}
	}
	return s.viewer(ctx, q)
}

// previewer returns the account that the parameter viewer names. The server knows that parameter
// only where previews are on.
func previewer(q *params) (string, error) {
	for _, name := range forwarded {
		if q.header.Get(name) != "" {
			return "", invalid("viewer previews a feed for this machine only, and a proxy forwarded this request (it has the header %s): send a service auth token", name)
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
