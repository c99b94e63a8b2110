package algebra

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/oracle"
)

// Pages newest first of sets whose records span three years are those that the rule of the specification shows, in
// their order: with several records of an edge, deletes, keys that name no time, and keys that are newer than any event.
func TestNewestOfYears(t *testing.T) {
	for seed, l := range map[uint64]write.Limits{1: {Row: 8, Chunk: 3}, 2: {Row: 20, Chunk: 50}, 3: {}} {
		g := oracle.NewGraph(t, seed, 60, l)
		key := func() string {
			switch at := oracle.Begin.UnixMicro(); g.Rand.IntN(12) {
			case 0:
				return fmt.Sprintf("odd-%d", g.Rand.IntN(1000))
			case 1:
				return string(dict.AppendTID(nil, 1<<63|uint64(at)<<format.ClockBits)) // the top bit: no time
			case 2:
				return string(dict.AppendTID(nil, uint64(at+g.Rand.Int64N(400*day))<<format.ClockBits))
			case 3, 4: // the last months
				return string(dict.AppendTID(nil, uint64(at-g.Rand.Int64N(60)*day)<<format.ClockBits|g.Rand.Uint64N(4))) // with ties
			default:
				return string(dict.AppendTID(nil, uint64(at-g.Rand.Int64N(3*365*day))<<format.ClockBits|g.Rand.Uint64N(4)))
			}
		}
		list := g.Lists[0] // its key is not a time
		for range 700 {
			did := g.Any(g.Accounts)
			kind, subject := "follow", g.Accounts[g.Rand.IntN(3)]
			if g.Rand.IntN(4) == 0 {
				kind, subject = "listblock", list
			}
			rkey := key()
			g.Commit(did, oracle.Op{Kind: kind, Rkey: rkey, Subject: subject})
			if g.Rand.IntN(4) == 0 {
				g.Commit(did, oracle.Op{Kind: kind, Rkey: rkey, Delete: true})
			}
		}
		g.Hide(g.Accounts[5], true)
		windows := []string{"", ",since=2024-09-01", ",until=2025-12-15", ",since=2026-01-20,until=2026-02-25"}
		some, pages := 0, 0
		for _, of := range []string{"followers(" + g.Accounts[0], "followers(" + g.Accounts[1], "followers(" + g.Accounts[2], "listblockers(" + list} {
			for _, window := range windows {
				for _, text := range []string{of + window + ")", "intersect(" + of + window + "),follows(" + g.Accounts[7] + "),followers(" + g.Accounts[1] + "))", "except(" + of + window + "),followers(" + g.Accounts[2] + "))"} {
					for _, pad := range []string{"", " ", "  ", "   "} { // changes what on reads
						e := parsed(t, text+pad)
						want := map[string]string{}
						for _, m := range (twin{g}).members(e) {
							rkeys, subject := twin{g}.rkeysOf(e, m)
							want[m] = slowShown(rkeys, subject)
						}
						limit := 1 + g.Rand.IntN(9)
						newest := listed(t, g, e, limit, NewestFirst(noon), want)
						inOrder(t, e, newest, listed(t, g, e, limit, OldestFirst(noon), want), want)
						some += len(want)
						pages += len(want) / limit
					}
				}
			}
		}
		if some < 1000 || pages < 200 {
			t.Errorf("%d members on %d pages", some, pages)
		}
	}
}

// A page newest first reads the records of a part of the members, also if the members that it reads first have newer
// records than the others, so that it has to read again.
func TestNewestReadsApart(t *testing.T) {
	const members, first, limit = 400, 40, 20
	for _, skewed := range []bool{false, true} {
		g := oracle.NewGraph(t, 5, members+1, write.Limits{})
		star := g.Accounts[members]
		e := parsed(t, "followers("+star+")")
		key := func(months int) string {
			at := oracle.Begin.AddDate(0, -months, 0).Add(time.Duration(g.Rand.Int64N(int64(25 * 24 * time.Hour))))
			return string(dict.AppendTID(nil, uint64(at.UnixMicro())<<format.ClockBits))
		}
		follow := map[string]string{}
		for _, did := range g.Accounts[:members] {
			for month := range 24 { // so that there are many chunks
				g.Commit(did, oracle.Op{Kind: "follow", Rkey: key(month + 1), Subject: "did:plc:" + strings.Repeat("z", 24)})
			}
			follow[did] = key(24 - g.Rand.IntN(24))
			if skewed {
				follow[did] = key(24)
			}
			g.Commit(did, oracle.Op{Kind: "follow", Rkey: follow[did], Subject: star})
		}
		in := func(fn func(v *Evaluation, set sets.Set)) (cost int) {
			must(t, g.Store.ViewCharged(t.Context(), func(n int) error { cost += n; return nil }, func(sn *ask.View) error {
				v, err := NewEvaluation(t.Context(), sn, e, free())
				must(t, err)
				set, _, err := v.Result()
				must(t, err)
				v.readFirst = first
				fn(v, set)
				return nil
			}))
			return cost
		}
		var early []string
		in(func(v *Evaluation, set sets.Set) {
			some, _ := spread(set.List(nil), first)
			var err error
			early, err = v.Names(some)
			must(t, err)
		})
		for _, did := range early[:12] {
			if skewed {
				g.Commit(did, oracle.Op{Kind: "follow", Rkey: follow[did], Delete: true})
				follow[did] = key(0)
				g.Commit(did, oracle.Op{Kind: "follow", Rkey: follow[did], Subject: star})
			}
		}
		want := slices.Sorted(maps.Values(follow))
		slices.Reverse(want)
		page := func(v *Evaluation, set sets.Set) {
			page, last, err := v.Records(v.Expr.Root.Source(), set, new(Place), limit, NewestFirst(noon))
			if err != nil || len(page) != limit || last == nil {
				t.Fatalf("%d records, then %v: %v", len(page), last, err)
			}
			for i, r := range page {
				if got := string(r.Path.AppendRkey(nil)); got != want[i] {
					t.Errorf("record %d is %s, want %s", i, got, want[i])
				}
			}
		}
		cost := in(page)
		whole := in(func(v *Evaluation, set sets.Set) { v.lookUpAbove = members; page(v, set) })
		if most := whole / 2; !skewed && cost > most {
			t.Errorf("a page costs %d, all records %d", cost, whole)
		}
		if skewed && cost <= whole {
			t.Errorf("a page costs %d, all records %d: it did not read again", cost, whole)
		}
	}
}
