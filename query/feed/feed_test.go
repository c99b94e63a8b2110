package feed

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

const service = "did:web:feeds.example.com"

var words = language.NewVocabulary(kinds.BuiltIn)

// queries are queries of feeds.
var queries = []string{
	"likes($viewer)",
	"likes(did:web:a.example.com)",
	"likes(@alice.example.com, since=7d)",
	"union(likes(did:web:a.example.com),\treposts($viewer, since=1d))",
	"members(at://did:web:a.example.com/app.bsky.feed.post/x)",
	"rank(of=follows($viewer), via=likes, since=24h, except=likes($viewer))",
	"rank( of = members(did:web:a.example.com , did:web:b.example.com) ,via=reposts,min=2)",
	"rank(of=listed(at://$viewer/app.bsky.graph.list/x),via=likes,by=lift,subjectsSince=1w)",
	"rank(of=listed(https://bsky.app/profile/$viewer/lists/x),via=likes)",
	"mix(2, rank(of=follows($viewer), via=likes), 100,likes($viewer)), each=1",
	"likes($viewer),seen=hide , pin = at://did:web:a.example.com/app.bsky.feed.post/x",
	"blend(3, rank(of=follows($viewer), via=likes, since=24h), .5, rank(of=follows($viewer), via=reposts), except=likes($viewer))",
}

// A file has the feeds that were written into it, whatever comments, empty lines and line ends are
// between them, and however a feed is divided into lines.
func TestFilesOfFeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := []string{"", "  ", "# a comment = likes(", "   # an indented comment", "\t"}
	for range 500 {
		var file []string
		var want []feed
		for i := range rng.IntN(6) {
			for rng.IntN(2) == 0 {
				file = append(file, noise[rng.IntN(len(noise))])
			}
			q := queries[rng.IntN(len(queries))]
			f := feed{name: fmt.Sprintf("%s.%d", []string{"a", "B-_~:", "9"}[rng.IntN(3)], i), line: len(file) + 1, viewer: strings.Contains(q, "$viewer")}
			line := f.name + []string{"=", " = ", "= ", "\t="}[rng.IntN(4)]
			for j, word := range strings.Fields(q) {
				if j > 0 && rng.IntN(3) == 0 {
					file = append(file, line)
					if rng.IntN(3) == 0 {
						file = append(file, noise[rng.IntN(len(noise))])
					}
					line = []string{" ", "\t", "      "}[rng.IntN(3)]
				} else if j > 0 {
					line += " "
				}
				line += word
			}
			file = append(file, line)
			f.shows = strings.Join(strings.Fields(q), " ")
			want = append(want, f)
		}
		text := strings.Join(file, []string{"\n", "\r\n"}[rng.IntN(2)])
		got, err := parseFeeds(words, text)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q: %d feeds, want %d: %v", text, len(got), len(want), err)
		}
		for i, f := range got {
			w := want[i]
			if f.name != w.name || f.line != w.line || f.viewer != w.viewer || strings.Join(strings.Fields(f.shows), " ") != w.shows || f.sources[0].ranked != strings.Contains(w.shows, "via") {
				t.Fatalf("%q: %+v, want %+v", text, f, w)
			}
		}
	}
}

