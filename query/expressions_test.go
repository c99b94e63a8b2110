package query_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

// operators serves all members of sets, without pages.
func (w *world) operators(s *query.Server) *world {
	srv := httptest.NewServer(http.HandlerFunc(s.ServeMembers))
	w.t.Cleanup(srv.Close)
	return &world{t: w.t, base: srv.URL}
}

// streamed returns the members in an answer of ServeMembers.
func (w *world) streamed(set string) (members []string, total string) {
	w.t.Helper()
	status, body, h := w.get("/?" + url.Values{"set": {set}}.Encode())
	for line := range strings.Lines(body) {
		var m struct{ Member *string }
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Member == nil || status != http.StatusOK {
			w.t.Fatalf("%s: %q: %v", set, line, err)
		}
		members = append(members, *m.Member)
	}
	return members, h.Get("Skein-Total")
}

// column follows the links from page to page of CSV, and returns one of its columns.
func (w *world) column(method string, p url.Values, name string) (values []string) {
	w.t.Helper()
	for path := pathOf(method + "?format=csv&" + p.Encode()); path != ""; {
		status, body, h := w.do(http.MethodGet, path, "")
		rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
		if status != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/csv") || err != nil || len(rows) == 0 {
			w.t.Fatal(path, status, h, body, err)
		}
		at := slices.Index(rows[0], name)
		for _, r := range rows[1:] {
			values = append(values, r[at])
		}
		last := path
		path, _, _ = strings.Cut(strings.TrimPrefix(h.Get("Link"), "<"), ">")
		if cursor := h.Get("Skein-Cursor"); path == "" && cursor != "" { // of a long query
			p.Set("cursor", cursor)
			path = pathOf(method + "?format=csv&" + p.Encode())
		}
		if path == last {
			w.t.Fatalf("%s leads to itself", path)
		}
	}
	return values
}

// Random expressions have the members that the model has: in pages of JSON and of CSV, in one stream, as a count, and
// member by member.
func TestExpressions(t *testing.T) {
	t.Parallel()
	defer query.SetMembersAtOnce(3)()
	w := newWorld(t, 1, 6000)
	operators := w.operators(w.serve(query.Options{Version: "1"}))
	rng := rand.New(rand.NewPCG(2, 2))
	long := 0
	for i := range 250 {
		expr, set := w.expression(rng, i%2 == 0, 3)
		want := slices.Sorted(maps.Keys(set))
		p := url.Values{"set": {expr}, "limit": {fmt.Sprint(1 + rng.IntN(30))}}
		members, totals := w.all(expr, 1+rng.IntN(30), nil)
		if !slices.Equal(slices.Sorted(slices.Values(members)), want) || totals[0] != len(want) {
			t.Fatalf("%s: %q of %d, want %q", expr, members, totals[0], want)
		}
		if a := w.query(expr); !slices.Equal(a.Members, members) || a.Cursor != "" {
			t.Fatalf("%s: %q on one page, %q on several", expr, a.Members, members)
		}
		if a := w.answer("query", url.Values{"set": {expr}, "count": {"true"}}); a.Total != len(want) || a.Members != nil || a.Cursor != "" {
			t.Fatalf("%s, count: %+v", expr, a)
		}
		if got := w.column("query", p, "member"); !slices.Equal(got, members) {
			t.Fatalf("%s in CSV: %q, want %q", expr, got, members)
		}
		if got, total := operators.streamed(expr); !slices.Equal(got, members) || total != strconv.Itoa(len(members)) {
			t.Fatalf("%s in one stream: %q of %s, want %q", expr, got, total, members)
		}
		asked := slices.DeleteFunc(append(w.strings(i%2 == 0), want...), func(s string) bool { return strings.HasPrefix(s, "at://handle.") })
		rng.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		for i, in := range w.contains(expr, asked[:20]...) {
			if in != set[asked[i]] {
				t.Fatalf("%s contains %s: %v", expr, asked[i], in)
			}
		}
		if len(want) > 8 {
			long++
		}
	}
	if long < 20 {
		t.Errorf("only %d sets had more than 8 members", long)
	}
	for _, bad := range []string{"", "?set=", "?set=followers(", "?set=" + url.QueryEscape("intersect(followers($viewer),followers($viewer))")} {
		operators.says("/"+bad, http.StatusBadRequest, "error")
	}
}

// contains asks which of some strings are members.
func (w *world) contains(set string, members ...string) (in []bool) {
	w.t.Helper()
	var a struct {
		Members []struct {
			Member    string
			Contained bool
		}
	}
	w.ask("contains", url.Values{"set": {set}, "member": members}, &a)
	for i, m := range a.Members {
		if in = append(in, m.Contained); m.Member != members[i] && strconv.Quote(m.Member) != members[i] {
			w.t.Errorf("%s: answer %d is about %q, asked about %q", set, i, m.Member, members[i])
		}
	}
	return in
}

