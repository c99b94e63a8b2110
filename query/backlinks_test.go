package query_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
)

type linkPage struct {
	Total          int
	Records        []recordID
	LinkingRecords []recordID `json:"linking_records"`
	DIDs           []string   `json:"linking_dids"`
	Cursor         *string
}

type recordID struct{ DID, Collection, Rkey string }

// path asks for a path that must answer.
func (w *world) path(path string, p url.Values, v any) {
	w.t.Helper()
	status, body, _ := w.get(path + "?" + p.Encode())
	if err := json.Unmarshal([]byte(body), v); err != nil || status != 200 {
		w.t.Fatalf("%s %v: %d %s %v", path, p, status, body, err)
	}
}

// pages collects all pages.
func (w *world) linkPages(path string, p url.Values) (all []linkPage) {
	w.t.Helper()
	for {
		var page linkPage
		w.path(path, p, &page)
		all = append(all, page)
		if page.Cursor == nil {
			return all
		}
		p.Set("cursor", *page.Cursor)
	}
}

// Constellation's methods say what the model says.
func TestBacklinks(t *testing.T) {
	t.Parallel()
	w := spread(t, 51)
	v := w.in(span{all: true})
	rng := rand.New(rand.NewPCG(12, 12))
	some := 0
	for range 400 {
		k := kinds.All[rng.IntN(len(kinds.All))]
		targets := w.history.Accounts()
		if k.To.Is().String() == "uri" {
			targets = w.posts(v)
			if k.Kind == kinds.ListItem {
				targets = slices.Sorted(maps.Keys(v.Reverse[k.Name]))
				targets = slices.DeleteFunc(targets, func(uri string) bool { return !strings.HasPrefix(uri, "at://did:") })
			}
		}
		target := targets[rng.IntN(len(targets))]
		want := slices.Clone(v.Reverse[k.Name][target])
		field := k.To.Path()
		some += len(want)
		newer := url.Values{"subject": {target}, "source": {k.Collection + ":" + field}}
		older := url.Values{"target": {target}, "collection": {k.Collection}, "path": {"." + field}}
		with := func(p url.Values, more ...string) url.Values {
			q := maps.Clone(p)
			for i := 0; i < len(more); i += 2 {
				q.Add(more[i], more[i+1])
			}
			return q
		}
		limit := fmt.Sprint(1 + rng.IntN(6))
		for path, p := range map[string]url.Values{
			"/xrpc/blue.microcosm.links.getBacklinks": with(newer, "limit", limit, "reverse", fmt.Sprint(rng.IntN(2) == 0)),
			"/links": with(older, "limit", limit),
			"/xrpc/blue.microcosm.links.getBacklinkDids": with(newer, "limit", limit),
			"/links/distinct-dids":                       with(older, "limit", limit),
		} {
			var got []string
			var times []int64
			untimed := false
			for _, page := range w.linkPages(path, p) {
				if page.Total != len(want) {
					t.Fatalf("%s %v: a total of %d, want %d", path, p, page.Total, len(want))
				}
				for _, r := range append(page.Records, page.LinkingRecords...) {
					got = append(got, r.DID)
					if uri := "at://" + r.DID + "/" + r.Collection + "/" + r.Rkey; uri != w.record(k, r.DID, target, span{all: true}) {
						t.Fatalf("%s %v: %s is not the record", path, p, uri)
					}
					at, timed := micros(r.Rkey)
					if timed && untimed {
						t.Fatalf("%s %v: a record with a time comes after one without", path, p)
					}
					if untimed = !timed; timed {
						times = append(times, at)
					}
				}
				got = append(got, page.DIDs...)
			}
			if p.Get("reverse") == "true" {
				slices.Reverse(times)
			}
			if !slices.IsSortedFunc(times, func(x, y int64) int { return int(y - x) }) {
				t.Fatalf("%s %v: not in order: %v %q", path, p, times, got)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %v: %q, want %q", path, p, got, want)
			}
		}
		for path, p := range map[string]url.Values{
			"/xrpc/blue.microcosm.links.getBacklinksCount": newer, "/links/count": older, "/links/count/distinct-dids": older,
		} {
			var got struct{ Total int }
			if w.path(path, p, &got); got.Total != len(want) {
				t.Fatalf("%s %v: %d, want %d", path, p, got.Total, len(want))
			}
		}
		all := map[string]map[string]int{}
		for _, other := range kinds.All {
			if n := len(v.Reverse[other.Name][target]); n > 0 {
				if all[other.Collection] == nil {
					all[other.Collection] = map[string]int{}
				}
				all[other.Collection]["."+strings.Join(other.To.Field, ".")] = n
			}
		}
		var counts struct{ Links map[string]map[string]int }
		w.path("/links/all/count", url.Values{"target": {target}}, &counts)
		var both struct {
			Links map[string]map[string]struct {
				Records int
				DIDs    int `json:"distinct_dids"`
			}
		}
		w.path("/links/all", url.Values{"target": {target}}, &both)
		if fmt.Sprint(counts.Links) != fmt.Sprint(all) || len(both.Links) != len(all) {
			t.Fatalf("%s: %v and %v, want %v", target, counts.Links, both.Links, all)
		}
		for collection, paths := range all {
			for path, n := range paths {
				if c := both.Links[collection][path]; c.Records != n || c.DIDs != n {
					t.Fatalf("%s, %s%s: %+v, want %d", target, collection, path, c, n)
				}
			}
		}
		accounts := w.history.Accounts()
		from := []string{accounts[0], accounts[1], accounts[2], accounts[3]}
		var page linkPage
		w.path("/links", with(older, "from_dids", strings.Join(from, ",")), &page)
		var got []string
		for _, r := range page.LinkingRecords {
			got = append(got, r.DID)
		}
		sameSet(t, got, intersect(want, from))
	}
	if some < 300 {
		t.Errorf("%d links", some)
	}
	for path, want := range map[string]string{
		"/xrpc/blue.microcosm.links.getBacklinks?subject=did:plc:x&source=app.bsky.feed.like:subject.uri":              `{"total":0,"records":[],"cursor":null}`,
		"/xrpc/blue.microcosm.links.getBacklinks?subject=at://x/y/z&source=com.example.thing:some.path":                `{"total":0,"records":[],"cursor":null}`,
		"/xrpc/blue.microcosm.links.getBacklinkDids?subject=https://example.com&source=app.bsky.feed.like:subject.uri": `{"total":0,"linking_dids":[],"cursor":null}`,
		"/links/count?target=x)&collection=app.bsky.graph.follow&path=.subject":                                        `{"total":0}`,
		"/links/all?target=x": `{"links":{}}`,
		"/links?target=did:plc:x&collection=app.bsky.graph.follow&path=subject":                             `must begin with a dot`,
		"/links?target=did:plc:x&collection=app.bsky.graph.follow&path=.subject&did=a&from_dids=b":          `cannot be combined`,
		"/xrpc/blue.microcosm.links.getBacklinks?subject=did:plc:x&source=app.bsky.graph.follow":            `it must be a collection and a path`,
		"/xrpc/blue.microcosm.links.getBacklinks?source=app.bsky.graph.follow:subject":                      `parameter \"subject\" is missing`,
		"/xrpc/blue.microcosm.links.getBacklinks?subject=x&source=app.bsky.graph.follow:subject&limit=1001": `from 0 to 1000`,
	} {
		if _, body, _ := w.get(path); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}
