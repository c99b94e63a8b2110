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
	for seed := range uint64(300) {
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

// TestContainerGolden fixes the bytes on disk. Every later program must read them.
func TestContainerGolden(t *testing.T) {
	for want, v := range map[string][]byte{
		"\x00\x01\x00":                 AppendContainer(nil, []uint16{1}, nil),
		"\x01\x02\x01":                 AppendContainer(nil, nil, []uint16{0x102}),
		"\x01\x05\x00\x01\x00\xff\xff": AppendContainer(nil, []uint16{1, 0xffff}, []uint16{5}),
	} {
		if string(v) != want {
			t.Errorf("%x, want %x", v, want)
		}
	}
	many := make([]uint16, ArrayMax)
	for i := range many {
		many[i] = uint16(i)
	}
	if v := AppendContainer(nil, many[:ArrayMax-1], nil); len(v) != 1+2*(ArrayMax-1) {
		t.Errorf("%d members take %d bytes", ArrayMax-1, len(v))
	}
	v := AppendContainer(nil, many, nil)
	if len(v) != 1+BitmapBytes || v[1] != 0xff || v[512] != 0xff || v[513] != 0 {
		t.Errorf("%d members take %d bytes", ArrayMax, len(v))
	}
}

// FuzzFold: no input makes a fold panic, or fold to a malformed value.
func FuzzFold(f *testing.F) {
	f.Add([]byte{0, 1, 0}, []byte{1, 1, 0}, true)
	f.Add([]byte{0xff, 0xff, 0x03, 0}, []byte{}, false)
	f.Fuzz(func(t *testing.T, a, b []byte, base bool) {
		v, err := foldContainers(nil, [][]byte{a, b}, base)
		if err != nil {
			return
		}
		if _, err := ContainerMembers(0, v); err != nil {
			t.Errorf("%x + %x folds to %x: %v", a, b, v, err)
		}
	})
}

func TestRepoState(t *testing.T) {
	for _, s := range []RepoState{
		{},
		{Flags: FlagHidden, AccountSource: 3, AccountSeq: 1 << 60},
		{Flags: FlagHasRev | FlagDesync, Source: 1, Seq: 31_527_015_322, Rev: 1 << 60, Data: Root{1, 2, 3}},
		{Flags: FlagHasRev, Source: 1, Seq: 5, Rev: 7, Top: 9, DeletionSource: 2, DeletionSeq: 4, AccountSource: 2, AccountSeq: 4},
	} {
		v := s.Append(nil)
		got, err := DecodeRepoState(v)
		if err != nil || got != s {
			t.Errorf("%+v became %+v, %v", s, got, err)
		}
		for n := range v {
			if got, err := DecodeRepoState(v[:n]); err == nil {
				t.Errorf("%x cut to %d is read as %+v", v, n, got)
			}
		}
	}
}
