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

// A transaction has none of the previous one's writes, and the memory of a large one is
// released.
func TestWritesAreReset(t *testing.T) {
	var w writes
	for _, size := range []int{10, maxKeptWrites + 1, 10} {
		w.reset()
		if len(w.ops) != 0 || len(w.arena) != 0 || w.ranges || cap(w.arena) > maxKeptWrites {
			t.Errorf("%d operations, %d bytes, %v, room for %d", len(w.ops), len(w.arena), w.ranges, cap(w.arena))
		}
		w.add(writeSet, []byte("k"), make([]byte, size))
		w.add(writeDeleteRange, []byte("a"), []byte("b"))
		if len(w.ops) != 2 || len(w.arena) != size+3 || !w.ranges || w.full() {
			t.Errorf("%d operations, %d bytes, %v", len(w.ops), len(w.arena), w.ranges)
		}
	}
}

// A memtable takes two ninths of the memory, within bounds.
func TestMemtableSize(t *testing.T) {
	for memory, want := range map[int64]int64{0: 4 << 20, 1 << 20: 4 << 20, 18 << 20: 4 << 20, 36 << 20: 8 << 20, 576 << 20: 128 << 20, 1 << 40: 128 << 20} {
		if got := memtableSize(memory); got != want {
			t.Errorf("memory %d: got %d, want %d", memory, got, want)
		}
	}
}
