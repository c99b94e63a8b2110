package query_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"skein.blue/internal/sim/harness"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// preview serves the feeds of a world as previews, and resolves handles by h.
func (w *feedWorld) preview(h query.Handles) *feed.Feeds {
	w.t.Helper()
	f, err := feed.New(feed.Options{Path: w.path, Service: w.service.DID(), Preview: true})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := query.New(w.store, query.Options{Service: w.service, Feeds: f, Handles: h})
	if err != nil {
		w.t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	w.t.Cleanup(srv.Close)
	w.t.Cleanup(s.Close)
	w.base = srv.URL
	return f
}

// A preview shows to nobody in particular what a viewer with a token sees, page by page.
// Without --feed-preview the parameter is an error.
func TestFeedPreview(t *testing.T) {
	w := newFeedWorld(t, "friends = rank(of=follows($viewer), via=likes)\nall = likes(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)\nmine = likes($viewer)\n")
	if w.f.Previews() != nil {
		t.Error("previews are offered where they are off")
	}
	viewer, want := "", []string{}
	for did := range w.keys {
		if posts := w.pages("friends", 50, did); len(posts) > len(want) {
			viewer, want = did, posts
		}
	}
	if len(want) < 5 {
		t.Fatalf("the largest feed has %d posts", len(want))
	}
	ask := func(p url.Values) (int, skeleton) { return w.skeleton(p, "") }
	uri := feedURI("friends")
	if status, s := ask(url.Values{"feed": {uri}, "viewer": {viewer}}); status != 400 || !strings.Contains(s.Message, "--feed-preview") {
		t.Errorf("without a preview: %d %+v", status, s)
	}
	f := w.preview(&handles{kept: map[string]string{"kept.example.com": viewer}, remote: map[string]string{"far.example.com": viewer}})
	if status, s := ask(url.Values{"feed": {uri}, "viewers": {viewer}}); status != 400 || !strings.Contains(s.Message, "did you mean viewer?") {
		t.Errorf("a parameter that nobody knows, in a preview: %d %+v", status, s)
	}
	if got := f.Previews(); len(got) != 3 || got[0] != (feed.Preview{Name: "friends", URI: uri, Shows: "rank(of=follows($viewer), via=likes)", Viewer: true}) || got[1].Viewer {
		t.Errorf("previews: %+v", got)
	}
	for _, name := range []string{viewer, "@kept.example.com", "kept.example.com", "\u2068@Kept.Example.com\u2069 ", " kept.example.com", "far.example.com", "https://bsky.app/profile/" + viewer} {
		var got []string
		for cursor := ""; ; {
			p := url.Values{"feed": {uri}, "viewer": {name}, "limit": {"3"}}
			if cursor != "" {
				p.Set("cursor", cursor)
			}
			status, s := ask(p)
			if status != 200 {
				t.Fatalf("as %s: %d %+v", name, status, s)
			}
			for _, i := range s.Feed {
				got = append(got, i.Post)
			}
			if cursor = s.Cursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("as %s: %q, and with a token %q", name, got, want)
		}
	}
	for _, test := range []struct {
		p      url.Values
		status int
		says   string
	}{
		{url.Values{"feed": {uri}}, 401, "viewer=DID"},
		{url.Values{"feed": {uri}, "viewer": {""}}, 400, "is not an account"},
		{url.Values{"feed": {uri}, "viewer": {"at://did:plc:x/a/b"}}, 400, "is not an account"},
		{url.Values{"feed": {uri}, "viewer": {viewer, viewer}}, 400, "occurs 2 times"},
		{url.Values{"feed": {uri}, "viewer": {"nobody.example.com"}}, 400, "no account has the handle"},
		{url.Values{"feed": {feedURI("all")}, "viewer": {viewer}}, 200, ""},
		{url.Values{"feed": {feedURI("all")}}, 200, ""},
	} {
		if status, s := ask(test.p); status != test.status || !strings.Contains(s.Message, test.says) {
			t.Errorf("%v: %d %+v", test.p, status, s)
		}
	}
	if status, s := w.skeleton(url.Values{"feed": {uri}}, "Bearer nonsense"); status != 401 || s.Error != "BadJwt" {
		t.Errorf("a token is still checked: %d %+v", status, s)
	}
}

// countingHandles counts the handles that are looked up.
type countingHandles struct {
	handles

	looked atomic.Int64
}

func (h *countingHandles) Kept(name string) (string, bool, error) {
	h.looked.Add(1)
	return h.handles.Kept(name)
}

// A stranger behind a proxy on the same machine gets no preview, and has no handle resolved.
func TestAbuseFeedPreview(t *testing.T) {
	w := newFeedWorld(t, "friends = rank(of=follows($viewer), via=likes)\n")
	h := &countingHandles{handles: handles{kept: map[string]string{}}}
	w.preview(h)
	refused, asked := 0, harness.Size(50, 5000)
	for i := range asked {
		p := url.Values{"feed": {feedURI("friends")}, "viewer": {fmt.Sprintf("stranger%d.example.com", i)}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"/xrpc/app.bsky.feed.getFeedSkeleton?"+p.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set([]string{"Forwarded", "X-Forwarded-For", "Via"}[i%3], "198.51.100.7")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusBadRequest {
			refused++
		}
		_ = resp.Body.Close()
	}
	if n := h.looked.Load(); refused != asked || n > 0 {
		t.Errorf("of %d requests %d are refused, and %d handles were looked up", asked, refused, n)
	}
	harness.Figure(t, "handles looked up", "%d of %d that a proxy forwarded", h.looked.Load(), asked)
	if status, _ := w.skeleton(url.Values{"feed": {feedURI("friends")}, "viewer": {"nobody.example.com"}}, ""); status != 400 || h.looked.Load() == 0 {
		t.Error("without a proxy the handle is not looked up: nothing was proven")
	}
}
