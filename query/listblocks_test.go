package query

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// Two accounts that block very many lists, whose authors put both on very many: what one
// query reads of them is bounded, and the answer says that it is incomplete.
func TestAbuseBlocksByLists(t *testing.T) {
	g := oracle.NewGraph(t, 1, 0, write.Limits{})
	const actor, other = "did:web:actor.example.com", "did:web:other.example.com"
	lists, authors := harness.Size(30_000, 300_000), harness.Size(200, 2000)
	author := func(n int) string { return fmt.Sprintf("did:web:author%d.example.com", n%authors) }
	list := func(n int) string { return fmt.Sprintf("at://%s/app.bsky.graph.list/%d", author(n), n) }
	var all []string
	for n := range lists {
		all = append(all, list(n))
	}
	for _, did := range []string{actor, other} {
		for some := range slices.Chunk(all, 10_000) {
			g.PutMany(did, "listblock", some)
		}
	}
	for n := range authors {
		g.PutListItem(author(n), list(n), actor)
		g.PutListItem(author(n), list(n), other)
	}
	s := New(g.Store, Options{Timeout: time.Minute})
	start := time.Now()
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/xrpc/app.bsky.graph.getRelationships?actor="+actor+"&others="+other, nil))
	body := rec.Body.String()
	if rec.Code != 200 || !strings.Contains(body, `"incomplete":true`) || !strings.Contains(body, "block more than 20000 lists") || !strings.Contains(body, `"blockingByList":"at://`+actor+`/app.bsky.graph.listblock/`) {
		t.Errorf("%d %s", rec.Code, body)
	}
	cost, dids := 0, []language.Literal{{S: actor, Is: dict.DID}, {S: other, Is: dict.DID}}
	err := g.Store.ViewCharged(t.Context(), func(n int) error { cost += n; return nil }, func(sn *ask.View) error {
		_, err := (&call{Query: &xrpc.Query{Store: s.store, Words: s.words}, server: s}).relate(t.Context(), sn, dids, make([]relationship, 1))
		return err
	})
	harness.Figure(t, "two accounts that block lists", "%d lists each: %v, %d bytes and look-ups' worth of bytes read", lists, time.Since(start).Round(time.Millisecond), cost)
	// Two look-ups for each block of a list that is looked at: of its address, and in the list's
	// chunk. The blocks beyond the bound cost nothing.
	if most := 1024 * maxListBlocks; err != nil || cost > most {
		t.Errorf("it cost %d, want %d at most: %v", cost, most, err)
	}
	// The bound on list items: one author may have millions.
	err = g.Store.View(t.Context(), func(sn *ask.View) error {
		ids, err := algebra.Lookup(sn, dids)
		if err != nil {
			return err
		}
		l := newListBlocks(t.Context(), sn, nil, ids, outward)
		l.items = 10
		found := 0
		if err := l.find(func(way, dict.ID, dict.ID, *blockedList, *ask.ShownRecord, ask.Path) { found++ }); err != nil {
			return err
		}
		if found == 0 || found > 10 || !strings.Contains(l.bound.Error(), "items") {
			t.Errorf("%d items were found, want 10 at most; the answer says %s", found, l.bound)
		}
		return nil
	})
	g.PutMany("did:web:some.example.com", "listblock", all[:100])
	blocks := &call{Query: &xrpc.Query{Store: s.store, Words: s.words, Values: url.Values{"actor": {"did:web:some.example.com"}, "direction": {blocking}}, Cursors: s.cursors, MaxExpr: language.MaxExpr}, server: s}
	blocks.Resolve, blocks.begin = func([]language.Literal, func(int) string) error { return nil }, func(v *algebra.Evaluation) { v.HopUnits = 1000 }
	if answer, failed := getBlocks(t.Context(), blocks); err != nil || failed != nil || !strings.Contains(fmt.Sprintf("%+v", answer), "also from the total: the ranking via listed read the sets of") {
		t.Errorf("a sample of the blocks by lists: %+v, %v", answer, errors.Join(err, failed))
	}
	g.Hide(actor, true) // then what the other blocks does not matter
	rec = httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/xrpc/app.bsky.graph.getRelationships?actor="+actor+"&others="+other, nil))
	if body := rec.Body.String(); rec.Code != 200 || strings.Contains(body, "block more than") || strings.Contains(body, "listblock") {
		t.Errorf("of a hidden account: %d %s", rec.Code, body)
	}
}
