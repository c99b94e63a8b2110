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

// wantRow returns what the history of each member comes to, step by step: the members and their dates, and those that were ever removed.
func wantRow(history map[uint64][]step) (removed, members []uint64, dates []uint32) {
	for _, m := range slices.Sorted(maps.Keys(history)) {
		in, ever, date := false, false, uint32(0)
		for _, s := range history[m] {
			switch {
			case s.removed:
				in, ever = false, true
			case in:
				date = Undated // by several records
			default:
				in, date = true, s.date
			}
		}
		if ever {
			removed = append(removed, m)
		}
		if in {
			members, dates = append(members, m), append(dates, date)
		}
	}
	return removed, members, dates
}

// TestFoldRows: rows fold, in any grouping, to what the history of each member comes to. An operand with a generation begins it
// again. With the oldest value, a row without a generation loses the removed, and all dates but that a member is
// Undated; any other keeps both.
func TestFoldRows(t *testing.T) {
	var returned, several int
	for seed := range uint64(1500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		subject := randomID(rng)
		key := AppendRowKey(nil, 1, subject)
		space := []uint64{8, 30, 3000, 1 << 39, 1 << 62}[rng.IntN(5)]
		history := map[uint64][]step{}
		var values [][]byte
		generation := uint64(0)
		total := 1 + rng.IntN(30)
		spill := rng.IntN(3 * total) // the operand that replaces the row, if there is one
		for nth := range total {
			n := 1 + rng.IntN(5)
			if rng.IntN(20) == 0 {
				n = rng.IntN(500)
			}
			g := uint64(0)
			if nth == spill || generation > 0 && rng.IntN(20) == 0 {
				generation++
				g = generation
				clear(history)
			}
			last := map[uint64][]step{}
			for range n {
				s := []step{{date: randomDate(rng)}}
				switch rng.IntN(4) {
				case 0:
					s = []step{{removed: true}}
				case 1:
					s = append([]step{{removed: true}}, s...) // removed, and added again
				}
				last[rng.Uint64N(space)] = s
			}
			var removed, members []uint64
			var dates []uint32
			for _, m := range slices.Sorted(maps.Keys(last)) {
				for _, s := range last[m] {
					if s.removed {
						removed = append(removed, m)
					} else {
						members, dates = append(members, m), append(dates, s.date)
					}
				}
				history[m] = append(history[m], last[m]...)
			}
			values = append(values, AppendRow(nil, subject, g, removed, members, dates))
		}
		for base, v := range map[bool][]byte{true: foldInParts(t, rng, key, values), false: foldOf(t, key, values, false)} {
			r, err := ParseRow(subject, v)
			members, err1 := r.AppendMembers(nil)
			dates, err2 := r.AppendDates(nil, members)
			removed, err3 := r.AppendRemoved(nil)
			if err := errors.Join(err, err1, err2, err3); err != nil || r.Generation != generation {
				t.Fatalf("seed %d: generation %d of %x, want %d: %v", seed, r.Generation, v, generation, err)
			}
			out, in, of := wantRow(history)
			if base && generation == 0 {
				out = nil
				for i := range of {
					if of[i] != Undated {
						of[i] = OneRecord
					}
				}
			}
			if !slices.Equal(members, in) || !slices.Equal(removed, out) || !slices.Equal(dates, of) {
				t.Fatalf("seed %d: members %v, want %v; dates %v, want %v; removed %v, want %v", seed, members, in, dates, of, removed, out)
			}
			for range 50 {
				m := rng.Uint64N(space)
				_, has := r.Date(m)
				if has != slices.Contains(in, m) || r.HasRemoved(m) != slices.Contains(out, m) {
					t.Fatalf("seed %d: %d is a member: %v, removed: %v", seed, m, has, r.HasRemoved(m))
				}
				if has && r.HasRemoved(m) {
					returned++
				}
				if d, _ := r.Date(m); d == Undated {
					several++
				}
			}
		}
	}
	if returned < 1000 || several < 1000 {
		t.Errorf("only %d members were removed before, and %d are undated", returned, several)
	}
}

func compareRecords(x, y Record) int { return CompareEntries(&x, &y) }

