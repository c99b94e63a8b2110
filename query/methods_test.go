package query_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"skein.blue/query/language"
)

// ask calls a method that must answer, and decodes into v.
func (w *world) ask(method string, p url.Values, v any) {
	w.t.Helper()
	status, body, _ := w.get("/xrpc/" + method + "?" + p.Encode())
	if err := json.Unmarshal([]byte(body), v); err != nil || status != 200 {
		w.t.Fatalf("%s %v: %d %s %v", method, p, status, body, err)
	}
}

func intersect(a, b []string) (both []string) {
	for _, x := range a {
		if slices.Contains(b, x) {
			both = append(both, x)
		}
	}
	return both
}

func TestKnown(t *testing.T) {
	w := newWorld(t, 11, 6000)
	v := w.model.Views()
	rng := rand.New(rand.NewPCG(3, 3))
	accounts := append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa")
	listed := map[string][]string{}
	for _, l := range w.model.Listings() {
		if !w.model.Hidden[l.Member] && !slices.Contains(listed[l.List], l.Member) {
			listed[l.List] = append(listed[l.List], l.Member)
		}
	}
	sets := map[string]map[string][]string{
		"follows": v.Forward["follow"], "followers": v.Reverse["follow"], "blocks": v.Forward["block"], "blockers": v.Reverse["block"],
		"likers": v.Reverse["like"], "reposters": v.Reverse["repost"], "listblockers": v.Reverse["listblock"], "listed": listed,
	}
	edges, hits := slices.Sorted(maps.Keys(sets)), map[string]int{}
	for range 500 {
		edge := edges[rng.IntN(len(edges))]
		actor := accounts[rng.IntN(len(accounts))]
		subjects := []string{accounts[rng.IntN(len(accounts))], accounts[rng.IntN(len(accounts))], accounts[0]}
		if !slices.Contains([]string{"follows", "followers", "blocks", "blockers"}, edge) {
			subjects = []string{"at://did:plc:neverseenaaaaaaaaaaaaaaa/app.bsky.feed.post/x"}
			for uri := range sets[edge] {
				if subjects = append(subjects, uri); len(subjects) == 9 {
					break
				}
			}
		}
		limit := rng.IntN(8)
		var got struct {
			Subjects []struct {
				Subject string
				Total   int
				Sample  []string
			}
		}
		w.ask("blue.skein.graph.known", url.Values{"actor": {actor}, "edge": {edge}, "subject": quoted(rng, subjects), "limit": {fmt.Sprint(limit)}}, &got)
		if len(got.Subjects) != len(subjects) {
			t.Fatalf("%d subjects, asked about %d", len(got.Subjects), len(subjects))
		}
		for i, g := range got.Subjects {
			want := intersect(v.Forward["follow"][actor], sets[edge][subjects[i]])
			hits[edge] += len(want)
			if g.Subject != subjects[i] || g.Total != len(want) || len(g.Sample) != min(limit, len(want)) || len(intersect(g.Sample, want)) != len(g.Sample) || g.Sample == nil {
				t.Fatalf("%s, %s of %s: %+v, want %q", actor, edge, subjects[i], g, want)
			}
		}
	}
	if len(hits) < len(sets) || slices.Contains(slices.Collect(maps.Values(hits)), 0) {
		t.Errorf("nobody was known by some sets: %v", hits)
	}
}

// quoted puts subjects in double quotes: those that would be looked up, and some others.
func quoted(rng *rand.Rand, subjects []string) []string {
	all := slices.Clone(subjects)
	for i, s := range all {
		if l, _ := language.LiteralOf(s); l.S != s || l.Handle != "" || rng.IntN(4) == 0 {
			all[i] = fmt.Sprintf("%q", s)
		}
	}
	return all
}

func TestRank(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 12, 6000)
	v := w.model.Views()
	rng := rand.New(rand.NewPCG(4, 4))
	dirs := map[string]map[string][]string{
		"follows": v.Forward["follow"], "likes": v.Forward["like"], "reposts": v.Forward["repost"], "blocks": v.Forward["block"],
		"followers": v.Reverse["follow"], "blockers": v.Reverse["block"],
	}
	long := 0
	for range 300 {
		via := []string{"follows", "likes", "reposts", "blocks", "followers", "blockers"}[rng.IntN(6)]
		isURI := via == "likes" || via == "reposts"
		of, ofMembers := w.expression(rng, true, 2)
		p := url.Values{"of": {of}, "via": {via}, "limit": {fmt.Sprint(1 + rng.IntN(60))}}
		var except map[string]bool
		if rng.IntN(2) == 0 {
			var e string
			e, except = w.expression(rng, !isURI, 2)
			p.Set("except", e)
		}
		var got struct {
			Type  string
			Items []struct {
				Member string
				Count  int
			}
		}
		w.ask("blue.skein.graph.rank", p, &got)
		counts := map[string]int{}
		for m := range ofMembers {
			for _, r := range dirs[via][m] {
				if !except[r] && !w.model.Hidden[r] {
					counts[r]++
				}
			}
		}
		var want []int
		for _, n := range counts {
			want = append(want, n)
		}
		slices.SortFunc(want, func(x, y int) int { return cmp.Compare(y, x) })
		limit, err := strconv.Atoi(p.Get("limit"))
		if err != nil {
			t.Fatal(err)
		}
		want = want[:min(limit, len(want))]
		if len(got.Items) != len(want) || got.Items == nil || got.Type != map[bool]string{true: "uri", false: "did"}[isURI] {
			t.Fatalf("%v: %d items of %s, want %d", p, len(got.Items), got.Type, len(want))
		}
		seen := map[string]bool{}
		for i, g := range got.Items {
			if g.Count != want[i] || counts[g.Member] != g.Count || seen[g.Member] {
				t.Fatalf("%v: item %d is %+v, want a count of %d; the model counts %d", p, i, g, want[i], counts[g.Member])
			}
			seen[g.Member] = true
		}
		long = max(long, len(got.Items))
	}
	if long < 30 {
		t.Errorf("no ranking had more than %d items", long)
	}
}

