package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// foldInParts folds values at once, and again with neighbours first, like an engine. Both must
// give the same value.
func foldInParts(t *testing.T, rng *rand.Rand, key []byte, values [][]byte) []byte {
	t.Helper()
	m := newFolder()
	whole, err := m.Fold(nil, key, values, true)
	if err != nil {
		t.Fatal(err)
	}
	for len(values) > 1 {
		i := rng.IntN(len(values) - 1)
		n := min(2+rng.IntN(3), len(values)-i)
		v, err := m.Fold(nil, key, values[i:i+n], i == 0 && rng.IntN(2) == 0)
		if err != nil {
			t.Fatal(err)
		}
		values = slices.Replace(values, i, i+n, v)
	}
	parts, err := m.Fold(nil, key, values, true)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole, parts) {
		t.Fatalf("folded at once: %x, in parts: %x", whole, parts)
	}
	return whole
}

func TestFoldRows(t *testing.T) {
	key := AppendRowKey(nil, 1, 77)
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		space := []uint64{8, 3000, 1 << 39, 1 << 62}[rng.IntN(4)]
		want, times := map[uint64]bool{}, map[uint64]int{} // times: added since the last removal
		var values [][]byte
		spilled := rng.IntN(3) == 0
		if spilled {
			values = append(values, AppendRow(nil, 77, 3, nil, nil))
		}
		for range 1 + rng.IntN(40) {
			n := 1
			if rng.IntN(10) == 0 {
				n = rng.IntN(500)
			}
			op := map[uint64]bool{}
			for range n {
				op[rng.Uint64N(space)] = rng.IntN(3) > 0
			}
			var add, remove []uint64
			var again []uint64
			for _, m := range slices.Sorted(maps.Keys(op)) {
				if !op[m] {
					remove, times[m] = append(remove, m), 0
					continue
				}
				add = append(add, m)
				if times[m]++; rng.IntN(20) == 0 { // by two records of one write
					again = append(again, m)
					times[m]++
				}
			}
			values = append(values, AppendRow(AppendRepeated(nil, 77, again), 77, 0, remove, add))
			maps.Copy(want, op)
		}
		v := foldInParts(t, rng, key, values)
		r, err := ParseRow(77, v)
		if err != nil || (r.Generation == 3) != spilled {
			t.Fatalf("seed %d: %x: %v", seed, v, err)
		}
		members, err1 := r.AppendMembers(nil)
		removed, err2 := r.AppendRemoved(nil)
		repeated, err3 := r.AppendRepeated(nil)
		var in, out, several []uint64
		for m, present := range want {
			if present {
				in = append(in, m)
				if times[m] > 1 && !spilled {
					several = append(several, m)
				}
			} else if spilled {
				out = append(out, m)
			}
		}
		slices.Sort(in)
		slices.Sort(out)
		slices.Sort(several)
		if err3 != nil || !slices.Equal(repeated, several) {
			t.Fatalf("seed %d: repeated %v, want %v, %v", seed, repeated, several, err3)
		}
		if err1 != nil || err2 != nil || !slices.Equal(members, in) || !slices.Equal(removed, out) {
			t.Fatalf("seed %d: members %v, want %v; removed %v, want %v", seed, members, in, removed, out)
		}
		for range 50 {
			m := rng.Uint64N(space)
			if r.Has(m) != want[m] {
				t.Fatalf("seed %d: listHas(%d) is %v", seed, m, !want[m])
			}
		}
	}
}

// randomPath makes paths of one bucket.
func randomPath(rng *rand.Rand, bucket uint16) Path {
	if bucket >= RawBucket {
		return Path{Raw: fmt.Appendf(nil, "key-%d", rng.IntN(30))}
	}
	return Path{TID: uint64(bucket)<<BucketShift | rng.Uint64N(40)<<40 | rng.Uint64N(3)}
}

