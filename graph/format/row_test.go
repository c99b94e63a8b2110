package format

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/intern/dict"
)

// randomDate draws dates of few values, so that two members, or two records of one, often have the same.
func randomDate(rng *rand.Rand) uint32 {
	return []uint32{0, 5, 6, OneRecord - 1, OneRecord, Undated}[rng.IntN(6)]
}

// randomSets draws two ascending sets of ids, which may have some in common, and dates of the members: all OneRecord, or
// these and Undated, or any.
func randomSets(rng *rand.Rand, around uint64, most int) (removed, members []uint64, dates []uint32) {
	of := map[uint64]int{}
	for range rng.IntN(most + 1) {
		id := rng.Uint64() >> rng.IntN(64)
		if rng.IntN(3) > 0 {
			id = around + uint64(rng.IntN(400)) - 200 // it may wrap around
		}
		of[id] = rng.IntN(7)
	}
	known := rng.IntN(3)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if of[id] < 3 {
			removed = append(removed, id)
		}
		if of[id] > 1 {
			d := randomDate(rng)
			if known < 2 {
				d = max(d, OneRecord)
			}
			if known < 1 {
				d = OneRecord
			}
			members, dates = append(members, id), append(dates, d)
		}
	}
	return removed, members, dates
}

// TestRowsRoundTrip: a row knows each of its ids, and the dates of its members, and does not know their neighbours or the
// ends of the range. Alone, it folds to itself; the oldest drops removed members, and all dates but that a member is Undated.
func TestRowsRoundTrip(t *testing.T) {
	forms := map[byte]int{}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 10))
		subject := randomID(rng)
		removed, members, dates := randomSets(rng, uint64(subject), 60)
		if rng.IntN(2) == 0 {
			removed = nil // as nearly all rows are
		}
		generation := max(rng.Uint64N(6), 2) - 2
		v := AppendRow([]byte("x"), subject, generation, removed, members, dates)[1:]
		r, err := ParseRow(subject, v)
		if err != nil || r.Generation != generation {
			t.Fatalf("seed %d: generation %d of %x: %v", seed, r.Generation, v, err)
		}
		// The form that is written is the shortest that has all dates.
		dated := slices.ContainsFunc(dates, func(d uint32) bool { return d < OneRecord })
		undated := !dated && slices.Contains(dates, Undated)
		switch {
		case dated != (r.Dates != nil) || undated != (len(r.Undated) > 0):
			t.Fatalf("seed %d: %v has the form %x", seed, dates, v)
		case dated:
			forms[v[0]]++
		case undated:
			forms[undatedMembers]++
		default:
			if bare := AppendRow(nil, subject, generation, removed, members, nil); !bytes.Equal(v, bare) {
				t.Fatalf("seed %d: %x without dates is %x", seed, v, bare)
			}
		}
		gotMembers, err1 := r.AppendMembers([]uint64{7})
		gotRemoved, err2 := r.AppendRemoved([]uint64{7})
		gotDates, err3 := r.AppendDates([]uint32{7}, members)
		if err := errors.Join(err1, err2, err3); err != nil || !slices.Equal(gotMembers, append([]uint64{7}, members...)) || !slices.Equal(gotRemoved, append([]uint64{7}, removed...)) || !slices.Equal(gotDates, append([]uint32{7}, dates...)) {
			t.Fatalf("seed %d: %x holds %v, %v and %v, want %v, %v and %v; %v", seed, v, gotMembers, gotDates, gotRemoved, members, dates, removed, err)
		}
		for _, base := range []bool{false, true} {
			want, n := v, len(removed)+len(members)
			if base && generation == 0 {
				lost := slices.Clone(dates)
				for i := range lost {
					if lost[i] != Undated {
						lost[i] = OneRecord
					}
				}
				want, n = AppendRow(nil, subject, 0, nil, members, lost), len(members)
			}
			got, size, err := new(Folder).Fold([]byte("x"), shared.AppendMemberKey(nil, 1, subject, 5), [][]byte{v}, base)
			if err != nil || string(got) != "x"+string(want) || size != (Folded{Entries: n}) {
				t.Fatalf("seed %d: %x folds to %x, %+v, %v; want %x", seed, v, got, size, err, want)
			}
		}
		for _, id := range slices.Concat(members, removed, []uint64{0, uint64(subject), 1<<64 - 1}) {
			for _, id := range []uint64{id - 1, id, id + 1} {
				at, is := slices.BinarySearch(members, id)
				want := uint32(0)
				if is {
					want = dates[at]
				}
				date, found := r.Date(id)
				if found != is || date != want || r.HasRemoved(id) != slices.Contains(removed, id) {
					t.Fatalf("seed %d: %x has %d: %v, with the date %d, want %d; removed: %v", seed, v, id, found, date, want, r.HasRemoved(id))
				}
			}
		}
	}
	for _, form := range []byte{datedMembers, datedChanges, undatedMembers} {
		if forms[form] < 100 {
			t.Errorf("only %d rows have the form %#x", forms[form], form)
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
		{"no number of dated members", []byte{datedMembers, 0}},
		{"fewer dates than members", []byte{datedMembers, 0, 1, 4, 2, 1, 0, 0, 0}},
		{"more dates than members", []byte{datedMembers, 0, 2, 0x84, 1, 1, 0, 0, 0, 2, 0, 0, 0}},
		{"more dated members than bytes", []byte{datedMembers, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 4, 1, 0, 0, 0}},
		{"a dated member that is cut", []byte{datedMembers, 0, 1, 0x84, 1, 0, 0, 0}},
		{"a dated member twice", []byte{datedMembers, 0, 2, 4, 0, 1, 0, 0, 0, 1, 0, 0, 0}},
		{"no generation of dated changes", []byte{datedChanges, 0}},
		{"no number of removed of dated changes", []byte{datedChanges, 0, 1}},
		{"fewer removed than their number, dated", []byte{datedChanges, 0, 1, 2, 4}},
		{"no number of undated", []byte{undatedMembers, 0}},
		{"none is undated", []byte{undatedMembers, 0, 0, 4}},
		{"fewer undated than their number", []byte{undatedMembers, 0, 2, 4}},
		{"an undated id that is not a member", []byte{undatedMembers, 0, 1, 6, 4}},
		{"an undated twice", []byte{undatedMembers, 0, 2, 4, 0, 8}},
		{"undated with dates", []byte{undatedMembers, 0, 1, 4, datedMembers, 0, 1, 4, 1, 0, 0, 0}},
		{"undated and undated", []byte{undatedMembers, 0, 1, 4, undatedMembers, 0, 1, 4, 8}},
	} {
		r, err := ParseRow(goldenSubject, c.v)
		var members []uint64
		if err == nil {
			members, err = r.AppendMembers(nil)
		}
		if err == nil {
			_, err = r.AppendDates(nil, members)
		}
		if err == nil {
			_, err = r.AppendRemoved(nil)
		}
		if !errors.Is(err, dict.ErrStored) {
			t.Errorf("%s: %x is read: %v", c.name, c.v, err)
		}
		key := AppendRowKey(nil, 1, goldenSubject)
		for _, base := range []bool{false, true} {
			if v, _, err := new(Folder).Fold(nil, key, [][]byte{c.v, AppendRow(nil, goldenSubject, 0, nil, []uint64{5}, nil)}, base); err == nil {
				t.Errorf("%s: %x folds to %x", c.name, c.v, v)
			}
		}
	}
}

