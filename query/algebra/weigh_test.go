package algebra

import (
	"errors"
	"fmt"
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
			if via != "lists" && via != "listed" && d.IntN(2) == 0 {
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
		for range 200 {
			of, from := d.One("follows", "followers")+"("+g.Any(g.Accounts)+")", true
			if d.IntN(2) == 0 {
				of, from = "likes("+g.Any(g.Accounts)+")", false
			}
			step := func(top int, more string) string {
				via := d.One("likers", "reposters")
				if from {
					via = d.One("follows", "followers", "likes", "reposts", "lists")
				}
				text := fmt.Sprintf("rank(of=%s,via=%s,top=%d%s%s)", of, via, top, more, how(via))
				from = via == "follows" || via == "followers" || via == "likers" || via == "reposters"
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
				weights := v.Weights(&e.Root.Args[0])
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
		if some < 150 || halves < 150 {
			t.Errorf("%+v: %d results, %d weights between 0 and 1", l, some, halves)
		}
	}
}

// Sizes asks the budget before it reads a large set that is not in memory, and a refusal ends it.
func TestSizesAskTheBudget(t *testing.T) {
	g := oracle.NewGraph(t, 3, 30, early)
	g.Grow(2000)
	via, err := builtIn.NamedFrom("via", "followers", dict.DID)
	must(t, err)
	ids := make([]dict.ID, 0, len(g.Accounts))
	for _, id := range (twin{g}).ids(g.Accounts, dict.DID) {
		ids = append(ids, id)
	}
	asked := func(left int) (b *allowed, counted int, err error) {
		b = &allowed{left: left}
		err = g.Store.View(t.Context(), func(sn *ask.View) error {
			return NewReader(t.Context(), sn, b).Sizes(via, ids, func(int, uint64) error { counted++; return nil })
		})
		return b, counted, err
	}
	if b, counted, err := asked(2); !errors.Is(err, errHeavy) || b.asked != 3 || counted >= len(ids) {
		t.Errorf("a budget of 2: asked %d times, %d sets counted: %v", b.asked, counted, err)
	}
	if b, counted, err := asked(len(ids)); err != nil || b.asked < 3 || counted != len(ids) {
		t.Errorf("a budget of %d: asked %d times, %d sets counted: %v", len(ids), b.asked, counted, err)
	}
}

// Sorting a thousand members by size is light, and one more is expensive; so is a sample that is
// larger than a list holds.
func TestOrdersAskTheBudget(t *testing.T) {
	g := oracle.NewGraph(t, 5, 10, write.Limits{})
	g.Crowd(manyTotals, func(int) []string { return g.Accounts[:1] })
	via, err := builtIn.NamedFrom("via", "follows", dict.DID)
	must(t, err)
	sorted := func(left int) (asked int, err error) {
		b := &allowed{left: left}
		err = on(t, g, parsed(t, "followers("+g.Accounts[0]+")"), b, func(v *Evaluation) error {
			set, _, err := v.Result()
			must(t, err)
			before := b.asked
			_, _, err = v.BySize(set, via, Place{}, 3)
			asked = b.asked - before
			return err
		})
		return asked, err
	}
	if asked, err := sorted(math.MaxInt); err != nil || asked != 0 {
		t.Errorf("%d members: asked %d times: %v", manyTotals, asked, err)
	}
	g.Crowd(manyTotals+1, func(int) []string { return g.Accounts[:1] })
	if asked, err := sorted(math.MaxInt); err != nil || asked != 1 {
		t.Errorf("one more: asked %d times: %v", asked, err)
	}
	if _, err := sorted(0); !errors.Is(err, errHeavy) {
		t.Errorf("without a budget: %v", err)
	}
}

// Damping a thousand results is light, and one more is expensive.
func TestDampingAsksTheBudget(t *testing.T) {
	g := oracle.NewGraph(t, 5, 10, write.Limits{})
	g.Crowd(manyTotals, func(int) []string { return g.Accounts[:1] })
	ask := func(left int) (asked, results int, err error) {
		b := &allowed{left: left}
		err = on(t, g, parsed(t, "rank(of=members("+g.Accounts[0]+"),via=followers,damp=0.5,top=3)"), b, func(v *Evaluation) error {
			set, _, err := v.Result()
			results = int(set.Len())
			return err
		})
		return b.asked, results, err
	}
	before, results, err := ask(math.MaxInt)
	if must(t, err); results != 3 {
		t.Fatalf("%d results of %d", results, manyTotals)
	}
	g.Crowd(manyTotals+1, func(int) []string { return g.Accounts[:1] })
	if after, results, err := ask(math.MaxInt); err != nil || results != 3 || after != before+1 {
		t.Errorf("%d results, asked %d times, before %d: %v", results, after, before, err)
	}
	if _, _, err := ask(before); !errors.Is(err, errHeavy) {
		t.Errorf("a refusal: %v", err)
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
	for text, want := range map[string][]string{
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=1h,top=2)": {stars[2], stars[1]},
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=1h,top=1)": {stars[2]},
		"rank(of=members(" + g.Accounts[0] + "),via=follows,decay=9w,top=1)": {stars[2]},
	} {
		must(t, on(t, g, parsed(t, text), free(), func(v *Evaluation) error {
			set, _, err := v.Result()
			must(t, err)
			got, err := v.Names(set.List(nil))
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
			return err
		}))
	}
}
