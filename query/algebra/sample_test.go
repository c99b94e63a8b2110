package algebra

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/write"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/oracle"
)

// randomSet returns a set of n ids, some of them neighbours, as writers hand them out.
func randomSet(rng *rand.Rand, n int) sets.Set {
	ids := make([]uint64, 0, n)
	for len(ids) < n {
		from := rng.Uint64() >> 10
		for i := range min(1+rng.IntN(40), n-len(ids)) {
			ids = append(ids, from+uint64(i))
		}
	}
	slices.Sort(ids)
	return sets.FromUnsorted(slices.Compact(ids))
}

// Over many seeds each member is chosen as often as chance says, whatever its place in the set: the
// counts' chi-square is near its mean.
func TestSamplesAreFair(t *testing.T) {
	set := randomSet(rand.New(rand.NewPCG(3, 3)), 200)
	const n, seeds = 20, 4000
	chosen := map[uint64]int{}
	for seed := range uint64(seeds) {
		for id := range lowest(set, sets.Set{}, n, seed, nil).All() {
			chosen[id]++
		}
	}
	size := float64(set.Len())
	share := n / size
	mean, sum := seeds*share, 0.0
	for id := range set.All() {
		sum += math.Pow(float64(chosen[id])-mean, 2) / (mean * (1 - share))
	}
	if deviation := (sum - (size - 1)) / math.Sqrt(2*(size-1)); math.Abs(deviation) > 5 {
		t.Errorf("chi-square %.0f with %.0f degrees of freedom", sum, size-1)
	}
}

// A sample depends on its set and its seed only: neither on the rest of the expression, nor on whether the graph has
// seen its members.
func TestSamplesOfUnseenMembers(t *testing.T) {
	g := oracle.NewGraph(t, 15, 4, write.Limits{})
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("did:web:unseen%d.example.com", i))
	}
	of := "sample(members(" + strings.Join(names, ",") + "),5,seed=3)"
	sample := func(text string) (all []string) {
		must(t, on(t, g, parsed(t, text), free(), func(v *Evaluation) error {
			set, _, err := v.Result()
			must(t, err)
			_, all, _, err = v.Page(set, 0, 1000)
			return err
		}))
		slices.Sort(all)
		return slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, "unseen") })
	}
	want := sample(of)
	for _, text := range []string{"union(members(did:web:x.example.com,did:web:y.example.com)," + of + ")", "union(" + of + ",members(" + oracle.Account(0) + "))"} {
		if got := sample(text); !slices.Equal(got, want) || len(got) != 5 {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, name := range names[:20] { // these are seen now
		g.Put(g.Accounts[0], "follow", name)
	}
	if got := sample(of); !slices.Equal(got, want) {
		t.Errorf("once some are seen: %q, want %q", got, want)
	}
}