// TestGenerationsOfAFold: a row has the generation of its last spill, so a row that was spilled twice never looks like
// its state in between. A chunk, which spills do not merge, has the highest generation of its values.
func TestGenerationsOfAFold(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 0))
	c := CoderOf(1, 5)
	for range 500 {
		var rows, chunks [][]byte
		highest, last := uint64(0), uint64(0)
		for range 1 + rng.IntN(5) {
			g := rng.Uint64N(4)
			if highest = max(highest, g); g > 0 {
				last = g
			}
			rows = append(rows, AppendRow(nil, 5, g, nil, []uint64{9}, nil))
			chunks = append(chunks, c.Append(nil, g, []Record{{Path: Path{TID: goldenTID}, Subject: 3}}))
		}
		v, _, err := new(Folder).Fold(nil, AppendRowKey(nil, 1, 5), rows, true)
		r, err1 := ParseRow(dict.ID(5), v)
		w, _, err2 := new(Folder).Fold(nil, AppendRecordsKey(nil, 1, 5), chunks, true)
		records, g, err3 := c.Read(nil, w)
		if err != nil || err1 != nil || err2 != nil || err3 != nil || r.Generation != last || g != highest || len(records) != 1 {
			t.Fatalf("%x is of generation %d, %x of %d; want %d and %d", rows, r.Generation, chunks, g, last, highest)
		}
	}
}