func TestFoldChunks(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		bucket := []uint16{0, 1650, RawBucket - 1, RawBucket}[rng.IntN(4)]
		kind := kinds.All[rng.IntN(len(kinds.All))].Kind
		key := AppendChunkKey(nil, kind, 900, randomPath(rng, bucket), rng.IntN(3))
		c, err := CoderOfKey(key)
		if err != nil || c.Bucket != bucket && !c.IsRaw() {
			t.Fatal(err)
		}
		want := map[string]Record{}
		var values [][]byte
		spilled := rng.IntN(3) == 0
		if spilled {
			values = append(values, c.Append(nil, 9, nil))
		}
		for range 1 + rng.IntN(30) {
			op := map[string]Record{}
			for range 1 + rng.IntN(5) {
				r := Record{Path: randomPath(rng, bucket), Subject: dict.ID(rng.Uint64() >> rng.IntN(64))}
				if r.Flags = uint8(rng.IntN(4)); r.Flags > NoSubject {
					r.Flags = 0
				}
				if r.Flags != 0 {
					r.Subject = 0
				}
				op[string(r.Path.AppendRkey(nil))] = r
			}
			records := slices.SortedFunc(maps.Values(op), CompareRecords)
			values = append(values, c.Append(nil, 0, records))
			maps.Copy(want, op)
		}
		v := foldInParts(t, rng, key, values)
		got, generation, err := c.Read(nil, v, 0)
		if err != nil || (generation == 9) != spilled {
			t.Fatalf("seed %d: generation %d, %v", seed, generation, err)
		}
		if !spilled {
			maps.DeleteFunc(want, func(_ string, r Record) bool { return r.Flags == Removed })
		}
		list := slices.SortedFunc(maps.Values(want), CompareRecords)
		if !slices.EqualFunc(got, list, func(x, y Record) bool {
			return ComparePaths(x.Path, y.Path) == 0 && x.Subject == y.Subject && x.Flags == y.Flags
		}) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, list)
		}
	}
}

// TestGolden fixes the bytes on disk. Every later program must read them.
func TestGolden(t *testing.T) {
	const actor = 0x0102030405
	tid := uint64(1650)<<BucketShift | 5<<ClockBits | 17
	like := CoderOf(1, actor, 1650)
	follow := CoderOf(1, actor, 1650)
	raw := CoderOf(1, actor, RawBucket)
	for want, v := range map[string][]byte{
		"":                 AppendRow(nil, 7, 0, nil, nil),
		"\x0c":             AppendRow(nil, 7, 0, nil, []uint64{10}),
		"\x0a\x80\x01\x01": AppendRow(nil, 7, 0, nil, []uint64{4, 132, 133}),
		"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": AppendRow(nil, 7, 0, nil, []uint64{1<<63 + 7}),
		"\x01\x01\x04":                          AppendRow(nil, 7, 0, []uint64{9}, nil),
		"\x0f\x00\x04\x01":                      AppendRow(nil, 7, 7, nil, []uint64{9, 10}),
		"\x0b\x00\x11\x14\x0a\x03":              like.Append(nil, 0, []Record{{Path: Path{TID: tid}, Subject: actor + 10}, {Path: Path{TID: tid + 5<<ClockBits}, Subject: actor + 8}}),
		"\x0b\x00\x11\x02":                      follow.Append(nil, 0, []Record{{Path: Path{TID: tid}, Subject: actor + 1}}),
		"\x0b\x04\x11":                          like.Append(nil, 0, []Record{{Path: Path{TID: tid}, Flags: Removed}}),
		"\x01\x10\x00\x03\x0b\x08\x11":          like.Append(nil, 3, []Record{{Path: Path{TID: tid}, Flags: NoSubject}}),
		"\x08self\x04\x07ab\xff\x04\x00":        append(raw.Append(nil, 0, []Record{{Path: Path{Raw: []byte("self")}, Subject: actor + 2}}), "\x07ab\xff\x04\x00"...),
		"r\x02\x01\x02\x03\x04\x05\x06\x72":     AppendChunkKey(nil, 2, actor, Path{TID: tid}, 0),
		"r\x02\x01\x02\x03\x04\x05\x40\x06":     AppendChunkKey(nil, 2, actor, Path{Raw: []byte("self")}, 0),
		"v\x02\x01\x02\x03\x04\x05":             AppendRowKey(nil, 2, actor),
		"v\x02\x01\x02\x03\x04\x05\x01\x02\x03": AppendBlock(AppendRowKey(nil, 2, actor), 0x010203),
	} {
		if string(v) != want {
			t.Errorf("%x, want %x", v, want)
		}
	}
}