// randomPath draws one of few paths, TIDs before and after 2022 among them.
func randomPath(rng *rand.Rand) Path {
	if rng.IntN(3) == 0 {
		return Path{Raw: fmt.Appendf(nil, "key-%d", rng.IntN(30))}
	}
	return Path{TID: firstMicros<<ClockBits - 20<<40 + rng.Uint64N(40)<<40 + rng.Uint64N(3)}
}

// TestFoldChunks: chunks fold, in any grouping, to what a map of entries has, and read as they were written. Entries are
// records, or pairs of a record and one of its subjects; the pairs of a record do not repeat its key. The sizes that a fold
// reports are those of the byte form.
func TestFoldChunks(t *testing.T) {
	packed := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tids := rng.IntN(3) == 0 // only
		kind := kinds.All[rng.IntN(len(kinds.All))].Kind
		if rng.IntN(2) == 0 {
			kind = kinds.FirstMany
		}
		key := AppendRecordsKey(nil, kind, 900)
		c, err := CoderOfKey(key)
		if err != nil {
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
				r := Record{Path: randomPath(rng), Subject: dict.ID(rng.Uint64() >> rng.IntN(64)), Flags: []uint8{0, Removed, 0, NoSubject}[rng.IntN(flags)], IsMany: c.many}
				for tids && r.Path.Raw != nil {
					r.Path = randomPath(rng)
				}
				entry := string(r.Path.AppendRkey(nil))
				if c.many {
					r.Flags, r.Subject = r.Flags&Removed, dict.ID(898+rng.IntN(4))
					entry += fmt.Sprint(" ", r.Subject)
				} else if r.Flags != 0 {
					r.Subject = 0
				}
				op[entry] = r
			}
			records := slices.SortedFunc(maps.Values(op), compareRecords)
			v := c.Append(nil, 0, records)
			if got, _, err := c.Read(nil, v); err != nil || !slices.EqualFunc(got, records, sameRecord) {
				t.Fatalf("seed %d: %v is read as %v, %v", seed, records, got, err)
			}
			values = append(values, v)
			maps.Copy(want, op)
		}
		v := foldInParts(t, rng, key, values)
		got, reach, err := c.Read(nil, v)
		if err != nil || (reach == 9) != spilled {
			t.Fatalf("seed %d: reach %d, %v", seed, reach, err)
		}
		if isPacked(v) {
			packed++
		}
		size := Folded{Entries: len(got), Bytes: len(c.Append(nil, reach, got))}
		if out, folded, err := new(Folder).Fold([]byte("before"), key, values, true); folded != size || string(out) != "before"+string(v) {
			t.Fatalf("seed %d: the size is %+v, want %+v; %v", seed, folded, size, err)
		}
		if !spilled {
			maps.DeleteFunc(want, func(_ string, r Record) bool { return r.Flags == Removed })
		}
		if list := slices.SortedFunc(maps.Values(want), compareRecords); !slices.EqualFunc(got, list, sameRecord) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, list)
		}
		paths := slices.CompactFunc(got, func(x, y Record) bool { return ComparePaths(x.Path, y.Path) == 0 })
		if n := bytes.Count(v, []byte("key-")); n != len(slices.DeleteFunc(paths, func(r Record) bool { return r.Path.Raw == nil })) {
			t.Fatalf("seed %d: %d keys of %d records: %x", seed, n, len(paths), v)
		}
	}
	if packed < 20 {
		t.Errorf("only %d chunks were packed", packed)
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
// must not take its values for rows.
func TestOnlyListedKeyspacesFold(t *testing.T) {
	folds := map[byte]bool{KeyRecord: true, KeyReverse: true, KeyRows: true, KeyAccount: true, dict.KeyString: true}
	for _, keyspace := range append(slices.Collect(maps.Keys(keyspaces)), 0, 'z', 0xff) {
		// A key that is valid in every keyspace that folds, and a value that is a row.
		key := append([]byte{keyspace, 1}, bytes.Repeat([]byte{5}, 7)...)
		switch keyspace {
		case KeyAccount:
			key = alone.AccountKey(nil, shortID)
		case KeyRows:
			key = alone.AppendMembersKey(nil, 2, shortID)
		}
		for _, values := range [][][]byte{{AppendRow(nil, 5, 0, nil, []uint64{5}, nil)}, {nil}, {}} {
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
