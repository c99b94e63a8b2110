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

// foldOf folds values with a new Folder.
func foldOf(t *testing.T, key []byte, values [][]byte, base bool) []byte {
	t.Helper()
	v, _, err := new(Folder).Fold(nil, key, values, base)
	if err != nil {
		t.Fatalf("%x: %v", values, err)
	}
	return v
}

// foldInParts folds values at once, and again with neighbours first, like an engine. Both must
// give the same value.
func foldInParts(t *testing.T, rng *rand.Rand, key []byte, values [][]byte) []byte {
	t.Helper()
	whole := foldOf(t, key, values, true)
	for len(values) > 1 {
		i := rng.IntN(len(values) - 1)
		n := min(2+rng.IntN(3), len(values)-i)
		values = slices.Concat(values[:i], [][]byte{foldOf(t, key, values[i:i+n], i == 0 && rng.IntN(2) == 0)}, values[i+n:])
	}
	if parts := foldOf(t, key, values, true); !bytes.Equal(whole, parts) {
		t.Fatalf("folded at once: %x, in parts: %x", whole, parts)
	}
	return whole
}

// step is a change of a member: added with a date, or removed.
type step struct {
	removed bool
	date    uint32
}

// TestFoldRows: rows fold, in any grouping, to what the history of each member comes to. A row without containers
// has no dates; it notes who was added twice since the last removal, and, while older values may exist, who was
// removed. A row with a generation keeps the removed, and the date of a member that was added once, or several times
// with one date.
func TestFoldRows(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		subject := randomID(rng)
		key := AppendRowKey(nil, 1, subject)
		space := []uint64{8, 30, 3000, 1 << 39, 1 << 62}[rng.IntN(5)]
		history := map[uint64][]step{}
		var values [][]byte
		spilled := rng.IntN(3) == 0
		if spilled {
			values = append(values, AppendRow(nil, subject, 3, nil, nil))
		}
		for range 1 + rng.IntN(30) {
			n := 1 + rng.IntN(5)
			if rng.IntN(20) == 0 {
				n = rng.IntN(500)
			}
			last := map[uint64]step{}
			for range n {
				last[rng.Uint64N(space)] = step{removed: rng.IntN(3) == 0, date: []uint32{5, 5, 6, Undated}[rng.IntN(4)]}
			}
			var removed, members, again []uint64
			var dates []uint32
			for _, m := range slices.Sorted(maps.Keys(last)) {
				s := last[m]
				if history[m] = append(history[m], s); s.removed {
					removed = append(removed, m)
					continue
				}
				members, dates = append(members, m), append(dates, s.date)
				if rng.IntN(20) == 0 { // by two records of one write
					again, history[m] = append(again, m), append(history[m], s)
				}
			}
			values = append(values, AppendDatedRow(AppendRepeated(nil, subject, again), subject, 0, removed, members, dates))
		}
		for base, v := range map[bool][]byte{true: foldInParts(t, rng, key, values), false: foldOf(t, key, values, false)} {
			r, err := ParseRow(subject, v)
			members, err1 := r.AppendMembers(nil)
			removed, err2 := r.AppendRemoved(nil)
			repeated, err3 := r.AppendRepeated(nil)
			if err := errors.Join(err, err1, err2, err3); err != nil || (r.Generation == 3) != spilled {
				t.Fatalf("seed %d: %x: %v", seed, v, err)
			}
			var in, out, several []uint64
			dates := map[uint64]uint32{}
			for m, steps := range history {
				end, times, ever, differ := steps[len(steps)-1], 0, false, false
				for _, s := range steps {
					ever, differ = ever || s.removed, differ || s.removed || s.date != end.date
					if times++; s.removed {
						times = 0
					}
				}
				if end.removed && (spilled || !base) || ever && !spilled && !base {
					out = append(out, m)
				}
				if end.removed {
					continue
				}
				in = append(in, m)
				if times > 1 && !spilled {
					several = append(several, m)
				}
				if dates[m] = end.date; differ || base && !spilled {
					dates[m] = Undated
				}
			}
			for _, list := range [][]uint64{in, out, several} {
				slices.Sort(list)
			}
			if !slices.Equal(members, in) || !slices.Equal(removed, out) || !slices.Equal(repeated, several) {
				t.Fatalf("seed %d: members %v, want %v; removed %v, want %v; repeated %v, want %v", seed, members, in, removed, out, repeated, several)
			}
			for i, m := range members {
				if r.Date(i) != dates[m] {
					t.Fatalf("seed %d: %d has the date %d, want %d", seed, m, r.Date(i), dates[m])
				}
			}
			for range 50 {
				m := rng.Uint64N(space)
				if r.Has(m) != slices.Contains(in, m) || r.HasRemoved(m) != slices.Contains(out, m) || r.IsRepeated(m) != slices.Contains(several, m) {
					t.Fatalf("seed %d: %d is a member: %v, removed: %v, repeated: %v", seed, m, r.Has(m), r.HasRemoved(m), r.IsRepeated(m))
				}
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

// TestFoldChunks: chunks fold, in any grouping, to what a map of entries has, and read as they were written. Entries are
// records, or pairs of a record and one of its subjects; the pairs of a record do not repeat its key. The sizes that a fold
// reports are those of the byte form, and 0 for chunks that cannot be spilled.
func TestFoldChunks(t *testing.T) {
	packed := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		bucket := []uint16{0, 1650, RawBucket - 1, RawBucket}[rng.IntN(4)]
		kind := kinds.All[rng.IntN(len(kinds.All))].Kind
		if rng.IntN(2) == 0 {
			kind = kinds.FirstMany
		}
		key := AppendChunkKey(nil, kind, 900, randomPath(rng, bucket), rng.IntN(MaxChunkDepth+1))
		c, err := CoderOfKey(key)
		if err != nil || c.Bucket != bucket && !c.IsRaw() {
			t.Fatal(err)
		}
		want := map[string]Record{}
		var values [][]byte
		spilled, flags := rng.IntN(3) == 0, 1+rng.IntN(4)
		if spilled {
			values = append(values, c.Append(nil, 9, nil))
		}
		for range 1 + rng.IntN(30) {
			op := map[string]Record{}
			for range 1 + rng.IntN(8) {
				r := Record{Path: randomPath(rng, bucket), Subject: dict.ID(rng.Uint64() >> rng.IntN(64)), Flags: []uint8{0, Removed, 0, NoSubject}[rng.IntN(flags)], IsMany: c.many}
				entry := string(r.Path.AppendRkey(nil))
				if c.many {
					r.Flags, r.Subject = r.Flags&Removed, dict.ID(898+rng.IntN(4))
					entry += fmt.Sprint(" ", r.Subject)
				} else if r.Flags != 0 {
					r.Subject = 0
				}
				op[entry] = r
			}
			records := slices.SortedFunc(maps.Values(op), CompareRecords)
			v := c.Append(nil, 0, records)
			if got, _, err := c.Read(nil, v, 0); err != nil || !slices.EqualFunc(got, records, sameRecord) {
				t.Fatalf("seed %d: %v is read as %v, %v", seed, records, got, err)
			}
			values = append(values, v)
			maps.Copy(want, op)
		}
		v := foldInParts(t, rng, key, values)
		got, generation, err := c.Read(nil, v, 0)
		if err != nil || (generation == 9) != spilled {
			t.Fatalf("seed %d: generation %d, %v", seed, generation, err)
		}
		if isPacked(v) {
			packed++
		}
		size := Folded{Entries: len(got), Bytes: len(c.Append(nil, generation, got))}
		if _, _, _, depth, _ := ParseChunkKey(key); depth == MaxChunkDepth {
			size = Folded{}
		}
		if out, folded, err := new(Folder).Fold([]byte("before"), key, values, true); folded != size || string(out) != "before"+string(v) {
			t.Fatalf("seed %d: the size is %+v, want %+v; %v", seed, folded, size, err)
		}
		if !spilled {
			maps.DeleteFunc(want, func(_ string, r Record) bool { return r.Flags == Removed })
		}
		if list := slices.SortedFunc(maps.Values(want), CompareRecords); !slices.EqualFunc(got, list, sameRecord) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, list)
		}
		paths := slices.CompactFunc(got, func(x, y Record) bool { return ComparePaths(x.Path, y.Path) == 0 })
		if n := bytes.Count(v, []byte("key-")); c.IsRaw() && n != len(paths) {
			t.Fatalf("seed %d: %d keys of %d records: %x", seed, n, len(paths), v)
		}
	}
	if packed < 20 {
		t.Errorf("only %d chunks were packed", packed)
	}
}

