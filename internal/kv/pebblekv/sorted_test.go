package pebblekv

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The radix sort sorts as the stable sort of package slices.
func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var w writes
	for round := range 300 {
		w.reset()
		type op struct{ key, value []byte }
		var want []op
		n := rng.IntN(400)
		for i := range n {
			key := make([]byte, rng.IntN(12))
			for j := range key {
				key[j] = byte(rng.IntN(1 + round%4*80)) // many equal keys and prefixes
			}
			value := fmt.Append(nil, i)
			w.add(writeMerge, key, value)
			want = append(want, op{key, value})
		}
		slices.SortStableFunc(want, func(x, y op) int { return bytes.Compare(x.key, y.key) })
		w.sort()
		for i, o := range w.ops {
			key, value := w.arena[o.at:o.at+o.key], w.arena[o.at+o.key:o.at+o.key+o.value]
			if !bytes.Equal(key, want[i].key) || !bytes.Equal(value, want[i].value) {
				t.Fatalf("round %d: at %d of %d: %x, %s, want %x, %s", round, i, n, key, value, want[i].key, want[i].value)
			}
		}
	}
}
