package query_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// sizedSets are the sets of the model whose sizes counts has, by name, and those that known has.
func (w *world) setsByName() map[string]map[string][]string {
	sets := map[string]map[string][]string{"lists": {}, "listed": {}}
	v := w.model.Views()
	for _, k := range oracle.Kinds() {
		sets[k.Forward], sets[k.Reverse] = v.Forward[k.Name], v.Reverse[k.Name]
	}
	for _, l := range w.model.Listings() {
		if sets["listed"][l.List] == nil {
			sets["listed"][l.List] = w.listLeaf("listed", l.List, allOfTime).members
		}
		if sets["lists"][l.Member] == nil {
			sets["lists"][l.Member] = w.listLeaf("lists", l.Member, allOfTime).members
		}
	}
	return sets
}

// quoted puts subjects in double quotes: those that would be looked up, and some others.
func quoted(rng *rand.Rand, subjects []string) []string {
	all := slices.Clone(subjects)
	for i, s := range all {
		if l, _ := language.LiteralOf(s); l.S != s || l.Handle != "" || rng.IntN(4) == 0 {
			all[i] = fmt.Sprintf("%q", s)
		}
	}
	return all
}

// counts has the sizes of the model's sets, and known those of their parts that an account follows, for subjects that are
// given twice, are hidden, or were never seen.
func TestCountsAndKnown(t *testing.T) {
	t.Parallel()
	w := spreadWorld(t, 21)
	rng := rand.New(rand.NewPCG(3, 3))
	accounts, counted, hits := w.strings(true), map[string]int{}, map[string]int{}
	for round := range 100 {
		if round%10 == 0 {
			w.grow(100)
		}
		sets := w.setsByName()
		edges, subjects := []string{"follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists"}, accounts
		if round%2 == 0 {
			edges, subjects = []string{"likers", "reposters", "listblockers", "listed"}, w.strings(false)
			for _, name := range edges {
				subjects = slices.AppendSeq(subjects, maps.Keys(sets[name]))
			}
			slices.Sort(subjects)
			subjects = slices.DeleteFunc(subjects, func(uri string) bool { l, _ := language.LiteralOf(uri); return l.Unusable() != "" })
		}
		p := url.Values{}
		for range 1 + rng.IntN(8) {
			p.Add("edge", edges[rng.IntN(len(edges))])
		}
		for range 1 + rng.IntN(100) {
			p.Add("subject", subjects[rng.IntN(len(subjects))])
		}
		got := w.answer("counts", url.Values{"edge": p["edge"], "subject": quoted(rng, p["subject"])})
		for i, subject := range p["subject"] {
			g := got.Subjects[i]
			for n, edge := range p["edge"] {
				if want := len(sets[edge][subject]); g.Subject != subject || len(g.Totals) != len(p["edge"]) || g.Totals[n] != want {
					t.Fatalf("%s of %s: %+v, want %d", edge, subject, g, want)
				}
				counted[edge] += g.Totals[n]
			}
		}
		edge, limit, actor := p.Get("edge"), rng.IntN(8), accounts[rng.IntN(len(accounts))]
		if slices.Contains([]string{"likes", "reposts", "listblocks", "lists"}, edge) {
			continue // not of accounts
		}
		got = w.answer("known", url.Values{"actor": {actor}, "edge": {edge}, "subject": quoted(rng, p["subject"]), "limit": {fmt.Sprint(limit)}})
		for i, subject := range p["subject"] {
			g, want := got.Subjects[i], intersect(sets["follows"][actor], sets[edge][subject])
			hits[edge] += len(want)
			if g.Subject != subject || g.Total != len(want) || len(g.Sample) != min(limit, len(want)) || len(intersect(g.Sample, want)) != len(g.Sample) || g.Sample == nil {
				t.Fatalf("%s, %s of %s: %+v, want %q", actor, edge, subject, g, want)
			}
		}
	}
	for _, some := range []map[string]int{counted, hits} {
		for name, n := range some {
			if n == 0 {
				t.Errorf("no %s were counted", name)
			}
		}
	}
	if len(counted) != 12 || len(hits) != 8 {
		t.Errorf("%v; %v", counted, hits)
	}
}