func TestRelationships(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 13, 8000)
	rng := rand.New(rand.NewPCG(5, 5))
	w.blockLists(rng, 600)
	byList := w.listBlocks()
	accounts := append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa", "some.handle.example", "did:web:hello.example")
	lowest := func(kind, actor, subject string) string {
		low := ""
		for p, s := range w.model.Records {
			if p.Kind == kind && p.DID == actor && s == subject && (low == "" || p.Rkey < low) {
				low = p.Rkey
			}
		}
		if low == "" || w.model.Hidden[actor] || w.model.Hidden[subject] {
			return ""
		}
		return "at://" + actor + "/app.bsky.graph." + kind + "/" + low
	}
	found := map[string]int{}
	for range 150 {
		actor := w.history.Accounts()[rng.IntN(len(w.history.Accounts()))]
		var others []string
		for range rng.IntN(31) {
			others = append(others, accounts[rng.IntN(len(accounts))])
		}
		var got struct {
			Actor         string
			Relationships []map[string]any
		}
		w.ask("app.bsky.graph.getRelationships", url.Values{"actor": {actor}, "others": others}, &got)
		if got.Actor != actor || len(got.Relationships) != len(others) || got.Relationships == nil {
			t.Fatalf("%s: %d relationships, want %d", got.Actor, len(got.Relationships), len(others))
		}
		for i, other := range others {
			want := map[string]any{"$type": "app.bsky.graph.defs#relationship", "did": other}
			if !strings.HasPrefix(other, "did:") {
				want = map[string]any{"$type": "app.bsky.graph.defs#notFoundActor", "actor": other, "notFound": true}
			}
			for name, uri := range map[string]string{
				"following": lowest("follow", actor, other), "followedBy": lowest("follow", other, actor),
				"blocking": lowest("block", actor, other), "blockedBy": lowest("block", other, actor),
				"blockingByList": byList[[2]string{actor, other}], "blockedByList": byList[[2]string{other, actor}],
			} {
				if uri != "" {
					want[name] = uri
					found[name]++
				}
			}
			if g := got.Relationships[i]; fmt.Sprint(g) != fmt.Sprint(want) {
				t.Fatalf("%s and %s: %v, want %v", actor, other, g, want)
			}
		}
	}
	for _, name := range []string{"following", "followedBy", "blocking", "blockedBy", "blockingByList", "blockedByList"} {
		if found[name] < 10 {
			t.Errorf("only %d of %s", found[name], name)
		}
	}
}