// A mistake in a file is an error that names its line.
func TestMistakesInFiles(t *testing.T) {
	const good = "good = likes($viewer)\n"
	for _, c := range []struct {
		file string
		line int
		says string
	}{
		{"x", 1, `"x" is not a feed; write NAME = QUERY`},
		{"= likes($viewer)", 1, "is not a feed"},
		{good + "\n# comment\nx y = likes($viewer)", 4, "is not a feed"},
		{good + "x/y = likes($viewer)", 2, "is not a feed"},
		{good + "é = likes($viewer)", 2, "is not a feed"},
		{good + ". = likes($viewer)", 2, "is not a feed"},
		{good + ".. = likes($viewer)", 2, "is not a feed"},
		{good + strings.Repeat("x", 513) + " = likes($viewer)", 2, "is not a feed"},
		{"\ufeffx = likes($viewer)", 1, "is not a feed"},
		{" x = likes($viewer)", 1, "continues a feed, but no feed precedes it"},
		{"# comment\n\n\tlikes($viewer)", 3, "continues a feed"},
		{"x =", 1, "feed x: at position 0: expected a set"},
		{"x = # comment", 1, "feed x: "},
		{good + "good = likes($viewer)", 2, "the feed good is already defined on line 1"},
		{good + "x = likes(\n  $viewer", 2, "feed x: at position 14: expected"},
		{"x = union(likes($viewer), likes($viewer), lice($viewer))", 1, `feed x: at position 38: "lice" is not a set`},
		{"x = rank(of=union(follows($viewer),x), via=likes)", 1, `feed x: at position 31: "x" is not a set`},
		{"x = likes(did:web:$viewer)", 1, "neither a DID nor an AT URI"},
		{"x = likes($viewer)\ny = likes(at://$viewer)", 2, "neither a DID nor an AT URI"},
		{"x = follows($viewer)", 1, "feed x: it is a set of DIDs, but a feed shows posts"},
		{"x = likes(alice.example.com)", 1, "write a handle as @alice.example.com"},
		{"x = rank(of=follows($viewer), via=follows)", 1, "its results are DIDs, but a feed shows posts; use via=likes or via=reposts"},
		{"x = rank(of=follows($viewer))", 1, "via is \"\"; for a set of DIDs it must be one of follows"},
		{"x = blend(2, rank(of=follows($viewer), via=follows))", 1, "its results are DIDs, but a feed shows posts"},
		{"x = rank(of=follows($viewer), via=likes, limit=5)", 1, `rank(…) does not take "limit"`},
		{"x = rank(of=follows($viewer), via=likes", 1, `expected "," or ")"`},
		{"x = rank(of=follows($viewer), via=likes, by=love)", 1, "it must be one of count, share, lift"},
		{"x = likes($viewer, since=soon)", 1, "is not a time"},
		{"x = likes($Viewer)", 1, "neither a DID nor an AT URI"},
		{"x = mix(2", 1, `expected ")" at the end of mix(…`},
		{"x = mix(likes($viewer))", 1, "mix takes pairs of a number and a query"},
		{"x = mix(0, likes($viewer))", 1, `mix: "0" is not a number from 1 to 100`},
		{"x = mix(1, likes($viewer), 2, follows($viewer))", 1, "it is a set of DIDs"},
		{"x = mix(1, mix(1, likes($viewer)))", 1, `"mix" is not a set`},
		{"x = likes($viewer), each=0", 1, `each: "0" is not a number from 1 to 100`},
		{"x = likes($viewer), each=1, each=2", 1, "each is given twice"},
		{"x = likes($viewer), seen=show", 1, "the only value is hide"},
		{"x = likes($viewer), likes($viewer)", 1, `"likes($viewer)" is not an option of a feed`},
		{"x = likes($viewer),", 1, `"" is not an option of a feed`},
		{"x = likes($viewer), pin=at://alice.example.com/app.bsky.feed.post/x", 1, "it must be the AT URI of a post, with a DID"},
		{"x = likes($viewer), pin=at://did:web:a.example.com/app.bsky.feed.like/x", 1, "it must be the AT URI of a post"},
		{"x = likes($viewers)", 1, "neither a DID nor an AT URI"},
		{"x = likes(" + strings.Repeat(" ", language.MaxExpr) + "$viewer)", 1, "at most 16384"},
	} {
		_, err := parseFeeds(words, c.file)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d", c.line)) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 700 {
			t.Errorf("%q: %v, want line %d: %s", language.Brief(c.file), err, c.line, c.says)
		}
	}
	longest := strings.Repeat("x", 512)
	for _, name := range []string{longest, "...", ".x", "a", "A.b_c~d:e-0"} {
		if f, err := parseFeeds(words, name+" = likes($viewer)"); err != nil || f[0].name != name || !dict.ValidRkey(name) {
			t.Errorf("%s: %v", language.Brief(name), err)
		}
	}
}

