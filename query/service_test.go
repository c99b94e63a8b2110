package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/internal/identities"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// viewers is a world with a public name, feeds, and accounts with keys.
type viewers struct {
	*world

	dir  *identity.MockDirectory
	keys map[string]atcrypto.PrivateKey
	path string // of the file of feeds
}

const (
	serviceDID   = "did:web:feeds.example.com"
	feedSkeleton = "app.bsky.feed.getFeedSkeleton"
	interactions = "app.bsky.feed.sendInteractions"
	queryMethod  = "blue.skein.graph.query"
)

func newViewers(t *testing.T, feeds string) *viewers {
	t.Helper()
	w := &viewers{spreadWorld(t, 41), identity.NewMockDirectory(), map[string]atcrypto.PrivateKey{}, filepath.Join(t.TempDir(), "feeds")}
	for _, did := range w.history.Accounts()[:8] {
		w.insert(did)
	}
	must(t, os.WriteFile(w.path, []byte(feeds), 0o600))
	w.serveAs("feeds.example.com", w.dir, query.Options{})
	return w
}

// insert gives an account a new key.
func (w *viewers) insert(did string) {
	w.t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	must(w.t, err)
	public, err := key.PublicKey()
	must(w.t, err)
	w.keys[did] = key
	w.dir.Insert(identity.Identity{DID: syntax.DID(did), Handle: "handle.invalid", Keys: map[string]identity.VerificationMethod{"atproto": {Type: "Multikey", PublicKeyMultibase: public.Multibase()}}})
}

// serveAs serves the world under a name, with keys from a directory.
func (w *viewers) serveAs(host string, d identity.Directory, o query.Options) {
	w.t.Helper()
	var err error
	o.Service, err = query.NewService(host, new(identities.Broker).Over(d))
	must(w.t, err)
	o.Feeds, err = feed.New(feed.Options{Path: w.path, Service: o.Service.DID()})
	must(w.t, err)
	w.serve(o)
}

// token signs a token of an account.
func (w *viewers) token(iss, aud, method string, ttl time.Duration, key atcrypto.PrivateKey) string {
	w.t.Helper()
	lxm := syntax.NSID(method)
	s, err := auth.SignServiceAuth(syntax.DID(iss), aud, ttl, &lxm, key)
	must(w.t, err)
	return "Bearer " + s
}

func (w *viewers) tokenOf(viewer, method string) string {
	w.t.Helper()
	return w.token(viewer, serviceDID, method, time.Minute, w.keys[viewer])
}

// as calls a method with a token.
func (w *viewers) as(token, call string, headers ...string) (status int, a answer, h http.Header) {
	w.t.Helper()
	status, body, h := w.do(http.MethodGet, pathOf(call), "", append(headers, "Authorization", token)...)
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		w.t.Fatalf("%s: %s %v", call, body, err)
	}
	return status, a, h
}

func feedCall(name, more string) string {
	return feedSkeleton + "?feed=at://did:web:feeds.example.com/app.bsky.feed.generator/" + name + more
}

// feedOf asks for a feed of a viewer, which must be answered.
func (w *viewers) feedOf(name, viewer string) (posts []struct{ Post string }) {
	w.t.Helper()
	status, a, _ := w.as(w.tokenOf(viewer, feedSkeleton), feedCall(name, ""))
	if status != 200 || a.Feed == nil {
		w.t.Fatalf("%s as %s: %d %+v", name, viewer, status, a)
	}
	return a.Feed
}

// interact calls sendInteractions.
func (w *viewers) interact(token, body string) (status int, answer string) {
	w.t.Helper()
	status, answer, _ = w.do(http.MethodPost, "/xrpc/"+interactions, body, "Authorization", token, "Content-Type", "application/json")
	return status, answer
}

