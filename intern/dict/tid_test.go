package dict

import (
	"bytes"
	"math"
	"math/rand/v2"
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

// The first TID from a text on does not sort before it, and the TID before that one does.
func TestFirstTID(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const bytesAround = "\x00-1234567:@Zabcijkyz{~\xff"
	for range 200_000 {
		s := AppendTID(nil, rng.Uint64()>>rng.IntN(64))
		if rng.IntN(3) == 0 {
			s = AppendTID(nil, math.MaxUint64-rng.Uint64N(100)>>rng.IntN(8))
		}
		if rng.IntN(2) == 0 {
			s = s[:rng.IntN(14)]
		}
		for range rng.IntN(3) {
			if len(s) > 0 && rng.IntN(2) == 0 {
				s[rng.IntN(len(s))] = bytesAround[rng.IntN(len(bytesAround))]
			} else {
				s = append(s, bytesAround[rng.IntN(len(bytesAround))])
			}
		}
		tid, ok := FirstTID(s)
		last := AppendTID(nil, tid-1)
		if !ok {
			last = AppendTID(nil, math.MaxUint64)
		}
		if ok && bytes.Compare(AppendTID(nil, tid), s) < 0 || (!ok || tid > 0) && bytes.Compare(last, s) >= 0 {
			t.Fatalf("the first TID from %q on is %d, %t", s, tid, ok)
		}
	}
}