// FuzzFoldValues: no input makes a fold panic, or fold to a malformed value.
func FuzzFoldValues(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5}, []byte{0xfe, 0, 1, 1, 2, 3, 4, 5}, true, uint8(0))
	f.Add([]byte{0x0b, 0, 0x11, 0x14}, []byte{0x0b, 4, 0x11}, false, uint8(1))
	f.Add([]byte{8, 's', 'e', 'l', 'f', 4}, []byte{1, 0x10, 0, 3}, false, uint8(2))
	f.Fuzz(func(t *testing.T, a, b []byte, base bool, which uint8) {
		keys := [][]byte{
			AppendRowKey(nil, 1, 5), AppendChunkKey(nil, 2, 5, Path{TID: 1650 << BucketShift}, 0),
			AppendChunkKey(nil, 1, 5, Path{Raw: []byte("x")}, 0), AppendBlock(AppendRowKey(nil, 1, 5), 7),
		}
		key := keys[int(which)%len(keys)]
		m := newFolder()
		v, err := m.Fold(nil, key, [][]byte{a, b}, base)
		if err != nil {
			return
		}
		if _, err := m.Fold(nil, key, [][]byte{v}, base); err != nil {
			t.Errorf("%x + %x folds to %x: %v", a, b, v, err)
		}
	})
}

func TestKeys(t *testing.T) {
	for _, id := range []dict.ID{0, 1, 0xfdffffffff, 0xfe00000000, 1 << 63} {
		for _, block := range []uint64{0, 5, 0xfdffff, 0xfe0000, 1<<48 - 1} {
			key := AppendRowKey(nil, 3, id)
			if k, s, _, isRow, err := ParseReverseKey(key); k != 3 || s != id || !isRow || err != nil || !isRowKey(key) {
				t.Errorf("row of %d: %x", id, key)
			}
			key = AppendBlock(key, block)
			if k, s, b, isRow, err := ParseReverseKey(key); k != 3 || s != id || isRow || b != block || err != nil || isRowKey(key) {
				t.Errorf("block %x of %d: %x is read as %d, %d, %x, %v, %v", block, id, key, k, s, b, isRow, err)
			}
			shared := Layout{Settings: dict.SharedSettings}
			row := shared.AppendMemberKey(nil, 3, id, dict.ID(block<<16))
			if k, s, _, isRow, err := ParseReverseKey(row); k != 3 || s != id || !isRow || err != nil || !isRowKey(row) {
				t.Errorf("row of %d in one partition: %x", id, row)
			}
			key = AppendContainerKey(nil, row, block)
			if k, s, b, isRow, err := ParseReverseKey(key); k != 3 || s != id || isRow || b != block || err != nil || isRowKey(key) {
				t.Errorf("block %x of %d in one partition: %x is read as %d, %d, %x, %v, %v", block, id, key, k, s, b, isRow, err)
			}
			if under := shared.Containers(AppendRowKey(nil, 3, id)); !bytes.HasPrefix(key, under) || bytes.Compare(row, under) >= 0 {
				t.Errorf("container %x of %d is not after row %x", key, id, row)
			}
		}
		for depth := range MaxChunkDepth + 1 {
			for _, p := range []Path{{TID: 1<<64 - 1}, {TID: 5}, {Raw: []byte("self")}} {
				key := AppendChunkKey(nil, 4, id, p, depth)
				if k, a, bucket, d, err := ParseChunkKey(key); k != 4 || a != id || bucket != p.Bucket() || d != depth || err != nil {
					t.Errorf("chunk of %d: %x", id, key)
				}
			}
		}
	}
	for _, bad := range []string{"", "v", "v\x01", "v\x01\x01\x02\x03\x04", "v\x01\x01\x02\x03\x04\x05\x46", "v\x01\x01\x02\x03\x04\x05\xff", "r\x01\x01\x02\x03\x04\x05\x06"} {
		if _, _, _, _, err := ParseReverseKey([]byte(bad)); err == nil {
			t.Errorf("%x is read as a set's key", bad)
		}
		if _, _, _, _, err := ParseChunkKey([]byte(bad)); err == nil {
			t.Errorf("%x is read as a chunk's key", bad)
		}
	}
}

