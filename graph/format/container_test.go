package format

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFold: any grouping of operands folds to the same as a map, and to the one form of its members.
func TestFold(t *testing.T) {
	key := AppendContainerKey(nil, AppendRowKey(nil, 1, 5), 3)
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 0))
		space := []int{8, 300, 65536}[rng.IntN(3)]
		want := map[uint16]bool{}
		var values [][]byte
		for range 1 + rng.IntN(40) {
			n := 1
			if rng.IntN(10) == 0 {
				n = rng.IntN(6000)
			}
			op := map[uint16]bool{}
			for range n {
				op[uint16(rng.IntN(space))] = rng.IntN(3) > 0
			}
			values = append(values, containerOf(op))
			maps.Copy(want, op)
		}
		whole := foldInParts(t, rng, key, values)
		maps.DeleteFunc(want, func(_ uint16, in bool) bool { return !in })
		if form := containerOf(want); len(want) > 0 && !bytes.Equal(whole, form) {
			t.Fatalf("seed %d: folding gives another form than %x", seed, form)
		}
		got, err := ContainerMembers(0, whole)
		if members := wide(slices.Sorted(maps.Keys(want)), 0); err != nil || !slices.Equal(got, members) {
			t.Fatalf("seed %d: %d members, want %d, %v", seed, len(got), len(members), err)
		}
		for range 100 {
			m := uint16(rng.IntN(space))
			if has, err := ContainerHas(whole, m); err != nil || has != want[m] {
				t.Fatalf("seed %d: has(%d) = %v, %v", seed, m, has, err)
			}
		}
	}
}

// containerOf returns an operand that adds and removes members.
func containerOf(op map[uint16]bool) []byte {
	var add, remove []uint16
	for _, m := range slices.Sorted(maps.Keys(op)) {
		if op[m] {
			add = append(add, m)
		} else {
			remove = append(remove, m)
		}
	}
	return AppendContainer(nil, add, remove)
}

// wide turns members into ids.
func wide(members []uint16, base uint64) (out []uint64) {
	for _, m := range members {
		out = append(out, base+uint64(m))
	}
	return out
}

// TestContainersRefused: every reader refuses malformed containers.
func TestContainersRefused(t *testing.T) {
	for name, v := range map[string][]byte{
		"a number of removed that is cut":      {0x80},
		"fewer removed than their number":      {2, 1, 0},
		"half a removed":                       {1, 1},
		"half a member":                        {0, 1},
		"half a member after the removed":      {1, 1, 0, 2},
		"more removed than there are members":  append(binary.AppendUvarint(nil, 1<<16+1), make([]byte, 2<<16+2)...),
		"a number of removed that overflows":   append(binary.AppendUvarint(nil, 1<<63), make([]byte, 8)...),
		"more present than a bitmap":           append([]byte{0}, make([]byte, BitmapBytes+2)...),
		"a number of removed of eleven bytes":  {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
		"a number of removed beyond 64 bits":   {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2},
		"the highest number of removed, twice": append(binary.AppendUvarint(nil, 1<<64-1), make([]byte, 20)...),
	} {
		_, _, err := SplitContainer(v)
		_, err1 := ContainerMembers(0, v)
		_, err2 := ContainerHas(v, 1)
		_, err3 := foldContainers(nil, [][]byte{AppendContainer(nil, []uint16{1}, nil), v}, true)
		if err == nil || err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("%s: %v, %v, %v, %v", name, err, err1, err2, err3)
		}
	}
	// An empty value is an empty container.
	if has, err := ContainerHas(nil, 0); has || err != nil {
		t.Errorf("an empty value has member 0: %v", err)
	}
}

// TestTakeBlock: TakeBlock takes the ids of one block and leaves the rest.
func TestTakeBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 0))
	for range 300 {
		var ids []uint64
		for range rng.IntN(50) {
			ids = append(ids, rng.Uint64N(4)<<16|rng.Uint64N(3)<<15|rng.Uint64N(100))
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		rest := slices.Clone(ids)
		var got []uint64
		for block := range uint64(7) {
			var taken []uint16
			if taken, rest = TakeBlock([]uint16{9}, rest, block); taken[0] != 9 {
				t.Fatalf("block %d of %v: the list begins with %d", block, ids, taken[0])
			}
			got = append(got, wide(taken[1:], block<<16)...)
		}
		if !slices.Equal(got, ids) || len(rest) != 0 {
			t.Fatalf("the blocks of %v are %v, and %v is left", ids, got, rest)
		}
	}
	if taken, rest := TakeBlock(nil, []uint64{3 << 16}, 2); len(taken) != 0 || len(rest) != 1 {
		t.Errorf("block 2 takes %v of block 3", taken)
	}
}
