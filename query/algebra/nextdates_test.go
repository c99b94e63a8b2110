package algebra

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// nextDates keeps exactly the members with the first dates, and all of the last second, in whatever order they come.
func TestNextDates(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		need, seconds := 1+rng.IntN(200), 1+rng.IntN(20_000)
		all := make([]datedID, rng.IntN(20_000))
		for i := range all {
			all[i] = datedID{uint32(rng.IntN(seconds)), uint64(i)}
		}
		switch rng.IntN(3) {
		case 0:
			slices.SortFunc(all, func(x, y datedID) int { return cmp.Compare(x.rank, y.rank) })
		case 1:
			slices.SortFunc(all, func(x, y datedID) int { return cmp.Compare(y.rank, x.rank) })
		default:
		}
		b := nextDates{need: need, last: math.MaxUint32}
		var want []datedID
		for _, d := range all {
			if d.rank <= b.last {
				b.add(d.id, d.rank)
			}
			want = append(want, d)
		}
		b.trim()
		order := func(x, y datedID) int { return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.id, y.id)) }
		slices.SortFunc(want, order)
		if len(want) > need {
			last := want[need-1].rank
			want = slices.DeleteFunc(want, func(d datedID) bool { return d.rank > last })
		}
		if slices.SortFunc(b.dated, order); !slices.Equal(b.dated, want) {
			t.Fatalf("need %d of %d: %d members, want %d", need, len(all), len(b.dated), len(want))
		}
	}
}
