package format

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/intern/dict"
)

// randomSets draws two disjoint, ascending sets of ids.
func randomSets(rng *rand.Rand, around uint64, most int) (removed, members []uint64) {
	said := map[uint64]bool{}
	for range rng.IntN(most + 1) {
		id := rng.Uint64() >> rng.IntN(64)
		if rng.IntN(3) > 0 {
			id = around + uint64(rng.IntN(400)) - 200 // it may wrap around
		}
		said[id] = rng.IntN(3) > 0
	}
	for id, present := range said {
		if present {
			members = append(members, id)
		} else {
			removed = append(removed, id)
		}
	}
	slices.Sort(removed)
	slices.Sort(members)
	return removed, members
}

// TestRowsRoundTrip: a row knows each of its ids, and does not know their neighbours or the
// ends of the range. Alone, it folds to itself; the oldest drops removed members.
func TestRowsRoundTrip(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 10))
		subject := randomID(rng)
		removed, members := randomSets(rng, uint64(subject), 60)
		if rng.IntN(2) == 0 {
			removed = nil // as nearly all rows are
		}
		generation := max(rng.Uint64N(6), 2) - 2
		v := AppendRow([]byte("x"), subject, generation, removed, members)[1:]
		r, err := ParseRow(subject, v)
		if err != nil || r.Generation != generation {
			t.Fatalf("seed %d: generation %d of %x: %v", seed, r.Generation, v, err)
		}
		gotMembers, err1 := r.AppendMembers([]uint64{7})
		gotRemoved, err2 := r.AppendRemoved([]uint64{7})
		if err1 != nil || err2 != nil || !slices.Equal(gotMembers, append([]uint64{7}, members...)) || !slices.Equal(gotRemoved, append([]uint64{7}, removed...)) {
			t.Fatalf("seed %d: %x holds %v and %v, want %v and %v; %v %v", seed, v, gotMembers, gotRemoved, members, removed, err1, err2)
		}
		for _, base := range []bool{false, true} {
			want, n := v, len(removed)+len(members)
			if base && generation == 0 {
				want, n = AppendRow(nil, subject, 0, nil, members), len(members)
			}
			got, size, err := new(Folder).Fold([]byte("x"), shared.AppendMemberKey(nil, 1, subject, 5), [][]byte{v}, base)
			if err != nil || string(got) != "x"+string(want) || size != (Folded{Entries: n}) {
				t.Fatalf("seed %d: %x folds to %x, %+v, %v; want %x", seed, v, got, size, err, want)
			}
		}
		for _, id := range slices.Concat(members, removed, []uint64{0, uint64(subject), 1<<64 - 1}) {
			for _, id := range []uint64{id - 1, id, id + 1} {
				if r.Has(id) != slices.Contains(members, id) || r.HasRemoved(id) != slices.Contains(removed, id) {
					t.Fatalf("seed %d: %x has %d: %v, removed: %v", seed, v, id, r.Has(id), r.HasRemoved(id))
				}
			}
		}
	}
}

// TestRowsRefused: every reader of a list refuses a malformed one.
func TestRowsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		v    []byte
	}{
		{"a head that is cut", []byte{0x81}},
		{"a head of eleven bytes", []byte{0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}},
		{"no number of removed", []byte{3}},
		{"a number of removed that is cut", []byte{3, 0x80}},
		{"fewer removed than their number", []byte{3, 2, 4}},
		{"a removed that is cut", []byte{3, 1, 0x84}},
		{"more removed than there are bytes", []byte{3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 4, 4}},
		{"a first member that is cut", []byte{0x84}},
		{"a next member that is cut", []byte{4, 0x81}},
		{"a member twice", []byte{4, 0}},
		{"a removed twice", []byte{3, 2, 4, 0}},
		{"members that go round the end", []byte{4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
		{"a first member cut after the removed", []byte{3, 1, 4, 0x80}},
		{"a member of a spilled row that is removed", AppendRow(nil, goldenSubject, 3, []uint64{7, 9}, []uint64{9, 11})},
	} {
		r, err := ParseRow(goldenSubject, c.v)
		if err == nil {
			_, err = r.AppendMembers(nil)
		}
		if err == nil {
			_, err = r.AppendRemoved(nil)
		}
		if err == nil && !strings.Contains(c.name, "spilled") { // folds check it
			t.Errorf("%s: %x is read", c.name, c.v)
		}
		key := AppendRowKey(nil, 1, goldenSubject)
		for _, base := range []bool{false, true} {
			if v, _, err := new(Folder).Fold(nil, key, [][]byte{c.v, AppendRow(nil, goldenSubject, 0, nil, []uint64{5})}, base); err == nil {
				t.Errorf("%s: %x folds to %x", c.name, c.v, v)
			}
		}
	}
}

// TestGenerationsOfAFold: a row has the generation of its last spill, so a row that was spilled twice never looks like
// its state in between. A chunk, which spills do not merge, has the highest generation of its values.
func TestGenerationsOfAFold(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 0))
	c := CoderOf(1, 5, 1650)
	for range 500 {
		var rows, chunks [][]byte
		highest, last := uint64(0), uint64(0)
		for range 1 + rng.IntN(5) {
			g := rng.Uint64N(4)
			if highest = max(highest, g); g > 0 {
				last = g
			}
			rows = append(rows, AppendRow(nil, 5, g, nil, []uint64{9}))
			chunks = append(chunks, c.Append(nil, g, []Record{{Path: Path{TID: 1650<<BucketShift | 7}, Subject: 3}}))
		}
		v, _, err := new(Folder).Fold(nil, AppendRowKey(nil, 1, 5), rows, true)
		r, err1 := ParseRow(dict.ID(5), v)
		w, _, err2 := new(Folder).Fold(nil, AppendChunkKey(nil, 1, 5, Path{TID: 1650 << BucketShift}, 0), chunks, true)
		records, g, err3 := c.Read(nil, w, 0)
		if err != nil || err1 != nil || err2 != nil || err3 != nil || r.Generation != last || g != highest || len(records) != 1 {
			t.Fatalf("%x is of generation %d, %x of %d; want %d and %d", rows, r.Generation, chunks, g, last, highest)
		}
	}
}
