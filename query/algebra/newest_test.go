package algebra

import (
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
