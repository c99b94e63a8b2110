package app_test

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

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
