package query_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
	"skein.blue/query"
)

const (
	mentionOf = "facets[].features[app.bsky.richtext.facet#mention].did"
	linkOf    = "facets[].features[app.bsky.richtext.facet#link].uri"
	arrayFile = "app.bsky.feed.post " + mentionOf + " did mentions mentioners\n" +
		"app.bsky.feed.post " + linkOf + " uri links linkers\n" +
		"app.bsky.feed.post tags[] text tags taggers\n"
)

// post makes a post with facets and tags.
func post(mentions, links, tags []string) synth.Map {
	var facets []any
	for _, m := range mentions {
		feature := synth.Map{{Key: "did", Value: m}, {Key: "$type", Value: "app.bsky.richtext.facet#mention"}}
		facets = append(facets, synth.Map{{Key: "index", Value: synth.Map{}}, {Key: "features", Value: []any{feature}}})
	}
	for _, l := range links {
		feature := synth.Map{{Key: "uri", Value: l}, {Key: "$type", Value: "app.bsky.richtext.facet#link"}}
		facets = append(facets, synth.Map{{Key: "features", Value: []any{feature}}})
	}
	var words []any
	for _, w := range tags {
		words = append(words, w)
	}
	return synth.Map{{Key: "tags", Value: words}, {Key: "text", Value: "x"}, {Key: "facets", Value: facets}}
}

