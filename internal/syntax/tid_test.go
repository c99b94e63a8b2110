package syntax

import (
	"testing"

	indigo "github.com/bluesky-social/indigo/atproto/syntax"
)

// TIDs sort like their numbers, and indigo parses them to the same numbers.
func TestTID(t *testing.T) {
	last := ""
	for n := uint64(1); n < 1<<63; n = n*3 + 1 {
		s := string(AppendTID(nil, n))
		if got, ok := ParseTID(s); !ok || got != n || s <= last {
			t.Errorf("%d is %q after %q, parsed as %d, %v", n, s, last, got, ok)
		}
		tid, err := indigo.ParseTID(s)
		if err != nil || tid.Integer() != n || uint64(tid.Time().UnixMicro()) != n>>10 {
			t.Errorf("%d is %q, indigo says %d, %v", n, s, tid.Integer(), err)
		}
		last = s
	}
}
