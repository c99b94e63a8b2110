package format

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCursorCovers: a cursor covers the events up to its own, and nothing if it is in doubt.
func TestCursorCovers(t *testing.T) {
	for _, c := range []struct {
		row              CursorRow
		isCursor         bool
		before, at, next bool
	}{
		{CursorRow{}, false, false, false, false},
		{CursorRow{Number: 1, Seq: 10}, true, true, true, false},
		{CursorRow{Number: 1, Seq: 10, Future: true}, true, false, false, false},
		{CursorRow{Number: 1, Live: true}, false, false, false, false},
		{CursorRow{Seq: 10}, false, false, false, false},
	} {
		if c.row.IsCursor() != c.isCursor || c.row.Covers(9) != c.before || c.row.Covers(10) != c.at || c.row.Covers(11) != c.next {
			t.Errorf("%+v: %v, covers %v, %v, %v", c.row, c.row.IsCursor(), c.row.Covers(9), c.row.Covers(10), c.row.Covers(11))
		}
	}
}

// TestCursorRows: random rows survive a round trip, to the microsecond.
func TestCursorRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(50, 0))
	for range 1000 {
		at := time.Unix(rng.Int64N(1<<34)-1<<33, rng.Int64N(1e9))
		c := CursorRow{Number: rng.Uint32(), Seq: Seq(rng.Uint64()), Time: at, Future: rng.IntN(2) == 0, Live: rng.IntN(2) == 0}
		got, err := DecodeCursor(c.Value())
		if err != nil || !got.Time.Equal(at.Truncate(time.Microsecond)) {
			t.Fatalf("%v became %v, %v", at, got.Time, err)
		}
		if got.Time = c.Time; got != c {
			t.Fatalf("%+v became %+v", c, got)
		}
	}
	if got, err := DecodeCursor(CursorRow{}.Value()); err != nil || !got.Time.IsZero() {
		t.Errorf("the zero time became %v, %v", got.Time, err)
	}
	for _, n := range []int{0, 20, 22} {
		if c, err := DecodeCursor(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are read as %+v", n, c)
		}
	}
}
