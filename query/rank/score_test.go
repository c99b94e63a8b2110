package rank

import (
	"cmp"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/query/language"
)

// slowScore returns a score in millionths, by the definition.
func slowScore(by string, st *Standing, e *Result) uint64 {
	rat := func(n uint64) *big.Rat { return new(big.Rat).SetInt(new(big.Int).SetUint64(n)) }
	score := new(big.Rat).Quo(rat(uint64(e.Count)), rat(max(e.Total, 1)))
	if by == language.ByLift {
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
// have. Beyond the largest integer they are the largest integer, and do not wrap.
func TestScoresAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50_000 {
		st := &Standing{Accounts: max(drawn(rng, []int{40, 63}[rng.IntN(2)]), 1), Of: drawn(rng, 31)}
		e := &Result{ID: drawn(rng, 40), Count: uint32(drawn(rng, 32)), Total: drawn(rng, 32)}
		for _, by := range []string{language.ByShare, language.ByLift} {
			if got, want := st.Score(by, e), slowScore(by, st, e); got != want {
				t.Fatalf("%s of %+v, %d accounts, %d members: %d, want %d", by, *e, st.Accounts, st.Of, got, want)
			}
		}
	}
}

// slowOrder compares two results by the definition of their rank.
func slowOrder(by string, x, y Result) int {
	if by != language.ByCount {
		share := func(e Result) *big.Rat { return big.NewRat(int64(e.Count), int64(max(e.Total, 1))) }
		if c := share(y).Cmp(share(x)); c != 0 {
			return c
		}
	}
	if x.Count != y.Count {
		return cmp.Compare(y.Count, x.Count)
	}
	return cmp.Compare(x.ID, y.ID)
}

// The order is that of exact fractions. Equal results are ordered by count and id, so that there
// is one order only.
func TestOrderIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	result := func() Result {
		if rng.IntN(2) == 0 { // many ties
			return Result{ID: uint64(rng.IntN(3)), Count: uint32(1 + rng.IntN(4)), Total: uint64(rng.IntN(9))}
		}
		near := uint64(1)<<31 + uint64(rng.IntN(3)) // fractions that differ by less than a float64 does
		return Result{ID: uint64(rng.IntN(3)), Count: uint32(near) - uint32(rng.IntN(2)), Total: near}
	}
	for range 30_000 {
		x, y := result(), result()
		for _, by := range []string{language.ByCount, language.ByShare, language.ByLift} {
			got := inOrder(by, x, y)
			if got != slowOrder(by, x, y) || got != -inOrder(by, y, x) || got == 0 && by == language.ByCount && (x.ID != y.ID || x.Count != y.Count) {
				t.Fatalf("%s: %+v and %+v: %d, want %d", by, x, y, got, slowOrder(by, x, y))
			}
		}
	}
	for range 200 {
		var all []Result
		for i := range 50 {
			r := result()
			r.ID = uint64(i)
			all = append(all, r)
		}
		for _, by := range []string{language.ByCount, language.ByShare, language.ByLift} {
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
