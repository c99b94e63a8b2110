package algebra

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
)

// Walks of two steps have the members and the weights that the maps have: with every pair of edges,
// damped, aged, and cut off after few results.
func TestScores(t *testing.T) {
	for seed, l := range map[uint64]write.Limits{1: early, 2: {}} {
		g := oracle.NewGraph(t, seed, 30, l)
		g.Grow(2500)
		d := drawOf(g, seed)
		some, halves := 0, 0
		how := func(via string) (s string) {
			if via != "lists" && via != "listed" && via != "authors" && d.IntN(2) == 0 {
				s += ",damp=" + d.One("0.3", "0.5", "1")
			}
			if d.IntN(2) == 0 {
				s += ",decay=" + d.One("20d", "100d", "40w")
			}
			if d.IntN(4) == 0 {
				s += "," + d.Window()
			}
			return s
		}
		for range 80 {
			of, from := d.One("follows", "followers")+"("+g.Any(g.Accounts)+")", true
			if d.IntN(2) == 0 {
				of, from = "likes("+g.Any(g.Accounts)+")", false
			}
			step := func(top int, more string) string {
				via := d.One("likers", "reposters", "authors")
				if from {
					via = d.One("follows", "followers", "likes", "reposts", "lists")
				}
				text := fmt.Sprintf("rank(of=%s,via=%s,top=%d%s%s)", of, via, top, more, how(via))
				from = via == "follows" || via == "followers" || via == "likers" || via == "reposters" || via == "authors"
				return text
			}
			of = step(2+d.IntN(8), "")
			text := step(1+d.IntN(3), ",weigh=score")
			e := parsed(t, text)
			w := twin{g}
			want := w.members(e)
			inner := w.scored(e, &e.Root.Args[0])
			checkEvaluation(t, g, d, e, want)
			must(t, on(t, g, e, free(), func(v *Evaluation) error {
				if _, _, err := v.Result(); err != nil {
					return err
				}
				weights := v.weights[&e.Root.Args[0]]
				if len(weights) > len(inner) {
					t.Fatalf("%s: %d members with weights, want %d", text, len(weights), len(inner))
				}
				var members []string
				for _, r := range inner {
					members = append(members, r.member)
				}
				ids := w.ids(members, e.Root.Args[0].Is)
				for _, r := range inner {
					want := 0.0
					if inner[0].score > 0 {
						want = r.score / inner[0].score
					}
					if got := weights[uint64(ids[r.member])]; math.Abs(got-want) > 1e-9 {
						t.Fatalf("%s: %s has the weight %v, want %v", text, r.member, got, want)
					}
					if want > 0 && want < 1 {
						halves++
					}
				}
				return nil
			}))
			some += len(want)
			g.Grow(2)
		}
		if some < 60 || halves < 60 {
			t.Errorf("%+v: %d results, %d weights between 0 and 1", l, some, halves)
		}
	}
}

// Up to a thousand totals or sizes are light, and one more is expensive, once; so is the size of a large set that is not in memory.
func TestTotalsAskTheBudget(t *testing.T) {
	follows, err := builtIn.NamedFrom("via", "follows", dict.DID)
	must(t, err)
	for name, do := range map[string]func(v *Evaluation) error{
		"damped": func(v *Evaluation) error { _, err := v.Set(&v.Expr.Root); return err },
		"sorted": func(v *Evaluation) error {
			set, err := v.Set(&v.Expr.Root.Args[0])
			if err == nil {
				_, _, err = v.BySize(set, follows, Place{}, 3)
			}
			return err
		},
	} {
		g := oracle.NewGraph(t, 5, 10, write.Limits{})
		ask := func(members, left int) (asked int, err error) {
			g.Crowd(members, func(int) []string { return g.Accounts[:1] })
			text := "rank(of=union(followers(" + g.Accounts[0] + ")),via=follows)"
			if name == "damped" {
				text = "rank(of=members(" + g.Accounts[0] + "),via=followers,damp=0.5,top=3)"
			}
			b := &allowed{left: left}
			err = on(t, g, parsed(t, text), b, do)
			return b.asked, err
		}
		before, err := ask(manyTotals, math.MaxInt)
		must(t, err)
		if after, err := ask(manyTotals+1, math.MaxInt); err != nil || after != before+1 {
			t.Errorf("%s: asked %d times, before %d: %v", name, after, before, err)
		}
		if _, err := ask(manyTotals+1, before); !errors.Is(err, errHeavy) {
			t.Errorf("%s: a refusal: %v", name, err)
		}
	}
	g := oracle.NewGraph(t, 3, 30, early)
	g.Grow(2000)
	followers, err := builtIn.NamedFrom("via", "followers", dict.DID)
	must(t, err)
	ids := slices.Collect(maps.Values((twin{g}).ids(g.Accounts, dict.DID)))
	for _, left := range []int{2, len(ids)} {
		b, counted := &allowed{left: left}, 0
		err := g.Store.View(t.Context(), func(sn *ask.View) error {
			return NewReader(t.Context(), sn, b).Sizes(followers, ids, func(int, uint64) error { counted++; return nil })
		})
		if refused := left == 2; b.asked < 3 || refused != errors.Is(err, errHeavy) || refused != (counted < len(ids)) {
			t.Errorf("a budget of %d: asked %d times, %d sets counted: %v", left, b.asked, counted, err)
		}
	}
}

// An edge whose record is dated ahead of now adds nothing to a decayed score, and edges of long ago are told apart.
func TestFutureEdgesAddNothing(t *testing.T) {
	g := oracle.NewGraph(t, 21, 3, write.Limits{})
	at := func(d time.Duration) string {
		return string(dict.AppendTID(nil, uint64(noon.Add(d).UnixMicro())<<format.ClockBits))
	}
	stars := []string{oracle.Account(10), oracle.Account(11), oracle.Account(12)}
	g.Commit(g.Accounts[0], oracle.Op{Kind: "follow", Rkey: at(70 * 365 * 24 * time.Hour), Subject: stars[0]})
	g.Commit(g.Accounts[0], oracle.Op{Kind: "follow", Rkey: at(-1010 * time.Hour), Subject: stars[1]})
	g.Commit(g.Accounts[0], oracle.Op{Kind: "follow", Rkey: at(-1000 * time.Hour), Subject: stars[2]})
	g.Commit(g.Accounts[1], oracle.Op{Kind: "follow", Rkey: at(70 * 365 * 24 * time.Hour), Subject: stars[0]})
	g.Commit(g.Accounts[2], oracle.Op{Kind: "follow", Rkey: at(-1005 * time.Hour), Subject: stars[0]})
	for text, want := range map[string][]string{
		"rank(of=members(" + stars[0] + "),via=followers,since=2000-01-01,decay=1h,top=1)": {g.Accounts[2]},
		"rank(of=members(" + stars[0] + "),via=followers,since=2000-01-01,decay=1h)":       g.Accounts[:3],
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=1h,top=2)":               {stars[2], stars[1]},
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=1h,top=1)":               {stars[2]},
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=9w,top=1)":               {stars[2]},
	} {
		must(t, on(t, g, parsed(t, text), free(), func(v *Evaluation) error {
			set, _, err := v.Result()
			must(t, err)
			got, err := v.Names(v.Expr.Root.Is, set.List(nil))
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
			return err
		}))
	}
}
