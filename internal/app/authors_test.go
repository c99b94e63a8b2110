package app_test

import (
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

// repos are the live records of a recording whose authors are active.
type repos struct {
	*oracle.Truth

	follows, likes map[string]map[string]bool // follows of active accounts
	posts          map[string][]string
}

func (r *repos) active(did string) bool {
	a, known := r.Accounts[did]
	return !known || a.Status == "active"
}

func authorOf(uri string) string { return strings.Split(uri, "/")[2] }

// walk collects the records of a recording.
func walk(tr *oracle.Truth) *repos {
	all := &repos{tr, map[string]map[string]bool{}, map[string]map[string]bool{}, map[string][]string{}}
	for did := range tr.Accounts {
		all.follows[did], all.likes[did] = map[string]bool{}, map[string]bool{}
	}
	for uri, r := range tr.Records {
		switch {
		case !all.active(r.DID):
		case r.Collection == "app.bsky.feed.post":
			all.posts[r.DID] = append(all.posts[r.DID], uri)
		case r.Collection == "app.bsky.graph.follow" && all.active(r.Subject):
			all.follows[r.DID][r.Subject] = true
		case r.Collection == "app.bsky.feed.like":
			all.likes[r.DID][r.Subject] = true
		}
	}
	return all
}

// TestBetweenPeople compares what leads from records to their authors, posts, blends, chains of follows, overlaps and lists by the
// records' own times with a walk of the recorded repos.
func TestBetweenPeople(t *testing.T) {
	tr := readTruth(t)
	o := app.StoreOptions{Store: t.TempDir(), Create: true, Memory: 64 << 20}
	must(t, o.AddPosts(true))
	x, err := app.OpenIndex(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, x.Close(context.Background())) })
	replay(t, x, consumer.Options{Frames: plainPDS})
	base, _, _ := serve(t, x, nil)

	all := walk(tr)
	get := func(method string, p url.Values, into any) {
		t.Helper()
		must(t, oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph."+method+"?"+p.Encode(), into))
	}
	accounts, chains, created := slices.Sorted(maps.Keys(tr.Accounts)), 0, 0
	for _, from := range accounts {
		distance := map[string]int{from: 0}
		for next := []string{from}; len(next) > 0 && all.active(from); next = next[1:] {
			for did := range all.follows[next[0]] {
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
		counts, both := map[string]int{}, 0
		var by, others []string
		for uri := range all.likes[from] {
			did := authorOf(uri)
			if all.active(did) {
				counts[did]++
			}
			if all.follows[from][did] {
				by = append(by, uri)
			} else {
				others = append(others, uri)
			}
		}
		for did := range counts {
			if all.follows[from][did] {
				both++
			}
		}
		of, friends := "likes("+from+")", "follows("+from+")"
		for set, want := range map[string][]string{
			"posts(" + from + ")": all.posts[from], "within(" + from + ",2)": near, "authors(" + of + ")": slices.Collect(maps.Keys(counts)),
			"by(" + of + "," + friends + ")": by, "except(" + of + ",by(" + of + "," + friends + "))": others,
		} {
			got, total, err := oracle.Members(t.Context(), base, set, 7)
			must(t, err)
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) || total != len(want) {
				t.Errorf("%s: %q (%d), want %q", set, got, total, want)
			}
		}
		var o struct{ Pairs [][]int }
		get("overlap", url.Values{"set": {friends}, "with": {"authors(" + of + ")"}}, &o)
		if want := fmt.Sprint([][]int{{len(all.follows[from]), both}, {both, len(counts)}}); fmt.Sprint(o.Pairs) != want {
			t.Errorf("%s follows and likes: %v, want %s", from, o.Pairs, want)
		}
		for _, to := range accounts {
			var got struct{ Path []string }
			get("path", url.Values{"from": {from}, "to": {to}}, &got)
			n, reached := distance[to]
			if !reached || !all.active(from) || n > 6 {
				n = -1
			}
			ok := len(got.Path) == n+1 && (n < 0 || got.Path[0] == from && got.Path[n] == to)
			for i := 1; ok && i <= n; i++ {
				ok = all.follows[got.Path[i-1]][got.Path[i]]
			}
			if chains += max(n-1, 0); !ok {
				t.Errorf("from %s to %s: %q, want %d follows", from, to, got.Path, n)
			}
		}
		// Three for each post of theirs that it likes, one for each follow of those whom it follows.
		want := map[string]int{}
		for did, n := range counts {
			want[did] = 3 * n
		}
		for did := range all.follows[from] {
			for second := range all.follows[did] {
				want[second]++
			}
		}
		var blended struct {
			Items []struct {
				Member string
				Score  int64 // in billionths
			}
		}
		get("rank", url.Values{"set": {"blend(3,rank(of=" + of + ",via=authors),1,rank(of=" + friends + ",via=follows))"}, "limit": {"1000"}}, &blended)
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
		get("list", url.Values{"set": {of}, "order": {"created"}, "limit": {"1000"}}, &listed)
		last := "~"
		for _, item := range listed.Items {
			rkey := item.Member[strings.LastIndexByte(item.Member, '/')+1:]
			if !all.likes[from][item.Member] || rkey > last {
				t.Errorf("likes of %s, by when they were written: %s comes after %s", from, item.Member, last)
			}
			last = rkey
		}
		if created += len(listed.Items); len(listed.Items) != len(all.likes[from]) {
			t.Errorf("%s likes %d posts, and %d are listed", from, len(all.likes[from]), len(listed.Items))
		}
	}
	if chains < 100 || created < 300 {
		t.Errorf("only %d steps of chains and %d likes were compared", chains, created)
	}
}
