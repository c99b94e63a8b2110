package query_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/internal/identities"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// feedWorld serves feeds of a world, to viewers with keys.
type feedWorld struct {
	*world

	path    string
	dir     *identity.MockDirectory
	keys    map[string]atcrypto.PrivateKey
	service *query.Service
	f       *feed.Feeds
}

func newFeedWorld(t *testing.T, file string) *feedWorld {
	t.Helper()
	w := &feedWorld{world: newWorldOf(t, oracle.NewHistory(41, 30), spreadLimits, 4000), path: filepath.Join(t.TempDir(), "feeds"), dir: identity.NewMockDirectory(), keys: map[string]atcrypto.PrivateKey{}}
	for _, did := range w.history.Accounts()[:8] {
		w.insert(did)
	}
	w.write(file)
	w.serve(w.dir)
	return w
}

// insert gives an account a new key.
func (w *feedWorld) insert(did string) {
	w.t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	if err != nil {
		w.t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		w.t.Fatal(err)
	}
	w.keys[did] = key
	w.dir.Insert(identity.Identity{DID: syntax.DID(did), Handle: "handle.invalid", Keys: map[string]identity.VerificationMethod{"atproto": {Type: "Multikey", PublicKeyMultibase: public.Multibase()}}})
}

// serve serves the world as did:web:feeds.example.com, with keys from a directory.
func (w *feedWorld) serve(d identity.Directory) {
	w.t.Helper()
	var err error
	if w.service, err = query.NewService(query.ServiceOptions{Host: "feeds.example.com", Directory: new(identities.Broker).Over(d)}); err != nil {
		w.t.Fatal(err)
	}
	if w.f, err = feed.New(feed.Options{Path: w.path, Service: w.service.DID()}); err != nil {
		w.t.Fatal(err)
	}
	s, err := query.New(w.store, query.Options{Service: w.service, Feeds: w.f})
	if err != nil {
		w.t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	w.t.Cleanup(srv.Close)
	w.t.Cleanup(s.Close)
	w.base = srv.URL
}

func (w *feedWorld) write(file string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(file), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// token signs a token of an account.
func (w *feedWorld) token(iss, aud, method string, ttl time.Duration, key atcrypto.PrivateKey) string {
	w.t.Helper()
	lxm := syntax.NSID(method)
	s, err := auth.SignServiceAuth(syntax.DID(iss), aud, ttl, &lxm, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return "Bearer " + s
}

type skeleton struct {
	Feed           []struct{ Post string }
	Cursor         string
	Error, Message string
}

func (w *feedWorld) skeleton(p url.Values, authorization string) (int, skeleton) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.base+"/xrpc/app.bsky.feed.getFeedSkeleton?"+p.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	var s skeleton
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || resp.Body.Close() != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, s
}

const (
	serviceDID   = "did:web:feeds.example.com"
	feedSkeleton = "app.bsky.feed.getFeedSkeleton"
)

// pages pages through a feed, for a viewer, or for nobody.
func (w *feedWorld) pages(feed string, limit int, viewer string) (posts []string) {
	w.t.Helper()
	for cursor := ""; ; {
		p := url.Values{"feed": {feedURI(feed)}, "limit": {fmt.Sprint(limit)}}
		p.Set("cursor", cursor) // empty on the first page
		token := ""
		if viewer != "" {
			token = w.token(viewer, serviceDID, feedSkeleton, time.Minute, w.keys[viewer])
		}
		status, s := w.skeleton(p, token)
		if status != 200 || len(s.Feed) > limit || s.Feed == nil {
			w.t.Fatalf("%s: %d %+v", feed, status, s)
		}
		for _, i := range s.Feed {
			posts = append(posts, i.Post)
		}
		if cursor = s.Cursor; cursor == "" {
			return posts
		}
	}
}

func feedURI(name string) string {
	return "at://did:web:feeds.example.com/app.bsky.feed.generator/" + name
}

const feedFile = `# feeds
friends = rank(of=follows($viewer), via=likes,
   except=likes($viewer))
everybody = rank(of=union(%[1]s), via=likes, since=1970-01-01, min=2)

newest = union(
	likes(%[2]s, since=1970-01-01),
	reposts(%[2]s))
mine = likes($viewer)
`

func TestFeeds(t *testing.T) {
	h := oracle.NewHistory(41, 30)
	a := h.Accounts()
	var all []string
	for _, did := range a[:20] {
		all = append(all, "followers("+did+")")
	}
	w := newFeedWorld(t, fmt.Sprintf(feedFile, strings.Join(all, ","), a[0]))
	v := w.model.Views()
	isPost := func(uri string) bool {
		return strings.Count(uri, "/") == 4 && strings.Contains(uri, "/app.bsky.feed.post/")
	}
	some := 0
	for viewer := range w.keys {
		counts := map[string]int{}
		for _, followed := range v.Forward["follow"][viewer] {
			for _, uri := range v.Forward["like"][followed] {
				if isPost(uri) && !slices.Contains(v.Forward["like"][viewer], uri) {
					counts[uri]++
				}
			}
		}
		got := w.pages("friends", 3, viewer)
		if len(got) != len(counts) {
			t.Fatalf("%s: %d posts, want %d", viewer, len(got), len(counts))
		}
		for i, uri := range got {
			if counts[uri] == 0 || i > 0 && counts[uri] > counts[got[i-1]] {
				t.Fatalf("%s: %q of %v", viewer, got, counts)
			}
		}
		some += len(got)
		got = w.pages("mine", 2, viewer)
		var want []string
		for _, uri := range v.Forward["like"][viewer] {
			if isPost(uri) {
				want = append(want, uri)
			}
		}
		sameSet(t, got, want)
		if !slices.IsSortedFunc(got, func(x, y string) int {
			return strings.Compare(y[strings.LastIndexByte(y, '/'):], x[strings.LastIndexByte(x, '/'):])
		}) {
			t.Errorf("not the newest first: %q", got)
		}
	}
	var want []string
	for _, kind := range []string{"like", "repost"} {
		for _, uri := range v.Forward[kind][a[0]] {
			if isPost(uri) && !slices.Contains(want, uri) {
				want = append(want, uri)
			}
		}
	}
	sameSet(t, w.pages("newest", 4, ""), want)
	if n := len(w.pages("everybody", 5, "")); n == 0 || some < 10 {
		t.Errorf("%d posts of everybody, %d of friends", n, some)
	}
}

// sameSet compares lists as sets, each member once.
func sameSet(t *testing.T, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Posts whose keys are no times come to an end, too.
func TestFeedOfOddPosts(t *testing.T) {
	a := oracle.NewHistory(41, 30).Accounts()
	w := newFeedWorld(t, "mine = likes(did:web:odd.example.com)\n")
	e := &oracle.Event{Type: oracle.CommitEvent, Seq: 20_000, DID: "did:web:odd.example.com", Rev: oracle.TID(1 << 60)}
	var want []string
	for _, rkey := range []string{"x1", "x2", "x3", "3kaaaaaaaaaaa"} {
		uri := "at://" + a[1] + "/app.bsky.feed.post/" + rkey
		e.Ops = append(e.Ops, oracle.Op{Kind: "like", Rkey: rkey, Subject: uri})
		want = append(want, uri)
	}
	w.happen(e)
	sameSet(t, w.pages("mine", 1, ""), want)
}

// Feeds with $viewer need a valid token.
func TestFeedTokens(t *testing.T) {
	w := newFeedWorld(t, "mine = likes($viewer)\npublic = likes("+oracle.NewHistory(41, 30).Accounts()[0]+")\n")
	const aud, method = serviceDID, feedSkeleton
	a := w.history.Accounts()
	sign := func() string { return w.token(a[0], aud, method, time.Minute, w.keys[a[0]]) }
	good := sign()
	for name, c := range map[string]struct {
		token  string
		status int
	}{
		"good":           {good, 200},
		"its entry":      {w.token(a[0], aud+"#bsky_fg", method, time.Minute, w.keys[a[0]]), 200},
		"lower case":     {"bearer " + strings.TrimPrefix(sign(), "Bearer "), 200},
		"another entry":  {w.token(a[0], aud+"#skein_graph", method, time.Minute, w.keys[a[0]]), 401},
		"none":           {"", 401},
		"another scheme": {"Basic " + strings.TrimPrefix(sign(), "Bearer "), 401},
		"another's key":  {w.token(a[0], aud, method, time.Minute, w.keys[a[1]]), 401},
		"expired":        {w.token(a[0], aud, method, -time.Minute, w.keys[a[0]]), 401},
		"of elsewhere":   {w.token(a[0], "did:web:other.example.com", method, time.Minute, w.keys[a[0]]), 401},
		"another method": {w.token(a[0], aud, "app.bsky.feed.getTimeline", time.Minute, w.keys[a[0]]), 401},
		"unknown":        {w.token("did:plc:bbbbbbbbbbbbbbbbbbbbbbbb", aud, method, time.Minute, w.keys[a[0]]), 401},
		"cut":            {sign()[:len(good)-3], 401},
		"no token":       {"Bearer x", 401},
	} {
		if status, s := w.skeleton(url.Values{"feed": {feedURI("mine")}}, c.token); status != c.status {
			t.Errorf("%s: %d %+v", name, status, s)
		}
		if status, s := w.skeleton(url.Values{"feed": {feedURI("public")}}, c.token); status != 200 {
			t.Errorf("%s, of a feed that is everybody's: %d %+v", name, status, s)
		}
	}
	if status, s := w.skeleton(url.Values{"feed": {feedURI("mine")}}, good); status != 401 || s.Error != "JwtReplayed" || !strings.Contains(s.Message, "used before") {
		t.Errorf("again: %d %+v", status, s)
	}
	for feed, want := range map[string]string{
		feedURI("other"): "UnknownFeed", "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.generator/mine": "UnknownFeed", "": "UnknownFeed",
		"at://did:web:feeds.example.com/app.bsky.feed.post/mine": "UnknownFeed",
	} {
		if status, s := w.skeleton(url.Values{"feed": {feed}}, good); status != 400 || s.Error != want {
			t.Errorf("%s: %d %+v", feed, status, s)
		}
	}
	if status, s := w.skeleton(url.Values{"feed": {feedURI("mine")}, "cursor": {"x"}}, sign()); status != 400 {
		t.Errorf("a cursor of nobody's: %d %+v", status, s)
	}
}

// A file of feeds is reloaded as a whole, or not at all.
func TestFeedFile(t *testing.T) {
	w := newFeedWorld(t, "a = likes($viewer)\n")
	a := w.history.Accounts()[0]
	for file, want := range map[string]string{
		"a = likes($viewer)\nb = likes(\n":                           "line 2: feed b: at position 6: likes(…) needs an argument",
		"a = likes($viewer)\n\n# x\na = likes($viewer)":              "line 4: the feed a is already defined on line 1",
		"  a = likes($viewer)":                                       "line 1 continues a feed",
		"likes($viewer)":                                             "line 1: \"likes($viewer)\" is not a feed",
		"a b = likes($viewer)":                                       "is not a feed",
		"a = followers($viewer)":                                     "it is a set of DIDs, but a feed shows posts",
		"a = rank(of=follows($viewer), via=follows)":                 "its results are DIDs, but a feed shows posts",
		"a = rank(of=follows($viewer), via=likes, since=soon)":       "parameter since",
		"a = rank(of=follows($viewer), via=likes, limit=5)":          `cannot set limit or cursor`,
		"a = rank(of=follows($viewer), of=follows($viewer))":         "of is given twice",
		"a = rank(follows($viewer), via=likes)":                      "write name=value",
		"a = rank(of=follows($viewer), via=likes":                    "at the end of rank(",
		"a = rank(of=follows($viewer),\n via=likes)\nb = likes(" + a: "line 3: feed b",
	} {
		w.write(file)
		if _, err := w.f.Reload(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), w.path) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
		if _, err := feed.New(feed.Options{Path: w.path, Service: w.service.DID()}); err == nil {
			t.Errorf("%q: is taken", file)
		}
	}
	describe := func() string {
		_, body, _ := w.get("/xrpc/app.bsky.feed.describeFeedGenerator")
		return strings.TrimSpace(body)
	}
	if got, want := describe(), `{"did":"did:web:feeds.example.com","feeds":[{"uri":"`+feedURI("a")+`"}]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.write("b = likes(" + a + ")\r\nc = likes($viewer)\n")
	if n, err := w.f.Reload(); n != 2 || err != nil {
		t.Errorf("%d feeds, %v", n, err)
	}
	if got := describe(); !strings.Contains(got, feedURI("b")) || strings.Contains(got, feedURI("a")) {
		t.Error(got)
	}
	plain := newWorld(t, 42, 10)
	if status, body, _ := plain.get("/xrpc/app.bsky.feed.getFeedSkeleton?feed=x"); status != 501 {
		t.Errorf("without feeds: %d %s", status, body)
	}
	if status, _, _ := plain.get("/.well-known/did.json"); status != 404 {
		t.Errorf("without feeds: %d", status)
	}
}