// Posts that an app reports as seen are missing in the viewer's own feed, and in no other. The report needs the viewer's token, for this
// method, once.
func TestInteractions(t *testing.T) {
	w := newViewers(t, "fresh = likes($viewer), seen=hide\nall = likes($viewer)\n")
	viewer, other := "", ""
	for _, did := range slices.Sorted(maps.Keys(w.keys)) {
		if posts := w.feedOf("all", did); len(posts) > 2 {
			viewer, other = did, viewer
		}
	}
	posts := w.feedOf("fresh", viewer)
	event := func(kind string, post string) string {
		return fmt.Sprintf(`{"item":%q,"event":"app.bsky.feed.defs#%s","feedContext":"x","reqId":"y"}`, post, kind)
	}
	body := `{"feed":"at://x","interactions":[` + event("interactionSeen", posts[0].Post) + "," + event("interactionLike", posts[1].Post) + `,{},{"item":"x","event":"app.bsky.feed.defs#interactionSeen"}]}`
	once := w.tokenOf(viewer, interactions)
	for _, c := range []struct {
		token, body  string
		status       int
		error, shown string
	}{
		{"", body, 401, "AuthMissing", "#bsky_fg"},
		{w.tokenOf(viewer, feedSkeleton), body, 401, "BadJwt", "lxm"},
		{w.token(viewer, serviceDID+"#skein_graph", interactions, time.Minute, w.keys[viewer]), body, 401, "BadJwt", "aud"},
		{w.token(viewer, serviceDID, interactions, time.Minute, w.keys[other]), body, 401, "BadJwt", ""},
		{w.tokenOf(viewer, interactions), "interactions=x", 400, "InvalidRequest", "must be JSON"},
		{w.tokenOf(viewer, interactions), "{}", 400, "InvalidRequest", "must be JSON"},
		{w.tokenOf(other, interactions), body, 200, "", "{}"},
	} {
		if status, a := w.interact(c.token, c.body); status != c.status || !strings.Contains(a, c.error) || !strings.Contains(a, c.shown) {
			t.Errorf("%s: %d %s, want %+v", c.body, status, a, c)
		}
	}
	if again := w.feedOf("fresh", viewer); !slices.Equal(again, posts) {
		t.Errorf("%d posts of %d, but nobody proved that the viewer has seen any", len(again), len(posts))
	}
	for i, want := range []int{200, 401} {
		if status, a := w.interact(once, body); status != want {
			t.Errorf("use %d of a token: %d %s", i+1, status, a)
		}
	}
	if fresh, all := w.feedOf("fresh", viewer), w.feedOf("all", viewer); !slices.Equal(fresh, posts[1:]) || !slices.Equal(all, posts) {
		t.Errorf("%v and %v, with the first seen of %v", fresh, all, posts)
	}
	if status, _, h := w.do(http.MethodGet, "/xrpc/"+interactions, ""); status != 405 || h.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("GET: %d %v", status, h)
	}
	if status, a, _ := w.do(http.MethodPost, "/xrpc/"+interactions, body, "Content-Type", "text/plain"); status != 415 || !strings.Contains(a, "application/json") {
		t.Errorf("a body of text: %d %s", status, a)
	}
}

// Answers that depend on the viewer need a valid token, made for their method and used once. (Package identities has the
// table of tokens.)
func TestTokens(t *testing.T) {
	a := oracle.NewSpreadHistory(41, 30).Accounts()
	w := newViewers(t, "mine = likes($viewer)\npublic = likes("+a[0]+")\n")
	set := "query?set=union(follows(" + a[1] + "),follows($viewer))"
	sign := func(aud, method string) string {
		return w.token(a[0], serviceDID+aud, method, time.Minute, w.keys[a[0]])
	}
	good, once := sign("", feedSkeleton), sign("#skein_graph", queryMethod)
	for _, c := range []struct {
		call, token string
		status      int
		error, says string
	}{
		{feedCall("mine", ""), good, 200, "", ""},
		{feedCall("mine", ""), good, 401, "JwtReplayed", "used before"},
		{feedCall("mine", ""), sign("#bsky_fg", feedSkeleton), 200, "", ""},
		{feedCall("mine", ""), "bearer " + strings.TrimPrefix(sign("", feedSkeleton), "Bearer "), 200, "", ""},
		{feedCall("mine", ""), sign("#skein_graph", feedSkeleton), 401, "BadJwt", "aud"},
		{feedCall("mine", ""), "", 401, "AuthMissing", "#bsky_fg"},
		{feedCall("mine", ""), "Basic " + strings.TrimPrefix(good, "Bearer "), 401, "AuthMissing", ""},
		{feedCall("mine", ""), w.token(a[0], serviceDID, feedSkeleton, time.Minute, w.keys[a[1]]), 401, "BadJwt", ""},
		{feedCall("mine", ""), w.token("did:plc:bbbbbbbbbbbbbbbbbbbbbbbb", serviceDID, feedSkeleton, time.Minute, w.keys[a[0]]), 401, "BadJwt", ""},
		{feedCall("public", ""), "Bearer x", 200, "", ""},
		{set, once, 200, "", ""},
		{set, once, 401, "JwtReplayed", "set: at position "},
		{set, "", 401, "AuthMissing", "aud did:web:feeds.example.com#skein_graph and lxm blue.skein.graph.query"},
		{set, sign("#bsky_fg", queryMethod), 401, "BadJwt", `aud is "did:web:feeds.example.com#bsky_fg"`},
		{set, sign("", "blue.skein.graph.list"), 401, "BadJwt", `lxm is "blue.skein.graph.list"`},
		{"query?set=likers($viewer)", "", 400, "InvalidRequest", "is an account; likers takes an AT URI"},
	} {
		status, a, h := w.as(c.token, c.call)
		if status != c.status || a.Error != c.error || !strings.Contains(a.Message, c.says) || (status == 401) != (h.Get("WWW-Authenticate") != "") {
			t.Errorf("%s with %.20s: %d %+v, want %+v", c.call, c.token, status, a, c)
		}
	}
	// Pages are of one viewer: another's cursor is nobody's.
	pages := "query?limit=1&set=followers($viewer)&cursor="
	_, page, _ := w.as(w.tokenOf(a[0], queryMethod), pages)
	for viewer, want := range map[string]int{a[0]: 200, a[1]: 400} {
		if status, a, _ := w.as(w.tokenOf(viewer, queryMethod), pages+url.QueryEscape(page.Cursor)); status != want || page.Cursor == "" {
			t.Errorf("the second page: %d %+v, want %d", status, a, want)
		}
	}
	w.serve(query.Options{})
	w.says("query?set=follows($viewer)", 400, "--service-host")
	w.says(feedCall("mine", ""), 501, "")
	w.says("/.well-known/did.json", 404, "")
}

