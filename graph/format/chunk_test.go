package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// randomRecords draws ascending entries of an actor: of one clock or of several, close together and far apart, before 2022 and at the ends
// of the TIDs, with and without flags, and, if raw is set, with other keys after the TIDs. Of a coder of records with several subjects,
// some have several.
func randomRecords(rng *rand.Rand, c ChunkCoder, most int, raw bool) (records []Record) {
	clocks, step := uint64(1+rng.IntN(3)), uint64(1)<<(ClockBits+rng.IntN(43))
	tid := []uint64{0, firstMicros << ClockBits, goldenTID - 1<<58, goldenTID, EndOfTime - 1<<40}[rng.IntN(5)] + rng.Uint64N(step)
	n := rng.IntN(most + 1)
	tids := n
	if raw {
		tids = rng.IntN(n + 1)
	}
	for i := range n {
		r := Record{Path: Path{TID: tid&^clockMask | rng.Uint64N(clocks)}, Subject: randomID(rng), IsMany: c.many}
		if tid += 1<<ClockBits + rng.Uint64N(step); i >= tids || r.Path.TID >= EndOfTime {
			if !raw {
				break
			}
			r.Path = Path{Raw: fmt.Appendf(nil, "%04d%s", i, bytes.Repeat([]byte("x"), rng.IntN(200)))}
		}
		if rng.IntN(4) == 0 {
			if r.Flags = 1 + uint8(rng.IntN(2)); c.many {
				r.Flags = Removed // a pair has a subject
			} else {
				r.Subject = dict.None
			}
		}
		for records = append(records, r); c.many && rng.IntN(3) == 0 && r.Subject < 1<<63; {
			r.Subject += 1 + dict.ID(rng.Uint64N(100))
			records = append(records, r)
		}
	}
	return records
}

func sameRecord(x, y Record) bool {
	return ComparePaths(x.Path, y.Path) == 0 && (x.Path.Raw == nil) == (y.Path.Raw == nil) && x.Subject == y.Subject && x.Flags == y.Flags
}

// naiveRead decodes a chunk field by field, as its format is documented.
func naiveRead(actor dict.ID, many bool, v []byte) (records []Record, reach uint64) {
	if isPacked(v) {
		return naiveUnpack(actor, v), 0
	}
	next := func() uint64 {
		n, w := binary.Uvarint(v)
		v = v[w:]
		return n
	}
	word := func() (flags uint8, clock uint64) {
		n := binary.BigEndian.Uint16(v)
		v = v[2:]
		return uint8(n >> 10), uint64(n & 1023)
	}
	micros, clock, subject := uint64(1_640_995_200_000_000), uint64(0), uint64(actor)
	for len(v) > 0 {
		r := Record{IsMany: many}
		n := next()
		if n%2 == 1 {
			var at uint64
			r.Flags, at = word()
			switch {
			case r.Flags == 4 && len(records) == 0:
				reach = next()
				continue
			case r.Flags&8 != 0:
				r.Flags -= 8
				length := next()
				if r.Path.Raw, v = v[:length], v[length:]; length == 0 {
					r.Path.Raw = records[len(records)-1].Path.Raw
				}
			default:
				clock = at
			}
		}
		if r.Path.Raw == nil {
			micros = (micros + n/2) % (1 << 54)
			r.Path.TID = micros*1024 + clock
		}
		if r.Flags == 0 || many {
			d := next()
			if d%2 == 0 {
				subject += d / 2
			} else {
				subject -= d/2 + 1
			}
			r.Subject = dict.ID(subject)
		}
		records = append(records, r)
	}
	return records, reach
}

