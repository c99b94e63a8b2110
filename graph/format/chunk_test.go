package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// randomRecords draws ascending records of a bucket: of one clock or of several, close
// together and far apart, with and without flags.
func randomRecords(rng *rand.Rand, bucket uint16, most int) (records []Record) {
	clocks, step := uint64(1+rng.IntN(3)), uint64(1)<<(10+rng.IntN(35))
	tid := uint64(bucket)<<BucketShift + rng.Uint64N(step)
	for i := range rng.IntN(most + 1) {
		r := Record{Path: Path{TID: tid&^clockMask | rng.Uint64N(clocks)}, Subject: randomID(rng)}
		if bucket >= RawBucket {
			r.Path = Path{Raw: fmt.Appendf(nil, "%04d%s", i, bytes.Repeat([]byte("x"), rng.IntN(200)))}
		} else if tid += 1<<ClockBits + rng.Uint64N(step); tid>>BucketShift != uint64(bucket) {
			break
		}
		if rng.IntN(4) == 0 {
			r.Flags, r.Subject = 1+uint8(rng.IntN(2)), dict.None
		}
		records = append(records, r)
	}
	return records
}

func sameRecord(x, y Record) bool {
	return ComparePaths(x.Path, y.Path) == 0 && (x.Path.Raw == nil) == (y.Path.Raw == nil) && x.Subject == y.Subject && x.Flags == y.Flags
}

