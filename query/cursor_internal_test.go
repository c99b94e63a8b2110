package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// star is an account with followers, in the order of their records' times: did:web:0.example.com, …
const star = "did:web:star.example.com"

// starServer returns a server with n followers of star. The follower with number hidden is hidden.
func starServer(t *testing.T, n, hidden int) *Server {
	t.Helper()
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	for i := range n {
		did := fmt.Appendf(nil, "did:web:%d.example.com", i)
		b.AddCommit(format.Seq(2*i+1), &batch.Commit{DID: did, Rev: dict.AppendTID(nil, uint64(i+1)<<20), Data: make([]byte, 32)})
		b.AddPut(1, dict.AppendTID(nil, uint64(i+1)<<30), []byte(star))
		b.AddAccount(format.Seq(2*i+2), did, i != hidden, false)
	}
	if err := g.Apply(t.Context(), "", &b); err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) get(path string, into any) (status int, body string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		return 0, err.Error()
	}
	return w.Code, w.Body.String()
}

// The same page has the same bytes, its cursor included: caches and ETags depend on it.
func TestSamePageSameBytes(t *testing.T) {
	s := starServer(t, 5, -1)
	for _, path := range []string{
		"blue.skein.graph.query?limit=2&set=followers(" + star + ")",
		"blue.skein.graph.list?limit=2&set=followers(" + star + ")",
		"blue.skein.graph.rank?limit=1&via=followers&of=members(" + star + ")",
	} {
		var page struct{ Cursor string }
		_, first := s.get("/xrpc/"+path, &page)
		status, second := s.get("/xrpc/"+path, &page)
		if status != http.StatusOK || page.Cursor == "" || first != second {
			t.Errorf("%s: %d\n%s%s", path, status, first, second)
		}
	}
}

// Ages are counted back from the time of the first page, whenever the next page is requested.
func TestCursorsKeepTheTime(t *testing.T) {
	s := starServer(t, 1, -1)
	first := time.Date(2026, 11, 1, 0, 0, 0, 123_000, time.UTC)
	parse := func(now time.Time) *language.Expr {
		t.Helper()
		e, err := s.index.words.Parse("likes(did:web:a.example.com, since=24h)", language.MaxExpr, now)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	cursor := s.cursors.SealPage(parse(first), 7, algebra.Unseen{false})
	e, after, _, err := s.cursors.OpenPage(parse(first.Add(48*time.Hour)), cursor)
	if err != nil || after != 7 || !e.Now.Equal(first) || e.Root.Window != parse(first).Root.Window {
		t.Errorf("%v, after %d: %v", err, after, e)
	}
}

// The follows of a hidden account are empty in an intersection, also if another operand is so small
// that its members are looked up instead.
func TestHiddenActorsAreNotProbed(t *testing.T) {
	s := starServer(t, 3, 1)
	for i, want := range []int{1, 0, 1} {
		set := fmt.Sprintf("intersect(follows(did:web:%d.example.com),members(%s))", i, star)
		var page struct{ Total int }
		if status, body := s.get("/xrpc/blue.skein.graph.query?set="+url.QueryEscape(set), &page); status != http.StatusOK || page.Total != want {
			t.Errorf("%s: %d %s, want %d", set, status, body, want)
		}
	}
}

// Answers that differ have tags that differ: a client would otherwise keep an old answer.
func TestTagsDiffer(t *testing.T) {
	s := starServer(t, 5, -1)
	seen := map[string]string{}
	for _, path := range []string{
		"blue.skein.graph.query?limit=2&set=followers(" + star + ")", "blue.skein.graph.query?limit=3&set=followers(" + star + ")",
		"blue.skein.graph.query?set=follows(did:web:1.example.com)", "blue.skein.graph.query?set=follows(did:web:none.example.com)",
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/xrpc/"+path, nil))
		tag := w.Header().Get("ETag")
		if other, ok := seen[tag]; ok || tag == "" || w.Code != http.StatusOK {
			t.Errorf("%s: %d, tag %s, as %s", path, w.Code, tag, other)
		}
		seen[tag] = path
	}
}
