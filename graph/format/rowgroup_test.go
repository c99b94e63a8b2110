package format

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// postsOf returns how many posts share a value in a store with a group: its square root, rounded up to a power of two.
func postsOf(group uint16) dict.ID {
	n := dict.ID(1)
	for n*n < dict.ID(group) {
		n *= 2
	}
	return n
}

// TestRowGroups folds random operands of a group in any grouping, in groups of any size. The row of each subject is what the subject's own
// operands fold to, and those of the other subjects have no part in it.
func TestRowGroups(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 31))
		l := randomLayout(rng)
		posts := postsOf(l.Settings.Group)
		first := randomID(rng) &^ (posts - 1)
		key := l.AppendMemberKey(nil, 3, first+dict.ID(rng.Uint64N(uint64(posts))), randomID(rng))
		alone := map[dict.ID][][]byte{} // the operands of each subject
		var values [][]byte
		for range 1 + rng.IntN(12) {
			var g RowGroup
			for i := range posts {
				if rng.IntN(3) > 0 {
					continue
				}
				subject := first + i
				removed, members, dates := randomSets(rng, uint64(subject), 4)
				if len(removed)+len(members) == 0 {
					continue
				}
				generation := uint64(0)
				if rng.IntN(8) == 0 {
					generation = 1 + rng.Uint64N(3)
				}
				row := AppendRow(nil, subject, generation, removed, members, dates)
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
			v, size, err := f.Fold(nil, AppendRowKey(nil, 1, subject), rows, true)
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
		for subject := first; subject < first+posts; subject++ {
			if row, err := RowIn(got, subject); err != nil || !bytes.Equal(row, want[subject]) {
				t.Fatalf("seed %d: row %#x of %x is %x, %v; want %x", seed, uint64(subject), got, row, err, want[subject])
			}
		}
		if _, size, err := f.Fold(nil, key, values, true); err != nil || size != (Folded{Entries: largest}) {
			t.Fatalf("seed %d: the largest row has %+v, want %d, %v", seed, size, largest, err)
		}
	}
}

// TestWhatIsGrouped: only rows of likers and reposters lie in groups, in any store; as many posts share one as the settings say.
func TestWhatIsGrouped(t *testing.T) {
	for name, l := range map[string]Layout{"alone": alone, "shared": shared} {
		for k := range 256 {
			kind := kinds.Kind(k)
			want := k == 2 || k == 3
			row := AppendRow(nil, 21, 0, nil, []uint64{7}, nil)
			v := row
			if want {
				v = groupOf(20, AppendRow(nil, 20, 0, nil, []uint64{8}, nil), row)
			}
			if got, err := RowOf(kind, 21, v); err != nil || !bytes.Equal(got, row) {
				t.Errorf("%s: kind %d: %x has the row %x, %v", name, k, v, got, err)
			}
			if key := l.AppendMemberKey(nil, kind, 21, 7); want != (key[0] == KeyRows) || want != HasGroups(kind) {
				t.Errorf("%s: kind %d has rows under %x", name, k, key)
			}
		}
	}
	for group, posts := range map[uint16]dict.ID{1: 1, 2: 2, 4: 2, 8: 4, 16: 4, 32: 8, 64: 8, 128: 16, 256: 16} {
		l := Layout{Settings: dict.Settings{Partitions: 1, Group: group}}
		for subject := range dict.ID(64) {
			first := l.AppendMembersKey(nil, 2, subject/posts*posts)
			if key := l.AppendMembersKey(nil, 2, subject); !bytes.Equal(key, first) || subject%posts == 0 && subject > 0 && bytes.Equal(key, l.AppendMembersKey(nil, 2, subject-1)) {
				t.Errorf("groups of %d: post %d has the key %x, want %x, not that of %d", group, subject, key, first, subject-1)
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
		_, _, err2 := new(Folder).Fold(nil, alone.AppendMembersKey(nil, 2, 16), [][]byte{v}, true)
		if name == "more rows than a group has" {
			err1 = err // RowIn stops at the last subject
		}
		if err == nil || err1 == nil || err2 == nil {
			t.Errorf("%s: %x is read: %v, %v, %v", name, v, err, err1, err2)
		}
	}
	// So is a group with a malformed row, unless it looks like the simplest form and no operand changes it.
	group := groupOf(16, []byte{0x80})
	if v, _, err := new(Folder).Fold(nil, alone.AppendMembersKey(nil, 2, 16), [][]byte{group, groupOf(16, []byte{2})}, true); err == nil {
		t.Errorf("a malformed row folds to %x", v)
	}
	if v, _, err := new(Folder).Fold(nil, alone.AppendMembersKey(nil, 2, 16), [][]byte{group, groupOf(17, []byte{2})}, true); err != nil || !bytes.Equal(v, groupOf(16, []byte{0x80}, []byte{2})) {
		t.Errorf("the neighbour of a malformed row folds to %x, %v", v, err)
	}
	for _, key := range [][]byte{append([]byte{KeyRows, 1}, alone.AppendMembersKey(nil, 2, 16)[2:]...), {KeyRows, 2, 0x00, 0x14, 0x03}, {KeyRows, 2}, append(alone.AppendMembersKey(nil, 2, 16), 0, 0), AppendRowKey(nil, 2, 16)} {
		if k, first, err := ParseRowGroupKey(key); err == nil {
			t.Errorf("%x is read as the key of a row group of kind %v, from %d", key, k, first)
		}
	}
}