type accountBlock struct {
	DID, Record, Time string
	Lists             []listMatch
	MoreLists         bool
}

type listMatch struct {
	List, ListBlock, ListBlockTime, ListItem, ListItemTime string
}

// blockLists has accounts make lists, put others on them, theirs and those of others, and
// block lists, some of them several times, under keys of all sorts.
func (w *world) blockLists(rng *rand.Rand, commits int) {
	accounts := w.history.Accounts()
	some := func() string { return accounts[rng.IntN(len(accounts))] }
	list := func(of string) string {
		if rng.IntN(2) == 0 {
			return oracle.ListOf(of, rng.IntN(oracle.Lists))
		}
		return "at://" + of + "/app.bsky.graph.list/" + oracle.TID(uint64(1+rng.IntN(3))<<58)
	}
	key := func() string {
		if rng.IntN(3) == 0 {
			return []string{"A", "zz", "self"}[rng.IntN(3)]
		}
		return oracle.TID(uint64(1+rng.IntN(500)) << 51)
	}
	var events []*oracle.Event
	for n := range commits {
		e := &oracle.Event{Type: oracle.CommitEvent, Seq: int64(1_000_000 + n), DID: some(), Rev: oracle.TID(3<<59 + uint64(n))}
		for i := range 3 {
			if n%2 == 0 {
				of := e.DID
				if i == 0 {
					of = some()
				}
				e.Ops = append(e.Ops, oracle.Op{Kind: oracle.ListItem, Rkey: key(), Subject: some(), List: list(of)})
				continue
			}
			e.Ops = append(e.Ops, oracle.Op{Kind: "listblock", Rkey: key(), Subject: list(some())})
		}
		events = append(events, e)
	}
	w.happen(events...)
}

// blocksOf returns, for each pair of a blocking and a blocked account, what the answer shows of it.
func (w *world) blocksOf() map[[2]string]*accountBlock {
	v, pairs := w.model.Views(), map[[2]string]*accountBlock{}
	at := func(blocker, blocked string) *accountBlock {
		p := [2]string{blocker, blocked}
		if pairs[p] == nil {
			pairs[p] = &accountBlock{}
		}
		return pairs[p]
	}
	for blocked, blockers := range v.Reverse["block"] {
		for _, blocker := range blockers {
			b := at(blocker, blocked)
			b.Record = w.record("block", blocker, blocked, allOfTime)
			b.Time = timeIn(b.Record)
		}
	}
	for _, l := range w.model.Listings() {
		for _, blocker := range v.Reverse["listblock"][l.List] {
			b := at(blocker, l.Member)
			m := listMatch{List: l.List, ListBlock: w.record("listblock", blocker, l.List, allOfTime), ListItem: w.listLeaf("lists", l.Member, allOfTime).records[l.List]}
			m.ListBlockTime, m.ListItemTime = timeIn(m.ListBlock), timeIn(m.ListItem)
			if !slices.Contains(b.Lists, m) {
				b.Lists = append(b.Lists, m)
			}
		}
	}
	return pairs
}

