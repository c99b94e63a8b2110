package algebra

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/internal/sets"
)

// The timeout of a query also ends the expansion of one member.
func TestTimeoutWhileExpanding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ta Tally
	n := 0
	err := ta.Add(ctx, func(yield func(uint64) bool) {
		for n = 1; n < 50*checkEvery; n++ {
			if n == checkEvery {
				cancel()
			}
			if !yield(uint64(n)) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) || n > 3*checkEvery {
		t.Errorf("%v after %d results; want context.Canceled within %d", err, n, 3*checkEvery)
	}
}

// slowTally counts in a map: for each id, how often each actor counts.
type slowTally map[uint64]map[int]int

func (s slowTally) top(limit int, scale float64) (all []Counted) {
	for id, actors := range s {
		count := 0
		for _, times := range actors {
			count += times
		}
		all = append(all, Counted{id, uint32(math.Round(float64(count) * max(scale, 1)))})
	}
	slices.SortFunc(all, func(x, y Counted) int { return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID)) })
	return all[:min(limit, len(all))]
}

// A tally counts as a map does: each id once for each actor, or as often as its actor counts, and
// scaled; whatever sets of ids are left out afterwards, and in the same order for every number of
// results.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 60 {
		ids := 1 + rng.IntN([]int{3, 50, 5000}[round%3])
		var ta Tally
		slow, most := slowTally{}, 1
		if round%4 > 1 {
			most = 6
		}
		if round%2 == 1 {
			ta.Scale = 1 + 3*rng.Float64()
		}
		for actor := range 1 + rng.IntN(40) {
			times := 1 + rng.IntN(most)
			ta.NextThinned(0, uint32(times))
			for range 1 + rng.IntN(3) { // several calls for one actor
				var list []uint64
				for range rng.IntN(300) {
					id := uint64(rng.IntN(ids)) << (rng.IntN(2) * 40)
					list = append(list, id)
					if slow[id] == nil {
						slow[id] = map[int]int{}
					}
					slow[id][actor] = times
				}
				err := ta.AddList(t.Context(), list)
				if rng.IntN(2) == 0 { // again, which counts nothing
					err = ta.Add(t.Context(), slices.Values(list))
				}
				if err != nil {
					t.Fatal(err)
				}
				if rng.IntN(10) == 0 {
					if err := ta.Count(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := ta.Count(); err != nil {
			t.Fatal(err)
		}
		if ta.used != len(slow) {
			t.Fatalf("%d results, want %d", ta.used, len(slow))
		}
		for range 3 {
			compareTallies(t, rng, &ta, slow)
			var out []uint64
			for id := range slow {
				if rng.IntN(3) == 0 {
					out = append(out, id)
				}
			}
			for _, id := range out {
				delete(slow, id)
			}
			ta.LeaveOut(sets.FromUnsorted(append(out, 1<<60, 3))) // some are no results
			delete(slow, 3)
		}
	}
}

func compareTallies(t *testing.T, rng *rand.Rand, ta *Tally, slow slowTally) {
	t.Helper()
	all := slow.top(len(slow), ta.Scale)
	for _, limit := range []int{0, 1, 2, rng.IntN(len(all) + 2), len(all), len(all) + 1} {
		if got := ta.Top(limit); !slices.Equal(got, all[:min(limit, len(all))]) {
			want := all[:min(limit, len(all))]
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Fatalf("the first %d of %d results: %d, want %d; they differ from result %d on: %v, want %v", limit, len(all), len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
	for least := range uint32(400) {
		want := 0
		for _, c := range all {
			if c.Count >= least {
				want++
			}
		}
		if got := ta.AtLeast(least); least > 0 && got != want {
			t.Fatalf("%d results have a count of %d, want %d", got, least, want)
		}
	}
}

// The bound on expanded results holds at its value, and not one above it. Expensive counting is
// asked for once, at its first result.
func TestTallyIsBounded(t *testing.T) {
	for _, list := range []bool{false, true} {
		ta := Tally{expanded: MostExpanded - 1000}
		ta.Next()
		add := func(n int) error {
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = uint64(i)
			}
			if list {
				return ta.AddList(t.Context(), ids)
			}
			return ta.Add(t.Context(), slices.Values(ids))
		}
		if err := add(1000); err != nil || ta.expanded != MostExpanded {
			t.Errorf("list %v: %d results: %v", list, ta.expanded, err)
		}
		if err := add(1); err == nil || err.Error() != "of expands to more than 67108864 results; ask about fewer members" {
			t.Errorf("list %v: a result too many: %v", list, err)
		}
		asked := 0
		ta = Tally{expanded: lightResults - 1000, Heavy: func() error { asked++; return nil }}
		ta.Next()
		if err := add(1000); err != nil || asked != 0 {
			t.Errorf("list %v: asked %d times before %d results: %v", list, asked, ta.expanded, err)
		}
		if err := add(3000); err != nil || asked != 1 {
			t.Errorf("list %v: asked %d times after %d results: %v", list, asked, ta.expanded, err)
		}
	}
	full := Tally{used: MostResults}
	full.Next()
	if err := full.AddList(t.Context(), []uint64{1}); err != nil {
		t.Fatal(err)
	}
	if err := full.Count(); err == nil || err.Error() != "of expands to more than 4259840 different results; ask about fewer members" {
		t.Errorf("a different result too many: %v", err)
	}
}

// A tally without results has none, whatever is asked of it.
func TestEmptyTally(t *testing.T) {
	for _, actors := range []int{0, 1, 5} {
		var ta Tally
		for range actors {
			ta.Next()
		}
		if err := ta.Count(); err != nil {
			t.Fatal(err)
		}
		ta.LeaveOut(sets.FromList([]uint64{1, 2}))
		for n := range 3 {
			if len(ta.Top(n)) != 0 || ta.AtLeast(uint32(n)) != 0 {
				t.Errorf("%d actors, the first %d: %v", actors, n, ta.Top(n))
			}
		}
	}
}

// The heap holds the smallest ids that it was offered.
func TestSmallest(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		var s smallest[uint64]
		most := rng.IntN(8)
		ids := rng.Perm(rng.IntN(20))
		for _, id := range ids {
			s.offer(uint64(id), most)
		}
		slices.Sort(s)
		slices.Sort(ids)
		for i, id := range s {
			if id != uint64(ids[i]) {
				t.Fatalf("the %d smallest of %v: %v", most, ids, s)
			}
		}
		if len(s) != min(most, len(ids)) {
			t.Fatalf("the %d smallest of %v: %v", most, ids, s)
		}
	}
}
