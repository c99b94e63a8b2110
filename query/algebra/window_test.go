package algebra

import (
	"math/rand/v2"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/query/language"
)

// A window has exactly the whole microseconds from since on and before until, and none if these
// lie outside of the times that record keys can name.
func TestWindowsHaveTheirTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	draw := func() time.Time {
		at := time.Date(1960+rng.IntN(310), 1, 1+rng.IntN(365), 0, 0, 0, 0, time.UTC)
		if rng.IntN(3) == 0 { // near the first and the last time
			at = time.UnixMicro([]int64{0, 1<<53 - 1, 1 << 53, noon.UnixMicro()}[rng.IntN(4)])
		}
		return at.Add(time.Duration(rng.Int64N(5000) - 2500)).In(time.FixedZone("", (rng.IntN(27)-13)*3600))
	}
	empty, some := 0, 0
	for range 20_000 {
		since, until := draw(), draw()
		if rng.IntN(2) == 0 {
			until = since.Add(time.Duration(rng.Int64N(4000)))
		}
		texts := [2]string{since.Format(time.RFC3339Nano), until.Format(time.RFC3339Nano)}
		has := [2]bool{rng.IntN(4) > 0, rng.IntN(4) > 0}
		for i := range texts {
			if !has[i] {
				texts[i] = ""
			}
		}
		w, isAge, err := language.ParseWindow(texts[0], texts[1], noon)
		if bad := has[0] && has[1] && !since.Before(until); (err != nil) != bad || isAge {
			t.Fatalf("%q: %v, an age: %v", texts, err, isAge)
		}
		if err != nil {
			continue
		}
		if w.All() != (!has[0] && !has[1]) {
			t.Fatalf("%q: %+v", texts, w)
		}
		for range 8 {
			micro := []time.Time{since, until, draw()}[rng.IntN(3)].UnixMicro() + int64(rng.IntN(5)) - 2
			if micro < 0 || micro >= 1<<53 {
				continue
			}
			at := time.UnixMicro(micro)
			want := (!has[0] || !at.Before(since)) && (!has[1] || at.Before(until))
			p := format.Path{TID: uint64(micro)<<format.ClockBits | rng.Uint64N(1<<format.ClockBits)}
			if got := Within(w).Has(p); got != want {
				t.Fatalf("%v in %q: %v, want %v", at, texts, got, want)
			}
			if some++; !want {
				empty++
			}
		}
		if odd := (format.Path{Raw: []byte("self")}); Within(w).Has(odd) && !w.All() {
			t.Fatalf("a key that is not a time is in %q", texts)
		}
	}
	if empty < 1000 || some-empty < 1000 {
		t.Errorf("%d times, %d of them in no window", some, empty)
	}
}
