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
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// timeIn is the time in the key of a record, as answers write it.
func timeIn(uri string) string {
	at, _ := oracle.Micros(uri[strings.LastIndexByte(uri, '/')+1:])
	if at == 0 {
		return ""
	}
	return time.UnixMicro(at).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// viasOf are the sets that accounts, or records, have, with what the model has in them.
func (w *world) viasOf(dids bool) map[string]map[string][]string {
	v, of := w.model.Views(), map[string]map[string][]string{}
	for _, k := range oracle.Kinds() {
		if dids {
			of[k.Forward] = v.Forward[k.Name]
		}
		if dids == (k.To.Is().String() == "did") {
			of[k.Reverse] = v.Reverse[k.Name]
		}
	}
	return of
}

// Random sets in windows, and random expressions, are listed by id, by time, and by the sizes of sets: each order has all
// members once, with their records and times exactly if they come from one set, and with the sizes that the model has. The
// method query shows the same records.
func TestLists(t *testing.T) {
	t.Parallel()
	w := spreadWorld(t, 25)
	rng := rand.New(rand.NewPCG(6, 1))
	times := w.times()
	some, recorded, turned, early := map[string]int{}, 0, 0, 0
	for range 500 {
		var set string
		var records map[string]string
		members, dids := map[string]bool{}, rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			s, window := w.span(rng, times)
			l := w.leaf(rng, s)
			set, records, dids = l.text(window), l.records, !l.isURI()
			for _, m := range l.members {
				members[m] = true
			}
		} else {
			set, members = w.expression(rng, dids, rng.IntN(3))
		}
		order := []string{"", "id", "newest", "oldest", "created"}[rng.IntN(5)]
		var sizes map[string][]string
		if rng.IntN(2) == 0 {
			of := w.viasOf(dids)
			vias := slices.Sorted(maps.Keys(of))
			via := vias[rng.IntN(len(vias))]
			order, sizes = "size("+via+")", of[via]
		}
		p := url.Values{"set": {set}, "limit": {fmt.Sprint(1 + rng.IntN(20))}}
		if order != "" {
			p.Set("order", order)
		}
		e, err := language.NewVocabulary(kinds.BuiltIn).Parse(set, language.MaxExpr, time.Now())
		must(t, err)
		hasRecords := e.Root.Source() != nil
		if (order == "newest" || order == "oldest") && !hasRecords {
			w.says("list?"+p.Encode(), 400, "order=size(NAME)")
			continue
		}
		if order == "created" && dids {
			w.says("list?"+p.Encode(), 400, "order=created works only for sets of AT URIs; this one is a set of DIDs")
			continue
		}
		want := order
		if order == "" {
			if want = "newest"; !hasRecords {
				want = "id"
			}
		}
		var all []item
		for _, page := range w.pages("list", p, nil) {
			if page.Order != want || page.Total != len(members) || page.Items == nil {
				t.Fatalf("%v: order %s, %d members; want %s, %d", p, page.Order, page.Total, want, len(members))
			}
			all = append(all, page.Items...)
			turned++
		}
		seen := map[string]bool{}
		for _, it := range all {
			if !members[it.Member] || seen[it.Member] || (it.Record != "") != hasRecords || it.Time != timeIn(it.Record) || records != nil && it.Record != records[it.Member] {
				t.Fatalf("%v: %+v; a member: %v, records: %v %s", p, it, members[it.Member], hasRecords, records[it.Member])
			}
			if seen[it.Member] = true; it.Record != "" {
				recorded++
			}
			if timeIn(it.Member) > it.Time && it.Time != "" {
				early++
			}
			if created := timeIn(it.Member); want == "created" && it.Created != created || want != "created" && it.Created != "" {
				t.Fatalf("%v: %+v, want created %s", p, it, created)
			}
			if (it.Size != nil) != (sizes != nil) || it.Size != nil && *it.Size != len(sizes[it.Member]) {
				t.Fatalf("%v: %+v, want the size %d", p, it, len(sizes[it.Member]))
			}
		}
		if len(seen) != len(members) {
			t.Fatalf("%v: %d items, want %d", p, len(seen), len(members))
		}
		untimed := map[bool]int{true: 1}
		if !slices.IsSortedFunc(all, func(x, y item) int {
			switch want {
			case "newest":
				return cmp.Or(cmp.Compare(untimed[x.Time == ""], untimed[y.Time == ""]), cmp.Compare(y.Time, x.Time))
			case "oldest":
				return cmp.Or(cmp.Compare(untimed[x.Time == ""], untimed[y.Time == ""]), cmp.Compare(x.Time, y.Time))
			case "created":
				return cmp.Or(cmp.Compare(untimed[x.Created == ""], untimed[y.Created == ""]), cmp.Compare(y.Created, x.Created))
			case "id":
				return 0
			}
			return cmp.Compare(*y.Size, *x.Size)
		}) {
			t.Fatalf("%v: not in the order: %+v", p, all)
		}
		some[want] += len(members)
		if records == nil {
			continue
		}
		got := w.answer("query", url.Values{"set": {set}, "records": {"true"}, "limit": {"1000"}})
		for i, m := range got.Members {
			if len(got.Records) != len(records) || got.Records[i] != records[m] {
				t.Fatalf("%s: %s by %q, want %q", set, m, got.Records, records)
			}
		}
	}
	if recorded < 300 || turned < 50 || early < 5 || some["newest"] == 0 || some["oldest"] == 0 || some["id"] == 0 || some["created"] == 0 {
		t.Errorf("%v members, %d with records, %d from before their subject, %d pages", some, recorded, early, turned)
	}
	// A cursor is bound to its order.
	star, n := busiest(w.model.Views().Reverse["follow"])
	orders := []string{"newest", "oldest", "id", "size(follows)", "size(likes)"}
	for _, order := range orders {
		p := url.Values{"set": {"followers(" + star + ")"}, "limit": {"1"}, "order": {order}}
		p.Set("cursor", w.answer("list", p).Cursor)
		if p.Get("cursor") == "" {
			t.Fatalf("%s of %d: no second page", order, n)
		}
		for _, other := range orders {
			p.Set("order", other)
			w.says("list?"+p.Encode(), map[bool]int{true: 200, false: 400}[order == other], "")
		}
	}
}

