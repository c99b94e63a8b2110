package format

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is a container as a map from members to whether they are present.
type twin map[uint16]bool

func (w twin) apply(v []byte) error {
	removed, present, err := SplitContainer(v)
	if err != nil {
		return err
	}
	for i := 0; i < len(removed); i += 2 {
		w[binary.LittleEndian.Uint16(removed[i:])] = false
	}
	members, err := ContainerMembers(0, append([]byte{0}, present...))
	for _, m := range members {
		w[uint16(m)] = true
	}
	return err
}

func (w twin) members() (out []uint64) {
	for m, in := range w {
		if in {
			out = append(out, uint64(m))
		}
	}
	slices.Sort(out)
	return out
}

// TestFold: any grouping of operands, small or large, folds to the same as a map.
func TestFold(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 0))
		space := []int{8, 300, 65536}[rng.IntN(3)]
		want := twin{}
		var values [][]byte
		for range 1 + rng.IntN(40) {
			n := 1
			if rng.IntN(10) == 0 {
				n = rng.IntN(6000)
			}
			op := twin{}
			for range n {
				op[uint16(rng.IntN(space))] = rng.IntN(3) > 0
			}
			var add, remove []uint16
			for _, m := range slices.Sorted(maps.Keys(op)) {
				if op[m] {
					add = append(add, m)
				} else {
					remove = append(remove, m)
				}
			}
			v := AppendContainer(nil, add, remove)
			values = append(values, v)
			if err := want.apply(v); err != nil {
				t.Fatal(err)
			}
		}
		whole, err := foldContainers(nil, values, true)
		if err != nil {
			t.Fatal(err)
		}
		// Fold random neighbours first, as an engine does.
		for len(values) > 1 {
			i := rng.IntN(len(values) - 1)
			n := min(2+rng.IntN(3), len(values)-i)
			v, err := foldContainers(nil, values[i:i+n], i == 0 && rng.IntN(2) == 0)
			if err != nil {
				t.Fatal(err)
			}
			values = slices.Replace(values, i, i+n, v)
		}
		parts, err := foldContainers(nil, values, true)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, parts) {
			t.Fatalf("seed %d: folding in parts gives another value", seed)
		}
		if form := AppendContainer(nil, narrow(want.members()), nil); len(want.members()) > 0 && !bytes.Equal(whole, form) {
			t.Fatalf("seed %d: folding gives another form than %x", seed, form)
		}
		got, err := ContainerMembers(0, whole)
		if err != nil || !slices.Equal(got, want.members()) {
			t.Fatalf("seed %d: %d members, want %d, %v", seed, len(got), len(want.members()), err)
		}
		if len(whole) > 1+BitmapBytes {
			t.Errorf("seed %d: %d bytes", seed, len(whole))
		}
		for range 100 {
			m := uint16(rng.IntN(space))
			if has, err := ContainerHas(whole, m); err != nil || has != want[m] {
				t.Fatalf("seed %d: has(%d) = %v, %v", seed, m, has, err)
			}
		}
	}
}

// narrow turns the ids of block 0 into members.
func narrow(ids []uint64) []uint16 {
	members, _ := TakeBlock(nil, ids, 0)
	return members
}