var lineOf = regexp.MustCompile(`^line ([0-9]+)( |: )`)

// FuzzFile checks that a file is an error in one of its lines, or has feeds that are the same
// when they are written again.
func FuzzFile(f *testing.F) {
	for _, q := range queries {
		f.Add("# comment\nx = " + q + "\n\n  # another\ny=" + strings.ReplaceAll(q, " ", "\n "))
	}
	f.Add("x = rank(of==,via=)")
	f.Add("x = $viewer$viewer\n \n ")
	f.Fuzz(func(t *testing.T, file string) {
		feeds, err := parseFeeds(words, file)
		if err != nil {
			m := lineOf.FindStringSubmatch(err.Error())
			if m == nil {
				t.Fatalf("%q: %v", file, err)
			}
			if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > 1+strings.Count(file, "\n") {
				t.Fatalf("%q: line %s", file, m[1])
			}
			return
		}
		var b strings.Builder
		for _, g := range feeds {
			if !dict.ValidRkey(g.name) {
				t.Fatalf("%q: the name %q is not a record key", file, g.name)
			}
			fmt.Fprintf(&b, "%s = %s\n", g.name, g.shows)
		}
		again, err := parseFeeds(words, b.String())
		if err != nil || len(again) != len(feeds) {
			t.Fatalf("%q: written again: %v", file, err)
		}
		for i, g := range feeds {
			if again[i].question() != g.question() || again[i].viewer != g.viewer {
				t.Fatalf("%q: %+v, written again: %+v", file, g, again[i])
			}
		}
	})
}