// A query with $viewer has the answer of the same query with the viewer's DID, in each
// method and in each place.
func TestViewer(t *testing.T) {
	w := newViewers(t, "mine = likes($viewer)\n")
	a := w.history.Accounts()
	viewer, uri := a[0], "at://$viewer/app.bsky.graph.list/3kaaaaaaaaaaa"
	for _, call := range []string{
		"query?set=union(follows($viewer),followers($viewer),members($viewer))&limit=3",
		"query?set=likes($viewer,since=1970-01-01)",
		"query?set=listed(" + uri + ")",
		"query?set=members(at://$viewer/app.bsky.feed.post/3kaaaaaaaaaaa)",
		"list?set=follows($viewer)",
		"histogram?set=follows($viewer)",
		"contains?set=followers($viewer)&member=" + a[1],
		"contains?set=follows(" + a[1] + ")&member=$viewer&member=" + a[2],
		"known?actor=$viewer&edge=followers&subject=" + a[1] + "&subject=" + a[2],
		"known?actor=" + a[1] + "&edge=followers&subject=$viewer",
		"getBlocks?actor=$viewer&direction=blocking",
		"getBlocks?actor=" + a[1] + "&direction=blockedBy&others=$viewer",
		"counts?edge=followers&edge=likes&subject=$viewer&subject=" + a[1],
		"rank?of=follows($viewer)&via=likes&except=likes($viewer)&since=24000d",
		"getAccount?did=$viewer",
	} {
		ask := func(call, token string) map[string]any {
			t.Helper()
			var v map[string]any
			status, body, h := w.do(http.MethodGet, pathOf(call), "", "Authorization", token)
			if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
				t.Fatalf("%s: %d %s", call, status, body)
			}
			if private := h.Get("Cache-Control") == "private, no-cache" && strings.Contains(strings.Join(h.Values("Vary"), ","), "Authorization"); private != (token != "") {
				t.Errorf("%s: a shared cache may keep it: %v", call, h)
			}
			delete(v, "cursor") // it is bound to the question
			return v
		}
		method, _, _ := strings.Cut(call, "?")
		got, want := ask(call, w.tokenOf(viewer, "blue.skein.graph."+method)), ask(strings.ReplaceAll(call, "$viewer", viewer), "")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", call, got, want)
		}
	}
	if status, _, h := w.do(http.MethodGet, pathOf("query?format=csv&set=follows($viewer)"), "", "Authorization", w.tokenOf(viewer, queryMethod)); status != 200 || h.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("CSV: %d, a shared cache may keep it: %v", status, h)
	}
}

