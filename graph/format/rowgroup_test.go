package format

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestRowGroups folds random operands of a group in any grouping. The row of each subject is what the subject's own operands
// fold to, and those of the other subjects have no part in it.
func TestRowGroups(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 31))
		first := randomID(rng) &^ (rowsInGroup - 1)
		key := AppendRowGroupKey(nil, 3, first+dict.ID(rng.IntN(rowsInGroup)))
		alone := map[dict.ID][][]byte{} // the operands of each subject
		var values [][]byte
		for range 1 + rng.IntN(12) {
			var g RowGroup
			for i := range dict.ID(rowsInGroup) {
				if rng.IntN(3) > 0 {
					continue
				}
				subject := first + i
				removed, members := randomSets(rng, uint64(subject), 4)
				if len(removed)+len(members) == 0 {
					continue
				}
				generation := uint64(0)
				if rng.IntN(8) == 0 {
					generation = 1 + rng.Uint64N(3)
				}
				dates := make([]uint32, len(members))
				for i := range dates {
					dates[i] = []uint32{Undated, 1, 2}[rng.IntN(3)]
				}
				row := AppendDatedRow(nil, subject, generation, removed, members, dates)
				g.Add(subject, row)
				alone[subject] = append(alone[subject], row)
			}
			values = append(values, g.Value)
		}
		got := foldInParts(t, rng, key, values)
		var f Folder
		largest := 0
		want := map[dict.ID][]byte{}
		for subject, rows := range alone {
			v, size, err := f.Fold(nil, AppendRowKey(nil, 3, subject), rows, true)
			if err != nil {
				t.Fatal(err)
			}
			if largest = max(largest, size.Entries); len(v) > 0 {
				want[subject] = v
			}
		}
		rows := map[dict.ID][]byte{}
		if err := EachRow(first, got, func(subject dict.ID, row []byte) error { rows[subject] = row; return nil }); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(rows, want, bytes.Equal) {
			t.Fatalf("seed %d: the group has the rows %x, want %x", seed, rows, want)
		}
		for i := range dict.ID(rowsInGroup) {
			if row, err := RowIn(got, first+i); err != nil || !bytes.Equal(row, want[first+i]) {
				t.Fatalf("seed %d: row %d of %x is %x, %v; want %x", seed, i, got, row, err, want[first+i])
			}
		}
		if _, size, err := f.Fold(nil, key, values, true); err != nil || size != (Folded{Entries: largest}) {
			t.Fatalf("seed %d: the largest row has %+v, want %d, %v", seed, size, largest, err)
		}
	}
}

// TestWhatIsGrouped: only rows of likers and reposters lie in groups, only in stores with one writer.
func TestWhatIsGrouped(t *testing.T) {
	for name, l := range map[string]Layout{"alone": alone, "shared": shared} {
		for k := range 256 {
			kind := kinds.Kind(k)
			want := name == "alone" && (k == 2 || k == 3)
			if l.Grouped(kind) != want {
				t.Errorf("%s: kind %d is grouped: %v", name, k, !want)
			}
			row := AppendRow(nil, 21, 0, nil, []uint64{7})
			v := row
			if want {
				v = groupOf(20, AppendRow(nil, 20, 0, nil, []uint64{8}), row)
			}
			if got, err := l.RowIn(kind, 21, v); err != nil || !bytes.Equal(got, row) {
				t.Errorf("%s: kind %d: %x has the row %x, %v", name, k, v, got, err)
			}
			if key := l.AppendMemberKey(nil, kind, 21, 7); want != (key[0] == KeyRows) || l.FitsReverseKey(AppendRowKey(nil, kind, 21), true) != (name == "alone" && !want) {
				t.Errorf("%s: kind %d has rows under %x", name, k, key)
			}
		}
	}
}

// TestMalformedGroups: a group that no program wrote is refused, by reads and by folds.
func TestMalformedGroups(t *testing.T) {
	var full RowGroup
	for i := range dict.ID(rowsInGroup) {
		full.Add(16+i, []byte{2})
	}
	for name, v := range map[string][]byte{
		"an empty row":                  {0},
		"an empty row of another":       {1, 3},
		"a truncated row":               {4, 2},
		"no subject":                    {3},
		"a subject past the last":       {3, 16, 2},
		"more rows than a group has":    append(full.Value, 2, 2),
		"subjects that do not ascend":   {3, 5, 2, 3, 4, 2},
		"the same subject twice":        {3, 5, 2, 3, 5, 2},
		"a subject that could be short": {3, 0, 2},
		"a number without an end":       {0x80},
		"a length above the value's":    {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2},
	} {
		err := EachRow(16, v, func(dict.ID, []byte) error { return nil })
		_, err1 := RowIn(v, 31)
		_, _, err2 := new(Folder).Fold(nil, AppendRowGroupKey(nil, 2, 16), [][]byte{v}, true)
		if name == "more rows than a group has" {
			err1 = err // RowIn stops at the last subject
		}
		if err == nil || err1 == nil || err2 == nil {
			t.Errorf("%s: %x is read: %v, %v, %v", name, v, err, err1, err2)
		}
	}
	// So is a group with a malformed row, unless it looks like the simplest form and no operand changes it.
	group := groupOf(16, []byte{0x80})
	if v, _, err := new(Folder).Fold(nil, AppendRowGroupKey(nil, 2, 16), [][]byte{group, groupOf(16, []byte{2})}, true); err == nil {
		t.Errorf("a malformed row folds to %x", v)
	}
	if v, _, err := new(Folder).Fold(nil, AppendRowGroupKey(nil, 2, 16), [][]byte{group, groupOf(17, []byte{2})}, true); err != nil || !bytes.Equal(v, groupOf(16, []byte{0x80}, []byte{2})) {
		t.Errorf("the neighbour of a malformed row folds to %x, %v", v, err)
	}
	for _, key := range [][]byte{AppendRowGroupKey(nil, 1, 16), {KeyRows, 2, 0x00, 0x14, 0x03, 0x02, 0x01}, {KeyRows, 2}, append(AppendRowGroupKey(nil, 2, 16), 0), AppendRowKey(nil, 2, 16)} {
		if k, first, err := ParseRowGroupKey(key); err == nil {
			t.Errorf("%x is read as the key of a row group of kind %v, from %d", key, k, first)
		}
	}
}
