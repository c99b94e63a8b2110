package format

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDateOf: a date is the second that a TID names; the record of a key without a time, or with one that no date can
// name, is one record.
func TestDateOf(t *testing.T) {
	const second = 1_000_000 << ClockBits
	for path, want := range map[*Path]uint32{
		{TID: 0}: 0, {TID: second - 1}: 0, {TID: second}: 1, {TID: 1_767_225_600*second + 5}: 1_767_225_600,
		{TID: (OneRecord-1)*second + second - 1}: OneRecord - 1, {TID: OneRecord * second}: OneRecord, {TID: Undated * second}: OneRecord, {TID: EndOfTime - 1}: OneRecord, {TID: EndOfTime}: OneRecord, {Raw: []byte("self")}: OneRecord,
	} {
		if got := DateOf(*path); got != want {
			t.Errorf("%+v has the date %d, want %d", path, got, want)
		}
	}
}

// TestOver: a leaf below the changes of a row is what a map comes to that makes the changes one by one: a member that is
// added while it is one is Undated. It makes no difference whether operands change the leaf one after the other, or are folded before.
func TestOver(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 21))
		_, ids, dates := randomSets(rng, 77, 60)
		known := dates
		if rng.IntN(3) == 0 {
			known = nil // of a leaf whose members are all of one record
		}
		want := map[uint64]uint32{}
		for i, id := range ids {
			if want[id] = dates[i]; known == nil {
				want[id] = OneRecord
			}
		}
		leaf, leafDates := ids, known
		var values [][]byte
		for range rng.IntN(4) {
			removed, members, of := randomSets(rng, 77, 60)
			for _, id := range removed {
				delete(want, id)
			}
			for i, id := range members {
				if _, is := want[id]; is {
					want[id] = Undated
				} else {
					want[id] = of[i]
				}
			}
			values = append(values, AppendRow(nil, 77, 0, removed, members, of))
			leaf, leafDates = Over(nil, nil, removed, members, of, leaf, leafDates)
		}
		_, removed, members, of, err := MergeRows(77, values...)
		got, gotDates := Over([]uint64{7}, []uint32{8}, removed, members, of, ids, known)
		wantIDs, wantDates := []uint64{7}, []uint32{8}
		for _, id := range slices.Sorted(maps.Keys(want)) {
			wantIDs, wantDates = append(wantIDs, id), append(wantDates, want[id])
		}
		if err != nil || !slices.Equal(got, wantIDs) || !slices.Equal(gotDates, wantDates) {
			t.Fatalf("seed %d: %v, %v, want %v, %v: %v", seed, got, gotDates, wantIDs, wantDates, err)
		}
		if len(values) > 0 && (!slices.Equal(leaf, wantIDs[1:]) || !slices.Equal(leafDates, wantDates[1:])) {
			t.Fatalf("seed %d: one by one %v, %v, want %v, %v", seed, leaf, leafDates, wantIDs[1:], wantDates[1:])
		}
	}
}
