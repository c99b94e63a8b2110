package query_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// TestRoundTrips: on a cluster, the round trips of a question hardly grow with the number of its items. Few
// reads are begun and not used: those of the leaves that small sets do not have.
func TestRoundTrips(t *testing.T) {
	const people = 320
	var mu sync.Mutex // guards what follows
	var trips, unused int
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 256}), Trips: func(n, more int) {
		mu.Lock()
		defer mu.Unlock()
		trips, unused = trips+n, unused+more
	}})
	w := newWorldOn(t, nil, store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}})

	did := func(n int) string { return fmt.Sprintf("did:web:p%d.example.com", n%people) }
	post := func(n int) string { return "at://" + did(n) + "/app.bsky.feed.post/" + oracle.TID(1<<50) }
	list := func(n int) string { return "at://" + did(n) + "/app.bsky.graph.list/" + oracle.TID(1<<49) }
	many := func(name string, n int, of func(int) string) (params string) {
		for i := range n {
			params += "&" + name + "=" + url.QueryEscape(of(i+1))
		}
		return params
	}
	const star = "did:web:star.example.com"
	inStar := func(n int) string { return "contains?set=followers(" + star + ")" + many("member", n, did) }
	var events []*oracle.Event
	for n := range people {
		var ops []oracle.Op
		add := func(kind, subject, list string) {
			ops = append(ops, oracle.Op{Kind: kind, Rkey: oracle.TID(1<<50 + uint64(n)<<30 + uint64(len(ops))<<20), Subject: subject, List: list})
		}
		follows := 20
		if n == 0 {
			follows = people - 1
		}
		for i := 1; i <= follows; i++ {
			add("follow", did(n+i), "")
		}
		for i := 1; i <= 20; i++ {
			add("like", post(n*7+i), "")
		}
		add("follow", star, "") // whose set has leaves in some partitions
		add("block", did(n+30), "")
		add("listblock", list(n+1), "")
		add(oracle.ListItem, did(n+40), list(n))
		events = append(events, &oracle.Event{Type: oracle.CommitEvent, Seq: int64(n + 1), DID: did(n), Rev: oracle.TID(1 << 50), Ops: ops})
	}
	w.happen(events...)

	union := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, "followers("+did(i)+")")
		}
		return url.QueryEscape("union(" + strings.Join(all, ",") + ")")
	}
	members := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, did(i+1))
		}
		return "members(" + strings.Join(all, ",") + ")"
	}
	for _, q := range []struct {
		what  string
		path  func(n int) string
		n     int // the larger number of items
		trips int // at most, with n items
	}{
		{"known", func(n int) string { return "known?edge=followers&actor=" + did(0) + many("subject", n, did) }, 100, 4},
		{"contains", func(n int) string { return "contains?set=follows(" + did(0) + ")" + many("member", n, did) }, 100, 2},
		{"contains, of a set that has leaves, as the question for one shows", inStar, 100, 2},
		{"the members of a large set", func(n int) string {
			return "query?set=" + url.QueryEscape("intersect("+members(n)+",followers("+star+"))")
		}, 300, 6},
		{"union", func(n int) string { return "query?set=" + union(n) }, 30, 3},
		{"rank of accounts", func(n int) string { return "rank?via=follows&of=" + url.QueryEscape(members(n)) }, 300, 6},
		{"rank of what they like", func(n int) string { return "rank?via=likes&of=" + url.QueryEscape(members(n)) }, 300, 7},
		// The likes are older than eight half-lives: the ranking runs once more, from the newest of them.
		{"rank of recent likes", func(n int) string { return "rank?via=likes&decay=6h&of=" + url.QueryEscape(members(n)) }, 300, 7},
		{"rank of followers", func(n int) string { return "rank?via=followers&damp=0.5&of=" + url.QueryEscape(members(n)) }, 300, 6},
		{"list of followers, with records", func(n int) string { return fmt.Sprintf("list?set=followers(%s)&order=id&limit=%d", did(1), n) }, 21, 7},
		{"counts", func(n int) string { return "counts?edge=followers&edge=follows" + many("subject", n, did) }, 100, 2},
		{"getBlocks", func(n int) string { return "getBlocks?direction=blocking&actor=" + did(0) + many("others", n, did) }, 100, 5},
		{"getRelationships", func(n int) string {
			return "app.bsky.graph.getRelationships?actor=" + did(0) + many("others", n, did)
		}, 30, 4},
	} {
		ask := func(n int) (int, int) {
			t.Helper()
			mu.Lock()
			trips, unused = 0, 0
			mu.Unlock()
			w.says(q.path(n), 200, "{")
			mu.Lock()
			defer mu.Unlock()
			return trips, unused
		}
		one, _ := ask(1)
		all, unused := ask(q.n)
		t.Logf("%s: %d round trips for one, %d for %d; %d reads begun and not used", q.what, one, all, q.n, unused)
		if unused > 120 {
			t.Errorf("%s of %d items begins %d reads that it does not use", q.what, q.n, unused)
		}
		if all > q.trips {
			t.Errorf("%s of %d items takes %d round trips, more than %d", q.what, q.n, all, q.trips)
		}
	}
}