// A member that is present throughout appears exactly once, whatever grows
// between the pages; also one that was never seen before the first page.
func TestPagesWhileGrowing(t *testing.T) {
	w := newWorld(t, 3, 300)
	given := slices.Clone(w.history.Accounts())
	for i := range 60 {
		given = append(given, numbered(i))
	}
	before := map[string]bool{}
	for _, s := range given {
		before[s] = !w.model.Hidden[s]
	}
	i := 0
	members, _ := w.all("union(members("+strings.Join(given, ",")+","+numbered(3)+"), followers("+given[0]+"))", 5, func() {
		// One of the strings that were never seen gets an id, as a subject.
		w.happen(&oracle.Event{
			Type: oracle.CommitEvent, Seq: 1_000_000 + int64(i), DID: "did:plc:followeraaaaaaaaaaaaaaaa", Rev: oracle.TID(1<<55 + uint64(i)),
			Ops: []oracle.Op{{Kind: "follow", Rkey: fmt.Sprint("r", i), Subject: numbered((i * 7) % 60)}},
		})
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

// Whatever is in a text, it is one member in every form, unchanged.
func TestTextsInEveryForm(t *testing.T) {
	w, commit, index := arraysWorld(t)
	rng := rand.New(rand.NewPCG(47, 14))
	want := []string{"good\ndid:plc:x", "evil\r", "a\r\nb", `\.`, " ", "\"", "=1+1", "{\"member\":\"x\"}\n"}
	for range 100 {
		text := ""
		for range 1 + rng.IntN(6) {
			text += []string{"\n", "\r", "\"", ",", "a", " ", "\t", "\\", "\u2028", "\u202e", "\x7f", "\u009b", "é", "<&>", "}"}[rng.IntN(15)]
		}
		want = append(want, text)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	commit("create", 1, 1, post(nil, nil, want))
	index()
	set := "tags(" + did(1) + ")"
	if members, _ := w.all(set, 30, nil); !slices.Equal(slices.Sorted(slices.Values(members)), want) {
		t.Fatalf("in JSON: %q, want %q", members, want)
	}
	if got, _ := w.operators(w.serve(query.Options{})).streamed(set); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Fatalf("in one stream: %q, want %q", got, want)
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "\r\n", "\n") // as encoding/csv reads it
	}
	slices.Sort(want)
	if got := w.column("query", url.Values{"set": {set}, "limit": {"30"}}, "member"); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Fatalf("in CSV: %q, want %q", got, want)
	}
}

// busiest returns the account with the most members in its set of a kind of edge, and their number.
func busiest(sets map[string][]string) (did string, most int) {
	for _, of := range slices.Sorted(maps.Keys(sets)) {
		if n := len(sets[of]); n > most {
			did, most = of, n
		}
	}
	return did, most
}

// Rankings and records as CSV have what the JSON has; methods without tables, and errors, are JSON.
func TestCSV(t *testing.T) {
	w := newWorld(t, 13, 4000)
	did, most := busiest(w.model.Views().Forward["follow"])
	for _, by := range []string{"count", "share", "lift"} {
		p := url.Values{"of": {"follows(" + did + ")"}, "via": {"likes"}, "by": {by}, "limit": {"1000"}}
		want := w.answer("rank", p).Items
		p.Set("limit", "7")
		members, numbers := w.column("rank", p, "member"), w.column("rank", p, by)
		if len(members) != len(want) || len(members) < 8 {
			t.Fatalf("%s: %d items, want %d", by, len(members), len(want))
		}
		for i, it := range want {
			n := map[string]int{"count": it.Count, "share": it.Share, "lift": it.Lift}[by]
			if members[i] != it.Member || numbers[i] != strconv.Itoa(n) {
				t.Fatalf("%s: item %d is %s %s, want %s %d", by, i, members[i], numbers[i], it.Member, n)
			}
		}
	}
	records := w.column("query", url.Values{"set": {"follows(" + did + ")"}, "records": {"true"}, "limit": {"3"}}, "record")
	if len(records) != most || !strings.HasPrefix(records[0], "at://"+did+"/app.bsky.graph.follow/") {
		t.Fatalf("%d records of %d: %q", len(records), most, records)
	}
	if got := w.column("query", url.Values{"set": {"follows(" + did + ")"}, "count": {"true"}}, "total"); !slices.Equal(got, []string{strconv.Itoa(most)}) {
		t.Fatalf("%q", got)
	}
	for _, path := range []string{"getStats?format=csv", "query?format=csv&set=nonsense", "query?format=csv", "query?format=xml&set=likes(" + did + ")"} {
		if _, body, h := w.do(http.MethodGet, pathOf(path), ""); !strings.HasPrefix(h.Get("Content-Type"), "application/json") || !json.Valid([]byte(body)) {
			t.Errorf("%s: %v %s", path, h, body)
		}
	}
}
