package algebra

import (
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
	err := ta.AddAll(ctx, func(yield func(uint64) bool) {
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

// slowTally counts and weighs in a map: for each id, how often each actor counts, and its highest weight.
type slowTally map[uint64]map[int]float64

// A tally counts as a map does: each id once for each actor, or as often as its actor counts, and scaled. It adds up the highest
// weight that each actor gave an id. Whatever sets of ids are left out afterwards, it gives the results in order, however many are
// asked for.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 120 {
		ids := 1 + rng.IntN([]int{3, 50, 5000}[round%3])
		ta, times := Tally{Weighted: round%8 > 3}, []int{}
		slow, most := slowTally{}, 1
		if round%4 > 1 {
			most = 6
		}
		if round%2 == 1 {
			ta.Scale = 1 + 3*rng.Float64()
		}
		for actor := range 1 + rng.IntN(40) {
			times = append(times, 1+rng.IntN(most))
			usual := float64(rng.IntN(9)) / 8 // so that sums are exact, and equal
			ta.Next(usual, uint32(times[actor]))
			for range 1 + rng.IntN(3) { // several calls for one actor
				list, weights := []uint64{}, []float64{}
				for range rng.IntN(300) {
					list = append(list, uint64(rng.IntN(ids))<<(rng.IntN(2)*40))
					weights = append(weights, usual)
				}
				if rng.IntN(2) == 0 {
					must(t, ta.Add(t.Context(), list, nil))
					must(t, ta.AddAll(t.Context(), slices.Values(list))) // again, which counts nothing
				} else {
					for i := range weights {
						weights[i] = float64(rng.IntN(9)) / 8
					}
					must(t, ta.Add(t.Context(), list, weights))
				}
				for i, id := range list {
					if slow[id] == nil {
						slow[id] = map[int]float64{}
					}
					slow[id][actor] = max(slow[id][actor], weights[i])
				}
				if rng.IntN(10) == 0 {
					must(t, ta.Count())
				}
			}
		}
		must(t, ta.Count())
		if ta.used != len(slow) {
			t.Fatalf("%d results, want %d", ta.used, len(slow))
		}
		for range 3 {
			compareTallies(t, rng, &ta, slow, times)
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

// More actors than a gathered id has room for are still told apart.
func TestTallyOfManyActors(t *testing.T) {
	var ta Tally
	const room = 1 << 16
	for actor := range 3 * room {
		ta.Next(1, 1)
		must(t, ta.Add(t.Context(), []uint64{uint64(actor % room)}, nil))
	}
	must(t, ta.Count())
	if got := ta.AtLeast(3); got != room {
		t.Errorf("%d results have a count of 3, want %d", got, room)
	}
}

func compareTallies(t *testing.T, rng *rand.Rand, ta *Tally, slow slowTally, times []int) {
	t.Helper()
	var all []Result
	for id, actors := range slow {
		r, count, sum := Result{ID: id}, 0, 0.0
		for actor, weight := range actors {
			count += times[actor]
			sum += weight * float64(times[actor])
		}
		r.Count = uint32(math.Round(float64(count) * max(ta.Scale, 1)))
		if r.Score = float64(r.Count); ta.Weighted {
			r.Score = sum * max(ta.Scale, 1)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, CompareResults)
	for _, least := range []uint32{0, 1, 2, rng.Uint32N(400)} {
		want := slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return r.Count < least })
		if got := ta.AtLeast(least); least > 0 && got != len(want) {
			t.Fatalf("%d results have a count of %d, want %d", got, least, len(want))
		}
		if got := ta.Members(least); got.Len() != uint64(len(want)) || slices.ContainsFunc(want, func(r Result) bool { return !got.Has(r.ID) }) {
			t.Fatalf("%d members with a count of %d, want %d", got.Len(), least, len(want))
		}
		for _, limit := range []int{0, 1, 2, rng.IntN(len(all) + 2), len(all), len(all) + 1} {
			got, want := ta.Top(least, limit), want[:min(limit, len(want))]
			if i := firstDifference(got, want); i >= 0 {
				t.Fatalf("the first %d of %d with a count of %d: %d, want %d; they differ from %d on: %v, want %v", limit, len(all), least, len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
			}
		}
	}
}

func firstDifference(x, y []Result) int {
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	if i == len(x) && i == len(y) {
		return -1
	}
	return i
}

// The bound on expanded results holds at its value, and not one above it. Expensive counting is
// asked for once, at its first result.
func TestTallyIsBounded(t *testing.T) {
	for _, list := range []bool{false, true} {
		ta := Tally{expanded: MostExpanded - 1000}
		ta.Next(0, 1)
		add := func(n int) error {
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = uint64(i)
			}
			if list {
				return ta.Add(t.Context(), ids, nil)
			}
			return ta.AddAll(t.Context(), slices.Values(ids))
		}
		if err := add(1000); err != nil || ta.expanded != MostExpanded {
			t.Errorf("list %v: %d results: %v", list, ta.expanded, err)
		}
		if err := add(1); err == nil || err.Error() != "of expands to more than 67108864 results; ask about fewer members" {
			t.Errorf("list %v: a result too many: %v", list, err)
		}
		asked := 0
		ta = Tally{expanded: lightResults - 1000, Heavy: func() error { asked++; return nil }}
		ta.Next(0, 1)
		if err := add(1000); err != nil || asked != 0 {
			t.Errorf("list %v: asked %d times before %d results: %v", list, asked, ta.expanded, err)
		}
		if err := add(3000); err != nil || asked != 1 {
			t.Errorf("list %v: asked %d times after %d results: %v", list, asked, ta.expanded, err)
		}
	}
	full := Tally{used: MostResults}
	full.Next(0, 1)
	must(t, full.Add(t.Context(), []uint64{1}, nil))
	if err := full.Count(); err == nil || err.Error() != "of expands to more than 4259840 different results; ask about fewer members" {
		t.Errorf("a different result too many: %v", err)
	}
}
