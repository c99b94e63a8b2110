package query_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/language"
)

// world is a graph made of a random history, a server of it, and the truth.
type world struct {
	t       *testing.T
	store   *graph.Store
	history *oracle.History
	model   *oracle.Model
	base    string
	n       int
}

func newWorld(t *testing.T, seed uint64, events int) *world {
	t.Helper()
	return newWorldOf(t, oracle.NewHistory(seed, 40), write.Limits{}, events)
}

func newWorldOf(t *testing.T, h *oracle.History, l write.Limits, events int) *world {
	t.Helper()
	w := newWorldOn(t, h, memkv.Options{Merger: write.NewMerger(l)}, graph.Options{})
	w.grow(events)
	return w
}

// newWorldOn returns a world without events.
func newWorldOn(t *testing.T, h *oracle.History, mo memkv.Options, o graph.Options) *world {
	t.Helper()
	g, err := graph.Open(t.Context(), memkv.Open(mo), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := query.New(g, query.Options{Version: "1.2.3", Relay: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return &world{t, g, h, oracle.New(), srv.URL, 0}
}

// grow lets more events happen.
func (w *world) grow(events int) {
	w.t.Helper()
	var list []*oracle.Event
	for range events {
		e := w.history.Next()
		w.model.Apply(e)
		list = append(list, e)
	}
	w.apply(list)
}

// happen lets one event happen.
func (w *world) happen(e *oracle.Event) {
	w.t.Helper()
	w.model.Apply(e)
	w.apply([]*oracle.Event{e})
}

// apply indexes events, through the consumer and its decoder.
func (w *world) apply(events []*oracle.Event) {
	w.t.Helper()
	c, err := consumer.New(w.store, consumer.Options{Relay: "ws://memory", Read: func(handle func([]byte) error) error {
		for _, e := range events {
			if err := handle(oracle.Frame(e)); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Run(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for w.store.Erasing() {
		if err := w.store.EraseSlice(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) get(path string) (status int, body string, header http.Header) {
	w.t.Helper()
	resp, err := http.Get(w.base + path)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

type answer struct {
	Type    string
	Total   int
	Members []string
	Cursor  string
}

func (w *world) query(params url.Values) answer {
	w.t.Helper()
	status, body, _ := w.get("/xrpc/blue.skein.graph.query?" + params.Encode())
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		w.t.Fatalf("%v: %d %s", params, status, body)
	}
	return a
}

// all asks for a set in pages, and calls between after each.
func (w *world) all(set string, limit int, between func()) (members []string, totals []int) {
	w.t.Helper()
	for cursor := ""; ; {
		p := url.Values{"set": {set}, "limit": {fmt.Sprint(limit)}}
		p.Set("cursor", cursor) // empty on the first page
		a := w.query(p)
		if len(a.Members) > limit {
			w.t.Fatalf("a page of %d, limit %d", len(a.Members), limit)
		}
		members = append(members, a.Members...)
		totals = append(totals, a.Total)
		if cursor = a.Cursor; cursor == "" {
			return members, totals
		}
		if between != nil {
			between()
		}
	}
}

// expression makes a random expression of DIDs or URIs, and its members
// according to the model.
func (w *world) expression(rng *rand.Rand, dids bool, depth int) (string, map[string]bool) {
	v := w.model.Views()
	accounts := append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa")
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	set := map[string]bool{}
	if depth == 0 || rng.IntN(3) == 0 {
		if rng.IntN(6) == 0 {
			pool := accounts
			if !dids {
				pool = append(w.posts(v), "at://did:plc:neverseenaaaaaaaaaaaaaaa/app.bsky.feed.post/x")
			}
			var args []string
			for range 1 + rng.IntN(5) {
				s := pick(pool)
				args = append(args, s)
				if !w.model.Hidden[s] {
					set[s] = true
				}
			}
			return "members( " + strings.Join(args, " , ") + ")", set
		}
		if rng.IntN(6) == 0 {
			name, of, members := w.listLeaf(rng, span{all: true})
			for dids != (name == "listed") {
				name, of, members = w.listLeaf(rng, span{all: true})
			}
			for _, m := range members {
				set[m] = true
			}
			return name + "(" + of + ")", set
		}
		var fit []kinds.Info
		for _, k := range named {
			if !dids == (k.To.Is().String() == "uri") || dids {
				fit = append(fit, k)
			}
		}
		k := fit[rng.IntN(len(fit))]
		of, name, members := pick(accounts), k.Forward, v.Forward[k.Name]
		if dids && (k.To.Is().String() == "uri" || rng.IntN(2) == 0) {
			name, members = k.Reverse, v.Reverse[k.Name]
			if k.To.Is().String() == "uri" {
				of = pick(w.posts(v))
			}
		}
		for _, m := range members[of] {
			set[m] = true
		}
		return name + "(" + of + ")", set
	}
	op := []string{"intersect", "union", "except"}[rng.IntN(3)]
	var parts []string
	for i := range 1 + rng.IntN(3) {
		s, members := w.expression(rng, dids, depth-1)
		parts = append(parts, s)
		switch {
		case i == 0:
			set = members
		case op == "union":
			for m := range members {
				set[m] = true
			}
		default:
			for m := range set {
				if members[m] == (op == "except") {
					delete(set, m)
				}
			}
		}
	}
	return op + "(" + strings.Join(parts, ",\n") + ")", set
}

func (w *world) posts(v oracle.Views) (posts []string) {
	for uri := range v.Reverse["like"] {
		if strings.HasPrefix(uri, "at://did:") { // the others may not be asked about
			posts = append(posts, uri)
		}
	}
	slices.Sort(posts)
	return posts
}

// Random expressions, evaluated by the server and by the model: in one page,
// in small ones, as a count, and member by member.
func TestExpressions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 6000)
	rng := rand.New(rand.NewPCG(2, 2))
	nonEmpty := 0
	for range 400 {
		dids := rng.IntN(2) == 0
		expr, set := w.expression(rng, dids, 3)
		want := make([]string, 0, len(set))
		for m := range set {
			want = append(want, m)
		}
		slices.Sort(want)
		for _, limit := range []int{1000, 7} {
			got, totals := w.all(expr, limit, nil)
			slices.Sort(got)
			if !slices.Equal(got, want) || totals[0] != len(want) {
				t.Fatalf("%s, pages of %d:\n got %q, total %d\nwant %q", expr, limit, got, totals[0], want)
			}
		}
		if a := w.query(url.Values{"set": {expr}, "count": {"true"}}); a.Total != len(want) || a.Members != nil || a.Cursor != "" {
			t.Fatalf("%s, count: %+v", expr, a)
		}
		pool := append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa", "did:plc:neitheraaaaaaaaaaaaaaaaa")
		if !dids {
			pool = append(w.posts(w.model.Views()), "at://did:plc:neverseenaaaaaaaaaaaaaaa/app.bsky.feed.post/x")
		}
		rng.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		asked := pool[:min(20, len(pool))]
		_, body, _ := w.get("/xrpc/blue.skein.graph.contains?" + url.Values{"set": {expr}, "member": asked}.Encode())
		var c struct {
			Members []struct {
				Member    string
				Contained bool
			}
		}
		if err := json.Unmarshal([]byte(body), &c); err != nil || len(c.Members) != len(asked) {
			t.Fatalf("%s: %s", expr, body)
		}
		for i, m := range c.Members {
			if m.Member != asked[i] || m.Contained != set[asked[i]] {
				t.Fatalf("%s contains %s: %+v, want %v", expr, asked[i], m, set[asked[i]])
			}
		}
		if len(want) > 0 {
			nonEmpty++
		}
	}
	if nonEmpty < 100 {
		t.Errorf("only %d sets had members", nonEmpty)
	}
}

// A member that is present throughout appears exactly once, whatever grows
// between the pages; also one that was never seen before the first page.
func TestPagesWhileGrowing(t *testing.T) {
	w := newWorld(t, 3, 300)
	var given []string
	for i := range 60 {
		given = append(given, numbered(i))
	}
	given = append(given, w.history.Accounts()...)
	before := map[string]bool{}
	for _, s := range given {
		before[s] = !w.model.Hidden[s]
	}
	i := 0
	members, _ := w.all("union(members("+strings.Join(given, ",")+"), followers("+w.history.Accounts()[0]+"))", 5, func() {
		// One of the strings that were never seen gets an id, as a subject.
		e := &oracle.Event{
			Type: oracle.CommitEvent, Seq: 1_000_000 + int64(i), DID: "did:plc:followeraaaaaaaaaaaaaaaa", Rev: oracle.TID(1<<55 + uint64(i)),
			Ops: []oracle.Op{{Kind: "follow", Rkey: fmt.Sprint("r", i), Subject: numbered((i * 7) % 60)}},
		}
		w.happen(e)
		i++
	})
	seen := map[string]int{}
	for _, m := range members {
		seen[m]++
	}
	for s, active := range before {
		if active && seen[s] != 1 {
			t.Errorf("%s appeared %d times", s, seen[s])
		}
	}
	if i < 10 {
		t.Fatalf("only %d pages", i)
	}
}

// A string that is given twice, and gets its id between two pages, is one member.
func TestPinnedTwice(t *testing.T) {
	w := newWorld(t, 5, 100)
	const x, y = "did:plc:xneveraaaaaaaaaaaaaaaaaa", "did:plc:yneveraaaaaaaaaaaaaaaaaa"
	i := 0
	members, totals := w.all("members("+y+","+x+","+x+")", 1, func() {
		w.happen(&oracle.Event{
			Type: oracle.CommitEvent, Seq: 1_000_000 + int64(i), DID: "did:plc:followeraaaaaaaaaaaaaaaa", Rev: oracle.TID(1<<55 + uint64(i)),
			Ops: []oracle.Op{{Kind: "follow", Rkey: "r", Subject: []string{x, y}[i%2]}},
		})
		i++
	})
	if slices.Sort(members); !slices.Equal(members, []string{x, y}) || slices.Max(totals) != 2 {
		t.Errorf("%q, totals %v", members, totals)
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t, 4, 500)
	a := w.history.Accounts()
	set := "members(" + strings.Join(a[:20], ",") + ")"
	first := w.query(url.Values{"set": {set}, "limit": {"2"}})
	if first.Cursor == "" {
		t.Fatal("no cursor")
	}
	q := func(params url.Values) string { return "/xrpc/blue.skein.graph.query?" + params.Encode() }
	deep := strings.Repeat("union(", 32) + "follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)" + strings.Repeat(")", 32)
	leaves := "union(" + strings.TrimSuffix(strings.Repeat("follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa),", 65), ",") + ")"
	for name, c := range map[string]struct {
		path   string
		status int
		says   string
	}{
		"no set":           {q(nil), 400, "set\" is missing"},
		"empty set":        {q(url.Values{"set": {""}}), 400, "position 0"},
		"misspelt":         {q(url.Values{"set": {"folowers(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "did you mean followers?"},
		"short did:plc":    {q(url.Values{"set": {"followers(did:plc:short)"}}), 400, "24 characters"},
		"did:plc with a 1": {q(url.Values{"set": {"followers(did:plc:1aaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "24 characters"},
		"handle in a URI":  {q(url.Values{"set": {"likers(at://alice.example/app.bsky.feed.post/3kaaaaaaaaaaa)"}}), 400, "handles are not resolved here: give the DID"},
		"short DID in URI": {q(url.Values{"set": {"likers(at://did:plc:short/app.bsky.feed.post/3kaaaaaaaaaaa)"}}), 400, "24 characters"},
		"short member":     {q(url.Values{"set": {"members(did:plc:short)"}}), 400, "24 characters"},
		"member is short":  {"/xrpc/blue.skein.graph.contains?set=" + url.QueryEscape(set) + "&member=did:plc:short", 400, "24 characters"},
		"unknown function": {q(url.Values{"set": {"frob(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "frob"},
		"no parenthesis":   {q(url.Values{"set": {"follows"}}), 400, "position 7"},
		"not closed":       {q(url.Values{"set": {"follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}}), 400, "position 40"},
		"tail":             {q(url.Values{"set": {"follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa) x"}}), 400, "position 42"},
		"no argument":      {q(url.Values{"set": {"follows()"}}), 400, "position 8"},
		"two arguments":    {q(url.Values{"set": {"follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa,did:plc:baaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "one argument"},
		"no operands":      {q(url.Values{"set": {"union()"}}), 400, "position 6"},
		"malformed DID":    {q(url.Values{"set": {"follows(alice.example.com)"}}), 400, "write a handle as @alice.example.com"},
		"URI for a DID":    {q(url.Values{"set": {"follows(at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/x)"}}), 400, "takes an account"},
		"DID for a URI":    {q(url.Values{"set": {"likers(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "takes an AT URI"},
		"mixed operands":   {q(url.Values{"set": {"union(follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa), likes(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa))"}}), 400, "position 49"},
		"mixed members":    {q(url.Values{"set": {"members(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa,at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "position 41"},
		"65 leaves":        {q(url.Values{"set": {leaves}}), 400, "64"},
		"depth 33":         {q(url.Values{"set": {deep}}), 400, "32"},
		"too long":         {q(url.Values{"set": {strings.Repeat(" ", 16<<10) + "follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"}}), 400, "16384"},
		"limit 0":          {q(url.Values{"set": {set}, "limit": {"0"}}), 400, "1 to 1000"},
		"limit 1001":       {q(url.Values{"set": {set}, "limit": {"1001"}}), 400, "1 to 1000"},
		"limit text":       {q(url.Values{"set": {set}, "limit": {"ten"}}), 400, "ten"},
		"limit twice":      {q(url.Values{"set": {set}, "limit": {"1", "2"}}), 400, "limit"},
		"count maybe":      {q(url.Values{"set": {set}, "count": {"maybe"}}), 400, "count"},
		"cursor garbage":   {q(url.Values{"set": {set}, "cursor": {"garbage"}}), 400, "cursor"},
		"cursor cut":       {q(url.Values{"set": {set}, "cursor": {first.Cursor[:len(first.Cursor)-1]}}), 400, "cursor"},
		"cursor edited":    {q(url.Values{"set": {set}, "cursor": {strings.Map(func(c rune) rune { return c ^ 1 }, first.Cursor[:1]) + first.Cursor[1:]}}), 400, "cursor"},
		"cursor of others": {q(url.Values{"set": {"members(" + a[0] + ")"}, "cursor": {first.Cursor}}), 400, "cursor"},
		"bad escape":       {"/xrpc/blue.skein.graph.query?set=%zz", 400, "query string"},
		"no member":        {"/xrpc/blue.skein.graph.contains?set=" + url.QueryEscape(set), 400, "member"},
		"101 members":      {"/xrpc/blue.skein.graph.contains?set=" + url.QueryEscape(set) + strings.Repeat("&member=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 101), 400, "100"},
		"member's type":    {"/xrpc/blue.skein.graph.contains?set=" + url.QueryEscape(set) + "&member=at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 400, "member"},
		"unknown method":   {"/xrpc/blue.skein.graph.frob", 501, "frob"},
		"not served yet":   {"/xrpc/app.bsky.feed.getTimeline", 501, "getTimeline"},
		"unknown page":     {"/nothing", 404, ""},
	} {
		status, body, header := w.get(c.path)
		var e struct{ Error, Message string }
		if status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
			continue
		}
		if status == 404 {
			continue
		}
		want := map[int]string{400: "InvalidRequest", 501: "MethodNotImplemented"}[status]
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error != want || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %s, want %q", name, body, c.says)
		}
		if header.Get("Access-Control-Allow-Origin") != "*" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", name, header)
		}
	}
	for _, call := range []string{"POST getStats", "POST getAccount", "PUT query", "DELETE query"} {
		method, name, _ := strings.Cut(call, " ")
		req := httptest.NewRequest(method, "/xrpc/blue.skein.graph."+name+"?set="+url.QueryEscape(set), nil)
		rec := httptest.NewRecorder()
		s, err := query.New(w.store, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.ServeHTTP(rec, req); rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", call, rec.Code)
		}
		req = httptest.NewRequest("OPTIONS", "/xrpc/blue.skein.graph.query", nil)
		rec = httptest.NewRecorder()
		if s.ServeHTTP(rec, req); rec.Code != http.StatusNoContent || rec.Header().Get("Access-Control-Allow-Methods") == "" {
			t.Errorf("OPTIONS: %d %v", rec.Code, rec.Header())
		}
	}
	// Values at the bound are accepted.
	for _, ok := range []string{
		"union(" + strings.TrimSuffix(strings.Repeat("follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa),", 64), ",") + ")",
		strings.Repeat("union(", 31) + "follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)" + strings.Repeat(")", 31),
		" intersect ( followers ( did:web:example.com%3A80 ) ) ",
	} {
		if a := w.query(url.Values{"set": {ok}, "limit": {"1000"}}); a.Total != 0 || a.Members == nil {
			t.Errorf("%s: %+v", ok, a)
		}
	}
}

func TestTimeout(t *testing.T) {
	w := newWorld(t, 5, 200)
	s, err := query.New(w.store, query.Options{Timeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest("GET", "/xrpc/blue.skein.graph.query?set=follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)", nil))
	if rec.Code != http.StatusGatewayTimeout || !strings.Contains(rec.Body.String(), "QueryTimeout") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("intersect(followers(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa), except(likers(at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/x), members(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa,did:plc:baaaaaaaaaaaaaaaaaaaaaaa)))")
	f.Add("union(,)")
	f.Add("((((")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := language.Parse(s)
		if (e == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", s, e, err)
		}
	})
}

// numbered makes a DID of a number.
func numbered(i int) string {
	did := []byte(fmt.Sprintf("did:plc:%024d", i))
	for j := 8; j < len(did); j++ {
		did[j] += 'a' - '0'
	}
	return string(did)
}

// The place of an error is shown.
func TestPoint(t *testing.T) {
	for source, want := range map[string]string{
		"folowers(did:plc:a)":            "folowers(did:plc:a)\n^",
		"union(follows(did:web:a.b), x)": "union(follows(did:web:a.b), x)\n                            ^",
		"union(\nxäö":                    "union( xäö\n       ^",
		"union(follows(did:web:" + strings.Repeat("long.", 30) + "b), x)": "." + strings.Repeat("long.", 11) + "b), x)\n" + strings.Repeat(" ", 60) + "^",
	} {
		_, err := language.Parse(source)
		var e *language.SyntaxError
		if !errors.As(err, &e) {
			t.Fatalf("%q: %v", source, err)
		}
		if got := e.Point(source); got != want {
			t.Errorf("%q:\n%s\nwant\n%s", source, got, want)
		}
	}
}