// TestChunksRoundTrip: Read, AppendSubjects and the naive decoder return what a chunk was made from, in both forms. A packed
// chunk is shorter than its byte form.
func TestChunksRoundTrip(t *testing.T) {
	var packed, longer, long, raws, early int
	for seed := range uint64(8000) {
		rng := rand.New(rand.NewPCG(seed, 30))
		actor, kind := randomID(rng), []kinds.Kind{1, 2, 64, kinds.FirstMany}[rng.IntN(4)]
		c := CoderOf(kind, actor)
		asPacked := seed%3 > 0 && !c.many
		records := randomRecords(rng, c, []int{2, 6, 40, 300}[rng.IntN(4)], !asPacked && rng.IntN(2) == 0)
		reach := max(rng.Uint64N(6), 3) - 3
		if wide := rng.IntN(64); asPacked {
			reach = 0
			for i := range records {
				if records[i].Flags = 0; rng.IntN(20) > 0 {
					records[i].Subject = actor + dict.ID(rng.Uint64()>>wide)
				}
				if rng.IntN(4) == 0 {
					records[i].Path.TID = records[i].Path.TID&^clockMask | rng.Uint64N(1<<ClockBits)>>rng.IntN(ClockBits)
				}
			}
		}
		flags, raw := slices.ContainsFunc(records, func(r Record) bool { return r.Flags != 0 || r.Path.Raw != nil }), len(records) > 0 && records[len(records)-1].Path.Raw != nil
		if raw && records[0].Path.Raw == nil {
			raws++
		}
		if len(records) > 0 && records[0].Path.Raw == nil && records[0].Path.TID>>ClockBits < firstMicros {
			early++
		}
		plain, stored := c.Append([]byte("x"), reach, records)[1:], c.AppendStored([]byte("x"), reach, records)[1:]
		if isPacked(stored) {
			packed++
		} else {
			longer++
		}
		if isPacked(stored) && (len(stored) >= len(plain) || len(records) < minPacked) || !isPacked(stored) && !bytes.Equal(stored, plain) {
			t.Fatalf("seed %d: %d records are stored as %x, and otherwise as %x", seed, len(records), stored, plain)
		}
		for _, v := range [][]byte{plain, stored} {
			got, g, err := c.Read([]Record{{Flags: 9}}, v)
			if err != nil || g != reach || got[0].Flags != 9 || !slices.EqualFunc(got[1:], records, sameRecord) ||
				slices.ContainsFunc(got[1:], func(r Record) bool { return r.IsMany != c.many }) {
				t.Fatalf("seed %d: %x is read as %v of reach %d, %v; want %v of %d", seed, v, got[1:], g, err, records, reach)
			}
			if naive, g := naiveRead(actor, c.many, v); g != reach || !slices.EqualFunc(naive, records, sameRecord) {
				t.Fatalf("seed %d: naively, %x is %v, want %v", seed, v, naive, records)
			}
			before := c.start()
			for i := 0; i < len(records) && isPacked(v); i++ {
				at := endOf(&records[i])
				if 2*bits.Len64(at.subjectSince(before)) > windowBits+int(v[1]&0x7f) {
					long++ // see longCode
				}
				before = at
			}
			simple, want := !flags && reach == 0, []uint64{7}
			from, last := uint64(0), uint64(1<<64-1)
			if len(records) > 0 {
				from, last = records[rng.IntN(len(records))].Path.TID, records[rng.IntN(len(records))].Path.TID
			}
			for i := range records {
				if tid := records[i].Path.TID; simple && tid >= from && tid <= last {
					want = append(want, uint64(records[i].Subject))
				}
			}
			if subjects, ok := c.AppendSubjects([]uint64{7}, v, from, last); ok != simple || !slices.Equal(subjects, want) {
				t.Fatalf("seed %d: subjects %v, %v, want %v, %v", seed, subjects, ok, want, simple)
			}
		}
	}
	if packed < 500 || longer < 500 || long < 500 || raws < 500 || early < 500 {
		t.Errorf("%d chunks were packed, %d not; %d long codes; %d chunks of TIDs and other keys, %d from before 2022: too few to prove anything", packed, longer, long, raws, early)
	}
}

