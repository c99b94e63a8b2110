package format

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/intern/dict"
)

// TestDateOf: a date is the second that a TID names; a key without a time, or with one that no date can
// name, has none.
func TestDateOf(t *testing.T) {
	const second = 1_000_000 << ClockBits
	for path, want := range map[*Path]uint32{
		{TID: 0}: 0, {TID: second - 1}: 0, {TID: second}: 1, {TID: 1_767_225_600*second + 5}: 1_767_225_600,
		{TID: (OneRecord-1)*second + second - 1}: OneRecord - 1, {TID: OneRecord * second}: Undated, {TID: Undated * second}: Undated, {TID: EndOfTime - 1}: Undated, {TID: EndOfTime}: Undated, {Raw: []byte("self")}: Undated,
	} {
		if got := DateOf(*path); got != want {
			t.Errorf("%+v has the date %d, want %d", path, got, want)
		}
	}
}

// TestDatesKeys: the key of a block of dates names the set and the block, and no other key is one.
func TestDatesKeys(t *testing.T) {
	for _, subject := range []dict.ID{0, 1, 0xfdffffffff, 0xfe00000000, 1 << 63} {
		for _, id := range []uint64{0, 5, 4095, 4096, 0xfdffffffff, 0xfe00000000, 1<<64 - 1} {
			key := AppendDateBlock(AppendDatesKey(nil, 3, subject), id>>DateShift)
			if k, s, block, err := ParseDatesKey(key); err != nil || k != 3 || s != subject || block != id>>DateShift {
				t.Errorf("%x is of kind %d, set %d, block %d: %v", key, k, s, block, err)
			}
			for _, other := range [][]byte{key[:len(key)-1], append(slices.Clone(key), 0), append(slices.Clone(key[:len(key)-1]), 16), append([]byte{KeyReverse}, key[1:]...)} {
				if _, _, _, err := ParseDatesKey(other); err == nil && !bytes.Equal(other, key) && len(other) != len(key)+4 {
					t.Errorf("%x is a key of dates", other)
				}
			}
		}
	}
}

// TestFoldDates: blocks of dates fold to what a map comes to, in any grouping. A member that is added
// twice with different dates is undated, unless it was removed in between.
func TestFoldDates(t *testing.T) {
	key := AppendDateBlock(AppendDatesKey(nil, 1, 77), 9)
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 21))
		space := []int{3, 40, 1 << DateShift}[rng.IntN(3)]
		want := map[uint16]uint32{}
		var values [][]byte
		for range 1 + rng.IntN(40) {
			last := map[uint16]step{}
			for range 1 + rng.IntN(5) {
				last[uint16(rng.IntN(space))] = step{removed: rng.IntN(3) == 0, date: []uint32{5, 6, Undated}[rng.IntN(3)]}
			}
			var removed []uint16
			var present []Dated
			for _, m := range slices.Sorted(maps.Keys(last)) {
				s := last[m]
				if s.removed || rng.IntN(6) == 0 { // some are removed, and added again in the same value
					removed = append(removed, m)
					delete(want, m)
				}
				if !s.removed {
					present = append(present, Dated{m, s.date})
					if d, ok := want[m]; ok && d != s.date {
						s.date = Undated
					}
					want[m] = s.date
				}
			}
			values = append(values, AppendDates(nil, removed, present))
		}
		got := map[uint16]uint32{}
		v := foldInParts(t, rng, key, values)
		if err := EachDate(9<<DateShift, v, func(id uint64, date uint32) { got[uint16(id-9<<DateShift)] = date }); err != nil || !maps.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v: %v", seed, got, want, err)
		}
	}
}

// TestDatesRefused: no reader accepts a malformed block.
func TestDatesRefused(t *testing.T) {
	for name, v := range map[string][]byte{
		"a number that is cut": {0x80}, "fewer removed than their number": {2, 1, 0, 1}, "a present that is cut": {0, 1, 0, 1, 1, 1},
		"a member above the block": AppendDates(nil, nil, []Dated{{1 << DateShift, 1}}), "a removed above the block": AppendDates(nil, []uint16{1 << DateShift}, nil),
	} {
		err := EachDate(0, v, func(uint64, uint32) {})
		if _, folded := new(dateFolder).fold(nil, [][]byte{v}, false); folded == nil || err == nil && name != "a removed above the block" {
			t.Errorf("%s: %v, folded: %v", name, err, folded)
		}
	}
	twice := AppendDates(nil, nil, []Dated{{5, 1}, {5, 1}})
	if err := EachDate(0, twice, func(uint64, uint32) {}); err == nil {
		t.Error("a member twice is read")
	}
}
