package app_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/oracle"
)

// compareAuthors compares what leads from records to their authors with a walk over the recorded repos: whose posts each account
// likes, and which of these posts are by accounts that it follows.
func compareAuthors(t *testing.T, tr *oracle.Truth, base string) {
	t.Helper()
	hidden := func(did string) bool { a, known := tr.Accounts[did]; return known && a.Status != "active" }
	authorOf := func(uri string) string { return strings.Split(uri, "/")[2] }
	compared := 0
	for actor := range tr.Accounts {
		likes, follows := map[string]bool{}, map[string]bool{}
		for _, r := range tr.Records {
			switch {
			case r.DID != actor || hidden(actor) || r.Subject == "":
			case r.Collection == "app.bsky.feed.like":
				likes[r.Subject] = true
			case r.Collection == "app.bsky.graph.follow":
				follows[r.Subject] = true
			}
		}
		counts := map[string]int{}
		var authors, by, others []string
		for uri := range likes {
			did := authorOf(uri)
			if !hidden(did) {
				if counts[did]++; counts[did] == 1 {
					authors = append(authors, did)
				}
			}
			if follows[did] && !hidden(did) {
				by = append(by, uri)
			} else {
				others = append(others, uri)
			}
		}
		of, friends := "likes("+actor+")", "follows("+actor+")"
		for set, want := range map[string][]string{
			"authors(" + of + ")": authors, "by(" + of + "," + friends + ")": by, "except(" + of + ",by(" + of + "," + friends + "))": others,
		} {
			got, total, err := oracle.Members(t.Context(), base, set, 7)
			must(t, err)
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) || total != len(want) {
				t.Errorf("%s: %q (%d), want %q", set, got, total, want)
			}
			compared += len(want)
		}
		var ranked struct {
			Items []struct {
				Member string
				Count  int
			}
		}
		must(t, oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph.rank?"+url.Values{"of": {of}, "via": {"authors"}, "limit": {"1000"}}.Encode(), &ranked))
		for i, r := range ranked.Items {
			if r.Count != counts[r.Member] || i > 0 && cmp.Compare(r.Count, ranked.Items[i-1].Count) > 0 {
				t.Errorf("%s likes %d posts of %s, and is said to like %d", actor, counts[r.Member], r.Member, r.Count)
			}
		}
		if len(ranked.Items) != len(counts) {
			t.Errorf("%s likes posts of %d accounts, and is said to like those of %d", actor, len(counts), len(ranked.Items))
		}
		var o struct {
			Totals []int
			Pairs  [][]int
		}
		must(t, oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph.overlap?"+url.Values{"set": {friends}, "with": {"authors(" + of + ")"}}.Encode(), &o))
		both := 0
		for _, did := range authors {
			if follows[did] {
				both++
			}
		}
		if want := fmt.Sprint([][]int{{o.Totals[0], both}, {both, len(authors)}}); fmt.Sprint(o.Pairs) != want {
			t.Errorf("%s follows and likes: %v, want %s", actor, o.Pairs, want)
		}
	}
	if compared < 300 {
		t.Errorf("only %d members were compared", compared)
	}
}

// TestBetweenPeople compares posts, blends, chains of follows and lists by the records' own times with a walk of the recorded repos.
func TestBetweenPeople(t *testing.T) {
	tr := readTruth(t)
	o := app.StoreOptions{Store: t.TempDir(), Create: true, Memory: 64 << 20}
	must(t, o.AddPosts(true))
	x, err := app.OpenIndex(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, x.Close(context.Background())) })
	replay(t, x, consumer.Options{Frames: plainPDS})
	base, _, _ := serve(t, x, nil)

	active := func(did string) bool { a, known := tr.Accounts[did]; return !known || a.Status == "active" }
	follows, likes, posts := map[string]map[string]bool{}, map[string]map[string]bool{}, map[string][]string{}
	for did := range tr.Accounts {
		follows[did], likes[did] = map[string]bool{}, map[string]bool{}
	}
	for uri, r := range tr.Records {
		switch {
		case !active(r.DID):
		case r.Collection == "app.bsky.feed.post":
			posts[r.DID] = append(posts[r.DID], uri)
		case r.Collection == "app.bsky.graph.follow" && active(r.Subject):
			follows[r.DID][r.Subject] = true
		case r.Collection == "app.bsky.feed.like":
			likes[r.DID][r.Subject] = true
		}
	}
	get := func(method string, p url.Values, into any) {
		t.Helper()
		must(t, oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph."+method+"?"+p.Encode(), into))
	}
	accounts, chains, created := slices.Sorted(maps.Keys(tr.Accounts)), 0, 0
	for _, from := range accounts {
		distance := map[string]int{from: 0}
		for next := []string{from}; len(next) > 0 && active(from); next = next[1:] {
			for did := range follows[next[0]] {
				if _, seen := distance[did]; !seen {
					distance[did] = distance[next[0]] + 1
					next = append(next, did)
				}
			}
		}
		var near []string
		for did, n := range distance {
			if n == 1 || n == 2 {
				near = append(near, did)
			}
		}
		for set, want := range map[string][]string{"posts(" + from + ")": posts[from], "within(" + from + ",2)": near} {
			got, _, err := oracle.Members(t.Context(), base, set, 50)
			must(t, err)
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", set, got, want)
			}
		}
		for _, to := range accounts {
			var got struct{ Path []string }
			get("path", url.Values{"from": {from}, "to": {to}}, &got)
			n, reached := distance[to]
			if !reached || !active(from) || n > 6 {
				n = -1
			}
			ok := len(got.Path) == n+1 && (n < 0 || got.Path[0] == from && got.Path[n] == to)
			for i := 1; ok && i <= n; i++ {
				ok = follows[got.Path[i-1]][got.Path[i]]
			}
			if chains += max(n-1, 0); !ok {
				t.Errorf("from %s to %s: %q, want %d follows", from, to, got.Path, n)
			}
		}
		// Three for each post of theirs that it likes, one for each follow of those whom it follows.
		want := map[string]int{}
		for uri := range likes[from] {
			if did := strings.Split(uri, "/")[2]; active(did) {
				want[did] += 3
			}
		}
		for did := range follows[from] {
			for second := range follows[did] {
				want[second]++
			}
		}
		var blended struct {
			Items []struct {
				Member string
				Score  int64 // in billionths
			}
		}
		get("rank", url.Values{"set": {"blend(3,rank(of=likes(" + from + "),via=authors),1,rank(of=follows(" + from + "),via=follows))"}, "limit": {"1000"}}, &blended)
		for _, item := range blended.Items {
			if item.Score != int64(want[item.Member])*1e9 {
				t.Errorf("the blend of %s has %v, want %d", from, item, want[item.Member])
			}
		}
		if len(blended.Items) != len(want) {
			t.Errorf("the blend of %s has %d results, want %d", from, len(blended.Items), len(want))
		}
		var listed struct {
			Items []struct{ URI, Member string }
		}
		get("list", url.Values{"set": {"likes(" + from + ")"}, "order": {"created"}, "limit": {"1000"}}, &listed)
		last := "~"
		for _, item := range listed.Items {
			rkey := item.Member[strings.LastIndexByte(item.Member, '/')+1:]
			if !likes[from][item.Member] || rkey > last {
				t.Errorf("likes of %s, by when they were written: %s comes after %s", from, item.Member, last)
			}
			last = rkey
		}
		if created += len(listed.Items); len(listed.Items) != len(likes[from]) {
			t.Errorf("%s likes %d posts, and %d are listed", from, len(likes[from]), len(listed.Items))
		}
	}
	if chains < 100 || created < 300 {
		t.Errorf("only %d steps of chains and %d likes were compared", chains, created)
	}
}
