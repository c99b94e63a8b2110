package constellation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// served is a graph whose methods the tests call, without a server.
type served struct {
	*oracle.Graph

	t       *testing.T
	cursors *xrpc.Cursors
	methods map[string]xrpc.Method
}

func serve(t *testing.T, seed uint64, changes int) *served {
	t.Helper()
	g := oracle.NewGraph(t, seed, 20, write.Limits{Row: 6, Chunk: 3})
	g.Grow(changes)
	c := xrpc.NewCursors(g.Store.Secret())
	s := &served{g, t, c, map[string]xrpc.Method{}}
	for _, m := range Methods() {
		s.methods[strings.TrimPrefix(m.NSID, "blue.microcosm.links.")] = m.Described()
	}
	return s
}

// ask calls a method, as the server does, and decodes its answer.
func (s *served) ask(method string, p url.Values, into any) error {
	s.t.Helper()
	m, ok := s.methods[method]
	if !ok {
		s.t.Fatalf("no method %s", method)
	}
	q, err := xrpc.Parse(p.Encode(), nil, &m)
	if err != nil {
		return err
	}
	q.Words, q.Store, q.Cursors = language.NewVocabulary(kinds.BuiltIn), s.Store, s.cursors
	answer, err := m.Serve(s.t.Context(), q)
	if err != nil {
		return err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		s.t.Fatalf("%s %v: %s: %v", method, p, b, err)
	}
	return nil
}

type page struct {
	Total    int
	Records  []recordID
	Linking  []recordID `json:"linking_records"`
	DIDs     []string   `json:"linking_dids"`
	Cursor   *string
	returned int
}

func (p *page) size() int {
	return len(p.Records) + len(p.Linking) + len(p.DIDs)
}

// pages asks for all pages, and calls between after each.
func (s *served) pages(method string, p url.Values, limit int, between func()) (all page) {
	s.t.Helper()
	p = maps.Clone(p)
	p.Set("limit", fmt.Sprint(limit))
	for n := 0; ; n++ {
		var one page
		if err := s.ask(method, p, &one); err != nil {
			s.t.Fatalf("%s %v: %v", method, p, err)
		}
		if one.size() > limit || n > 5000 || one.Cursor != nil && one.size() == 0 {
			s.t.Fatalf("%s %v: page %d has %d results", method, p, n, one.size())
		}
		all.Total, all.returned = one.Total, all.returned+one.size()
		all.Records, all.Linking, all.DIDs = append(all.Records, one.Records...), append(all.Linking, one.Linking...), append(all.DIDs, one.DIDs...)
		if one.Cursor == nil {
			return all
		}
		if p.Set("cursor", *one.Cursor); between != nil {
			between()
		}
	}
}

// target draws a field of a record, and what it may name.
func (s *served) target() (k kinds.Info, target string) {
	k = kinds.All[s.Rand.IntN(len(kinds.All))]
	switch k.To.Field[0] {
	case "list":
		return k, s.Any(s.Lists)
	case "subject":
		if k.Name == "listblock" {
			return k, s.Any(s.Lists)
		}
		if len(k.To.Field) == 2 {
			return k, s.Any(s.Posts)
		}
	}
	return k, s.Any(s.Accounts)
}

func source(k kinds.Info) string { return k.Collection + ":" + k.To.Path() }

func older(k kinds.Info, target string) url.Values {
	return url.Values{"target": {target}, "collection": {k.Collection}, "path": {"." + k.To.Path()}}
}