// TestExtend folds operands that mostly ascend in time, with and without reading the oldest
// value: the bytes are the same.
func TestExtend(t *testing.T) {
	extended, packed := 0, 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := CoderOf(1, 900, 1650)
		tid := uint64(1650) << BucketShift
		var operands [][]byte
		for range 2 + rng.IntN(5) {
			var records []Record
			for range rng.IntN(6) {
				if tid += rng.Uint64N(1 << rng.IntN(40)); rng.IntN(20) == 0 {
					tid -= rng.Uint64N(1 << 30)
				}
				if tid = max(tid, 1650<<BucketShift); len(records) > 0 && records[len(records)-1].Path.TID >= tid {
					break
				}
				r := Record{Path: Path{TID: tid}, Subject: dict.ID(rng.Uint64() >> rng.IntN(64)), Flags: max(uint8(rng.IntN(12)), 9) - 9}
				if seed%2 == 0 {
					r.Flags = 0
				}
				if r.Flags != 0 {
					r.Subject = 0
				}
				records = append(records, r)
			}
			generation := uint64(0)
			if len(operands) == 0 {
				generation = rng.Uint64N(2)
			}
			if operand := c.Append(nil, generation, records); len(operands) > 0 || rng.IntN(2) == 0 {
				operands = append(operands, operand)
			} else {
				operands = append(operands, c.AppendStored(nil, generation, records))
			}
		}
		base := rng.IntN(2) == 0
		var f chunkFolder
		got, size, ok := f.extend([]byte("x"), c, operands, base)
		if !ok {
			continue
		}
		extended++
		var all []Record
		var generation uint64
		for age, v := range operands {
			var g uint64
			var err error
			if all, g, err = c.Read(all, v, uint32(age)); err != nil {
				t.Fatal(err)
			}
			generation = max(generation, g)
		}
		slices.SortFunc(all, CompareRecords)
		f.records = all
		kept := f.newest(base && generation == 0)
		want := c.Append([]byte("x"), generation, kept)
		if base {
			want = c.AppendStored([]byte("x"), generation, kept)
		}
		if isPacked(want[1:]) {
			packed++
		}
		untouched := !base && bytes.Equal(got[1:], operands[0])
		if !bytes.Equal(got, want) && !untouched || size.Entries != len(kept) {
			t.Fatalf("seed %d: %d records, %x, want %d, %x", seed, size.Entries, got, len(kept), want)
		}
	}
	if extended < 500 || packed < 60 {
		t.Errorf("only %d were extended, %d of them packed", extended, packed)
	}
}

// FuzzUvarint compares Uvarint with encoding/binary's.
func FuzzUvarint(f *testing.F) {
	for _, n := range []uint64{0, 1, 127, 128, 1 << 20, 1<<56 - 1, 1 << 56, 1<<64 - 1} {
		f.Add(append(binary.AppendUvarint(nil, n), "more than that"...))
		f.Add(binary.AppendUvarint(nil, n))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		got, n := Uvarint(v)
		if want, m := binary.Uvarint(v); got != want || n != m {
			t.Errorf("%x: %d in %d, want %d in %d", v, got, n, want, m)
		}
	})
}

// TestContradictoryRowDoesNotFold: skein never writes a row in which a member is present and
// removed. Folding it would give a row that cannot be read.
func TestContradictoryRowDoesNotFold(t *testing.T) {
	key := AppendRowKey(nil, 1, 5)
	both := AppendRow(nil, 5, 3, []uint64{7, 9}, []uint64{9, 11})
	m := newFolder()
	for _, values := range [][][]byte{{both}, {AppendRow(nil, 5, 0, nil, []uint64{8}), both}, {both, AppendRow(nil, 5, 0, nil, []uint64{8})}} {
		if v, err := m.Fold(nil, key, values, false); err == nil {
			t.Errorf("%x folds to %x", values, v)
		}
	}
}

// TestOnlyListedKeyspacesFold: folding in a keyspace that Fold does not list is an error. Fold
// must not take its values for containers.
func TestOnlyListedKeyspacesFold(t *testing.T) {
	folds := map[byte]bool{KeyRecord: true, KeyReverse: true, KeyRows: true, KeyDates: true, KeyAccount: true, dict.KeyString: true}
	for _, keyspace := range append(slices.Collect(maps.Keys(keyspaces)), 0, 'z', 0xff) {
		// A key that is valid in every keyspace that folds, and a value that is a container.
		key := append([]byte{keyspace, 1}, bytes.Repeat([]byte{5}, 7)...)
		switch keyspace {
		case KeyAccount:
			key = alone.AccountKey(nil, shortID)
		case KeyRows:
			key = AppendRowGroupKey(nil, 2, shortID)
		}
		for _, values := range [][][]byte{{AppendContainer(nil, []uint16{7}, nil)}, {nil}, {}} {
			for _, base := range []bool{false, true} {
				out, size, err := new(Folder).Fold(nil, key, values, base)
				if errors.Is(err, ErrKeyspace) == folds[keyspace] {
					t.Errorf("keyspace %q (%s) folds to %x: %v", keyspace, KeyspaceOf(key), out, err)
				}
				if !folds[keyspace] && (len(out) > 0 || size != Folded{}) {
					t.Errorf("keyspace %q must not fold, and folds to %x, %+v", keyspace, out, size)
				}
			}
		}
	}
	if _, _, err := new(Folder).Fold(nil, nil, [][]byte{{0}}, true); !errors.Is(err, ErrKeyspace) {
		t.Errorf("an empty key folds: %v", err)
	}
}