// naiveRead decodes a chunk field by field, as its format is documented.
func naiveRead(actor dict.ID, bucket uint16, v []byte) (records []Record, generation uint64) {
	if isPacked(v) {
		return naiveUnpack(actor, bucket, v), 0
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
	micros, clock, subject := uint64(bucket)<<40, uint64(0), uint64(actor)
	for len(v) > 0 {
		r := Record{}
		n := next()
		if len(records) == 0 && generation == 0 && n == 1 {
			if binary.BigEndian.Uint16(v) == 4<<10 {
				word()
				generation = next()
				continue
			}
		}
		if bucket >= RawBucket {
			r.Path.Raw, v = v[:n/2], v[n/2:]
			if n%2 == 1 {
				r.Flags, _ = word()
			}
		} else {
			micros += n / 2
			if n%2 == 1 {
				r.Flags, clock = word()
			}
			r.Path.TID = micros*1024 + clock
		}
		if r.Flags == 0 {
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
	return records, generation
}

// TestChunksRoundTrip: Read, walk, AppendSubjects and the naive decoder return what a chunk was made from, in both forms. A packed
// chunk is shorter than its byte form.
func TestChunksRoundTrip(t *testing.T) {
	var packed, longer, long int
	for seed := range uint64(6000) {
		rng := rand.New(rand.NewPCG(seed, 30))
		actor, bucket := randomID(rng), []uint16{0, 1607, RawBucket - 1, RawBucket, RawBucket + 255}[rng.IntN(5)]
		c := CoderOf(1, actor, bucket)
		records := randomRecords(rng, bucket, []int{2, 6, 40, 300}[rng.IntN(4)])
		generation := max(rng.Uint64N(6), 3) - 3
		if wide := rng.IntN(64); seed%3 > 0 && !c.IsRaw() { // as they are packed
			generation = 0
			for i := range records {
				if records[i].Flags = 0; rng.IntN(20) > 0 {
					records[i].Subject = actor + dict.ID(rng.Uint64()>>wide)
				}
				if rng.IntN(4) == 0 {
					records[i].Path.TID = records[i].Path.TID&^clockMask | rng.Uint64N(1<<ClockBits)>>rng.IntN(ClockBits)
				}
			}
		}
		flags := hasFlags(records)
		plain, stored := c.Append([]byte("x"), generation, records)[1:], c.AppendStored([]byte("x"), generation, records)[1:]
		if isPacked(stored) {
			packed++
		} else {
			longer++
		}
		if isPacked(stored) && (len(stored) >= len(plain) || len(records) < minPacked) || !isPacked(stored) && !bytes.Equal(stored, plain) {
			t.Fatalf("seed %d: %d records are stored as %x, and otherwise as %x", seed, len(records), stored, plain)
		}
		for _, v := range [][]byte{plain, stored} {
			got, g, err := c.Read([]Record{{Age: 9}}, v, 4)
			if err != nil || g != generation || got[0].Age != 9 || !slices.EqualFunc(got[1:], records, sameRecord) || slices.ContainsFunc(got[1:], func(r Record) bool { return r.Age != 4 }) {
				t.Fatalf("seed %d: %x is read as %v of generation %d, %v; want %v of %d", seed, v, got[1:], g, err, records, generation)
			}
			if naive, g := naiveRead(actor, bucket, v); g != generation || !slices.EqualFunc(naive, records, sameRecord) {
				t.Fatalf("seed %d: naively, %x is %v, want %v", seed, v, naive, records)
			}
			if c.IsRaw() {
				continue
			}
			ends := []chunkEnd{c.start()}
			w, ok := c.walk(v, &ends)
			removed := slices.ContainsFunc(records, func(r Record) bool { return r.Flags == Removed })
			if !ok || w != (walked{ends[len(ends)-1], len(records), generation, removed, flags}) || !flags && !slices.Equal(ends[1:], appendEnds(nil, records)) {
				t.Fatalf("seed %d: a walk through %x finds %+v, %v, %v", seed, v, w, ends, ok)
			}
			for i := 1; i < len(ends) && isPacked(v); i++ {
				if 2*bits.Len64(ends[i].subjectSince(&ends[i-1])) > windowBits+int(v[1]&0x7f) {
					long++ // see longCode
				}
			}
			if flags || generation > 0 || len(records) == 0 {
				continue
			}
			from, last := records[rng.IntN(len(records))].Path.TID, records[rng.IntN(len(records))].Path.TID
			want := []uint64{7}
			for i := range records {
				if tid := records[i].Path.TID; tid >= from && tid <= last {
					want = append(want, uint64(records[i].Subject))
				}
			}
			if subjects, ok := c.AppendSubjects([]uint64{7}, v, from, last); !ok || !slices.Equal(subjects, want) {
				t.Fatalf("seed %d: subjects %v, want %v", seed, subjects, want)
			}
		}
		if c.IsRaw() {
			continue
		}
		// Appending after the end that walk returns gives the bytes of the whole chunk.
		cut := rng.IntN(len(records) + 1)
		head := c.Append(nil, generation, records[:cut])
		if w, _ := c.walk(head, nil); !bytes.Equal(c.appendAfter(head, w.end, records[cut:]), plain) {
			t.Fatalf("seed %d: the last %d records are appended to other bytes than %x", seed, len(records)-cut, plain)
		}
	}
	if packed < 500 || longer < 500 || long < 500 {
		t.Errorf("%d chunks were packed, %d not; %d long codes: too few to prove anything", packed, longer, long)
	}
}

// TestChunksRefused: Read, walk and folds refuse malformed chunks.
func TestChunksRefused(t *testing.T) {
	const tids, raws = 1607, RawBucket
	for _, c := range []struct {
		name   string
		bucket uint16
		v      []byte
	}{
		{"a number that is cut", tids, []byte{0x80}},
		{"no word where one was said to be", tids, []byte{1}},
		{"half a word", tids, []byte{1, 0}},
		{"no subject", tids, []byte{2}},
		{"no subject after the word", tids, []byte{3, 0, 17}},
		{"a subject that is cut", tids, []byte{2, 0x80}},
		{"a flag that none has", tids, []byte{3, 0x0c, 17}},
		{"all flags", tids, []byte{3, 0xfc, 17, 2}},
		{"spilled without a generation", tids, []byte{1, 0x10, 0}},
		{"spilled in generation 0", tids, []byte{1, 0x10, 0, 0}},
		{"a generation that is cut", tids, []byte{1, 0x10, 0, 0x80}},
		{"spilled, said second", tids, []byte{2, 2, 1, 0x10, 0, 1}},
		{"spilled twice", tids, []byte{1, 0x10, 0, 1, 1, 0x10, 0, 1}},
		{"a key of no bytes", raws, []byte{0, 2}},
		{"a key of no bytes and a word", raws, []byte{1, 0, 0, 2}},
		{"a key that is cut", raws, []byte{8, 's', 'e', 'l'}},
		{"a key longer than memory", raws, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 's'}},
		{"a key without a subject", raws, []byte{8, 's', 'e', 'l', 'f'}},
		{"a key with half a word", raws, []byte{9, 's', 'e', 'l', 'f', 4}},
		{"a key with a flag that none has", raws, []byte{9, 's', 'e', 'l', 'f', 0x0c, 0}},
		{"raw keys spilled in generation 0", raws, []byte{1, 0x10, 0, 0}},
	} {
		coder := CoderOf(1, 5, c.bucket)
		if got, _, err := coder.Read(nil, c.v, 0); err == nil {
			t.Errorf("%s: %x is read as %v", c.name, c.v, got)
		}
		key := binary.BigEndian.AppendUint16(AppendRecordsKey(nil, 1, 5), c.bucket)
		good := coder.Append(nil, 0, []Record{{Path: Path{TID: tids<<BucketShift | 1}, Subject: 1}})
		if coder.IsRaw() {
			good = coder.Append(nil, 0, []Record{{Path: Path{Raw: []byte("a")}, Subject: 1}})
		} else if _, ok := coder.walk(c.v, nil); ok {
			t.Errorf("%s: walk accepts %x", c.name, c.v)
		}
		for _, values := range [][][]byte{{c.v}, {good, c.v}, {c.v, good}} {
			if v, _, err := new(Folder).Fold(nil, key, values, false); err == nil {
				t.Errorf("%s: %x folds to %x", c.name, values, v)
			}
		}
	}
}

// TestCoderOfKey: only keys of known kinds have a coder.
func TestCoderOfKey(t *testing.T) {
	for kind := range 256 {
		k := kinds.Kind(kind)
		c, err := CoderOfKey(AppendChunkKey(nil, k, longID, Path{TID: goldenTID}, 2))
		if known := k > 0 && int(k) <= len(kinds.All) || k >= 64 && k < 192; (err == nil) != known || known && c != CoderOf(k, longID, 1607) {
			t.Errorf("kind %v: %+v, %v", k, c, err)
		}
	}
	if c, err := CoderOfKey(AppendRowKey(nil, 1, longID)); err == nil {
		t.Errorf("the key of a set has the coder %+v", c)
	}
}

// TestLive compares the live records of one, two and several chunks, which override those after them, with a map.
func TestLive(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	overridden := 0
	for range 2000 {
		const bucket = 7
		chunks := 1 + rng.IntN(4)
		paths := randomRecords(rng, bucket, 20)
		var records []Record
		want := map[uint64]Record{}
		for depth := range chunks {
			for _, r := range paths {
				if rng.IntN(2) == 0 {
					continue
				}
				r.Age, r.Flags, r.Subject = uint32(depth), uint8(rng.IntN(3)), randomID(rng)
				records = append(records, r)
				if _, ok := want[r.Path.TID]; ok {
					overridden++
				} else {
					want[r.Path.TID] = r
				}
			}
		}
		maps.DeleteFunc(want, func(_ uint64, r Record) bool { return r.Flags == Removed })
		var before uint64
		for r := range Live(records, chunks) {
			if w, ok := want[r.Path.TID]; !ok || !sameRecord(*r, w) || r.Age != w.Age {
				t.Fatalf("%d chunks: %+v is live; want %+v, %v", chunks, *r, w, ok)
			}
			if r.Path.TID <= before {
				t.Fatalf("%d chunks: %d comes after %d", chunks, r.Path.TID, before)
			}
			before = r.Path.TID
			delete(want, r.Path.TID)
		}
		if len(want) > 0 {
			t.Fatalf("%d chunks: %v should be live", chunks, want)
		}
	}
	if overridden < 1000 {
		t.Errorf("only %d changes were overridden", overridden)
	}
}
