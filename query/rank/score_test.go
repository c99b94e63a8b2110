package rank

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/internal/idset"
)

// Scores beyond the largest integer are the largest integer, and do not wrap.
func TestScoresAreBounded(t *testing.T) {
	for _, c := range []struct {
		by           string
		accounts, of uint64
		e            Result
		want         uint64
	}{
		{ByShare, 0, 0, Result{counted{1, 3}, 4}, 750_000},
		{ByLift, 100, 10, Result{counted{1, 5}, 10}, 5_000_000},
		{ByLift, 1 << 62, 1, Result{counted{1, 1 << 31}, 1}, 1<<63 - 1},
		{ByLift, 1 << 50, 1 << 40, Result{counted{1, 1}, 1 << 40}, 0},
	} {
		st := &Standing{Accounts: c.accounts, Of: c.of}
		if got := st.Score(c.by, &c.e); got != c.want {
			t.Errorf("%s of %+v, %d accounts, %d members: %d, want %d", c.by, c.e, c.accounts, c.of, got, c.want)
		}
	}
}

// slowScore returns a score in millionths, by the definition.
func slowScore(by string, st *Standing, e *Result) uint64 {
	rat := func(n uint64) *big.Rat { return new(big.Rat).SetInt(new(big.Int).SetUint64(n)) }
	score := new(big.Rat).Quo(rat(uint64(e.count)), rat(max(e.Total, 1)))
	if by == ByLift {
		score = score.Mul(score, rat(st.Accounts)).Quo(score, rat(max(st.Of, 1)))
	}
	score.Mul(score, rat(1_000_000))
	whole := new(big.Int).Quo(score.Num(), score.Denom())
	if !whole.IsInt64() {
		return 1<<63 - 1
	}
	return whole.Uint64()
}

// drawn returns a number with a random number of bits.
func drawn(rng *rand.Rand, bits int) uint64 { return rng.Uint64() >> (64 - 1 - rng.IntN(bits)) }

// Scores are the quotients of the specification, rounded down, for all sizes that an index can
// have.
func TestScoresAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50_000 {
		st := &Standing{Accounts: max(drawn(rng, 40), 1), Of: drawn(rng, 31)}
		e := &Result{counted{drawn(rng, 40), uint32(drawn(rng, 32))}, drawn(rng, 32)}
		for _, by := range []string{ByShare, ByLift} {
			if got, want := st.Score(by, e), slowScore(by, st, e); got != want {
				t.Fatalf("%s of %+v, %d accounts, %d members: %d, want %d", by, *e, st.Accounts, st.Of, got, want)
			}
		}
	}
}

// slowOrder compares two results by the definition of their rank.
func slowOrder(by string, x, y Result) int {
	if by != ByCount {
		share := func(e Result) *big.Rat { return big.NewRat(int64(e.count), int64(max(e.Total, 1))) }
		if c := share(y).Cmp(share(x)); c != 0 {
			return c
		}
	}
	if x.count != y.count {
		return cmp.Compare(y.count, x.count)
	}
	return cmp.Compare(x.id, y.id)
}

// The order is that of exact fractions. Equal results are ordered by count and id, so that there
// is one order only.
func TestOrderIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	result := func() Result {
		if rng.IntN(2) == 0 { // many ties
			return Result{counted{uint64(rng.IntN(3)), uint32(1 + rng.IntN(4))}, uint64(rng.IntN(9))}
		}
		near := uint64(1)<<31 + uint64(rng.IntN(3)) // fractions that differ by less than a float64 does
		return Result{counted{uint64(rng.IntN(3)), uint32(near) - uint32(rng.IntN(2))}, near}
	}
	for range 30_000 {
		x, y := result(), result()
		for _, by := range []string{ByCount, ByShare, ByLift} {
			got := inOrder(by, x, y)
			if got != slowOrder(by, x, y) || got != -inOrder(by, y, x) || got == 0 && by == ByCount && x.counted != y.counted {
				t.Fatalf("%s: %+v and %+v: %d, want %d", by, x, y, got, slowOrder(by, x, y))
			}
		}
	}
	for range 200 {
		var all []Result
		for i := range 50 {
			r := result()
			r.id = uint64(i)
			all = append(all, r)
		}
		for _, by := range []string{ByCount, ByShare, ByLift} {
			want := slices.Clone(all)
			slices.SortFunc(want, func(x, y Result) int { return slowOrder(by, x, y) })
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			got := slices.Clone(all)
			slices.SortFunc(got, func(x, y Result) int { return inOrder(by, x, y) })
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %+v, want %+v", by, got, want)
			}
		}
	}
}

// slowTally counts in a map.
type slowTally map[uint64]map[int]bool