func write1(t *testing.T, path, file string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newFeeds(t *testing.T, file string, o Options) *Feeds {
	t.Helper()
	o.Path, o.Service = filepath.Join(t.TempDir(), "feeds"), service
	write1(t, o.Path, file)
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Only the URI of a record of the publisher names a feed.
func TestFeedsAreNamedByTheirRecords(t *testing.T) {
	f := newFeeds(t, "a = likes($viewer)\nb.c = likes($viewer)\n", Options{})
	other := newFeeds(t, "a = likes($viewer)\n", Options{Publisher: "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"})
	for _, g := range *f.feeds.Load() {
		if found, ok := f.find(f.uri(g)); !ok || found.name != g.name {
			t.Errorf("%s: %+v", f.uri(g), found)
		}
		if _, ok := other.find(f.uri(g)); ok {
			t.Errorf("%s is found at another publisher", f.uri(g))
		}
	}
	for _, uri := range []string{
		"", "a", "at://", service, "at://" + service, "at://" + service + "/app.bsky.feed.generator", "at://" + service + "/app.bsky.feed.generator/", "at://" + service + "/app.bsky.feed.generator/A",
		"at://" + service + "/app.bsky.feed.generator/a/", "at://" + service + "/app.bsky.feed.generator/a/b", "at://" + service + "/app.bsky.feed.post/a", "at://did:web:x/app.bsky.feed.generator/a",
		"AT://" + service + "/app.bsky.feed.generator/a", " at://" + service + "/app.bsky.feed.generator/a", "https://" + service + "/app.bsky.feed.generator/a",
	} {
		if g, ok := f.find(uri); ok {
			t.Errorf("%q is the feed %s", uri, g.name)
		}
	}
	for _, publisher := range []string{"x", "did:", "alice.example.com", "did:web:"} {
		if _, err := New(Options{Path: f.o.Path, Service: service, Publisher: publisher}); err == nil || !strings.Contains(err.Error(), "is not a DID") {
			t.Errorf("publisher %q: %v", publisher, err)
		}
	}
	if _, err := New(Options{Path: f.o.Path + "x", Service: service}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// A file with an error leaves the feeds as they were.
func TestReloadIsAllOrNothing(t *testing.T) {
	f := newFeeds(t, "a = likes($viewer)\n", Options{})
	names := func() (all []string) {
		for _, g := range *f.feeds.Load() {
			all = append(all, g.name)
		}
		return all
	}
	for _, c := range []struct {
		file string
		want []string
		ok   bool
	}{
		{"b = likes($viewer)\nc = likes($viewer)", []string{"b", "c"}, true},
		{"d = likes($viewer)\ne = likes(", []string{"b", "c"}, false},
		{"", nil, true},
		{"x", nil, false},
		{"a = likes($viewer)", []string{"a"}, true},
	} {
		write1(t, f.o.Path, c.file)
		n, err := f.Reload()
		if (err == nil) != c.ok || !slices.Equal(names(), c.want) || c.ok && n != len(c.want) || err != nil && !strings.Contains(err.Error(), f.o.Path) {
			t.Errorf("%q: %d, %v, feeds %v, want %v", c.file, n, err, names(), c.want)
		}
	}
	if err := os.Remove(f.o.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reload(); err == nil || !slices.Equal(names(), []string{"a"}) {
		t.Errorf("without a file: %v, feeds %v", err, names())
	}
}

// The places of pages are sealed for one feed as the file has it.
func TestPlacesOfFeeds(t *testing.T) {
	c := xrpc.NewCursors([]byte("secret"))
	feeds, err := parseFeeds(words, "a = likes($viewer)\nb = likes($viewer)\nc = rank(of=follows($viewer),via=likes)\nd = rank(of=follows($viewer),via=likes,min=2)\ne = mix(1,likes($viewer),1,reposts($viewer))\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range slices.Clone(feeds) {
		for _, did := range []string{"did:web:a.example.com", "did:web:b.example.com"} {
			g.did = did
			feeds = append(feeds, g)
		}
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for i, g := range feeds {
		p := place{micros: rng.Uint64(), late: rng.Uint64(), turn: rng.IntN(100), after: make([]candidate, len(g.sources))}
		for i := range p.after {
			p.after[i].ID, p.after[i].Path.TID = dict.ID(rng.Uint64()), rng.Uint64()
		}
		for range rng.IntN(3) * rng.IntN(30) {
			p.shown = append(p.shown, 1+rng.Uint64N(1<<40))
		}
		slices.Sort(p.shown)
		cursor := g.seal(c, p)
		for j, other := range feeds {
			if got, err := other.open(c, cursor); (err == nil) != (i == j) || err == nil && !reflect.DeepEqual(got, p) {
				t.Errorf("a cursor of %+v for %+v: %+v, %v", g, other, got, err)
			}
		}
		for n := range 8 {
			if _, err := g.open(c, c.Seal(g.question(), make([]uint64, n))); (err == nil) != (n >= 3+2*len(g.sources)) {
				t.Errorf("a cursor of %d numbers: %v", n, err)
			}
		}
	}
}

// served serves a file of feeds over a random graph.
type served struct {
	*oracle.Graph

	t       *testing.T
	f       *Feeds
	cursors *xrpc.Cursors
	viewer  string // of the token; "" for none
}

func serve(t *testing.T, seed uint64, file string, o Options) *served {
	t.Helper()
	g := oracle.NewGraph(t, seed, 25, write.Limits{Row: 6, Chunk: 3})
	g.Grow(2500)
	c := xrpc.NewCursors(g.Store.Secret())
	return &served{g, t, newFeeds(t, file, o), c, ""}
}

type answered struct {
	Feed []struct {
		Post   string
		Reason struct {
			Type string `json:"$type"`
		}
	}
	Cursor string
}

var errNoToken = xrpc.Errorf(http.StatusUnauthorized, "AuthMissing", "no token")

// ask asks for a page.
func (s *served) ask(p url.Values, header http.Header) (out answered, err error) {
	s.t.Helper()
	answer, err := s.call(0, xrpc.Query{Values: p, Header: header})
	if err != nil {
		return out, err
	}
	b, err := json.Marshal(answer)
	if err != nil || json.Unmarshal(b, &out) != nil || out.Feed == nil {
		s.t.Fatalf("%s: %v", b, err)
	}
	return out, nil
}

// call calls a method.
func (s *served) call(method int, q xrpc.Query) (any, error) {
	q.Words, q.MaxExpr, q.Store, q.Cursors = words, language.MaxExpr, s.Store, s.cursors
	q.Resolve = func(list []language.Literal, where func(int) string) error {
		for i, l := range list {
			if l.Handle == "nobody.example.com" {
				return xrpc.Invalid("%sno account has the handle %s", where(i), l.Handle)
			} else if l.Handle != "" {
				list[i].Resolve(s.Accounts[0])
			}
		}
		return nil
	}
	q.Viewer = func() (string, error) {
		if s.viewer == "" {
			return "", errNoToken
		}
		return s.viewer, nil
	}
	return s.f.Methods()[method].Serve(s.t.Context(), &q)
}

func (s *served) uri(name string) string { return s.f.uri(feed{name: name}) }

// pages asks for all pages of a feed, and calls between after each.
func (s *served) pages(name string, limit int, between func()) (posts []string) {
	s.t.Helper()
	p := url.Values{"feed": {s.uri(name)}, "limit": {fmt.Sprint(limit)}}
	for n := 0; ; n++ {
		out, err := s.ask(p, nil)
		if err != nil || len(out.Feed) > limit || n > 2000 {
			s.t.Fatalf("%s, page %d: %d posts, %v", name, n, len(out.Feed), err)
		}
		for _, item := range out.Feed {
			posts = append(posts, item.Post)
		}
		if out.Cursor == "" {
			return posts
		}
		if p.Set("cursor", out.Cursor); between != nil {
			between()
		}
	}
}

func isPost(uri string) bool {
	return strings.Count(uri, "/") == 4 && strings.Contains(uri, "/app.bsky.feed.post/")
}

// newest reports whether x is shown before y, by their keys. Keys that are not times, or are ahead of now, come last.
func newest(x, y string) int {
	at := func(uri string) int64 {
		if at, ok := oracle.Micros(uri[strings.LastIndexByte(uri, '/')+1:]); ok && at <= time.Now().Add(6*time.Minute).UnixMicro() {
			return at
		}
		return -1
	}
	return cmp.Compare(at(y), at(x))
}

// A feed of a set shows its posts, the newest first, in pages of every size, for each viewer.
func TestFeedsOfSets(t *testing.T) {
	s := serve(t, 1, "liked = union(likes($viewer), reposts($viewer))\nlists = listblocks($viewer)\nmixed = union(likes($viewer),listblocks($viewer))\nhandle = likes(@alice.example.com)\nnobody = likes(@nobody.example.com)\n", Options{})
	v := s.Between(false, 0, 0)
	some := 0
	for _, s.viewer = range s.Accounts {
		want := slices.Concat(v.Forward["like"][s.viewer], v.Forward["repost"][s.viewer])
		slices.Sort(want)
		want = slices.Compact(want)
		some += len(want)
		for _, limit := range []int{1, 3, 100} {
			got := s.pages("liked", limit, nil)
			if !slices.IsSortedFunc(got, newest) {
				t.Errorf("%s: not the newest first: %q", s.viewer, got)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s, limit %d: %q, want %q", s.viewer, limit, got, want)
			}
		}
		if got := s.pages("lists", 5, nil); len(got) != 0 {
			t.Errorf("%s: lists are shown as posts: %q", s.viewer, got)
		}
		if got := s.pages("mixed", 5, nil); len(got) != len(v.Forward["like"][s.viewer]) || slices.ContainsFunc(got, func(uri string) bool { return !isPost(uri) }) {
			t.Errorf("%s: %q", s.viewer, got)
		}
	}
	s.viewer = ""
	if got := s.pages("handle", 2, nil); len(got) != len(v.Forward["like"][s.Accounts[0]]) {
		t.Errorf("by a handle: %q", got)
	}
	if _, err := s.ask(url.Values{"feed": {s.uri("nobody")}}, nil); err == nil || !strings.Contains(err.Error(), "feed nobody: no account has the handle") {
		t.Errorf("by an unknown handle: %v", err)
	}
	if some < 50 {
		t.Errorf("only %d posts", some)
	}
}

// A ranked feed shows the posts with the highest counts first, as of its first page: records that
// are made later change no page.
func TestRankedFeeds(t *testing.T) {
	s := serve(t, 3, "friends = rank(of=follows($viewer), via=likes, since=2026-01-01, except=likes($viewer))\n", Options{})
	v := s.Between(true, oracle.Begin.UnixMicro(), 1<<62)
	all := s.Between(false, 0, 0)
	some := 0
	for _, s.viewer = range s.Accounts {
		counts := map[string]int{}
		for _, friend := range all.Forward["follow"][s.viewer] {
			for _, uri := range v.Forward["like"][friend] {
				if !slices.Contains(all.Forward["like"][s.viewer], uri) {
					counts[uri]++
				}
			}
		}
		some += len(counts)
		for _, limit := range []int{1, 4, 100} {
			got := s.pages("friends", limit, nil)
			if len(got) != len(counts) || !slices.IsSortedFunc(got, func(x, y string) int { return counts[y] - counts[x] }) {
				t.Errorf("%s, limit %d: %q of %v", s.viewer, limit, got, counts)
			}
			slices.Sort(got)
			if n := len(slices.Compact(got)); n != len(counts) || slices.ContainsFunc(got, func(uri string) bool { return counts[uri] == 0 }) {
				t.Errorf("%s, limit %d: %d different posts of %d", s.viewer, limit, n, len(counts))
			}
		}
	}
	if some < 100 {
		t.Errorf("only %d posts", some)
	}
}

// A post whose key is ahead of the present comes last in a feed, whenever it is asked for.
func TestPostsOfTheFutureComeLast(t *testing.T) {
	s := serve(t, 7, "liked = likes("+oracle.Account(0)+")\n", Options{})
	post := func(at time.Time) string {
		return "at://did:web:a.example.com/app.bsky.feed.post/" + string(dict.AppendTID(nil, uint64(at.UnixMicro())<<10))
	}
	now := time.Now()
	future, soon := post(now.AddDate(70, 0, 0)), post(now.Add(2*time.Minute))
	for i, uri := range []string{future, soon} {
		s.Commit(s.Accounts[0], oracle.Op{Kind: "like", Rkey: fmt.Sprint("future", i), Subject: uri})
	}
	for _, limit := range []int{1, 5, 100} {
		got := s.pages("liked", limit, nil)
		if last := slices.Index(got, future); got[0] != soon || last < 0 || slices.ContainsFunc(got[last:], func(uri string) bool {
			at, timed := oracle.Micros(uri[strings.LastIndexByte(uri, '/')+1:])
			return timed && at <= now.UnixMicro()
		}) {
			t.Errorf("%d at a time: %q", limit, got)
		}
	}
}

// Each parameter has its bounds, and each error its name.
func TestBadSkeletons(t *testing.T) {
	s := serve(t, 5, "mine = likes($viewer)\npublic = likes("+oracle.Account(0)+")\n", Options{})
	public, line := s.uri("public"), "x = likes($viewer)"
	first, err := s.ask(url.Values{"feed": {public}, "limit": {"1"}}, nil)
	if err != nil || first.Cursor == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, c := range []struct {
		p          url.Values
		name, says string
	}{
		{nil, "UnknownFeed", `unknown feed ""`},
		{url.Values{"feed": {"x"}}, "UnknownFeed", `unknown feed "x"`},
		{url.Values{"feed": {s.uri("other")}}, "UnknownFeed", "unknown feed"},
		{url.Values{"feed": {strings.Repeat("x", 9000)}}, "UnknownFeed", "…"},
		{url.Values{"feed": {public}, "limit": {"0"}}, "InvalidRequest", "from 1 to 100"},
		{url.Values{"feed": {public}, "limit": {"101"}}, "InvalidRequest", "from 1 to 100"},
		{url.Values{"feed": {public}, "limit": {"x"}}, "InvalidRequest", "from 1 to 100"},
		{url.Values{"feed": {public}, "cursor": {""}}, "InvalidRequest", "the cursor does not belong"},
		{url.Values{"feed": {public}, "cursor": {"x"}}, "InvalidRequest", "the cursor does not belong"},
		{url.Values{"feed": {public}, "cursor": {first.Cursor[1:]}}, "InvalidRequest", "the cursor does not belong"},
		{url.Values{"feed": {s.uri("mine")}}, "AuthMissing", "no token"},
		{url.Values{"feed": {public}, "viewer": {s.Accounts[0]}}, "InvalidRequest", "viewer previews a line"},
		{url.Values{"line": {line}}, "AuthMissing", "add viewer=DID"},
		{url.Values{"line": {line}, "viewer": {"x"}}, "InvalidRequest", "is not an account"},
		{url.Values{"line": {line}, "feed": {public}}, "InvalidRequest", "without the parameter feed"},
		{url.Values{"line": {line + strings.Repeat(" ", language.MaxExpr)}}, "InvalidRequest", "at most 16384 bytes"},
		{url.Values{"line": {"x = mix(" + strings.Repeat("1, likes($viewer), ", 8) + "1, likes($viewer))"}}, "InvalidRequest", "mix has 9 queries; in a line that you send, it has at most 8"},
		{url.Values{"line": {""}}, "InvalidRequest", `line: "" is not a feed; write NAME = QUERY`},
		{url.Values{"line": {"x = folows($viewer)"}}, "InvalidRequest", `line: feed x: at position 0: "folows" is not a set`},
	} {
		_, err := s.ask(c.p, nil)
		if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Name != c.name || !strings.Contains(e.Message, c.says) || len(e.Message) > 300 {
			t.Errorf("%v: %v, want %s: %s", c.p, err, c.name, c.says)
		}
	}
	s.viewer = s.Accounts[3]
	if _, err := s.ask(url.Values{"feed": {s.uri("mine")}, "cursor": {first.Cursor}}, nil); err == nil {
		t.Error("a cursor of one feed opens another")
	}
	write1(t, s.f.o.Path, "mine = likes($viewer)\npublic = likes("+oracle.Account(1)+")\n")
	if _, err := s.f.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ask(url.Values{"feed": {public}, "cursor": {first.Cursor}}, nil); err == nil {
		t.Error("a cursor of the feed before it changed opens it")
	}
	var none *Feeds
	for _, m := range none.Methods() {
		if _, err := m.Serve(t.Context(), new(xrpc.Query)); !errors.Is(err, errNone) {
			t.Errorf("%s without feeds: %v", m.NSID, err)
		}
	}
}

// A set that is too large to be sorted is an error that says what to do.
func TestFeedOfALargeSet(t *testing.T) {
	s := serve(t, 6, "all = likes(did:web:fan.example.com)\nfew = likes(did:web:fan.example.com), each=100\ntop = rank(of=members(did:web:fan.example.com), via=likes)", Options{})
	like := func(n int) {
		var posts []string
		for i := range n {
			posts = append(posts, fmt.Sprintf("at://did:web:author.example.com/app.bsky.feed.post/%d-%d", n, i))
		}
		s.PutMany("did:web:fan.example.com", "like", posts)
	}
	like(postsRead)
	if out, err := s.ask(url.Values{"feed": {s.uri("all")}, "limit": {"100"}}, nil); err != nil || len(out.Feed) != 100 || out.Cursor == "" {
		t.Errorf("%d posts of %d: %v", len(out.Feed), postsRead, err)
	}
	if got := s.pages("few", 100, nil); len(got) != maxFeed {
		t.Errorf("a feed that remembers %d posts, at most %d", len(got), maxFeed)
	}
	top, _ := s.f.find(s.uri("top"))
	var last answered
	for _, late := range []uint64{0, 13} { // seconds that the first page waited: later pages have its budget
		out, err := s.ask(url.Values{"feed": {s.uri("top")}, "cursor": {top.seal(s.cursors, place{late: late, after: make([]candidate, 1)})}}, nil)
		if next, wrong := top.open(s.cursors, out.Cursor); err != nil || wrong != nil || next.late != late || slices.Equal(out.Feed, last.Feed) {
			t.Errorf("late %d: %+v, %v %v: %v", late, next, err, wrong, out.Feed)
		}
		last = out
	}
	like(1)
	_, err := s.ask(url.Values{"feed": {s.uri("all")}}, nil)
	if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Status != 400 || e.Message != "the feed's set is too large: it has 20001 members, and only sets up to 20000 can be sorted; limit it with since=" {
		t.Errorf("a post too many: %v", err)
	}
}

// A preview names its viewer, and is not a feed of the file.
func TestPreviewsNameTheirViewer(t *testing.T) {
	const line = "mine = likes($viewer)"
	s := serve(t, 7, line+"\n", Options{})
	want := s.Between(false, 0, 0).Forward["like"]
	for _, viewer := range []string{s.Accounts[0], "@alice.example.com", "alice.example.com"} {
		out, err := s.ask(url.Values{"line": {line}, "viewer": {viewer}, "limit": {"100"}}, http.Header{})
		if err != nil || len(out.Feed) != len(want[s.Accounts[0]]) {
			t.Errorf("%s: %d posts, want %d: %v", viewer, len(out.Feed), len(want[s.Accounts[0]]), err)
		}
	}
	for viewer, says := range map[string]string{"": "is not an account", "at://did:web:a.example.com": "is not an account", "did:plc:short": "24 characters"} {
		if _, err := s.ask(url.Values{"line": {line}, "viewer": {viewer}}, http.Header{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("viewer %q: %v", viewer, err)
		}
	}
	s.viewer = s.Accounts[0]
	if out, err := s.ask(url.Values{"feed": {s.uri("mine")}, "limit": {"100"}}, http.Header{"Authorization": {"x"}}); err != nil || len(out.Feed) != len(want[s.viewer]) {
		t.Errorf("a token: %d posts, %v", len(out.Feed), err)
	}
}

// A line that a caller sends has the pages of the same feed of the file, for any viewer, without a file, and through a proxy.
func TestLinesThatCallersSend(t *testing.T) {
	s := serve(t, 9, "set = likes($viewer)\nranked = rank(of=follows($viewer), via=likes), seen=hide\nours = likes("+oracle.Account(0)+")\n", Options{})
	f, through := s.f, http.Header{"Via": {"x"}}
	for _, g := range *f.feeds.Load() {
		for n, did := range s.Accounts {
			s.viewer = did
			asked, sent := url.Values{"feed": {f.uri(g)}, "limit": {"7"}}, url.Values{"line": {" " + g.name + "=\n" + g.shows}, "viewer": {did}, "limit": {"7"}}
			for more := true; more; {
				s.f = f
				want, err := s.ask(asked, nil)
				s.f = nil
				got, wrong := s.ask(sent, through)
				if err != nil || wrong != nil || !slices.Equal(got.Feed, want.Feed) || (got.Cursor == "") != (want.Cursor == "") {
					t.Fatalf("%s of account %d: %v, %v: %+v, want %+v", g.name, n, err, wrong, got, want)
				}
				asked.Set("cursor", want.Cursor)
				sent.Set("cursor", got.Cursor)
				more = want.Cursor != ""
			}
		}
	}
}