// Pages of long strings end before their limit, in every order, and the next begins there. So do those of strings without ids.
func TestPagesOfLongStrings(t *testing.T) {
	w := newWorld(t, 26, 0)
	fan, long := w.history.Accounts()[0], "at://did:web:"+strings.Repeat("a.", 120)+"example.com/"+strings.Repeat("a23456789.", 30)+"post/"
	var given []string
	for c := range uint64(5) {
		var likes []oracle.Op
		for n := c * 200; n < c*200+200; n++ {
			likes = append(likes, oracle.Op{Kind: "like", Rkey: oracle.TID((n + 1) << 40), Subject: long + oracle.TID((n*77%1000+1)<<40)})
			given = append(given, long+oracle.TID((n+500)<<40)) // half are known
		}
		w.commit(int64(c+1), fan, likes...)
	}
	likes, of := "set=likes("+fan+")", "of=members("+fan+")&via=likes"
	for _, call := range []string{"query?set=members(" + strings.Join(given, ",") + ")", "query?" + likes, "list?order=newest&" + likes, "list?order=oldest&" + likes, "list?order=created&" + likes, "list?order=size(likers)&" + likes, "rank?" + of, "rank?by=share&min=1&" + of} {
		method, query, _ := strings.Cut(call, "?")
		p, _ := url.ParseQuery(query)
		var all [2][]string
		for i, limit := range []string{"100", "1000"} {
			p.Set("limit", limit)
			for _, page := range w.pages(method, p, nil) {
				for _, it := range page.Items {
					page.Members = append(page.Members, it.Member)
				}
				if bytes := len(strings.Join(page.Members, "")); bytes > 512<<10 || limit == "1000" && page.Cursor != "" && bytes < 511<<10 {
					t.Errorf("%.40s: a page of %d bytes", call, bytes)
				}
				all[i] = append(all[i], page.Members...)
			}
		}
		if len(all[0]) != 1000 || !slices.Equal(all[0], all[1]) {
			t.Errorf("%.40s: %d members, and in pages of up to 1000 %d, or others", call, len(all[0]), len(all[1]))
		}
	}
}

// If several records make an edge, all methods show the same one. For an edge to an account, it is
// the record with the lowest key. For an edge to a post, it is the first record from the post's
// time on, and a key that is not a TID only if there is no other.
func TestOneRecordIsShown(t *testing.T) {
	w := newWorld(t, 87, 0)
	a := w.history.Accounts()
	const early, post, late, later = "3jzfcijpj2z2a", "3kaaaaaaaaa2a", "3kbaaaaaaaa2a", "3kcaaaaaaaa2a"
	uri := "at://" + a[9] + "/app.bsky.feed.post/" + post
	seq := int64(0)
	for i, c := range []struct {
		kind, subject string
		rkeys         []string
		want          string
	}{
		{"follow", a[9], []string{late, "1", early}, "1"},
		{"follow", a[9], []string{late, "self", early}, early},
		{"block", a[9], []string{"B", "-A", early}, "-A"},
		{"like", uri, []string{"1", later, late, early}, late},
		{"like", uri, []string{"1", early}, early},
		{"like", "at://" + a[9] + "/app.bsky.feed.generator/whats-hot", []string{"1", later, early}, "1"},
	} {
		actor, k := a[i], kinds.ByName(c.kind)
		for _, rkey := range c.rkeys {
			seq++
			w.commit(seq, actor, oracle.Op{Kind: c.kind, Rkey: rkey, Subject: c.subject})
		}
		want := "at://" + actor + "/" + k.Collection + "/" + c.want
		for _, set := range []string{k.Forward + "(" + actor + ")", k.Reverse + "(" + c.subject + ")"} {
			query := w.answer("query", url.Values{"set": {set}, "records": {"true"}})
			list := w.answer("list", url.Values{"set": {set}})
			if !slices.Contains(query.Records, want) || !slices.ContainsFunc(list.Items, func(it item) bool { return it.Record == want }) {
				t.Errorf("%s: %v and %v, want %s", set, query, list, want)
			}
		}
		w.says("blue.microcosm.links.getBacklinks?subject="+c.subject+"&source="+k.Source()+"&did="+actor, 200, `"rkey":"`+c.want+`"`)
		if c.subject == a[9] {
			w.says("app.bsky.graph.getRelationships?actor="+actor+"&others="+a[9], 200, `ing":"`+want+`"`)
			w.says("app.bsky.graph.getRelationships?actor="+a[9]+"&others="+actor, 200, `By":"`+want+`"`)
		}
	}
}
