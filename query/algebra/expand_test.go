package algebra

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// hopped is what a hop found: counts and sums of weights by id.
type hopped struct {
	counts  map[uint64]uint32
	scores  map[uint64]float64
	sampled string
}

// hopWith evaluates the last step of a ranking with a budget.
func hopWith(t *testing.T, g *oracle.Graph, text string, units int) (h hopped, err error) {
	t.Helper()
	e := parsed(t, text)
	err = on(t, g, e, free(), func(v *Evaluation) error {
		n := &e.Root
		of, err := v.Set(&n.Args[0])
		must(t, err)
		v.HopUnits, n.Rank.Scored = units, true
		ta, err := v.Expand(n, of)
		if err != nil {
			return err
		}
		h = hopped{map[uint64]uint32{}, map[uint64]float64{}, v.Sampled()}
		for _, r := range ta.Top(1, ta.AtLeast(1)) {
			if h.counts[r.ID] = r.Count; n.Rank.ByScore() {
				h.scores[r.ID] = r.Score
			}
		}
		return nil
	})
	return h, err
}

// A hop within its budget reads everything, and one unit less makes it read a sample: along each edge,
// with windows and decay. exact=true reads everything with any budget.
func TestBudgetOfAHop(t *testing.T) {
	g := oracle.NewGraph(t, 7, 30, early)
	g.Grow(2500)
	d := drawOf(g, 7)
	sampled := map[string]int{}
	for range 70 {
		of, via := d.One("follows", "followers")+"("+g.Any(g.Accounts)+")", d.One("follows", "followers", "likes", "blockers", "lists")
		if d.IntN(3) == 0 {
			of, via = "likes("+g.Any(g.Accounts)+")", d.One("likers", "reposters", "authors")
		}
		more := ""
		if d.IntN(2) == 0 {
			more += ",decay=" + d.One("20d", "100d")
		}
		if d.IntN(2) == 0 {
			more += "," + d.Window()
		}
		text := fmt.Sprintf("rank(of=%s,via=%s%s)", of, via, more)
		if _, err := builtIn.Parse(text, language.MaxExpr, noon); err != nil {
			continue // both times of the window are the same
		}
		whole, err := hopWith(t, g, text, math.MaxInt)
		must(t, err)
		if whole.sampled != "" {
			t.Fatalf("%s: %s", text, whole.sampled)
		}
		lo, hi := 1, 1<<24 // the least budget with which everything is read
		for lo < hi {
			mid := (lo + hi) / 2
			if h, err := hopWith(t, g, text, mid); err != nil {
				t.Fatal(err)
			} else if h.sampled == "" {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		enough, err := hopWith(t, g, text, lo)
		if must(t, err); enough.sampled != "" || !maps.Equal(enough.counts, whole.counts) || !maps.Equal(enough.scores, whole.scores) {
			t.Errorf("%s: %+v with %d units, %+v without a limit", text, enough, lo, whole)
		}
		if lo > 1 {
			less, err := hopWith(t, g, text, lo-1)
			if must(t, err); less.sampled == "" || !strings.HasPrefix(less.sampled, "the ranking via "+via+" ") {
				t.Errorf("%s: with one unit less: %q", text, less.sampled)
			}
			again, err := hopWith(t, g, text, lo-1)
			if must(t, err); !maps.Equal(less.counts, again.counts) || !maps.Equal(less.scores, again.scores) || less.sampled != again.sampled {
				t.Errorf("%s: two samples of one state differ", text)
			}
			sampled[via]++
			pairs := uint32(0) // of a member and a list; an account has at most two lists
			for _, n := range whole.counts {
				pairs += n
			}
			if via == "lists" && lo < int(pairs)*lookUpUnits/2 {
				t.Errorf("%s: the records of the authors of %d lists are read with %d units", text, pairs, lo)
			}
		}
		exact, err := hopWith(t, g, strings.TrimSuffix(text, ")")+",exact=true)", 1)
		if must(t, err); exact.sampled != "" || !maps.Equal(exact.counts, whole.counts) || !maps.Equal(exact.scores, whole.scores) {
			t.Errorf("%s with exact=true: %+v, want %+v", text, exact, whole)
		}
	}
	if len(sampled) < 7 {
		t.Errorf("sampled along %v", sampled)
	}
}

// The counts and scores of a sample are scaled: they are right on average, within five standard
// deviations, whether members are left out or large sets are thinned.
func TestSamplesAreScaled(t *testing.T) {
	const star, half, third = "did:web:star.example.com", "did:web:half.example.com", "did:web:third.example.com"
	const n = 12_000
	g := oracle.NewGraph(t, 8, 1, write.Limits{})
	g.Crowd(n, func(i int) []string {
		all := []string{star}
		if i%2 == 0 {
			all = append(all, half)
		}
		if i%3 == 0 {
			all = append(all, third)
		}
		return all
	})
	near := func(what string, got, want, share float64) {
		t.Helper()
		read := n * share // each member is in the sample with this probability
		if sigma := want / math.Sqrt(read*want/n); math.Abs(got-want) > 5*sigma {
			t.Errorf("%s: %.0f, want %.0f ± %.0f", what, got, want, sigma)
		}
	}
	var posts []string
	for i := range n {
		posts = append(posts, "at://"+[]string{star, half, third}[i%3]+"/app.bsky.feed.post/"+g.Key())
	}
	g.PutMany("did:web:liker.example.com", "like", posts)
	ids := (twin{g}).ids([]string{star, half, third}, dict.DID)
	for text, units := range map[string]int{
		"rank(of=followers(" + star + "),via=follows)":                     60_000, // a member with two subjects costs 18 units
		"rank(of=followers(" + star + "),via=follows,damp=0.5)":            60_000,
		"rank(of=followers(" + star + "),via=follows,decay=500w)":          60_000,
		"rank(of=likes(did:web:liker.example.com),via=authors,decay=500w)": 60_000,
	} {
		whole, err := hopWith(t, g, text, math.MaxInt)
		must(t, err)
		h, err := hopWith(t, g, text, units)
		if must(t, err); !strings.Contains(h.sampled, "of 12000 members") {
			t.Errorf("%s: %q", text, h.sampled)
		}
		share := float64(units) / 18 / n
		for _, did := range []string{star, half, third} {
			id := uint64(ids[did])
			if whole.counts[id] == 0 {
				t.Fatalf("%s: %s has no count", text, did)
			}
			near(text+" "+did, float64(h.counts[id]), float64(whole.counts[id]), share)
			if want := whole.scores[id]; want > 0 {
				near(text+" score of "+did, h.scores[id]/want*float64(whole.counts[id]), float64(whole.counts[id]), share)
			}
		}
	}
	within := ",since=" + oracle.Begin.Add(time.Microsecond).Format(time.RFC3339Nano) // a second in which all came
	for _, more := range []string{"", within, ",decay=500w"} {
		text, units := "rank(of=members("+star+","+half+"),via=followers"+more+")", 8000
		if more != "" {
			units *= lookUpUnits
		}
		whole, err := hopWith(t, g, text, math.MaxInt)
		must(t, err)
		h, err := hopWith(t, g, text, units)
		if must(t, err); h.sampled != "the ranking via followers sampled 2 sets with up to 12000 members" {
			t.Errorf("%s: %q", text, h.sampled)
		}
		sum := func(h hopped) (all float64) {
			for _, count := range h.counts {
				all += float64(count)
			}
			return all
		}
		weights := func(h hopped) (all float64) {
			for _, score := range h.scores {
				all += score
			}
			return all
		}
		if got, want := weights(h), weights(whole); math.Abs(got-want) > 0.1*want || len(whole.scores) != n && more == ",decay=500w" {
			t.Errorf("%s: scores of %d results sum up to %.0f, of all %d to %.0f", text, len(h.scores), got, len(whole.scores), want)
		}
		if got, want := sum(h), sum(whole); math.Abs(got-want) > 0.1*want || len(h.counts) > 8000 || len(whole.counts) != n {
			t.Errorf("%s: counts of %d results sum up to %.0f, of all %d to %.0f", text, len(h.counts), got, len(whole.counts), want)
		}
	}
}