// actors returns the visible accounts with a record of a kind that names a target.
func (s *served) actors(k kinds.Info, target string) []string {
	return slices.Clone(s.Between(false, 0, 0).Reverse[k.Name][target])
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// Every method returns the accounts that the maps have, in pages of every size, restricted to some
// accounts or not; records exist and name the target; the newest come first.
func TestBacklinksOfRandomGraphs(t *testing.T) {
	s := serve(t, 1, 3000)
	some, restricted := 0, 0
	for range 150 {
		k, target := s.target()
		want := s.actors(k, target)
		newer := url.Values{"subject": {target}, "source": {source(k)}}
		limit := 1 + s.Rand.IntN(6)
		for method, p := range map[string]url.Values{"getBacklinks": newer, "/links": older(k, target)} {
			var by []string
			p, want := maps.Clone(p), want
			if s.Rand.IntN(3) == 0 {
				by = []string{s.Any(s.Accounts), s.Any(s.Accounts), s.Any(s.Accounts), "did:web:never.example.com", "not a did", " "}
				if p["did"] = by; method == "/links" && s.Rand.IntN(2) == 0 {
					p.Del("did")
					p.Set("from_dids", strings.Join(by, ","))
				}
				want = slices.DeleteFunc(slices.Clone(want), func(did string) bool { return !slices.Contains(by, did) })
				restricted += len(want)
			}
			oldest := s.Rand.IntN(2) == 0
			p.Set("reverse", fmt.Sprint(oldest))
			all := s.pages(method, p, limit, nil)
			records := append(all.Records, all.Linking...)
			var got []string
			var times []int64
			for _, r := range records {
				if subject := s.Model.Records[oracle.Path{DID: r.DID, Kind: k.Name, Rkey: r.Rkey}]; subject != target || r.Collection != k.Collection {
					t.Fatalf("%s %v: %+v names %q", method, p, r, subject)
				}
				if at, timed := oracle.Micros(r.Rkey); timed && at <= time.Now().UnixMicro() {
					times = append(times, at)
				}
				got = append(got, r.DID)
			}
			if oldest {
				slices.Reverse(times)
			}
			if !slices.IsSortedFunc(times, func(x, y int64) int { return cmp.Compare(y, x) }) {
				t.Fatalf("%s %v: in the order %v", method, p, times)
			}
			if !slices.Equal(sorted(got), want) || all.Total != len(want) {
				t.Fatalf("%s %v: %q of %d, want %q", method, p, got, all.Total, want)
			}
			some += len(got)
		}
		for method, p := range map[string]url.Values{"getBacklinkDids": newer, "/links/distinct-dids": older(k, target)} {
			if all := s.pages(method, p, limit, nil); !slices.Equal(sorted(all.DIDs), want) || all.Total != len(want) {
				t.Fatalf("%s %v: %q of %d, want %q", method, p, all.DIDs, all.Total, want)
			}
		}
		for method, p := range map[string]url.Values{"getBacklinksCount": newer, "/links/count": older(k, target), "/links/count/distinct-dids": older(k, target)} {
			var out page
			if err := s.ask(method, p, &out); err != nil || out.Total != len(want) {
				t.Fatalf("%s %v: %d, want %d: %v", method, p, out.Total, len(want), err)
			}
		}
	}
	if some < 500 || restricted < 20 {
		t.Errorf("%d links, %d of some accounts", some, restricted)
	}
}

// The counts of all fields that name a target are those of the maps, without zeros.
func TestCountsOfAllFields(t *testing.T) {
	s := serve(t, 2, 2000)
	s.Put(s.Accounts[0], "like", "at://a.example.com/x.y.z/k")
	for _, target := range slices.Concat(s.Accounts, s.Posts, s.Lists, []string{"did:web:never.example.com", "x", "https://example.com", "did:plc:short", "at://a.example.com/x.y.z/k"}) {
		want := map[string]map[string]int{}
		for _, k := range kinds.All {
			if n := len(s.actors(k, target)); n > 0 {
				if want[k.Collection] == nil {
					want[k.Collection] = map[string]int{}
				}
				want[k.Collection]["."+k.To.Path()] = n
			}
		}
		var counts struct{ Links map[string]map[string]int }
		if err := s.ask("/links/all/count", url.Values{"target": {target}}, &counts); err != nil || fmt.Sprint(counts.Links) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v: %v", target, counts.Links, want, err)
		}
		var both struct {
			Links map[string]map[string]struct {
				Records int
				DIDs    int `json:"distinct_dids"`
			}
		}
		if err := s.ask("/links/all", url.Values{"target": {target}}, &both); err != nil || len(both.Links) != len(want) {
			t.Errorf("%s: %v, want %v: %v", target, both.Links, want, err)
		}
		for collection, paths := range both.Links {
			for path, n := range paths {
				if n.Records != want[collection][path] || n.DIDs != n.Records {
					t.Errorf("%s: %s%s: %+v, want %d", target, collection, path, n, want[collection][path])
				}
			}
		}
	}
}

