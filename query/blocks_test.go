package query_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
)

type blockAnswer struct {
	Actor  string
	Total  *int
	Blocks []accountBlock
	Cursor string
	Reason string
}

type accountBlock struct {
	DID, Record, Time string
	Lists             []listMatch
	MoreLists         bool
}

type listMatch struct {
	List, ListBlock, ListBlockTime, ListItem, ListItemTime string
}

// timeIn is the time in the key of a record, as answers write it.
func timeIn(uri string) string {
	tid, ok := dict.ParseTID(uri[strings.LastIndexByte(uri, '/')+1:])
	if !ok {
		return ""
	}
	if tid>>10 == 0 {
		return ""
	}
	return time.UnixMicro(int64(tid >> 10)).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// blocksOf returns, for each pair of a blocking and a blocked account, what the answer shows of it.
func (w *world) blocksOf() map[[2]string]*accountBlock {
	block, listBlock, all := *kinds.ByName("block"), *kinds.ByName("listblock"), span{all: true}
	v := w.in(all)
	pairs := map[[2]string]*accountBlock{}
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
			b.Record = w.record(block, blocker, blocked, all)
			b.Time = timeIn(b.Record)
		}
	}
	for _, l := range w.model.Listings() {
		for _, blocker := range v.Reverse["listblock"][l.List] {
			b := at(blocker, l.Member)
			m := listMatch{List: l.List, ListBlock: w.record(listBlock, blocker, l.List, all), ListItem: w.listRecord(l.List, l.Member, all)}
			m.ListBlockTime, m.ListItemTime = timeIn(m.ListBlock), timeIn(m.ListItem)
			if !slices.Contains(b.Lists, m) {
				b.Lists = append(b.Lists, m)
			}
		}
	}
	return pairs
}

// getBlocks has the records of the model, page by page and for accounts that are named.
func TestBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 14, 8000)
	rng := rand.New(rand.NewPCG(5, 6))
	w.blockLists(rng, 900)
	pairs, accounts := w.blocksOf(), append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa")
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
		for _, direction := range []string{"blocking", "blockedBy"} {
			pair := func(other string) [2]string {
				if direction == "blocking" {
					return [2]string{actor, other}
				}
				return [2]string{other, actor}
			}
			var total int
			for _, other := range accounts {
				if pairs[pair(other)] != nil && !w.model.Hidden[other] {
					total++
				}
			}
			noSets := direction == "blocking" && w.model.Hidden[actor] // a hidden account blocks nobody
			if noSets {
				total = 0
			}
			p, seen := url.Values{"actor": {actor}, "direction": {direction}, "limit": {fmt.Sprint(1 + rng.IntN(30))}}, 0
			for {
				var got blockAnswer
				w.ask("blue.skein.graph.getBlocks", p, &got)
				if got.Total == nil || *got.Total != total || got.Actor != actor {
					t.Fatalf("%v: %d accounts, want %d", p, got.Total, total)
				}
				for _, b := range got.Blocks {
					same(fmt.Sprint(p, b.DID), b, pairs[pair(b.DID)])
					if seen++; b.Record != "" {
						direct++
					}
					if byLists += min(len(b.Lists), 1); len(b.Lists) > 1 {
						several++
					}
				}
				if got.Cursor == "" {
					if seen != *got.Total {
						t.Fatalf("%v: %d accounts on all pages, want %d", p, seen, *got.Total)
					}
					break
				}
				pages++
				p.Set("cursor", got.Cursor)
			}
			var others []string
			for range 1 + rng.IntN(100) {
				others = append(others, accounts[rng.IntN(len(accounts))])
			}
			var got blockAnswer
			w.ask("blue.skein.graph.getBlocks", url.Values{"actor": {actor}, "direction": {direction}, "others": others}, &got)
			if got.Total != nil || got.Blocks == nil {
				t.Fatalf("with others: %+v", got)
			}
			for _, other := range others {
				want := pairs[pair(other)]
				if want == nil || w.model.Hidden[other] || noSets {
					continue
				}
				if len(got.Blocks) == 0 || got.Blocks[0].DID != other {
					t.Fatalf("%s %s: %s is missing", actor, direction, other)
				}
				same(actor+" "+direction+" "+other, got.Blocks[0], want)
				got.Blocks = got.Blocks[1:]
			}
			if len(got.Blocks) > 0 {
				t.Fatalf("%s %s: %+v are too many", actor, direction, got.Blocks)
			}
		}
	}
	if direct < 100 || byLists < 100 || several < 10 || pages < 20 {
		t.Errorf("%d direct, %d by lists, %d by several, %d pages", direct, byLists, several, pages)
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
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 1, DID: a[1], Rev: oracle.TID(1 << 50), Ops: items})
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 2, DID: a[0], Rev: oracle.TID(1 << 50), Ops: blocks})
	for direction, pair := range map[string][2]string{"blocking": {a[0], a[2]}, "blockedBy": {a[2], a[0]}} {
		for _, others := range [][]string{nil, {pair[1]}} {
			var got blockAnswer
			w.ask("blue.skein.graph.getBlocks", url.Values{"actor": {pair[0]}, "direction": {direction}, "others": others}, &got)
			if len(got.Blocks) != 1 || got.Blocks[0].DID != pair[1] || len(got.Blocks[0].Lists) != 20 || !got.Blocks[0].MoreLists {
				t.Errorf("%s %q: %+v", direction, others, got)
			}
		}
	}
}

// Mistakes are errors that name the parameter.
func TestMistakesInBlocks(t *testing.T) {
	w := newWorld(t, 16, 50)
	d := w.history.Accounts()[0]
	for query, want := range map[string]string{
		"direction=blocking":                                                     "actor\\\" is missing",
		"actor=" + d:                                                             "parameter direction is",
		"actor=x&direction=blocking":                                             "is not an account",
		"actor=" + d + "&direction=both":                                         "it must be blocking or blockedBy",
		"actor=" + d + "&direction=blocking&limit=101":                           "limit",
		"actor=" + d + "&direction=blocking&others=x":                            "others",
		"actor=" + d + "&direction=blocking&cursor=x":                            "cursor",
		"actor=" + d + "&direction=blocking&others=" + d + "&limit=5":            "others cannot be combined with limit or cursor",
		"actor=" + d + "&direction=blocking" + strings.Repeat("&others="+d, 101): "at most 100",
	} {
		status, body, _ := w.get("/xrpc/blue.skein.graph.getBlocks?" + query)
		if status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query[:min(100, len(query))], status, body, want)
		}
	}
}
