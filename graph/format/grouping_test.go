package format

import (
	"bytes"
	"fmt"
	"testing"

	"skein.blue/intern/dict"
)

// An alphabet has the operands of a key's values: few operands of few members, so that a test
// can try every result.
type alphabet struct {
	name     string
	key      []byte
	operands [][]byte
	spilled  []byte // the operand that has a generation
}

func alphabets() []alphabet {
	tid := func(n uint64) Path { return Path{TID: goldenTID + n} }
	raw := func(s string) Path { return Path{Raw: []byte(s)} }
	chunk := CoderOf(2, 5)
	s1, s2 := goldenStates[1], goldenStates[4]
	plc := func(low dict.ID, c byte) []byte {
		e := dict.EntryOf(dict.DID, low, bytes.Repeat([]byte{c}, dict.PackedDIDLen))
		return new(dict.GroupWriter).Append(nil, &e)
	}
	all := []alphabet{
		{name: "row", key: AppendRowKey(nil, 1, 5), operands: [][]byte{
			AppendRow(nil, 5, 0, nil, []uint64{7}, []uint32{3}), AppendRow(nil, 5, 0, []uint64{7}, nil, nil), AppendRow(nil, 5, 0, []uint64{9}, []uint64{7, 1 << 63}, []uint32{Undated, OneRecord}),
			AppendRow(nil, 5, 2, nil, []uint64{9}, nil), AppendRow(nil, 5, 0, []uint64{7, 9}, []uint64{7}, []uint32{4}), nil,
		}},
		{name: "chunk of TIDs", key: AppendRecordsKey(nil, 2, 5), operands: [][]byte{
			chunk.Append(nil, 0, []Record{{Path: tid(7), Subject: 3}}), chunk.Append(nil, 0, []Record{{Path: tid(7), Flags: Removed}}),
			chunk.Append(nil, 0, []Record{{Path: tid(7), Flags: NoSubject}, {Path: tid(1 << 20), Subject: 4}}),
			chunk.Append(nil, 2, []Record{{Path: tid(1 << 20), Flags: Removed}}), nil,
		}},
		{name: "chunk of TIDs and raw keys", key: AppendRecordsKey(nil, 2, 5), operands: [][]byte{
			chunk.Append(nil, 0, []Record{{Path: tid(7), Subject: 3}, {Path: raw("a"), Subject: 3}}), chunk.Append(nil, 0, []Record{{Path: raw("a"), Flags: Removed}}),
			chunk.Append(nil, 0, []Record{{Path: tid(7), Flags: Removed}, {Path: raw("a"), Flags: NoSubject}, {Path: raw("ab"), Subject: 4}}),
			chunk.Append(nil, 2, nil), nil,
		}},
		{name: "group of accounts", key: alone.AccountKey(nil, 5), operands: [][]byte{
			alone.AppendAccount(nil, 7, &s1), alone.AppendAccount(nil, 7, &s2), alone.AppendAccount(alone.AppendAccount(nil, 0, &s2), 255, &s1), nil,
		}},
		{name: "group of strings", key: dict.AppendGroupKey(nil, dict.DID, 64), operands: [][]byte{plc(64, 1), plc(64, 2), append(plc(65, 3), plc(127, 1)...), nil}},
	}
	for _, i := range []int{1, 2} {
		all[i].spilled = all[i].operands[3]
	}
	return append(all, alphabet{name: "row group", key: alone.AppendMembersKey(nil, 2, 21), operands: [][]byte{
		groupOf(21, AppendRow(nil, 21, 0, nil, []uint64{7}, nil)), groupOf(21, AppendRow(nil, 21, 0, []uint64{7}, []uint64{9}, []uint32{3}), AppendRow(nil, 22, 0, nil, []uint64{7}, nil)),
		groupOf(21, AppendRow(nil, 21, 2, nil, nil, nil)), groupOf(22, AppendRow(nil, 22, 0, []uint64{7}, nil, nil)), nil,
	}})
}

