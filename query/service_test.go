package query_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/query"
)

// The DID document names the entries that a PDS proxies to and that feeds are asked of.
func TestServiceDocument(t *testing.T) {
	w := newFeedWorld(t, "mine = likes($viewer)\n")
	withFeeds := w.base
	for host, want := range map[string]string{"graph.example.com": "https://graph.example.com", "localhost:3210": "http://localhost:3210"} {
		service, err := query.NewService(query.ServiceOptions{Host: host, Directory: w.dir})
		if err != nil {
			t.Fatal(err)
		}
		s, err := query.New(w.store, query.Options{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(s)
		t.Cleanup(srv.Close)
		w.base = srv.URL
		doc := w.document()
		if doc.DID.String() != "did:web:"+strings.ReplaceAll(host, ":", "%3A") || len(doc.Service) != 1 || doc.Service[0].ID != "#skein_graph" || doc.Service[0].Type != "SkeinGraph" || doc.Service[0].ServiceEndpoint != want {
			t.Errorf("%s: %+v", host, doc)
		}
	}
	w.base = withFeeds
	doc := w.document()
	if len(doc.Service) != 2 || doc.Service[0].ID != "#skein_graph" || doc.Service[1].ID != "#bsky_fg" || doc.Service[1].Type != "BskyFeedGenerator" || doc.Service[1].ServiceEndpoint != "https://feeds.example.com" {
		t.Errorf("with feeds: %+v", doc)
	}
	for _, host := range []string{"", "https://x.example.com", "a b"} {
		if _, err := query.NewService(query.ServiceOptions{Host: host, Directory: w.dir}); err == nil {
			t.Errorf("host %q is accepted", host)
		}
	}
}

func (w *feedWorld) document() (doc identity.DIDDocument) {
	w.t.Helper()
	_, body, _ := w.get("/.well-known/did.json")
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		w.t.Fatalf("%s: %v", body, err)
	}
	return doc
}

// ask asks a method with a token, and reads the answer into out.
func (w *feedWorld) ask(method string, p url.Values, authorization string, out any) (int, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.base+"/xrpc/"+method+"?"+p.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.Body.Close() != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header
}

// A query with $viewer has the answer of the same query with the viewer's DID, in each
// method and in each place.
func TestViewer(t *testing.T) {
	w := newFeedWorld(t, "mine = likes($viewer)\n")
	a := w.history.Accounts()
	viewer, uri := a[0], "at://$viewer/app.bsky.graph.list/3kaaaaaaaaaaa"
	for _, c := range []struct{ method, query string }{
		{"query", "set=follows($viewer)"},
		{"query", "set=union(follows($viewer),followers($viewer),members($viewer))&limit=3"},
		{"query", "set=likes($viewer, since=1970-01-01)"},
		{"query", "set=listed(" + uri + ")"},
		{"query", "set=members(at://$viewer/app.bsky.feed.post/3kaaaaaaaaaaa)"},
		{"list", "set=follows($viewer)"},
		{"histogram", "set=follows($viewer)"},
		{"contains", "set=followers($viewer)&member=" + a[1]},
		{"contains", "set=follows(" + a[1] + ")&member=$viewer&member=" + a[2]},
		{"known", "actor=$viewer&edge=followers&subject=" + a[1] + "&subject=" + a[2]},
		{"known", "actor=" + a[1] + "&edge=followers&subject=$viewer"},
		{"getBlocks", "actor=$viewer&direction=blocking"},
		{"getBlocks", "actor=" + a[1] + "&direction=blockedBy&others=$viewer"},
		{"counts", "edge=followers&edge=likes&subject=$viewer&subject=" + a[1]},
		{"rank", "of=follows($viewer)&via=likes&except=likes($viewer)&since=24000d"},
		{"getAccount", "did=$viewer"},
	} {
		p, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		method := "blue.skein.graph." + c.method
		named, err := url.ParseQuery(strings.ReplaceAll(c.query, "$viewer", viewer))
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if status, h := w.ask(method, named, "", &want); status != 200 || h.Get("Cache-Control") != "no-cache" {
			t.Fatalf("%s?%s: %d %v", method, named, status, want)
		}
		for _, aud := range []string{serviceDID, serviceDID + "#skein_graph"} {
			clear(got)
			status, h := w.ask(method, p, w.token(viewer, aud, method, time.Minute, w.keys[viewer]), &got)
			delete(want, "cursor") // it is bound to the question
			delete(got, "cursor")
			if b, wanted := string(mustJSON(t, got)), string(mustJSON(t, want)); status != 200 || b != wanted {
				t.Errorf("%s?%s: %d %s, want %s", method, c.query, status, b, wanted)
			}
			if h.Get("Cache-Control") != "private, no-cache" || !strings.Contains(strings.Join(h.Values("Vary"), ","), "Authorization") {
				t.Errorf("%s?%s: a shared cache may keep it: %v", method, c.query, h)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every query with $viewer needs its own token, made for its method.
func TestViewerRefusals(t *testing.T) {
	w := newFeedWorld(t, "mine = likes($viewer)\n")
	a := w.history.Accounts()
	const method = "blue.skein.graph.query"
	type failed struct{ Error, Message string }
	sign := func(aud, lxm string) string { return w.token(a[0], aud, lxm, time.Minute, w.keys[a[0]]) }
	for name, c := range map[string]struct{ token, error, says string }{
		"none":           {"", "AuthMissing", "aud did:web:feeds.example.com#skein_graph and lxm blue.skein.graph.query"},
		"the feeds'":     {sign(serviceDID+"#bsky_fg", method), "BadJwt", `aud is "did:web:feeds.example.com#bsky_fg"`},
		"another method": {sign(serviceDID, "blue.skein.graph.list"), "BadJwt", `lxm is "blue.skein.graph.list"`},
	} {
		var f failed
		status, h := w.ask(method, url.Values{"set": {"union(follows(" + a[1] + "),follows($viewer))"}}, c.token, &f)
		if status != 401 || f.Error != c.error || !strings.Contains(f.Message, c.says) || !strings.HasPrefix(f.Message, "set: at position ") || h.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %+v %v", name, status, f, h)
		}
	}
	var f failed
	if status, _ := w.ask(method, url.Values{"set": {"likers($viewer)"}}, "", &f); status != 400 || !strings.Contains(f.Message, "is an account; likers takes an AT URI") {
		t.Errorf("%d %+v", status, f)
	}
	once := sign(serviceDID, method)
	for i, want := range []int{200, 401} {
		if status, _ := w.ask(method, url.Values{"set": {"follows($viewer)"}}, once, &f); status != want {
			t.Errorf("use %d of one token: %d %+v", i+1, status, f)
		}
	}
	// Pages are of one viewer: another's cursor is nobody's.
	var page struct{ Cursor string }
	set := url.Values{"set": {"followers($viewer)"}, "limit": {"1"}}
	if status, _ := w.ask(method, set, sign(serviceDID, method), &page); status != 200 || page.Cursor == "" {
		t.Fatalf("%d %+v", status, page)
	}
	set.Set("cursor", page.Cursor)
	if status, _ := w.ask(method, set, sign(serviceDID, method), &page); status != 200 {
		t.Errorf("the second page: %d", status)
	}
	if status, _ := w.ask(method, set, w.token(a[1], serviceDID, method, time.Minute, w.keys[a[1]]), &f); status != 400 {
		t.Errorf("another viewer's cursor: %d %+v", status, f)
	}
	plain := &feedWorld{world: newWorld(t, 42, 10)}
	if status, _ := plain.ask(method, url.Values{"set": {"follows($viewer)"}}, "", &f); status != 400 || !strings.Contains(f.Message, "--service-host") {
		t.Errorf("where the server has no name: %d %+v", status, f)
	}
}

// A browser may send tokens: CORS's * does not stand for Authorization.
func TestViewerPreflight(t *testing.T) {
	w := newWorld(t, 42, 10)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, w.base+"/xrpc/blue.skein.graph.query", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if allowed := strings.Split(strings.ToLower(resp.Header.Get("Access-Control-Allow-Headers")), ", "); !slices.Contains(allowed, "authorization") {
		t.Errorf("allowed headers: %q", allowed)
	}
}
