package consumer

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skein.blue/consumer/proof"
	"skein.blue/graph/format"
)

// feedNumbers offers numbers, and returns the accepted ones in order.
func feedNumbers(n *numbering, now time.Time, seqs ...format.Seq) (taken []format.Seq) {
	for _, seq := range seqs {
		v := n.offer(seq, binary.BigEndian.AppendUint64(nil, uint64(seq)), proof.Ruling{}, now)
		taken = append(taken, frameSeqs(v)...)
		if v.accept {
			taken = append(taken, seq)
		}
	}
	return taken
}

func frameSeqs(v decision) (seqs []format.Seq) {
	for _, f := range v.frames {
		seqs = append(seqs, format.Seq(binary.BigEndian.Uint64(f.frame)))
	}
	return seqs
}

func TestNumbering(t *testing.T) {
	now := time.Unix(1000, 0)
	const far = 1 << 40
	for name, c := range map[string]struct {
		last   format.Seq
		seqs   []format.Seq
		want   []format.Seq // accepted at once
		later  []format.Seq // accepted after jumpHold
		cursor format.Seq   // at the end
	}{
		"in order":                        {5, []format.Seq{6, 7, 9}, []format.Seq{6, 7, 9}, nil, 9},
		"older and repeated":              {5, []format.Seq{5, 3, 6, 6}, []format.Seq{6}, nil, 6},
		"one absurd":                      {5, []format.Seq{far, 6, 7}, []format.Seq{6, 7}, nil, 7},
		"two absurd":                      {5, []format.Seq{far, far + 1, 6}, []format.Seq{6}, nil, 6},
		"absurd, then silence":            {5, []format.Seq{far}, nil, nil, 5},
		"absurd beyond all numbers":       {5, []format.Seq{1 << 60, 1<<60 + 1, 1<<60 + 2, 1<<60 + 3, 1<<60 + 4}, nil, nil, 5},
		"a jump":                          {5, []format.Seq{far, far + 1, far + 2, far + 3, far + 4}, []format.Seq{far, far + 1, far + 2, far + 3, far + 4}, nil, far + 4},
		"a jump, with an absurd one":      {5, []format.Seq{far, 2 * far, far + 1, far + 2, far + 3}, []format.Seq{far, far + 1, far + 2, far + 3}, nil, far + 3},
		"first, few":                      {0, []format.Seq{100, 101}, nil, []format.Seq{100, 101}, 0},
		"first, enough":                   {0, []format.Seq{100, 101, 103, 104}, []format.Seq{100, 101, 103, 104}, nil, 104},
		"first absurd":                    {0, []format.Seq{far, 100, 101, 102, 103}, []format.Seq{100, 101, 102, 103}, nil, 103},
		"first two absurd":                {0, []format.Seq{far, far + 1, 100, 101, 102, 103}, []format.Seq{100, 101, 102, 103}, nil, 103},
		"first absurd, then one":          {0, []format.Seq{far, 100}, nil, []format.Seq{far, 100}, 0},
		"first absurd beyond all numbers": {0, []format.Seq{1 << 60}, nil, nil, 0},
		"first, and a jump":               {0, []format.Seq{10, far, far + 1, far + 2, far + 3}, []format.Seq{10, far, far + 1, far + 2, far + 3}, nil, far + 3},
		"first, and an older one":         {0, []format.Seq{10, 9, 11, 12, 13}, []format.Seq{9, 10, 11, 12, 13}, nil, 13},
		"first alone":                     {0, []format.Seq{26_000_000_000}, nil, []format.Seq{26_000_000_000}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := numbering{last: c.last}
			if got := feedNumbers(&n, now, c.seqs...); !slices.Equal(got, c.want) {
				t.Errorf("accepted %v, want %v", got, c.want)
			}
			if v := n.expire(now.Add(firstHold / 2)); v.frames != nil || v.refuted != nil {
				t.Errorf("decided too soon: %+v", v)
			}
			if got := frameSeqs(n.expire(now.Add(jumpHold))); !slices.Equal(got, c.later) {
				t.Errorf("accepted %v at the end, want %v", got, c.later)
			}
			if n.last != c.cursor || n.last > 0 && len(n.held) != 0 {
				t.Errorf("cursor %d, want %d; %d held", n.last, c.cursor, len(n.held))
			}
			if n.last > 0 || len(c.later) == 0 {
				return
			}
			// Events that were accepted without their numbers are not repeated once
			// the numbers are known, and do not drop the events after them.
			if got := feedNumbers(&n, now, 200, 201, 202, 203, 204); n.last != 204 || len(got) != 5 || got[0] != 200 {
				t.Errorf("afterwards accepted %v, cursor %d", got, n.last)
			}
		})
	}
}

// However absurd numbers are strewn in, up to three in a row, all others are
// accepted in order, and none of the absurd ones.
func TestNumberingIsNotPoisoned(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(1000, 0)
		var n numbering
		var stream, want []format.Seq
		seq := format.Seq(rng.Int64N(1 << 40))
		if rng.IntN(2) == 0 {
			n.last = seq
		}
		for range 60 {
			if rng.IntN(4) == 0 {
				absurd := format.Seq(1<<41 + rng.Int64N(1<<61))
				for range 1 + rng.IntN(3) {
					stream = append(stream, absurd)
					absurd += format.Seq(1 + rng.Int64N(5))
				}
			}
			for range confirmEvents { // with fewer, nobody could tell which are absurd
				seq += format.Seq(1 + rng.Int64N(1000))
				stream, want = append(stream, seq), append(want, seq)
			}
		}
		if got := feedNumbers(&n, now, stream...); !slices.Equal(got, want) {
			t.Fatalf("seed %d: accepted %d, want %d: %v of %v", seed, len(got), len(want), got, stream)
		}
	}
}