// groupOf returns a group with the rows of subjects from first on.
func groupOf(first dict.ID, rows ...[]byte) []byte {
	var g RowGroup
	for i, row := range rows {
		g.Add(first+dict.ID(i), row)
	}
	return g.Value
}

// TestEveryGrouping: four operands fold to the same bytes in any grouping, with and without
// an older value.
func TestEveryGrouping(t *testing.T) {
	for _, a := range alphabets() {
		t.Run(a.name, func(t *testing.T) {
			f := new(Folder) // it reuses its scratch
			fold := func(base bool, values ...[]byte) []byte {
				t.Helper()
				v, size, err := f.Fold(nil, a.key, values, base)
				if err != nil || size.Entries > 0 && (a.name == "group of accounts" || a.name == "group of strings") {
					t.Fatalf("%x: %+v, %v", values, size, err)
				}
				return v
			}
			n := len(a.operands)
			for i := range n * n * n * n {
				w, x, y, z := a.operands[i%n], a.operands[i/n%n], a.operands[i/n/n%n], a.operands[i/n/n/n]
				for _, base := range []bool{false, true} {
					want := fold(base, w, x, y, z)
					for name, got := range map[string][]byte{
						"wx yz":           fold(base, fold(false, w, x), fold(false, y, z)),
						"wx y z":          fold(base, fold(false, w, x), y, z),
						"w xy z":          fold(base, w, fold(false, x, y), z),
						"w x yz":          fold(base, w, x, fold(false, y, z)),
						"wxy z":           fold(base, fold(false, w, x, y), z),
						"w xyz":           fold(base, w, fold(false, x, y, z)),
						"((wx)y)z":        fold(base, fold(false, fold(false, w, x), y), z),
						"w(x(yz))":        fold(base, w, fold(false, x, fold(false, y, z))),
						"wxyz, and again": fold(base, want),
					} {
						if !bytes.Equal(got, want) {
							t.Fatalf("%x, %x, %x, %x fold to %x; %s to %x; base %v", w, x, y, z, want, name, got, base)
						}
					}
				}
				// The oldest values may fold as the base before the rest arrives. A spilled chunk
				// is set and not merged, so it is the base.
				if isSpilled := func(v []byte) bool { return v != nil && bytes.Equal(v, a.spilled) }; isSpilled(x) || isSpilled(y) || isSpilled(z) {
					continue
				}
				if got, want := fold(true, fold(true, w, x), y, z), fold(true, w, x, y, z); !bytes.Equal(got, want) {
					t.Fatalf("%x, %x, %x, %x fold to %x, the oldest first to %x", w, x, y, z, want, got)
				}
			}
		})
	}
}

// TestFolderKeepsNothing: after an error, or a larger value of another type, a Folder folds
// the next value like a new one.
func TestFolderKeepsNothing(t *testing.T) {
	f := new(Folder)
	all := alphabets()
	for i := range 200 {
		a, b := all[i%len(all)], all[i*7/3%len(all)]
		if _, _, err := f.Fold(nil, b.key, [][]byte{b.operands[2], {0x81}, b.operands[0]}, i%2 == 0); err == nil {
			t.Fatalf("%s: 81 folds", b.name)
		}
		want, size, err := new(Folder).Fold(nil, a.key, a.operands, i%3 == 0)
		got, gotSize, err1 := f.Fold(nil, a.key, a.operands, i%3 == 0)
		if err != nil || err1 != nil || !bytes.Equal(got, want) || size != gotSize {
			t.Fatalf("%s: %x, %+v, %v, and of a new folder %x, %+v, %v", a.name, got, gotSize, err1, want, size, err)
		}
	}
}

// TestFoldLeavesItsValues: a fold does not change its input.
func TestFoldLeavesItsValues(t *testing.T) {
	for _, a := range alphabets() {
		before := fmt.Sprintf("%x", a.operands)
		dst := make([]byte, 3, 1<<15)
		if _, _, err := new(Folder).Fold(dst, a.key, a.operands, true); err != nil || fmt.Sprintf("%x", a.operands) != before {
			t.Errorf("%s: %s became %x, %v", a.name, before, a.operands, err)
		}
	}
}
