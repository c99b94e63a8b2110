package query_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skein.blue/query"
)

// fetch sends a GET request with an Accept header.
func fetch(t *testing.T, address, accept string) (status int, h http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header, string(b)
}

// streamed returns the members in an answer of ServeMembers.
func streamed(t *testing.T, body string) (members []string) {
	t.Helper()
	for line := range strings.Lines(body) {
		m, err := query.ParseMember([]byte(line))
		var same struct{ Member string }
		if err := errors.Join(err, json.Unmarshal([]byte(line), &same)); err != nil || m != same.Member {
			t.Fatalf("%q is %q: %v", line, m, err)
		}
		members = append(members, m)
	}
	return members
}

// Random expressions have the same members page by page in JSON, page by page in CSV, and in one
// stream.
func TestMembersInEveryForm(t *testing.T) {
	t.Parallel()
	defer query.SetMembersAtOnce(3)()
	w := newWorld(t, 12, 4000)
	s, err := query.New(w.store, query.Options{Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	operators := httptest.NewServer(http.HandlerFunc(s.ServeMembers))
	defer operators.Close()
	rng := rand.New(rand.NewPCG(5, 12))
	long := 0
	for i := range 120 {
		set, want := w.expression(rng, i%2 == 0, 3)
		members, _ := w.all(set, 1+rng.IntN(30), nil)
		if len(members) != len(want) {
			t.Fatalf("%s: %d members, want %d", set, len(members), len(want))
		}
		if len(members) > 8 {
			long++
		}
		at := operators.URL + "?" + url.Values{"set": {set}}.Encode()
		status, h, body := fetch(t, at, "*/*")
		if got := streamed(t, body); status != http.StatusOK || !slices.Equal(got, members) || h.Get("Skein-Total") != strconv.Itoa(len(members)) {
			t.Fatalf("%s in one stream: %d %q, want %q", set, status, got, members)
		}
		if got := pages(t, w.base, "/xrpc/blue.skein.graph.query?"+url.Values{"set": {set}, "limit": {strconv.Itoa(1 + rng.IntN(30))}}.Encode(), "member"); !slices.Equal(got, members) {
			t.Fatalf("%s page by page: %q, want %q", set, got, members)
		}
	}
	if long < 10 {
		t.Fatalf("only %d sets have more than 8 members", long)
	}
	for _, bad := range []string{"", "?set=", "?set=followers(", "?set=" + url.QueryEscape("intersect(followers($viewer),followers($viewer))")} {
		if status, _, body := fetch(t, operators.URL+bad, "*/*"); status != http.StatusBadRequest || !strings.Contains(body, "error") {
			t.Errorf("%q: %d %s", bad, status, body)
		}
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
	members, _ := w.all(set, 30, nil)
	if slices.Sort(members); !slices.Equal(members, want) {
		t.Fatalf("in JSON: %q, want %q", members, want)
	}
	s, err := query.New(w.store, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	operators := httptest.NewServer(http.HandlerFunc(s.ServeMembers))
	defer operators.Close()
	_, _, body := fetch(t, operators.URL+"?"+url.Values{"set": {set}}.Encode(), "*/*")
	if got := streamed(t, body); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Fatalf("in one stream: %q, want %q", got, want)
	}
	at := "/xrpc/blue.skein.graph.query?" + url.Values{"set": {set}, "limit": {"30"}}.Encode()
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "\r\n", "\n") // as encoding/csv reads it
	}
	slices.Sort(want)
	if got := pages(t, w.base, at, "member"); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Fatalf("in CSV: %q, want %q", got, want)
	}
}

// column returns a column of a CSV file.
func column(t *testing.T, body, name string) (values []string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatal(body, err)
	}
	at := slices.Index(rows[0], name)
	if at < 0 {
		t.Fatalf("%q has no column %s", rows[0], name)
	}
	for _, r := range rows[1:] {
		values = append(values, r[at])
	}
	return values
}

// pages follows the links from page to page of CSV.
func pages(t *testing.T, base, path, name string) (values []string) {
	t.Helper()
	for path != "" {
		status, h, body := fetch(t, base+path, "application/json;q=0.5, text/csv")
		if status != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/csv") || !slices.Contains(h.Values("Vary"), "Accept") {
			t.Fatal(status, h, body)
		}
		values = append(values, column(t, body, name)...)
		path, _, _ = strings.Cut(strings.TrimPrefix(h.Get("Link"), "<"), ">")
	}
	return values
}

// Rankings and records as CSV have what the JSON has; methods without tables, and errors, are JSON.
func TestCSV(t *testing.T) {
	w := newWorld(t, 13, 4000)
	var busiest string
	most := 0
	for did, subjects := range w.model.Views().Forward["follow"] {
		if len(subjects) > most || len(subjects) == most && did < busiest {
			busiest, most = did, len(subjects)
		}
	}
	for _, by := range []string{"count", "share", "lift"} {
		p := url.Values{"of": {"follows(" + busiest + ")"}, "via": {"likes"}, "by": {by}, "limit": {"7"}}
		var want struct {
			Items []struct {
				Member             string
				Count, Share, Lift int
			}
		}
		all := url.Values{"of": p["of"], "via": p["via"], "by": p["by"], "limit": {"1000"}}
		w.ask("blue.skein.graph.rank", all, &want)
		path := "/xrpc/blue.skein.graph.rank?" + p.Encode()
		members, numbers := pages(t, w.base, path, "member"), pages(t, w.base, path, by)
		if len(members) != len(want.Items) || len(members) < 8 {
			t.Fatalf("%s: %d items, want %d", by, len(members), len(want.Items))
		}
		for i, item := range want.Items {
			n := map[string]int{"count": item.Count, "share": item.Share, "lift": item.Lift}[by]
			if members[i] != item.Member || numbers[i] != strconv.Itoa(n) {
				t.Fatalf("%s: item %d is %s %s, want %s %d", by, i, members[i], numbers[i], item.Member, n)
			}
		}
	}
	records := pages(t, w.base, "/xrpc/blue.skein.graph.query?records=true&limit=3&set=follows("+busiest+")", "record")
	if len(records) != most || !strings.HasPrefix(records[0], "at://"+busiest+"/app.bsky.graph.follow/") {
		t.Fatalf("%d records of %d: %q", len(records), most, records)
	}
	if _, _, body := fetch(t, w.base+"/xrpc/blue.skein.graph.query?count=true&set=follows("+busiest+")", "text/csv"); body != "total\n"+strconv.Itoa(most)+"\n" {
		t.Fatalf("%q", body)
	}
	for _, path := range []string{"getStats", "query?set=nonsense", "query"} {
		if _, h, body := fetch(t, w.base+"/xrpc/blue.skein.graph."+path, "text/csv"); !strings.HasPrefix(h.Get("Content-Type"), "application/json") || !json.Valid([]byte(body)) {
			t.Errorf("%s: %v %s", path, h, body)
		}
	}
}