// A cursor belongs to one question: it is an error for every other, and so is a damaged one.
func TestCursorsBelongToTheirQuestion(t *testing.T) {
	s := serve(t, 5, 0)
	const a, b, c = "did:web:a.example.com", "did:web:b.example.com", "did:web:c.example.com"
	list := "at://" + a + "/app.bsky.graph.list/x"
	for _, did := range []string{a, b, c} {
		for _, o := range []oracle.Op{{Kind: "follow", Subject: a}, {Kind: "block", Subject: a}, {Kind: "follow", Subject: b}, {Kind: oracle.ListItem, Subject: a, List: list}, {Kind: oracle.ListItem, Subject: b, List: list}} {
			o.Rkey = s.Key()
			s.Commit(did, o)
		}
	}
	const follow = "app.bsky.graph.follow:subject"
	all := []url.Values{
		{"subject": {a}, "source": {follow}},
		{"subject": {a}, "source": {follow}, "reverse": {"true"}},
		{"subject": {a}, "source": {follow}, "did": {a, b}},
		{"subject": {a}, "source": {follow}, "did": {a, b, c}},
		{"subject": {b}, "source": {follow}},
		{"subject": {a}, "source": {"app.bsky.graph.block:subject"}},
	}
	cursors := make([]string, len(all))
	for i, q := range all {
		var first page
		q.Set("limit", "1")
		if err := s.ask("getBacklinks", q, &first); err != nil || first.Cursor == nil {
			t.Fatalf("%v has one page: %+v, %v", q, first, err)
		}
		cursors[i] = *first.Cursor
	}
	for i, q := range all {
		for j, cursor := range cursors {
			p := maps.Clone(q)
			p.Set("cursor", cursor)
			if err := s.ask("getBacklinks", p, &page{}); (err == nil) != (i == j) || err != nil && !strings.Contains(err.Error(), xrpc.ErrCursor.Error()) {
				t.Errorf("the cursor of %v for %v: %v", all[j], q, err)
			}
		}
		if !q.Has("did") { // the answer is empty, but the question is another
			p := maps.Clone(q)
			p["cursor"], p["did"] = []string{cursors[i]}, []string{"not a did"}
			if err := s.ask("getBacklinks", p, &page{}); err == nil {
				t.Errorf("the cursor of %v for the records of nobody is accepted", q)
			}
		}
		for _, bad := range []string{"x", cursors[i][1:], cursors[i][:len(cursors[i])-1], cursors[i] + "A", "0", "12345"} {
			p := maps.Clone(q)
			p.Set("cursor", bad)
			if err := s.ask("getBacklinks", p, &page{}); err == nil || !strings.Contains(err.Error(), xrpc.ErrCursor.Error()) {
				t.Errorf("%v with the cursor %q: %v", q, bad, err)
			}
		}
	}
}