// TestChunksRefused: Read and folds refuse malformed chunks.
func TestChunksRefused(t *testing.T) {
	raw := func(key string, rest ...byte) []byte {
		return append(append([]byte{1, 0x20, 0, byte(len(key))}, key...), rest...)
	}
	for name, v := range map[string][]byte{
		"a number that is cut":                  {0x80},
		"no word where one was said to be":      {1},
		"half a word":                           {1, 0},
		"no subject":                            {2},
		"no subject after the word":             {3, 0, 17},
		"a subject that is cut":                 {2, 0x80},
		"a flag that none has":                  {3, 0x0c, 17},
		"all flags":                             {3, 0xfc, 17, 2},
		"spilled without a reach":               {1, 0x10, 0},
		"spilled in reach 0":                    {1, 0x10, 0, 0},
		"a reach that is cut":                   {1, 0x10, 0, 0x80},
		"spilled, said second":                  {2, 2, 1, 0x10, 0, 1},
		"spilled twice":                         {1, 0x10, 0, 1, 1, 0x10, 0, 1},
		"a key of no bytes":                     raw("", 2),
		"a key of no bytes after another":       append(raw("a", 2), raw("", 2)...),
		"a key without its length":              {1, 0x20, 0},
		"a key that is cut":                     {1, 0x20, 0, 4, 's', 'e', 'l'},
		"a key longer than memory":              {1, 0x20, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 's'},
		"a key without a subject":               raw("self"),
		"a key with a flag that none has":       {1, 0x2c, 0, 1, 'a', 2},
		"a key and a spill":                     {1, 0x30, 0, 1, 'a', 2},
		"a key with a time":                     {3, 0x20, 0, 1, 'a', 2},
		"a key with a clock":                    {1, 0x20, 1, 1, 'a', 2},
		"a TID after a key":                     append(raw("a", 2), 2, 2),
		"a TID with a word after a key":         append(raw("a", 2), 3, 0, 17, 2),
		"a removed TID after a removed key":     {1, 0x24, 0, 1, 'a', 3, 4, 17},
		"a reach after a key":                   append(raw("a", 2), 1, 0x10, 0, 1),
		"a spilled head with a TID that is cut": {1, 0x10, 0, 1, 2},
	} {
		coder := CoderOf(1, 5)
		if got, _, err := coder.Read(nil, v); err == nil {
			t.Errorf("%s: %x is read as %v", name, v, got)
		}
		if _, ok := coder.AppendSubjects(nil, v, 0, 1<<64-1); ok {
			t.Errorf("%s: %x has subjects", name, v)
		}
		for _, good := range [][]byte{coder.Append(nil, 0, []Record{{Path: Path{TID: 1}, Subject: 1}}), raw("a", 2)} {
			for _, values := range [][][]byte{{v}, {good, v}, {v, good}} {
				if v, _, err := new(Folder).Fold(nil, AppendRecordsKey(nil, 1, 5), values, false); err == nil {
					t.Errorf("%s: %x folds to %x", name, values, v)
				}
			}
		}
	}
	// Of a record with several subjects, only the first has the key; none names nothing.
	many := CoderOf(kinds.FirstMany, 5)
	pairs := append(raw("a", 2), raw("", 2)...)
	if got, _, err := many.Read(nil, pairs); err != nil || len(got) != 2 || string(got[1].Path.Raw) != "a" {
		t.Errorf("%x is read as %v, %v", pairs, got, err)
	}
	for _, v := range [][]byte{raw("", 2), append([]byte{2, 2}, raw("", 2)...), {1, 0x28, 0, 1, 'a', 2}, {3, 0x08, 17, 2}} {
		if got, _, err := many.Read(nil, v); err == nil {
			t.Errorf("%x is read as %v", v, got)
		}
	}
}

// TestCoderOfKey: only keys of known kinds have a coder.
func TestCoderOfKey(t *testing.T) {
	for kind := range 256 {
		k := kinds.Kind(kind)
		for _, key := range [][]byte{AppendRecordsKey(nil, k, longID), AppendLeafKey(AppendRecordsKey(nil, k, longID), Path{TID: goldenTID})} {
			c, err := CoderOfKey(key)
			if known := k > 0 && int(k) <= len(kinds.All) || k >= 64; (err == nil) != known || known && c != CoderOf(k, longID) {
				t.Errorf("kind %v: %+v, %v", k, c, err)
			}
		}
	}
	if c, err := CoderOfKey(AppendRowKey(nil, 1, longID)); err == nil {
		t.Errorf("the key of a set has the coder %+v", c)
	}
}

// TestMerged compares the live records of a head and of a leaf, which the head overrides, with a map.
func TestMerged(t *testing.T) {
	overridden, stopped := 0, 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 31))
		c := CoderOf([]kinds.Kind{1, kinds.FirstMany}[seed%2], 5)
		entries := randomRecords(rng, c, 20, true)
		var lists [2][]Record
		var want []Record
		for _, r := range entries {
			in := [2]bool{rng.IntN(2) == 0, rng.IntN(2) == 0}
			for i := range lists {
				n := r
				if n.Flags = uint8(rng.IntN(2)) * Removed; !c.many {
					n.Subject = randomID(rng)
				}
				if i == 1 {
					n.Flags = 0 // a leaf has no removed records
				}
				if !in[i] {
					continue
				}
				lists[i] = append(lists[i], n)
				if i == 1 && in[0] {
					overridden++
				} else if n.Flags == 0 {
					want = append(want, n)
				}
			}
		}
		most := rng.IntN(2 * (len(entries) + 1))
		var got []Record
		if more := Merged(lists[0], lists[1], func(r *Record) bool { got = append(got, *r); return len(got) <= most }); more != (len(want) <= most) {
			t.Fatalf("seed %d: %d of %d records, and there are more: %v", seed, len(got), len(want), more)
		} else if !more {
			stopped++
			want = want[:most+1]
		}
		if !slices.EqualFunc(got, want, sameRecord) {
			t.Fatalf("seed %d: %v and %v are %v, want %v", seed, lists[0], lists[1], got, want)
		}
	}
	if overridden < 1000 || stopped < 100 {
		t.Errorf("only %d changes were overridden, %d merges stopped", overridden, stopped)
	}
}