// A wrong call gets a 4xx that explains the mistake.
func TestBadCalls(t *testing.T) {
	w := newWorld(t, 14, 300)
	did, uri := w.history.Accounts()[0], "at://did:plc:xaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/y"
	many := func(name, v string, n int) string { return strings.Repeat("&"+name+"="+v, n) }
	const known, rank, rel = "blue.skein.graph.known?", "blue.skein.graph.rank?", "app.bsky.graph.getRelationships?"
	for call, want := range map[string]string{
		known + "edge=followers&subject=" + did:                                       "parameter \"actor\" is missing",
		known + "actor=x&edge=followers&subject=" + did:                               `actor "x" (number 1) is not an account`,
		known + "actor=" + did + "&actor=" + did + "&edge=followers&subject=" + did:   "parameter actor occurs 2 times",
		known + "actor=" + did + "&subject=" + did:                                    "it must be one of follows, followers",
		known + "actor=" + did + "&edge=followedBy&subject=" + did:                    "; did you mean followers?",
		known + "actor=" + did + "&edge=likes&subject=" + did:                         "it must be one of follows, followers, blocks, blockers, likers, reposters, listblockers, listed",
		known + "actor=" + did + "&edge=likers&subject=" + did:                        "(number 1) is not an AT URI",
		known + "actor=" + did + "&edge=followers&subject=" + did + "&subject=" + uri: "(number 2) is not an account",
		known + "actor=" + did + "&edge=followers":                                    "parameter \"subject\" is missing",
		known + "actor=" + did + "&edge=followers" + many("subject", did, 101):        "subject occurs 101 times; at most 100 are allowed",
		known + "actor=" + did + "&edge=followers&limit=101&subject=" + did:           "from 0 to 100",
		known + "actor=" + did + "&edge=followers&limit=-1&subject=" + did:            "from 0 to 100",
		rank + "via=follows":                                                                  "parameter \"of\" is missing",
		rank + "of=followers(" + did + ")":                                                    "parameter via is",
		rank + "of=followers(" + did + ")&via=likers":                                         "it must be one of follows",
		rank + "of=likes(" + did + ")&via=follows":                                            "for a set of AT URIs it must be one of likers",
		rank + "of=follows(" + did + ")&via=likes&except=follows(" + did + ")":                "except must be a set of AT URIs, like the results; this one is a set of DIDs",
		rank + "of=follows(" + did + ")&via=likes&except=":                                    "except: at position 0",
		rank + "of=follows(" + did + ")&via=likes&limit=0":                                    "from 1 to 1000",
		rank + "of=follows(" + did + ")&via=likes&limit=1001":                                 "from 1 to 1000",
		rel + "others=" + did:                                                                 "parameter \"actor\" is missing",
		rel + "actor=x":                                                                       "neither a DID nor a handle",
		rel + "actor=" + did + "&others=x y":                                                  "neither a DID nor a handle",
		rel + "actor=" + did + many("others", did, 31):                                        "others occurs 31 times",
		rel + "actor=" + did + "&actor=" + did:                                                "parameter actor occurs 2 times",
		"blue.skein.graph.query?set=" + strings.Repeat("union(", 33) + "members(" + did + ")": "nested more than 32 deep",
		"blue.skein.graph.query?set=union(followers(" + did + ")" + strings.Repeat(",followers("+did+")", 64) + ")": "more than 64 sets",
	} {
		status, body, _ := w.get("/xrpc/" + strings.ReplaceAll(call, " ", "%20"))
		if status != 400 || !strings.Contains(body, `"InvalidRequest"`) || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), want) {
			t.Errorf("%.100s: %d %s, want %q", call, status, body, want)
		}
	}
	status, body, _ := w.get("/xrpc/" + rel + "actor=some.handle.example&others=" + did)
	if status != 400 || !strings.Contains(body, `"ActorNotFound"`) {
		t.Errorf("a handle as actor: %d %s", status, body)
	}
}

// The same answer has the same tag, and is not sent twice; who takes a packed
// answer gets one.
func TestTagsAndEncodings(t *testing.T) {
	w := newWorld(t, 15, 3000)
	path := "/xrpc/blue.skein.graph.query?limit=40&set=members(" + strings.Join(w.history.Accounts(), ",") + ")"
	status, plain, h := w.get(path) // Go's client asks for gzip
	if status != 200 || h.Get("ETag") == "" || len(plain) < 1024 {
		t.Fatalf("%d %s %v", status, plain, h)
	}
	type reply struct {
		status int
		header http.Header
		body   []byte
	}
	get := func(header, value string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set(header, value)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		return reply{resp.StatusCode, resp.Header, b}
	}
	if got := get("If-None-Match", `"x", `+h.Get("ETag")); got.status != http.StatusNotModified || len(got.body) > 0 {
		t.Errorf("with the tag: %d, %d bytes", got.status, len(got.body))
	}
	if got := get("If-None-Match", `W/"other"`); got.status != 200 || string(got.body) != plain {
		t.Errorf("with another tag: %d, %d bytes, want %d", got.status, len(got.body), len(plain))
	}
	packed := get("Accept-Encoding", "gzip, zstd")
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if got, err := z.DecodeAll(packed.body, nil); packed.header.Get("Content-Encoding") != "zstd" || err != nil || string(got) != plain {
		t.Errorf("zstd: %v, %d bytes, %v", packed.header, len(packed.body), err)
	}
	packed = get("Accept-Encoding", "gzip;q=1.0, zstd;q=0")
	for accept, want := range map[string]string{
		"gzip;q=0.0": "", "gzip;q=0.00, zstd;Q=0": "", "gzip; q=0.5, zstd ;q=0.4": "gzip", "br, GZIP": "gzip", "zstd;q=x": "", "": "",
	} {
		if got := get("Accept-Encoding", accept); got.header.Get("Content-Encoding") != want {
			t.Errorf("%q gets %q, want %q", accept, got.header.Get("Content-Encoding"), want)
		}
	}
	r, err := gzip.NewReader(bytes.NewReader(packed.body))
	if err != nil {
		t.Fatalf("%v: %v", packed.header, err)
	}
	if got, err := io.ReadAll(r); packed.header.Get("Content-Encoding") != "gzip" || err != nil || string(got) != plain {
		t.Errorf("gzip: %v, %d bytes, %v", packed.header, len(packed.body), err)
	}
}