// checkExtend compares the chunk that extend appends to its oldest value, if it can, with what reading all values gives.
func checkExtend(t *testing.T, c ChunkCoder, values [][]byte, base bool) (ok, packed bool) {
	t.Helper()
	var extended, read chunkFolder
	got, size, ok := extended.extend([]byte("x"), c, values, base)
	if !ok {
		return false, false
	}
	var generation uint64
	for age, v := range values {
		var g uint64
		var err error
		if read.records, g, err = c.Read(read.records, v, uint32(age)); err != nil {
			t.Fatal(err)
		}
		generation = max(generation, g)
	}
	slices.SortFunc(read.records, CompareRecords)
	kept := read.newest(base && generation == 0)
	want := c.Append([]byte("x"), generation, kept)
	if base {
		want = c.AppendStored([]byte("x"), generation, kept)
	} else if isPacked(values[0]) && len(kept) == size.Entries && bytes.Equal(got[1:], values[0]) {
		want = got // nothing is added
	}
	if !bytes.Equal(got, want) || size.Entries != len(kept) {
		t.Fatalf("%x extends to %x, %d records; reading all gives %x, %d", values, got, size.Entries, want, len(kept))
	}
	return true, isPacked(want[1:])
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
		if ok, isPacked := checkExtend(t, c, operands, rng.IntN(2) == 0); ok {
			if extended++; isPacked {
				packed++
			}
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
