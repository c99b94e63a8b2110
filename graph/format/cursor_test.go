package format

import (
	"testing"
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
