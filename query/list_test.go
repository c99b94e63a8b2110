package query_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/memkv"
	"skein.blue/internal/syntax"
	"skein.blue/query"
	"skein.blue/query/algebra"
)

// If a set grows too large to be sorted by time between two pages, the next page is an error and
// does not change the order; a new list states the other order.
func TestListGrowsTooLarge(t *testing.T) {
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
			b.AddCommit(1, &batch.Commit{DID: fmt.Appendf(nil, "did:web:n%d.example.com", n), Rev: syntax.AppendTID(nil, uint64(n)<<20), Data: make([]byte, 32)})
			b.AddPut(1, syntax.AppendTID(nil, uint64(n)<<20), []byte("did:web:star.example.com"))
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
	if status, body, _ := w.get("/xrpc/blue.skein.graph.list?" + next.Encode()); status != 400 || !strings.Contains(body, "has grown past") {
		t.Errorf("%d %s", status, body)
	}
	if w.ask("blue.skein.graph.list", p, &page); page.Order != "id" {
		t.Errorf("begun anew: %+v", page)
	}
}
