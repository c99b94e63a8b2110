package query_test

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
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

func did(n int) string { return fmt.Sprintf("did:web:n%d.example.com", n) }

// commitFrame makes the message of a commit with one operation, after another one if there is one.
func commitFrame(seq int64, author, action, collection, rkey string, record synth.Map, after ...int64) []byte {
	rev := oracle.TID(uint64(seq) << 20)
	root := synth.CommitBlock(author, rev, [32]byte{1})
	m := synth.Commit{Repo: []byte(author), Rev: []byte(rev), Seq: seq, Time: []byte("2026-01-01T00:00:00.000Z"), Root: root.CID}
	for _, seq := range after {
		m.Since = []byte(oracle.TID(uint64(seq) << 20))
	}
	o := synth.Op{Action: action, Collection: collection, Rkey: []byte(rkey)}
	blocks := []synth.Block{root}
	if record != nil {
		b := synth.NewBlock(synth.CBOR(nil, record))
		o.CID = &b.CID
		blocks = append(blocks, b)
	}
	m.Ops, m.CAR = []synth.Op{o}, [][]byte{synth.CAR(root.CID, blocks...)}
	frame, _ := m.Append(nil)
	return frame
}

// arraysWorld is a server of posts with mentions, links and tags. commit makes an event with one operation;
// index indexes the events.
func arraysWorld(t *testing.T) (w *world, commit func(action string, author, n int, record synth.Map), index func()) {
	t.Helper()
	more, err := kinds.Parse(arrayFile)
	must(t, err)
	w = newWorldOn(t, nil, memory(write.Limits{Row: 4, Chunk: 3}), graph.Options{Kinds: more})
	var frames [][]byte
	commit = func(action string, author, n int, record synth.Map) {
		frames = append(frames, commitFrame(int64(len(frames)+1), did(author), action, "app.bsky.feed.post", oracle.TID(uint64(n)<<40), record))
	}
	return w, commit, func() { t.Helper(); w.index(frames) }
}

// Mentions, links and tags of posts are sets, and follow updates and deletions of the posts.
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
			others = append(others, i)
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
		got, totals := w.all(set, 100, nil)
		if slices.Sort(got); !slices.Equal(got, want) || totals[0] != len(want) {
			t.Errorf("%s: %q of %d, want %q", set, got, totals, want)
		}
	}
	for set, what := range map[string]string{
		`linkers(example.com)`:    "is not a URI",
		`taggers()`:               "in double quotes if it has spaces",
		`mentioners("two words")`: "is not a DID",
		`taggers("cats)`:          "at position 8: the string that begins here has no double quote at its end",
		`taggers(cats")`:          "has a double quote in it",
		`taggers("")`:             "is not a string of 1 to 640 bytes",
		`members(cats)`:           "is neither a DID nor an AT URI; put a text in double quotes",
	} {
		w.says("query?set="+url.QueryEscape(set), 400, what)
	}
}