// getBlocks and getRelationships have the records of the model: page by page, and for accounts that are named.
func TestBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 14, 8000)
	rng := rand.New(rand.NewPCG(5, 6))
	w.blockLists(rng, 900)
	pairs, accounts := w.blocksOf(), w.strings(true)
	same := func(what string, got accountBlock, want *accountBlock) {
		t.Helper()
		if want == nil {
			t.Fatalf("%s: %+v, want nothing", what, got)
		}
		for _, b := range []*accountBlock{&got, want} {
			slices.SortFunc(b.Lists, func(x, y listMatch) int { return strings.Compare(x.List, y.List) })
		}
		if got.Record != want.Record || got.Time != want.Time || !slices.Equal(got.Lists, want.Lists) || got.MoreLists {
			t.Fatalf("%s: %+v, want %+v", what, got, *want)
		}
	}
	direct, byLists, several, pages := 0, 0, 0, 0
	for _, actor := range accounts {
		var others []string
		for range 1 + rng.IntN(100) {
			others = append(others, accounts[rng.IntN(len(accounts))])
		}
		w.compareRelationships(pairs, actor, append(slices.Clone(others[:min(len(others), 28)]), "some.handle.example", "did:web:hello.example"))
		for _, direction := range []string{"blocking", "blockedBy"} {
			wanted := func(other string) *accountBlock {
				switch {
				case w.model.Hidden[other], direction == "blocking" && w.model.Hidden[actor]: // a hidden account blocks nobody
					return nil
				case direction == "blocking":
					return pairs[[2]string{actor, other}]
				}
				return pairs[[2]string{other, actor}]
			}
			total, seen := 0, 0
			for _, other := range accounts {
				if wanted(other) != nil {
					total++
				}
			}
			p := url.Values{"actor": {actor}, "direction": {direction}, "limit": {fmt.Sprint(1 + rng.IntN(30))}}
			for _, page := range w.pages("getBlocks", p, nil) {
				if page.Total != total || page.Actor != actor {
					t.Fatalf("%v: %d accounts, want %d", p, page.Total, total)
				}
				for _, b := range page.Blocks {
					same(fmt.Sprint(p, b.DID), b, wanted(b.DID))
					if seen++; b.Record != "" {
						direct++
					}
					if byLists += min(len(b.Lists), 1); len(b.Lists) > 1 {
						several++
					}
				}
				pages++
			}
			if seen != total {
				t.Fatalf("%v: %d accounts on all pages, want %d", p, seen, total)
			}
			got := w.answer("getBlocks", url.Values{"actor": {actor}, "direction": {direction}, "others": others}).Blocks
			for _, other := range others {
				if want := wanted(other); want != nil {
					if len(got) == 0 || got[0].DID != other {
						t.Fatalf("%s %s: %s is missing", actor, direction, other)
					}
					same(actor+" "+direction+" "+other, got[0], want)
					got = got[1:]
				}
			}
			if len(got) > 0 {
				t.Fatalf("%s %s: %+v are too many", actor, direction, got)
			}
		}
	}
	if direct < 100 || byLists < 100 || several < 10 || pages < 100 {
		t.Errorf("%d direct, %d by lists, %d by several, %d pages", direct, byLists, several, pages)
	}
}

func (w *world) compareRelationships(pairs map[[2]string]*accountBlock, actor string, others []string) {
	w.t.Helper()
	var got struct {
		Actor         string
		Relationships []map[string]any
	}
	w.ask("app.bsky.graph.getRelationships", url.Values{"actor": {actor}, "others": others}, &got)
	for i, other := range others {
		want := map[string]any{"$type": "app.bsky.graph.defs#relationship", "did": other}
		if !strings.HasPrefix(other, "did:") {
			want = map[string]any{"$type": "app.bsky.graph.defs#notFoundActor", "actor": other, "notFound": true}
		}
		for direction, pair := range map[string][2]string{"ing": {actor, other}, "edBy": {other, actor}} {
			if w.model.Hidden[actor] || w.model.Hidden[other] {
				continue
			}
			if uri := w.record("follow", pair[0], pair[1], allOfTime); uri != "" {
				want["follow"+direction] = uri
			}
			b := pairs[pair]
			if b == nil {
				continue
			}
			if b.Record != "" {
				want["block"+direction] = b.Record
			}
			for _, l := range b.Lists { // the lowest of the records
				name := "block" + direction + "ByList"
				if direction == "edBy" {
					name = "blockedByList"
				}
				if low, _ := want[name].(string); low == "" || l.ListBlock < low {
					want[name] = l.ListBlock
				}
			}
		}
		if g := got.Relationships[i]; fmt.Sprint(g) != fmt.Sprint(want) || got.Actor != actor {
			w.t.Fatalf("%s and %s: %v, want %v", actor, other, g, want)
		}
	}
}

