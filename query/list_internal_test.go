package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// A cursor of one list is not one of another, nor does it make a large set be sorted.
func TestListCursors(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	for i := range 5 {
		b.AddCommit(1, &batch.Commit{DID: fmt.Appendf(nil, "did:web:%d.example.com", i), Rev: dict.AppendTID(nil, uint64(i+1)<<20), Data: make([]byte, 32)})
		b.AddPut(1, dict.AppendTID(nil, uint64(i+1)<<30), []byte("did:web:star.example.com"))
	}
	if err := g.Apply(t.Context(), "", &b); err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	const filtered = "/xrpc/blue.microcosm.links.getBacklinks?subject=did:web:star.example.com&source=app.bsky.graph.follow:subject&limit=1&did=did:web:1.example.com&did=did:web:2.example.com"
	var page struct{ Cursor string }
	if _, body := get(filtered); json.Unmarshal([]byte(body), &page) != nil || page.Cursor == "" {
		t.Fatal(body)
	}
	if status, body := get(filtered + "&cursor=" + page.Cursor); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	for _, path := range []string{
		"/xrpc/blue.skein.graph.list?set=followers(did:web:star.example.com)&limit=1&cursor=" + page.Cursor,
		strings.Replace(filtered, "&did=did:web:1.example.com", "", 1) + "&cursor=" + page.Cursor,
		filtered + "&reverse=true&cursor=" + page.Cursor,
	} {
		if status, body := get(path); status != 400 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
