package query_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
)

// itemsPage is an answer of list.
type itemsPage struct {
	Type, Order, Cursor string
	Total               int
	Items               []struct {
		Member, Record, Time string
		Size                 *int
	}
}

// Random expressions, listed by id, by time, and by the sizes of sets, page by page: each order has
// all members once, the sizes are those of the model, and records are there exactly if they come
// from one set.
func TestOrdersOfLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 61, 4000)
	rng := rand.New(rand.NewPCG(6, 1))
	some, recorded, turned := map[string]int{}, 0, 0
	for range 300 {
		dids := rng.IntN(2) == 0
		set, members := w.expression(rng, dids, rng.IntN(3))
		maps.DeleteFunc(members, func(_ string, in bool) bool { return !in })
		v := w.model.Views()
		order, sizes := []string{"", "id", "newest", "oldest"}[rng.IntN(4)], map[string][]string{}
		if rng.IntN(2) == 0 {
			var vias []string
			of := map[string]map[string][]string{}
			for _, k := range kinds.All {
				if !k.HasSets() {
					continue
				}
				if dids {
					vias, of[k.Forward] = append(vias, k.Forward), v.Forward[k.Name]
				}
				if dids == (k.To.Is().String() == "did") {
					vias, of[k.Reverse] = append(vias, k.Reverse), v.Reverse[k.Name]
				}
			}
			via := vias[rng.IntN(len(vias))]
			order, sizes = "size("+via+")", of[via]
		}
		p := url.Values{"set": {set}, "limit": {fmt.Sprint(1 + rng.IntN(20))}}
		if order != "" {
			p.Set("order", order)
		}
		// The first set of intersect and except decides whether there are records.
		first := strings.TrimSpace(set)
		for strings.HasPrefix(first, "intersect(") || strings.HasPrefix(first, "except(") {
			first = strings.TrimSpace(first[strings.Index(first, "(")+1:])
		}
		hasRecords := !strings.HasPrefix(first, "union") && !strings.HasPrefix(first, "members")
		if (order == "newest" || order == "oldest") && !hasRecords {
			if status, body, _ := w.get("/xrpc/blue.skein.graph.list?" + p.Encode()); status != 400 || !strings.Contains(body, "order=size(NAME)") {
				t.Fatalf("%v: %d %s", p, status, body)
			}
			continue
		}
		want := order
		if order == "" {
			if want = "newest"; !hasRecords {
				want = "id"
			}
		}
		var all itemsPage
		for {
			var page itemsPage
			w.ask("blue.skein.graph.list", p, &page)
			if page.Order != want || page.Total != len(members) {
				t.Fatalf("%v: order %s, %d members; want %s, %d", p, page.Order, page.Total, want, len(members))
			}
			if all.Items = append(all.Items, page.Items...); page.Cursor == "" {
				break
			}
			p.Set("cursor", page.Cursor)
			turned++
		}
		seen := map[string]bool{}
		for _, item := range all.Items {
			if !members[item.Member] || seen[item.Member] || (item.Record != "") != hasRecords {
				t.Fatalf("%v: %+v; a member: %v, records: %v", p, item, members[item.Member], hasRecords)
			}
			if seen[item.Member] = true; item.Record != "" {
				recorded++
			}
			isSize := strings.HasPrefix(order, "size")
			if (item.Size != nil) != isSize || isSize && *item.Size != len(sizes[item.Member]) {
				t.Fatalf("%v: %+v, want the size %d", p, item, len(sizes[item.Member]))
			}
		}
		if len(seen) != len(members) {
			t.Fatalf("%v: %d items, want %d", p, len(seen), len(members))
		}
		sorted := slices.IsSortedFunc(all.Items, func(x, y struct {
			Member, Record, Time string
			Size                 *int
		},
		) int {
			switch untimed := map[bool]int{true: 1}; want {
			case "newest":
				return cmp.Or(cmp.Compare(untimed[x.Time == ""], untimed[y.Time == ""]), cmp.Compare(y.Time, x.Time))
			case "oldest":
				return cmp.Or(cmp.Compare(untimed[x.Time == ""], untimed[y.Time == ""]), cmp.Compare(x.Time, y.Time))
			case "id":
				return 0
			}
			return cmp.Compare(*y.Size, *x.Size)
		})
		if !sorted {
			t.Fatalf("%v: not in the order: %+v", p, all.Items)
		}
		some[want] += len(members)
	}
	if recorded < 300 || turned < 50 || some["newest"] == 0 || some["oldest"] == 0 || some["id"] == 0 {
		t.Errorf("%v members, %d with records, %d pages turned", some, recorded, turned)
	}
}

// Orders that do not exist are errors that name those that do; a cursor is bound to its order.
func TestMistakesInOrders(t *testing.T) {
	w := newWorld(t, 62, 300)
	const d = "did:web:a.example.com"
	for query, want := range map[string]string{
		"set=follows(" + d + ")&order=":                                   "must be newest, oldest, id or size(NAME)",
		"set=follows(" + d + ")&order=biggest":                            `is \"biggest\"; it must be newest`,
		"set=follows(" + d + ")&order=size":                               `is \"size\"`,
		"set=follows(" + d + ")&order=size(":                              `is \"size(\"`,
		"set=follows(" + d + ")&order=size()":                             `NAME is \"\"; for a set of DIDs it must be one of`,
		"set=follows(" + d + ")&order=size(likers)":                       `NAME is \"likers\"; for a set of DIDs`,
		"set=likes(" + d + ")&order=size(followers)":                      "for a set of AT URIs it must be one of",
		"set=follows(" + d + ")&order=size(following)":                    "; did you mean follows?",
		"set=members(" + d + ")&order=newest":                             "needs a set without operators",
		"set=union(follows(" + d + "),followers(" + d + "))&order=oldest": "needs a set without operators",
	} {
		if status, body, _ := w.get("/xrpc/blue.skein.graph.list?" + query); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", query, status, body, want)
		}
	}
	star, n := "", 0
	for did, followers := range w.model.Views().Reverse["follow"] {
		if len(followers) > n {
			star, n = did, len(followers)
		}
	}
	orders := []string{"newest", "oldest", "id", "size(follows)", "size(likes)"}
	for _, order := range orders {
		p := url.Values{"set": {"followers(" + star + ")"}, "limit": {"1"}, "order": {order}}
		var page itemsPage
		if w.ask("blue.skein.graph.list", p, &page); page.Cursor == "" {
			t.Fatalf("%s of %d: no second page", order, n)
		}
		for _, other := range orders {
			p.Set("order", other)
			p.Set("cursor", page.Cursor)
			if status, body, _ := w.get("/xrpc/blue.skein.graph.list?" + p.Encode()); (status == 200) != (order == other) {
				t.Errorf("a cursor of %s for %s: %d %s", order, other, status, body)
			}
		}
	}
}