// arraysWorld is a server of posts with mentions, links and tags. commit makes an event with one operation;
// index indexes the events.
func arraysWorld(t *testing.T) (w *world, commit func(action string, author, n int, record synth.Map), index func()) {
	t.Helper()
	more, err := kinds.Parse(arrayFile)
	if err != nil {
		t.Fatal(err)
	}
	store, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 4, Chunk: 3})}), graph.Options{Kinds: more})
	if err != nil {
		t.Fatal(err)
	}
	s, err := query.New(store, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	w = &world{t: t, store: store, base: srv.URL}
	var frames [][]byte
	commit = func(action string, author, n int, record synth.Map) {
		root := synth.CommitBlock(did(author), oracle.TID(uint64(len(frames)+1)<<20), [32]byte{1})
		m := synth.Commit{Repo: []byte(did(author)), Rev: []byte(oracle.TID(uint64(len(frames)+1) << 20)), Seq: int64(len(frames) + 1), Time: []byte("2026-01-01T00:00:00.000Z"), Root: root.CID}
		o := synth.Op{Action: action, Collection: "app.bsky.feed.post", Rkey: []byte(oracle.TID(uint64(n) << 40))}
		blocks := []synth.Block{root}
		if record != nil {
			b := synth.NewBlock(synth.CBOR(nil, record))
			o.CID = &b.CID
			blocks = append(blocks, b)
		}
		m.Ops, m.CAR = []synth.Op{o}, [][]byte{synth.CAR(root.CID, blocks...)}
		frame, _ := m.Append(nil)
		frames = append(frames, frame)
	}
	index = func() {
		t.Helper()
		c, err := consumer.New(store, consumer.Options{Relay: "ws://memory", Read: func(handle func([]byte) error) error {
			for _, f := range frames {
				if err := handle(f); err != nil {
					return err
				}
			}
			return nil
		}})
		if err == nil {
			err = c.Run(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return w, commit, index
}

// Mentions, links and tags of posts are sets, in expressions and through Constellation's methods, and
// follow updates and deletions of the posts.
func TestSubjectsOfPosts(t *testing.T) {
	w, commit, index := arraysWorld(t)
	page := "https://example.com/a,b?c=(d)"
	for i := range 12 {
		commit("create", i, 1, post([]string{did(20), did(21)}, []string{page}, []string{"two words", "go"}))
	}
	commit("create", 0, 2, post([]string{did(20)}, nil, []string{"go"}))
	commit("update", 0, 1, post([]string{did(22)}, []string{page, "at://did:web:x.example.com"}, nil))
	commit("delete", 1, 1, nil)
	commit("create", 2, 2, post(nil, nil, []string{"go", "go", ""}))
	index()
	from := func(first int, others ...int) (dids []string) {
		for i := first; i < 12; i++ {
			dids = append(dids, did(i))
		}
		for _, i := range others {
			dids = append(dids, did(i))
		}
		slices.Sort(dids)
		return dids
	}
	for set, want := range map[string][]string{
		"mentioners(" + did(20) + ")":                               from(2, 0),
		"mentioners(" + did(21) + ")":                               from(2),
		"mentioners(" + did(22) + ")":                               from(12, 0),
		fmt.Sprintf("linkers(%q)", page):                            from(2, 0),
		"linkers(at://did:web:x.example.com)":                       from(12, 0),
		`taggers("two words")`:                                      from(2),
		`taggers(go)`:                                               from(2, 0),
		`intersect(taggers("go"), mentioners(` + did(21) + `))`:     from(2),
		"mentions(" + did(0) + ")":                                  {did(20), did(22)},
		"links(" + did(0) + ")":                                     {"at://did:web:x.example.com", page},
		"tags(" + did(2) + ")":                                      {"go", "two words"},
		"tags(" + did(1) + ")":                                      nil,
		"rank(of=taggers(go),via=tags,min=10,top=1)":                {"go"},
		"rank(of=mentions(" + did(0) + "),via=mentioners,min=1)":    from(2, 0),
		"intersect(tags(" + did(2) + "),tags(" + did(3) + "))":      {"go", "two words"},
		`except(taggers(go), linkers("https://example.com/other"))`: from(2, 0),
	} {
		var got struct {
			Members []string
			Total   int
		}
		w.path("/xrpc/blue.skein.graph.query", url.Values{"set": {set}, "count": {"true"}}, &got)
		w.path("/xrpc/blue.skein.graph.query", url.Values{"set": {set}, "limit": {"100"}}, &got)
		slices.Sort(got.Members)
		if !slices.Equal(got.Members, want) || got.Total != len(want) {
			t.Errorf("%s: %q of %d, want %q", set, got.Members, got.Total, want)
		}
	}
	for set, what := range map[string]string{
		`linkers(example.com)`:      "is not a URI",
		`taggers()`:                 "in double quotes if it has spaces",
		`taggers("a" "b")`:          `expected "," or ")"`,
		`tags("two words")`:         "is not a DID",
		`mentioners("two words")`:   "is not a DID",
		`taggers("unfinished`:       "the string that begins here has no double quote at its end",
		`taggers("cats)`:            "at position 8: the string that begins here has no double quote at its end",
		`taggers("cats\")`:          "the string that begins here has no double quote at its end",
		`taggers(cats")`:            "has a double quote in it",
		`taggers(ca"t"s)`:           "has a double quote in it",
		`taggers("\q")`:             "is not a string in double quotes as in JSON",
		`taggers("")`:               "is not a string of 1 to 640 bytes",
		`members("")`:               "is not an AT URI or a URI of up to 8192 bytes or a string of 1 to 640 bytes",
		`members(cats)`:             "is neither a DID nor an AT URI; put a text in double quotes",
		`taggers("go", since=7d,x)`: "",
	} {
		if code, body, _ := w.get("/xrpc/blue.skein.graph.query?set=" + url.QueryEscape(set)); code != 400 || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), what) {
			t.Errorf("%s: %d %s, want %s", set, code, body, what)
		}
	}
	var links struct {
		Total   int
		Records []struct{ DID, Collection, Rkey string }
	}
	for source, want := range map[string]struct {
		subject string
		total   int
	}{
		mentionOf: {did(21), 10}, linkOf: {page, 11}, "tags[]": {"go", 12},
	} {
		w.path("/xrpc/blue.microcosm.links.getBacklinks", url.Values{"subject": {want.subject}, "source": {"app.bsky.feed.post:" + source}, "limit": {"100"}}, &links)
		if links.Total != want.total || len(links.Records) != want.total || links.Records[0].Collection != "app.bsky.feed.post" {
			t.Errorf("%s: %+v", source, links)
		}
	}
}

// What an answer contains can be asked about, whatever it is: in double quotes in expressions and parameters, and
// texts as they are in parameters.
func TestMembersCanBeAskedAbout(t *testing.T) {
	w, commit, index := arraysWorld(t)
	const named = "at://Alice.example.com/app.bsky.feed.post/x"
	tags := []string{"cats", "two, (words)", `a "quoted" \ one`, "line\nbreak", " ", "😀", "@alice.example.com", did(3), "did:plc:short", "https://bsky.app/profile/alice.example.com", named}
	links := []string{named, "https://bsky.app/profile/alice.example.com/post/x", "https://example.com/a,b?c=(d)"}
	for i := range 3 {
		commit("create", i, 1, post([]string{did(7)}, links, tags))
	}
	index()
	inJSON := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for set, of := range map[string][]string{"tags(" + did(1) + ")": tags, "links(" + did(2) + ")": links, "mentions(" + did(0) + ")": {did(7)}, "union(tags(" + did(1) + "),links(" + did(2) + "))": append(slices.Clone(tags), links[1:]...)} {
		var got answer
		w.ask("blue.skein.graph.query", url.Values{"set": {set}}, &got)
		slices.Sort(got.Members)
		slices.Sort(of)
		if !slices.Equal(got.Members, of) {
			t.Fatalf("%s: %q, want %q", set, got.Members, of)
		}
		var all []string
		for _, m := range of {
			all = append(all, inJSON(m))
		}
		for _, in := range []string{"intersect(" + set + ",members(" + strings.Join(all, ",") + "))", "except(members(" + strings.Join(all, ",") + "),sample(" + set + ",1))", "rank(of=members(" + strings.Join(all, ",") + "),via=" + map[bool]string{true: "mentioners", false: "taggers"}[strings.HasPrefix(set, "mentions")] + ")"} {
			var got struct{ Total int }
			w.ask("blue.skein.graph.query", url.Values{"set": {in}}, &got)
			want := map[byte]int{'i': len(of), 'e': len(of) - 1, 'r': 3}[in[0]]
			if strings.HasPrefix(set, "links") && in[0] == 'r' {
				want = 3 // one of them is a tag, too
			}
			if got.Total != want {
				t.Errorf("%s: %d, want %d", in, got.Total, want)
			}
		}
		for _, members := range [][]string{of, all} { // as they are, and as JSON
			var in struct {
				Members []struct {
					Member    string
					Contained bool
				}
			}
			w.ask("blue.skein.graph.contains", url.Values{"set": {set}, "member": members}, &in)
			for i, m := range in.Members {
				if m.Member != of[i] || !m.Contained {
					t.Errorf("%s: %+v, asked about %q", set, m, of[i])
				}
			}
		}
	}
	// A quoted DID is what the other sets have: an account or a text.
	text := "members(" + inJSON(did(3)) + ")"
	for set, want := range map[string]int{
		"intersect(tags(" + did(1) + ")," + text + ")": 1, "intersect(" + text + ",members(\"cats\"," + inJSON(did(3)) + "))": 1, "except(tags(" + did(1) + ")," + text + ")": len(tags) - 1, "rank(of=" + text + ",via=taggers)": 3,
		"rank(of=taggers(cats),via=tags,except=" + text + ")": len(tags) - 1, "except(" + text + ",mentioners(" + did(7) + "))": 1, "intersect(" + text + ",members(" + did(3) + "))": 1,
	} {
		var got struct{ Total int }
		if w.ask("blue.skein.graph.query", url.Values{"set": {set}}, &got); got.Total != want {
			t.Errorf("%s: %d, want %d", set, got.Total, want)
		}
	}
	for edge, subjects := range map[string][]string{"taggers": tags, "linkers": links, "mentioners": {did(7)}} {
		for i, s := range subjects {
			subject := s
			if i%2 == 0 {
				subject = inJSON(s)
			}
			var counted struct {
				Subjects []struct {
					Subject string
					Totals  []int
				}
			}
			w.ask("blue.skein.graph.counts", url.Values{"edge": {edge}, "subject": {subject}}, &counted)
			var known struct {
				Subjects []struct {
					Subject string
					Total   int
				}
			}
			w.ask("blue.skein.graph.known", url.Values{"actor": {did(1)}, "edge": {edge}, "subject": {subject}}, &known)
			if c := counted.Subjects[0]; c.Subject != s || c.Totals[0] != 3 || known.Subjects[0].Subject != s {
				t.Errorf("%s of %q: %+v, %+v", edge, s, counted, known)
			}
		}
		var sized struct{ Items []struct{ Size int } }
		w.ask("blue.skein.graph.list", url.Values{"set": {map[string]string{"taggers": "tags", "linkers": "links", "mentioners": "mentions"}[edge] + "(" + did(1) + ")"}, "order": {"size(" + edge + ")"}}, &sized)
		if len(sized.Items) != len(subjects) || sized.Items[0].Size != 3 {
			t.Errorf("by size(%s): %+v", edge, sized)
		}
	}
	for _, wrong := range []string{"contains?set=tags(" + did(1) + ")&member=", "contains?set=mentions(" + did(1) + ")&member=cats", "counts?edge=taggers&subject=%22cats", "counts?edge=likers&subject=cats", "counts?edge=followers&subject=%22cats%22"} {
		if code, body, _ := w.get("/xrpc/blue.skein.graph." + wrong); code != 400 {
			t.Errorf("%s: %d %s", wrong, code, body)
		}
	}
}

// An account that names a subject in several posts has each of them in its backlinks, in pages of every size;
// methods about accounts have it once.
func TestAllBacklinks(t *testing.T) {
	w, commit, index := arraysWorld(t)
	var want []string
	for n := range 25 {
		author := n % 4
		commit("create", author, n+1, post([]string{did(20)}, nil, []string{"go"}))
		want = append(want, did(author)+" "+oracle.TID(uint64(n+1)<<40))
	}
	commit("delete", 0, 1, nil)
	want = want[1:]
	index()
	source := "app.bsky.feed.post:" + mentionOf
	for _, limit := range []string{"1", "2", "7", "24", "100"} {
		for _, reverse := range []string{"false", "true"} {
			p := url.Values{"subject": {did(20)}, "source": {source}, "limit": {limit}, "reverse": {reverse}}
			var got []string
			for {
				var page struct {
					Total   int
					Records []struct{ DID, Rkey string }
					Cursor  *string
				}
				w.path("/xrpc/blue.microcosm.links.getBacklinks", p, &page)
				if page.Total != 24 {
					t.Errorf("%v: %d in all", p, page.Total)
				}
				for _, r := range page.Records {
					got = append(got, r.DID+" "+r.Rkey)
				}
				if page.Cursor == nil {
					break
				}
				p.Set("cursor", *page.Cursor)
			}
			if reverse == "false" {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v: %q, want %q", p, got, want)
			}
		}
	}
	var n struct{ Total int }
	for path, want := range map[string]int{"/links/count": 24, "/links/count/distinct-dids": 4} {
		if w.path(path, url.Values{"target": {did(20)}, "collection": {"app.bsky.feed.post"}, "path": {"." + mentionOf}}, &n); n.Total != want {
			t.Errorf("%s: %d, want %d", path, n.Total, want)
		}
	}
	var dids struct {
		Total int
		DIDs  []string `json:"linking_dids"`
	}
	w.path("/links/distinct-dids", url.Values{"target": {did(20)}, "collection": {"app.bsky.feed.post"}, "path": {"." + mentionOf}}, &dids)
	var all struct {
		Links map[string]map[string]struct {
			Records int
			DIDs    int `json:"distinct_dids"`
		}
	}
	w.path("/links/all", url.Values{"target": {did(20)}}, &all)
	if c := all.Links["app.bsky.feed.post"]["."+mentionOf]; dids.Total != 4 || len(dids.DIDs) != 4 || c.Records != 24 || c.DIDs != 4 {
		t.Errorf("%+v, %+v", dids, all)
	}
}

// Pages of getManyToMany may end within a record, and links and texts can be selected.
func TestManyToManyOfArrays(t *testing.T) {
	w, commit, index := arraysWorld(t)
	for i := range 3 {
		commit("create", i, 1, post([]string{did(20)}, []string{"https://example.com/x"}, []string{"a", " b", "did:web:n20.example.com", fmt.Sprint("c", i)}))
	}
	index()
	for _, limit := range []string{"1", "2", "3", "5", "100"} {
		p := url.Values{"subject": {did(20)}, "source": {"app.bsky.feed.post:" + mentionOf}, "pathToOther": {"tags[]"}, "limit": {limit}}
		var got []string
		for {
			var page struct {
				Items []struct {
					LinkRecord   struct{ DID string } `json:"linkRecord"`
					OtherSubject string               `json:"otherSubject"`
				}
				Cursor *string
			}
			w.path("/xrpc/blue.microcosm.links.getManyToMany", p, &page)
			for _, item := range page.Items {
				got = append(got, item.LinkRecord.DID+" "+item.OtherSubject)
			}
			if page.Cursor == nil {
				break
			}
			p.Set("cursor", *page.Cursor)
		}
		slices.Sort(got)
		if len(got) != 12 || len(slices.Compact(got)) != 12 {
			t.Errorf("limit %s: %q", limit, got)
		}
	}
	for path, others := range map[string][]string{"tags[]": {"a", " b", did(20)}, linkOf: {"https://example.com/x"}} {
		for _, other := range others {
			var page struct {
				Items []struct{ OtherSubject string }
			}
			w.path("/xrpc/blue.microcosm.links.getManyToMany", url.Values{"subject": {did(20)}, "source": {"app.bsky.feed.post:" + mentionOf}, "pathToOther": {path}, "otherSubject": {other}}, &page)
			if len(page.Items) != 3 || page.Items[0].OtherSubject != other {
				t.Errorf("%s %q: %+v", path, other, page)
			}
		}
	}
}
