package write

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A value alone folds to the same row, whether it is folded before it meets the oldest value or not: random operands,
// small and large, in one, two or three steps. Those that are too large are marked although nothing was merged.
func TestFoldOfOne(t *testing.T) {
	const subject = dict.ID(1 << 20)
	key := format.AppendRowKey(nil, kinds.ByName("follow").Kind, subject)
	m := NewMerger(Limits{Row: 16, Chunk: 16})
	fold := func(base bool, values ...[]byte) []byte {
		t.Helper()
		out, err := m.Fold(nil, key, values, base)
		must(t, err)
		return out
	}
	for n := range 64 {
		var removed, members []uint64
		for i := range n {
			id := uint64(subject) + uint64(3*i)
			if members = append(members, id); i%3 == 0 {
				removed = append(removed, id, id+1)
			}
		}
		operand := format.AppendRow(nil, subject, 0, removed, members, make([]uint32, n))
		older := format.AppendRow(nil, subject, 0, nil, []uint64{uint64(subject) + 1, uint64(subject) + 2, uint64(subject) + 3}, nil)
		_ = m.TakeLarge(10, func(string) bool { return true })
		once := fold(false, operand)
		if marked := len(m.TakeLarge(10, func(string) bool { return true })) > 0; marked != (len(removed)+n > 16) {
			t.Errorf("%d members and %d removed are marked as large: %v", n, len(removed), marked)
		}
		for _, values := range [][][]byte{{operand}, {older, operand}, {operand, older}} {
			direct := fold(true, values...)
			var steps [][]byte
			for _, v := range values {
				steps = append(steps, fold(false, fold(false, v)))
			}
			if got := fold(true, steps...); !bytes.Equal(got, direct) {
				t.Fatalf("%d members: %x, want %x", n, got, direct)
			}
		}
		if len(removed) > 0 {
			r, err := format.ParseRow(subject, fold(true, once))
			if err != nil || len(r.Removed) > 0 {
				t.Fatalf("%d members: the oldest value has removals: %+v, %v", n, r, err)
			}
		}
	}
	if got := fold(false, []byte("not a row")); !slices.Equal(got, []byte("not a row")) {
		t.Errorf("a small value alone is not as it was: %q", got)
	}
}

// However many values of other writers are read, those of this one are spilled.
func TestManyLarge(t *testing.T) {
	m := NewMerger(Limits{})
	for n := range 3 * maxLarge {
		m.MarkLarge(fmt.Append(nil, n))
	}
	m.MarkLarge([]byte("mine"))
	if mine := m.TakeLarge(10, func(key string) bool { return key == "mine" }); len(mine) != 1 || len(m.large) != maxLarge-1 {
		t.Errorf("%q are spilled, and %d wait", mine, len(m.large))
	}
}