// What an answer contains can be asked about, whatever it is: in double quotes in expressions and parameters, and
// texts as they are in parameters.
func TestMembersCanBeAskedAbout(t *testing.T) {
	w, commit, index := arraysWorld(t)
	const named = "at://Alice.example.com/app.bsky.feed.post/x"
	subjects := map[string][]string{ // by the set of those who name them
		"taggers":    {"cats", "two, (words)", `a "quoted" \ one`, "line\nbreak", " ", "😀", "@alice.example.com", did(3), "did:plc:short", "https://bsky.app/profile/alice.example.com", named},
		"linkers":    {named, "https://bsky.app/profile/alice.example.com/post/x", "https://example.com/a,b?c=(d)"},
		"mentioners": {did(7)},
	}
	for i := range 3 {
		commit("create", i, 1, post(subjects["mentioners"], subjects["linkers"], subjects["taggers"]))
	}
	index()
	total := func(set string, want int) {
		t.Helper()
		if got := w.query(set).Total; got != want {
			t.Errorf("%s: %d, want %d", set, got, want)
		}
	}
	for edge, of := range subjects {
		back := map[string]string{"taggers": "tags", "linkers": "links", "mentioners": "mentions"}[edge]
		set := back + "(" + did(1) + ")"
		got, _ := w.all(set, 100, nil)
		slices.Sort(of)
		if slices.Sort(got); !slices.Equal(got, of) {
			t.Fatalf("%s: %q, want %q", set, got, of)
		}
		var all []string
		for i, m := range of {
			q := strconv.Quote(m)
			all = append(all, q)
			if i%2 == 0 {
				m = q
			}
			if c := w.answer("counts", url.Values{"edge": {edge}, "subject": {m}}).Subjects[0]; c.Subject != of[i] || c.Totals[0] != 3 {
				t.Errorf("%s of %s: %+v", edge, m, c)
			}
			if k := w.answer("known", url.Values{"actor": {did(1)}, "edge": {edge}, "subject": {m}}).Subjects[0]; k.Subject != of[i] {
				t.Errorf("%s of %s: %+v", edge, m, k)
			}
		}
		list := "members(" + strings.Join(all, ",") + ")"
		total("intersect("+set+","+list+")", len(of))
		total("except("+list+",sample("+set+",1))", len(of)-1)
		total("rank(of="+list+",via="+edge+")", 3)
		for _, members := range [][]string{of, all} { // as they are, and as JSON
			if in := w.contains(set, members...); len(in) != len(of) || slices.Contains(in, false) {
				t.Errorf("%s: %v, asked about %q", set, in, members)
			}
		}
		if sized := w.answer("list", url.Values{"set": {set}, "order": {"size(" + edge + ")"}}).Items; len(sized) != len(of) || *sized[0].Size != 3 {
			t.Errorf("by size(%s): %+v", edge, sized)
		}
	}
	// A quoted DID is what the other sets have: an account or a text.
	tags, text := len(subjects["taggers"]), "members("+strconv.Quote(did(3))+")"
	total("intersect(tags("+did(1)+"),"+text+")", 1)
	total("except(tags("+did(1)+"),"+text+")", tags-1)
	total("rank(of=taggers(cats),via=tags,except="+text+")", tags-1)
	total("except("+text+",mentioners("+did(7)+"))", 1)
	total("intersect("+text+",members("+did(3)+"))", 1)
	for _, wrong := range []string{"contains?set=tags(" + did(1) + ")&member=", "contains?set=mentions(" + did(1) + ")&member=cats", "counts?edge=taggers&subject=%22cats", "counts?edge=likers&subject=cats", "counts?edge=followers&subject=%22cats%22"} {
		w.says(wrong, 400, "InvalidRequest")
	}
}

// An account that names a subject in several posts has each of them in its backlinks, in pages of every size;
// methods about accounts have it once.
func TestAllBacklinks(t *testing.T) {
	w, commit, index := arraysWorld(t)
	var want []string
	for n := range 25 {
		author := n % 4
		commit("create", author, n+1, post([]string{did(20)}, []string{"https://example.com/x"}, []string{"go", " b", "did:web:n20.example.com"}))
		want = append(want, did(author)+" "+oracle.TID(uint64(n+1)<<40))
	}
	commit("delete", 0, 1, nil)
	want = want[1:]
	index()
	type page struct {
		Total   int
		Records []struct{ DID, Rkey string }
		DIDs    []string `json:"linking_dids"`
		Links   map[string]map[string]map[string]int
		Cursor  string
	}
	pages := func(method string, p url.Values) (all []page) {
		for {
			var one page
			w.ask(method, p, &one)
			if all = append(all, one); one.Cursor == "" || len(all) > 100 {
				return all
			}
			p.Set("cursor", one.Cursor)
		}
	}
	source := "app.bsky.feed.post:" + mentionOf
	for _, limit := range []string{"1", "2", "7", "24", "100"} {
		for _, reverse := range []string{"false", "true"} {
			var got []string
			for _, one := range pages("blue.microcosm.links.getBacklinks", url.Values{"subject": {did(20)}, "source": {source}, "limit": {limit}, "reverse": {reverse}}) {
				if one.Total != 24 {
					t.Errorf("%d in all", one.Total)
				}
				for _, r := range one.Records {
					got = append(got, r.DID+" "+r.Rkey)
				}
			}
			if reverse == "false" {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %s, reverse %s: %q, want %q", limit, reverse, got, want)
			}
		}
	}
	older := url.Values{"target": {did(20)}, "collection": {"app.bsky.feed.post"}, "path": {"." + mentionOf}}
	for path, want := range map[string]int{"/links/count": 24, "/links/count/distinct-dids": 4, "/links/distinct-dids": 4} {
		if one := pages(path, older)[0]; one.Total != want || one.DIDs != nil && len(one.DIDs) != want {
			t.Errorf("%s: %+v, want %d", path, one, want)
		}
	}
	if c := pages("/links/all", url.Values{"target": {did(20)}})[0].Links["app.bsky.feed.post"]["."+mentionOf]; c["records"] != 24 || c["distinct_dids"] != 4 {
		t.Errorf("%+v", c)
	}
}