// An account that is blocked through very many lists gets the first of them.
func TestBlocksThroughManyLists(t *testing.T) {
	w := newWorld(t, 15, 0)
	a := w.history.Accounts()
	var items, blocks []oracle.Op
	for n := range 25 {
		list := oracle.ListOf(a[1], n)
		items = append(items, oracle.Op{Kind: oracle.ListItem, Rkey: oracle.TID(uint64(n+1) << 20), Subject: a[2], List: list})
		blocks = append(blocks, oracle.Op{Kind: "listblock", Rkey: oracle.TID(uint64(n+1) << 20), Subject: list})
	}
	w.commit(1, a[1], items...)
	w.commit(2, a[0], blocks...)
	for direction, pair := range map[string][2]string{"blocking": {a[0], a[2]}, "blockedBy": {a[2], a[0]}} {
		for _, others := range [][]string{nil, {pair[1]}} {
			got := w.answer("getBlocks", url.Values{"actor": {pair[0]}, "direction": {direction}, "others": others})
			if len(got.Blocks) != 1 || got.Blocks[0].DID != pair[1] || len(got.Blocks[0].Lists) != 20 || !got.Blocks[0].MoreLists {
				t.Errorf("%s %q: %+v", direction, others, got)
			}
		}
		w.says("getBlocks?format=csv&direction="+direction+"&actor="+pair[0], 200, "moreLists")
	}
}

// The same answer has the same tag, and is not sent twice; who takes a packed
// answer gets one.
func TestTagsAndEncodings(t *testing.T) {
	w := newWorld(t, 15, 3000)
	path := pathOf("query?limit=40&set=members(" + strings.Join(w.history.Accounts(), ",") + ")")
	status, plain, h := w.get(path) // Go's client asks for gzip
	if status != 200 || h.Get("ETag") == "" || len(plain) < 1024 {
		t.Fatalf("%d %s %v", status, plain, h)
	}
	get := func(headers ...string) (int, string, string) {
		status, body, h := w.do(http.MethodGet, path, "", append([]string{"Accept-Encoding", "identity"}, headers...)...)
		return status, body, h.Get("Content-Encoding")
	}
	if status, body, _ := get("If-None-Match", `"x", `+h.Get("ETag")); status != http.StatusNotModified || body != "" {
		t.Errorf("with the tag: %d, %d bytes", status, len(body))
	}
	if status, body, _ := get("If-None-Match", `W/"other"`); status != 200 || body != plain {
		t.Errorf("with another tag: %d, %d bytes, want %d", status, len(body), len(plain))
	}
	for accept, want := range map[string]string{
		"gzip, zstd": "zstd", "gzip;q=1.0, zstd;q=0": "gzip", "gzip;q=0.0": "", "gzip;q=0.00, zstd;Q=0": "", "gzip; q=0.5, zstd ;q=0.4": "gzip", "br, GZIP": "gzip", "zstd;q=x": "", "identity": "",
	} {
		_, body, encoding := get("Accept-Encoding", accept)
		b := []byte(body)
		var err error
		switch encoding {
		case "zstd":
			z, _ := zstd.NewReader(nil)
			defer z.Close()
			b, err = z.DecodeAll(b, nil)
		case "gzip":
			var r io.Reader
			if r, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
				b, err = io.ReadAll(r)
			}
		default:
		}
		if encoding != want || err != nil || string(b) != plain {
			t.Errorf("%q gets %q, want %q: %d bytes, %v", accept, encoding, want, len(b), err)
		}
	}
}