// The DID document names the entries that a PDS proxies to and that feeds are asked of.
func TestServiceDocument(t *testing.T) {
	w := newViewers(t, "mine = likes($viewer)\n")
	for host, want := range map[string]string{"graph.example.com": "https://graph.example.com", "localhost:3210": "http://localhost:3210"} {
		w.serveAs(host, w.dir, query.Options{})
		var doc identity.DIDDocument
		w.ask("/.well-known/did.json", nil, &doc)
		if doc.DID.String() != "did:web:"+strings.ReplaceAll(host, ":", "%3A") || len(doc.Service) != 2 || doc.Service[0].ID != "#skein_graph" || doc.Service[0].Type != "SkeinGraph" || doc.Service[0].ServiceEndpoint != want ||
			doc.Service[1].ID != "#bsky_fg" || doc.Service[1].Type != "BskyFeedGenerator" || doc.Service[1].ServiceEndpoint != want {
			t.Errorf("%s: %+v", host, doc)
		}
	}
	for _, host := range []string{"", "https://x.example.com", "a b"} {
		if _, err := query.NewService(host, w.dir); err == nil {
			t.Errorf("host %q is accepted", host)
		}
	}
}

// A preview of a line shows what a viewer with a token sees, also by handle.
func TestFeedPreview(t *testing.T) {
	const line = "friends = rank(of=follows($viewer), via=likes)"
	w := newViewers(t, line+"\n")
	viewer, want := "", []struct{ Post string }{}
	for _, did := range slices.Sorted(maps.Keys(w.keys)) {
		if posts := w.feedOf("friends", did); len(posts) > len(want) {
			viewer, want = did, posts
		}
	}
	h := &handles{kept: map[string]string{"kept.example.com": viewer}}
	w.serveAs("feeds.example.com", w.dir, query.Options{Handles: h})
	preview := feedSkeleton + "?line=" + url.QueryEscape(line) + "&viewer="
	if status, a, _ := w.as("", preview+"@kept.example.com"); status != 200 || !slices.Equal(a.Feed, want) || len(want) < 5 || h.asked.Load() == 0 {
		t.Errorf("%d %+v, with a token %+v", status, a, want)
	}
	w.says(preview+"nobody.example.com", 400, "no account has the handle")
}

// hangingDirectory counts look-ups. Those of evil hosts hang until they are given up, or the
// test ends.
type hangingDirectory struct {
	*identity.MockDirectory

	ended chan struct{}

	hanging, most atomic.Int64
}

func (d *hangingDirectory) LookupDID(ctx context.Context, did syntax.DID) (*identity.Identity, error) {
	if !strings.Contains(did.String(), "evil") {
		return d.MockDirectory.LookupDID(ctx, did)
	}
	n := d.hanging.Add(1)
	defer d.hanging.Add(-1)
	for old := d.most.Load(); n > old && !d.most.CompareAndSwap(old, n); old = d.most.Load() {
	}
	select {
	case <-ctx.Done():
	case <-d.ended:
	}
	return nil, identity.ErrDIDResolutionFailed
}

// Tokens whose issuers' hosts never answer delay only users of the same hosts.
func TestAbuseHangingIssuers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		issuer func(i int) string
		atOnce int64
		others []string // issuers whose keys are not kept
	}{
		"one domain":   {func(i int) string { return fmt.Sprintf("did:web:h%d.evil.com", i) }, identities.ClientsOfDomain, []string{"did:plc:newaaaaaaaaaaaaaaaaaaaaa", "did:web:good.example.com"}},
		"many domains": {func(i int) string { return fmt.Sprintf("did:web:evil%d.com", i) }, identities.ClientsOfWeb, []string{"did:plc:newaaaaaaaaaaaaaaaaaaaaa"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newViewers(t, "mine = likes($viewer)\n")
			d := &hangingDirectory{MockDirectory: w.dir, ended: make(chan struct{})}
			w.serveAs("feeds.example.com", d, query.Options{})
			known := w.history.Accounts()[0]
			for _, did := range c.others {
				w.insert(did)
			}
			w.feedOf("mine", known) // its key is kept from here on
			var requests sync.WaitGroup
			for i := range harness.Size(8+3*int(c.atOnce), 2000) {
				token := w.token(c.issuer(i), serviceDID, feedSkeleton, time.Minute, w.keys[known])
				requests.Go(func() { w.as(token, feedCall("mine", "")) })
			}
			defer func() { close(d.ended); requests.Wait() }()
			for until := time.Now().Add(4 * time.Second); d.hanging.Load() < c.atOnce; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("%d look-ups hang, expected %d", d.hanging.Load(), c.atOnce)
				}
			}
			began := time.Now()
			for _, viewer := range append(c.others, known) {
				w.feedOf("mine", viewer) // fails the test unless it is answered
			}
			harness.Figure(t, name+": valid viewers answered beside hanging look-ups", "%d in %d ms", len(c.others)+1, time.Since(began).Milliseconds())
			if n := d.most.Load(); n > c.atOnce || d.hanging.Load() == 0 {
				t.Errorf("%d look-ups hung at a time, at most %d may, and some must", n, c.atOnce)
			}
		})
	}
}