func (s slowTally) top(limit int) (all []counted) {
	for id, actors := range s {
		all = append(all, counted{id, uint32(len(actors))})
	}
	slices.SortFunc(all, func(x, y counted) int { return cmp.Or(cmp.Compare(y.count, x.count), cmp.Compare(x.id, y.id)) })
	return all[:min(limit, len(all))]
}

// A tally counts as a map does: each id once for each actor, whatever sets of ids are left out
// afterwards, and in the same order for every number of results.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 60 {
		ids := 1 + rng.IntN([]int{3, 50, 5000}[round%3])
		var ta tally
		slow := slowTally{}
		for actor := range 1 + rng.IntN(40) {
			ta.next()
			for range 1 + rng.IntN(3) { // several calls for one actor
				var list []uint64
				for range rng.IntN(300) {
					id := uint64(rng.IntN(ids)) << (rng.IntN(2) * 40)
					list = append(list, id)
					if slow[id] == nil {
						slow[id] = map[int]bool{}
					}
					slow[id][actor] = true
				}
				err := ta.addList(t.Context(), list)
				if rng.IntN(2) == 0 { // again, which counts nothing
					err = ta.add(t.Context(), slices.Values(list))
				}
				if err != nil {
					t.Fatal(err)
				}
				if rng.IntN(10) == 0 {
					if err := ta.count(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := ta.count(); err != nil {
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
			ta.leaveOut(idset.FromUnsorted(append(out, 1<<60, 3))) // some are no results
			delete(slow, 3)
		}
	}
}

func compareTallies(t *testing.T, rng *rand.Rand, ta *tally, slow slowTally) {
	t.Helper()
	all := slow.top(len(slow))
	for _, limit := range []int{0, 1, 2, rng.IntN(len(all) + 2), len(all), len(all) + 1} {
		if got := ta.top(limit); !slices.Equal(got, all[:min(limit, len(all))]) {
			want := all[:min(limit, len(all))]
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Fatalf("the first %d of %d results: %d, want %d; they differ from result %d on: %v, want %v", limit, len(all), len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
	for least := range uint32(45) {
		want := 0
		for _, c := range all {
			if c.count >= least {
				want++
			}
		}
		if got := ta.atLeast(least); least > 0 && got != want {
			t.Fatalf("%d results have a count of %d, want %d", got, least, want)
		}
	}
}

// The bound on expanded results holds at its value, and not one above it. Expensive counting is
// asked for once, at its first result.
func TestTallyIsBounded(t *testing.T) {
	for _, list := range []bool{false, true} {
		ta := tally{expanded: maxExpanded - 1000}
		ta.next()
		add := func(n int) error {
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = uint64(i)
			}
			if list {
				return ta.addList(t.Context(), ids)
			}
			return ta.add(t.Context(), slices.Values(ids))
		}
		if err := add(1000); err != nil || ta.expanded != maxExpanded {
			t.Errorf("list %v: %d results: %v", list, ta.expanded, err)
		}
		if err := add(1); err == nil || err.Error() != "InvalidRequest: of expands to more than 67108864 results; ask about fewer actors" {
			t.Errorf("list %v: a result too many: %v", list, err)
		}
		asked := 0
		ta = tally{expanded: lightResults - 1000, heavy: func() error { asked++; return nil }}
		ta.next()
		if err := add(1000); err != nil || asked != 0 {
			t.Errorf("list %v: asked %d times before %d results: %v", list, asked, ta.expanded, err)
		}
		if err := add(3000); err != nil || asked != 1 {
			t.Errorf("list %v: asked %d times after %d results: %v", list, asked, ta.expanded, err)
		}
	}
	full := tally{used: maxRanked}
	full.next()
	if err := full.addList(t.Context(), []uint64{1}); err != nil {
		t.Fatal(err)
	}
	if err := full.count(); err == nil || err.Error() != "InvalidRequest: of expands to more than 4194304 different results; ask about fewer actors" {
		t.Errorf("a different result too many: %v", err)
	}
}

// A tally without results has none, whatever is asked of it.
func TestEmptyTally(t *testing.T) {
	for _, actors := range []int{0, 1, 5} {
		var ta tally
		for range actors {
			ta.next()
		}
		if err := ta.count(); err != nil {
			t.Fatal(err)
		}
		ta.leaveOut(idset.FromList([]uint64{1, 2}))
		for n := range 3 {
			if len(ta.top(n)) != 0 || ta.atLeast(uint32(n)) != 0 {
				t.Errorf("%d actors, the first %d: %v", actors, n, ta.top(n))
			}
		}
	}
}

// The heap holds the smallest ids that it was offered.
func TestSmallest(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		var s smallest
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
