package query_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query"
	"skein.blue/query/algebra"
)

// A set that grows between two pages, past the size up to which all of its records are read, keeps its
// order by time.
func TestListGrows(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := query.New(g, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	defer srv.Close()
	w := &world{t: t, base: srv.URL}
	n := 0
	follow := func(more int) {
		var b batch.Batch
		for range more {
			n++
			b.AddCommit(1, &batch.Commit{DID: fmt.Appendf(nil, "did:web:n%d.example.com", n), Rev: dict.AppendTID(nil, uint64(n)<<20), Data: make([]byte, 32)})
			b.AddPut(1, dict.AppendTID(nil, uint64(n)<<20), []byte("did:web:star.example.com"))
		}
		if err := g.Apply(t.Context(), "", &b); err != nil {
			t.Fatal(err)
		}
	}
	follow(algebra.MaxSortedActors)
	var page struct {
		Order, Cursor string
		Items         []struct{ Member string }
	}
	p := url.Values{"set": {"followers(did:web:star.example.com)"}, "limit": {"1"}}
	w.ask("blue.skein.graph.list", p, &page)
	if want := fmt.Sprintf("did:web:n%d.example.com", n); page.Order != "newest" || len(page.Items) != 1 || page.Items[0].Member != want {
		t.Fatalf("%+v, want %s", page, want)
	}
	follow(1)
	next := url.Values{"set": p["set"], "limit": p["limit"], "cursor": {page.Cursor}}
	if w.ask("blue.skein.graph.list", next, &page); page.Order != "newest" || len(page.Items) != 1 || page.Items[0].Member != fmt.Sprintf("did:web:n%d.example.com", n-2) {
		t.Errorf("the next page of a set that has grown: %+v", page)
	}
	if w.ask("blue.skein.graph.list", p, &page); page.Order != "newest" || page.Items[0].Member != fmt.Sprintf("did:web:n%d.example.com", n) {
		t.Errorf("begun again: %+v", page)
	}
}