// Each limit holds at its value, and not one above it; each mistake is named.
func TestBoundsOfParameters(t *testing.T) {
	s := serve(t, 6, 200)
	did := s.Accounts[0]
	newer := url.Values{"subject": {did}, "source": {"app.bsky.graph.follow:subject"}}
	links := url.Values{"target": {did}, "collection": {"app.bsky.graph.follow"}, "path": {".subject"}}
	dids := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("did:web:n%d.example.com", i))
		}
		return all
	}
	with := func(p url.Values, name string, values ...string) url.Values {
		p = maps.Clone(p)
		p[name] = values
		return p
	}
	without := func(p url.Values, name string) url.Values { return with(p, name) } // no value
	for _, c := range []struct {
		method string
		p      url.Values
		says   string // "" if it must answer
	}{
		{"getBacklinks", with(newer, "limit", "0"), ""},
		{"getBacklinks", with(newer, "limit", "1000"), ""},
		{"getBacklinks", with(newer, "limit", "1001"), "from 0 to 1000"},
		{"getBacklinks", with(newer, "limit", "-1"), "from 0 to 1000"},
		{"getBacklinks", with(newer, "limit", ""), "from 0 to 1000"},
		{"getBacklinks", with(newer, "limit", "x"), "from 0 to 1000"},
		{"getBacklinks", with(newer, "limit", "1", "1"), "limit occurs 2 times"},
		{"getBacklinks", with(newer, "reverse", "x"), "it must be true or false"},
		{"getBacklinks", with(newer, "did", dids(100)...), ""},
		{"getBacklinks", with(newer, "did", dids(101)...), "parameter did occurs 101 times; at most 100 are allowed"},
		{"getBacklinks", without(newer, "subject"), "parameter \"subject\" is missing"},
		{"getBacklinks", without(newer, "source"), `parameter source is ""; it must be a collection and a path`},
		{"getBacklinks", with(newer, "source", "app.bsky.graph.follow"), "it must be a collection and a path"},
		{"getBacklinks", with(newer, "source", strings.Repeat("x", 9000)), "it must be a collection and a path"},
		{"getBacklinks", with(newer, "source", ":"), ""},
		{"getBacklinks", with(newer, "from_dids", did), "unknown parameter"},
		{"getBacklinksCount", newer, ""},
		{"getBacklinksCount", with(newer, "limit", "1"), "unknown parameter"},
		{"/links", with(links, "limit", "1000"), ""},
		{"/links", with(links, "limit", "1001"), "from 0 to 1000"},
		{"/links", with(links, "path", "subject"), "must begin with a dot"},
		{"/links", without(links, "path"), "path"},
		{"/links", without(links, "target"), "parameter \"target\" is missing"},
		{"/links", without(links, "collection"), "parameter \"collection\" is missing"},
		{"/links", with(links, "from_dids", strings.Join(dids(100), ",")), ""},
		{"/links", with(links, "from_dids", strings.Join(dids(101), ",")), "at most 100 are allowed"},
		{"/links", with(with(links, "from_dids", did), "did", did), "did and from_dids cannot be combined"},
		{"/links/all", url.Values{}, "parameter \"target\" is missing"},
		{"/links/all", url.Values{"target": {""}}, "parameter \"target\" is missing"},
	} {
		err := s.ask(c.method, c.p, &page{})
		if c.says == "" {
			if err != nil {
				t.Errorf("%s %v: %v", c.method, c.p, err)
			}
			continue
		}
		if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Status != 400 || e.Name != "InvalidRequest" || !strings.Contains(e.Message, c.says) || len(e.Message) > 400 {
			t.Errorf("%s %v: %v, want %q", c.method, c.p, err, c.says)
		}
	}
}

// Questions about what is not indexed have empty answers, in the form of Constellation.
func TestEmptyAnswers(t *testing.T) {
	s := serve(t, 7, 200)
	for _, subject := range []string{"x", "", "https://example.com", "did:plc:short", "at://a.example.com/app.bsky.feed.post/x", "did:web:never.example.com", s.Accounts[0] + "x", "$viewer", "@a.example.com", strings.Repeat("x", 9000)} {
		for method, want := range map[string]string{
			"getBacklinks": `{"cursor":null,"records":[],"total":0}`, "getBacklinkDids": `{"cursor":null,"linking_dids":[],"total":0}`, "getBacklinksCount": `{"total":0}`,
		} {
			var got json.RawMessage
			if err := s.ask(method, url.Values{"subject": {subject}, "source": {"app.bsky.feed.like:subject.uri"}}, &got); err != nil || string(got) != want {
				t.Errorf("%s %q: %s, %v", method, language.Brief(subject), got, err)
			}
		}
	}
}
