package query_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/internal/sim/oracle"
)

// The records that name an account, or a list, and what else they name, are those of the
// model, in pages, also of some accounts and of some others only.
func TestManyToMany(t *testing.T) {
	w := spread(t, 81)
	rng := rand.New(rand.NewPCG(14, 14))
	accounts := w.history.Accounts()
	some := 0
	for range 200 {
		subject := accounts[rng.IntN(len(accounts))]
		from, to, path, other := oracle.ListItem, oracle.ListItemOf, "subject", "list"
		if rng.IntN(2) == 0 {
			subject = oracle.ListOf(subject, rng.IntN(oracle.Lists))
			from, to, path, other = to, from, other, path
		}
		ask := url.Values{"subject": {subject}, "source": {"app.bsky.graph.listitem:" + path}, "pathToOther": {other}, "limit": {fmt.Sprint(1 + rng.IntN(5))}}
		var by, others []string
		if rng.IntN(3) == 0 {
			by = []string{accounts[rng.IntN(10)], accounts[rng.IntN(10)], "did:plc:neverseenaaaaaaaaaaaaaaa"}
		}
		if rng.IntN(3) == 0 {
			others = []string{accounts[rng.IntN(10)], oracle.ListOf(accounts[rng.IntN(10)], 0), oracle.ListOf(accounts[rng.IntN(10)], 1), "neither"}
		}
		ask["otherSubject"] = others
		total, distinct := map[string]int{}, map[string]map[string]bool{}
		var want []string
		for p, s := range w.model.Records {
			o := w.model.Records[oracle.Path{DID: p.DID, Kind: to, Rkey: p.Rkey}]
			if p.Kind != from || s != subject || o == "" || w.model.Hidden[p.DID] || w.model.Hidden[o] ||
				by != nil && !slices.Contains(by, p.DID) || others != nil && !slices.Contains(others, o) {
				continue
			}
			want = append(want, p.DID+"/app.bsky.graph.listitem/"+p.Rkey+" "+o)
			if total[o]++; distinct[o] == nil {
				distinct[o] = map[string]bool{}
			}
			distinct[o][p.DID] = true
		}
		some += len(want)
		var got []string
		ask["linkDid"] = by
		for {
			var page struct {
				Items []struct {
					LinkRecord   recordID
					OtherSubject string
				}
				Cursor *string
			}
			w.path("/xrpc/blue.microcosm.links.getManyToMany", ask, &page)
			for _, it := range page.Items {
				got = append(got, it.LinkRecord.DID+"/"+it.LinkRecord.Collection+"/"+it.LinkRecord.Rkey+" "+it.OtherSubject)
			}
			if page.Cursor == nil {
				break
			}
			ask.Set("cursor", *page.Cursor)
		}
		sameSet(t, got, want)
		ask.Del("cursor")
		ask.Del("linkDid")
		ask["did"] = by
		seen := 0
		for {
			var page struct {
				Counts []struct {
					Subject         string
					Total, Distinct int
				} `json:"counts_by_other_subject"`
				Cursor *string
			}
			w.path("/xrpc/blue.microcosm.links.getManyToManyCounts", ask, &page)
			for _, c := range page.Counts {
				if seen++; c.Total != total[c.Subject] || c.Distinct != len(distinct[c.Subject]) {
					t.Fatalf("%v: %+v, want %d by %d", ask, c, total[c.Subject], len(distinct[c.Subject]))
				}
			}
			if page.Cursor == nil {
				break
			}
			ask.Set("cursor", *page.Cursor)
		}
		if seen != len(total) {
			t.Fatalf("%v: %d others, want %d", ask, seen, len(total))
		}
	}
	if some < 300 {
		t.Errorf("%d links", some)
	}
	const counts, items = "/xrpc/blue.microcosm.links.getManyToManyCounts", "/xrpc/blue.microcosm.links.getManyToMany"
	for path, want := range map[string]string{
		counts + "?subject=did:plc:x&source=app.bsky.graph.listitem:subject&pathToOther=list":                    `{"counts_by_other_subject":[],"cursor":null}`,
		items + "?subject=did:plc:x&source=app.bsky.graph.listitem:subject&pathToOther=nothing":                  `{"items":[],"cursor":null}`,
		items + "?subject=did:plc:x&source=app.bsky.graph.listitem&pathToOther=list":                             `it must be a collection and a path`,
		items + "?subject=did:plc:x&source=app.bsky.graph.listitem:subject":                                      `pathToOther\" is missing`,
		counts + "?source=app.bsky.graph.listitem:subject&pathToOther=list":                                      `subject\" is missing`,
		counts + "?subject=" + accounts[0] + "&source=app.bsky.graph.listitem:subject&pathToOther=list&cursor=x": `cursor does not belong`,
		items + "?subject=" + accounts[0] + "&source=app.bsky.graph.listitem:subject&pathToOther=list&limit=0":   `from 1 to 1000`,
	} {
		if _, body, _ := w.get(path); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}
