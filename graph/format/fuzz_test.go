package format

import (
	"bytes"
	"slices"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/harness"
)

// fuzzCodec fuzzes codecs from their golden values, whole and cut in half. No input makes a
// codec panic, and a value that it reads survives a round trip.
func fuzzCodec(f *testing.F, names ...string) {
	f.Helper()
	var chosen []harness.Codec
	for _, c := range codecs() {
		if slices.Contains(names, c.Name) {
			chosen = append(chosen, c)
			for _, v := range c.Valid {
				if len(v) < 1000 { // a fuzzer does not find its way through long ones
					f.Add(v)
					f.Add(v[:len(v)/2])
				}
			}
		}
	}
	if len(chosen) != len(names) {
		f.Fatalf("%d codecs are called %q", len(chosen), names)
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		for _, c := range chosen {
			if len(v) == 0 && c.Name == "actor key" {
				continue // a key is never empty
			}
			c.Check(t, v)
		}
	})
}

func FuzzRow(f *testing.F)      { fuzzCodec(f, "row") }
func FuzzRowGroup(f *testing.F) { fuzzCodec(f, "row group") }
func FuzzChunk(f *testing.F)    { fuzzCodec(f, "chunk", "chunk of several subjects") }
func FuzzState(f *testing.F)    { fuzzCodec(f, "state", "accounts") }
func FuzzSettings(f *testing.F) { fuzzCodec(f, "header") }
func FuzzCursor(f *testing.F)   { fuzzCodec(f, "cursor", "version of the hidden set") }
func FuzzCounts(f *testing.F)   { fuzzCodec(f, "counts") }

// FuzzKey: a key that parses survives a round trip.
func FuzzKey(f *testing.F) {
	fuzzCodec(f, "chunk key", "set key, alone", "set key, shared", "row group key", "actor key")
}

// FuzzHas: Has, Date and HasRemoved agree with the lists of a row.
func FuzzHas(f *testing.F) {
	for _, form := range goldenRows() {
		f.Add(form.Bytes, uint64(1001))
		f.Add(form.Bytes, uint64(1<<64-1))
	}
	f.Fuzz(func(t *testing.T, v []byte, id uint64) {
		r, err := ParseRow(goldenSubject, v)
		if err != nil {
			return
		}
		if members, err := r.AppendMembers(nil); err == nil {
			at, is := slices.BinarySearch(members, id)
			dates, err := r.AppendDates(nil, members)
			if date, has := r.Date(id); err == nil && (has != is || is && date != dates[at]) {
				t.Errorf("row %x: date(%d) is %d, %v, of %v, %v", v, id, date, has, members, dates)
			}
		}
		removed, err := r.AppendRemoved(nil)
		if has := r.HasRemoved(id); err == nil && has != slices.Contains(removed, id) {
			t.Errorf("row %x: hasRemoved(%d) is %v, of %v", v, id, has, removed)
		}
	})
}

// FuzzSubjects: AppendSubjects and AppendNaming agree with the records that Read returns.
func FuzzSubjects(f *testing.F) {
	c := CoderOf(1, shortID)
	for _, form := range goldenChunks() {
		f.Add(form.Bytes, uint64(0), uint64(1<<64-1))
		f.Add(form.Bytes, uint64(goldenTID), uint64(goldenTID+1<<20))
	}
	f.Fuzz(func(t *testing.T, v []byte, from, to uint64) {
		got, ok := c.AppendSubjects([]uint64{7}, v, from, to)
		records, reach, err := c.Read(nil, v)
		if err != nil && isPacked(v) { // perhaps its times are malformed, which are not all read
			return
		}
		simple := err == nil && reach == 0
		want := []uint64{7}
		for _, r := range records {
			simple = simple && r.Flags == 0 && r.Path.Raw == nil
			if r.Path.TID >= from && r.Path.TID <= to {
				want = append(want, uint64(r.Subject))
			}
		}
		if !simple {
			want = want[:1]
		}
		if ok != simple || !slices.Equal(got, want) {
			t.Errorf("chunk %x: %v, %v, want %v, %v", v, got, ok, want, simple)
		}
		wanted := func(subject dict.ID) bool { return uint64(subject)%2 == from%2 }
		naming, ok := c.AppendNaming([]Record{{Flags: 9}}, v, wanted)
		if !simple {
			records = nil
		}
		records = append([]Record{{Flags: 9}}, slices.DeleteFunc(records, func(r Record) bool { return !wanted(r.Subject) })...)
		if ok != simple || !slices.EqualFunc(naming, records, sameRecord) || naming[0].Flags != 9 {
			t.Errorf("chunk %x: %v, %v, want %v, %v", v, naming, ok, records, simple)
		}
	})
}

// FuzzFolder: a folded value folds again, to one form, under any key.
func FuzzFolder(f *testing.F) {
	for _, key := range goldenKeys() {
		f.Add(key.Bytes, []byte{1, 2, 3, 4}, []byte{3, 0, 2}, false)
	}
	for _, a := range alphabets() {
		f.Add(a.key, a.operands[0], a.operands[2], true)
		f.Add(a.key, a.operands[2], a.operands[1], false)
	}
	f.Fuzz(func(t *testing.T, key, a, b []byte, base bool) {
		once, _, err := new(Folder).Fold(nil, key, [][]byte{a, b}, base)
		if err != nil {
			return
		}
		twice, _, err := new(Folder).Fold(nil, key, [][]byte{once}, base)
		thrice, _, err1 := new(Folder).Fold(nil, key, [][]byte{twice}, base)
		if err != nil || err1 != nil || !bytes.Equal(twice, thrice) {
			t.Errorf("%x: %x + %x folds to %x, that to %x, that to %x; %v %v", key, a, b, once, twice, thrice, err, err1)
		}
	})
}

// FuzzCursorKey: the key of a cursor contains its partition and source.
func FuzzCursorKey(f *testing.F) {
	f.Add("wss://bsky.network", byte(0))
	f.Add("", byte(63))
	f.Add("x", byte(9))
	f.Fuzz(func(t *testing.T, source string, part byte) {
		key := CursorKey(part, source)
		if p, s := ParseCursorKey(key); p != part || s != source || key[0] != KeyCursor {
			t.Errorf("%q of partition %d has the key %x, and is %q of %d", source, part, key, s, p)
		}
	})
}
