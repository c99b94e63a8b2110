package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skein.blue/intern/dict"
)

// naiveUnpack decodes a packed chunk from a string of digits, as its format is documented.
func naiveUnpack(actor dict.ID, v []byte) (records []Record) {
	var rest string
	take := func(n int) (number uint64) {
		if n > 0 {
			number, _ = strconv.ParseUint(rest[:n], 2, 64)
		}
		rest = rest[n:]
		return number
	}
	code := func(k byte) uint64 {
		q := strings.IndexByte(rest, '0')
		take(q + 1)
		high := uint64(1)<<q | take(q)
		return (high-1)<<(k-128) | take(int(k)-128)
	}
	column := func(v []byte, next func()) {
		for rest = ""; len(v) > 0; v = v[1:] {
			rest += fmt.Sprintf("%08b", v[0])
		}
		for len(rest) >= 8 || strings.Contains(rest, "0") {
			next()
		}
	}
	size, w := binary.Uvarint(v[3:])
	middle := 3 + w + int(size)
	subject := uint64(actor)
	column(v[3+w:middle], func() {
		if d := code(v[1]); d%2 == 0 {
			subject += d / 2
		} else {
			subject -= d/2 + 1
		}
		records = append(records, Record{Subject: dict.ID(subject)})
	})
	i, micros, clock := 0, uint64(1_640_995_200_000_000), uint64(0)
	column(v[middle:], func() {
		n := code(v[0])
		if micros += n / 2; n%2 == 1 {
			clock = take([]int{5, 10}[take(1)])
		}
		records[i].Path.TID = micros<<ClockBits | clock
		i++
	})
	return records
}

// TestWhatIsPacked: chunks that the packed form cannot express, and those that are operands, keep the byte form.
func TestWhatIsPacked(t *testing.T) {
	of := func(c ChunkCoder, flags uint8, raws ...string) (records []Record) {
		for i := range uint64(50) {
			r := Record{Path: Path{TID: goldenTID + i<<30}, Subject: dict.ID(1<<40 + i*1000), IsMany: c.many, Flags: flags}
			if flags != 0 && i != 20 {
				r.Flags = 0
			} else if flags != 0 {
				r.Subject = dict.None
			}
			records = append(records, r)
		}
		for _, raw := range raws {
			records = append(records, Record{Path: Path{Raw: []byte(raw)}, Subject: 7, IsMany: c.many})
		}
		return records
	}
	tids, many := CoderOf(1, 5), ChunkCoder{many: true, first: 5}
	for name, c := range map[string]struct {
		coder      ChunkCoder
		generation uint64
		flags      uint8
		raws       []string
		packed     bool
	}{
		"TIDs":                       {tids, 0, 0, nil, true},
		"spilled":                    {tids, 1, 0, nil, false},
		"names nothing":              {tids, 0, NoSubject, nil, false},
		"a raw key":                  {tids, 0, 0, []string{"self"}, false},
		"several subjects":           {many, 0, 0, nil, false},
		"removed with nothing below": {tids, 0, Removed, nil, false},
	} {
		records := of(c.coder, c.flags, c.raws...)
		v := c.coder.AppendStored(nil, c.generation, records)
		if isPacked(v) != c.packed {
			t.Errorf("%s: packed is %v, want %v", name, !c.packed, c.packed)
		}
		if got, g, err := c.coder.Read(nil, v); err != nil || g != c.generation || !slices.EqualFunc(got, records, sameRecord) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	key := AppendRecordsKey(nil, 1, 5)
	operand := tids.Append(nil, 0, of(tids, 0))
	for _, base := range []bool{false, true} {
		if v, _, err := new(Folder).Fold(nil, key, [][]byte{operand}, base); err != nil || isPacked(v) != base {
			t.Errorf("an operand folds to a packed chunk: %v, want %v; %v", isPacked(v), base, err)
		}
	}
	nothing := tids.Append(nil, 0, of(tids, NoSubject)) // one of its records names nothing
	self := tids.Append(nil, 0, []Record{{Path: Path{Raw: []byte("self")}, Subject: 7}})
	for _, values := range [][][]byte{{nothing}, {operand, self}, {self, operand}, {nothing, tids.Append(nil, 0, []Record{{Path: Path{TID: goldenTID + 1<<40}, Subject: 7}})}} {
		if v, _, err := new(Folder).Fold(nil, key, values, true); err != nil || isPacked(v) {
			t.Errorf("a record that names nothing, or a raw key, is packed: %x, %v", v, err)
		}
	}
	stored := tids.AppendStored(nil, 0, of(tids, 0))
	later := tids.Append(nil, 0, []Record{{Path: Path{TID: goldenTID + 1<<40}, Subject: 7}})
	for _, values := range [][][]byte{{stored, later}, {stored, later, later}, {stored, operand}} {
		for _, base := range []bool{false, true} {
			if v, _, err := new(Folder).Fold(nil, key, values, base); err != nil || isPacked(v) != base {
				t.Errorf("a packed chunk and %d operands fold to a packed chunk: %v, want %v; %v", len(values)-1, isPacked(v), base, err)
			}
		}
	}
}

// TestPackedRefused: malformed packed chunks are refused.
func TestPackedRefused(t *testing.T) {
	for name, c := range map[string]struct {
		coder ChunkCoder
		v     []byte
	}{
		"a k of 0":                      {CoderOf(1, 5), []byte{0x80, 0x81, 0, 1, 0b00_111111, 0b0_1111111}},
		"a k above 63":                  {CoderOf(1, 5), []byte{0xc0, 0x81, 0, 1, 0b00_111111, 0x00, 0x00}},
		"a k of subjects above 63":      {CoderOf(1, 5), []byte{0x81, 0xc0, 0, 2, 0x00, 0x00, 0b00_111111}},
		"several subjects":              {ChunkCoder{many: true}, []byte{0x81, 0x81, 0, 1, 0b00_111111, 0b00_111111}},
		"a clock like the last":         {CoderOf(1, 5), []byte{0x81, 0x81, 0, 1, 0b00_111111, 0b01_0_00000}},
		"a byte of bits 1":              {CoderOf(1, 5), []byte{0x81, 0x81, 0, 2, 0b00_111111, 0xff, 0b00_111111}},
		"a byte of bits 1 at the end":   {CoderOf(1, 5), []byte{0x81, 0x81, 0, 1, 0b00_111111, 0b00_111111, 0xff}},
		"a code without its end":        {CoderOf(1, 5), append([]byte{0x81, 0x81, 0, 1, 0b00_111111}, bytes.Repeat([]byte{0xff}, 20)...)},
		"a subject without its end":     {CoderOf(1, 5), []byte{0x81, 0x82, 0, 1, 0b000_000_00, 0b00_00_00_11}},
		"a number that wraps":           {CoderOf(1, 5), []byte{0x81, 0x81, 0, 1, 0b00_111111, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x0a}},
		"a number of more than 64 bits": {CoderOf(1, 5), []byte{0xbf, 0x81, 0, 1, 0b00_111111, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0x0f}},
		"a column longer than all":      {CoderOf(1, 5), []byte{0x81, 0x81, 0, 9, 0b00_111111, 0b00_111111}},
		"a length without its end":      {CoderOf(1, 5), []byte{0x81, 0x81, 0, 0x80}},
		"fewer times than subjects":     {CoderOf(1, 5), []byte{0x81, 0x81, 0, 1, 0b00_00_1111, 0b00_111111}},
		"more times than subjects":      {CoderOf(1, 5), []byte{0x81, 0x81, 0, 1, 0b00_111111, 0b00_00_1111}},
	} {
		if got, _, err := c.coder.Read(nil, c.v); err == nil {
			t.Errorf("%s: %x is read as %v", name, c.v, got)
		}
		if got, ok := c.coder.AppendSubjects(nil, c.v, 0, 1<<63); ok {
			t.Errorf("%s: %x has the subjects %v", name, c.v, got)
		}
	}
	if _, ok := CoderOf(1, 5).AppendNaming(nil, []byte{0x81, 0x82, 0, 1, 0b000_000_00, 0b00_00_00_11}, func(dict.ID) bool { return false }); ok {
		t.Error("a subject without its end is none that is wanted")
	}
	// The same, well-formed: two records of the numbers 0 and 0, and bits 1.
	if got, _, err := CoderOf(1, 5).Read(nil, []byte{0x81, 0x81, 0, 1, 0b00_00_1111, 0b00_00_1111}); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	c := CoderOf(1, shortID)
	for _, form := range goldenChunks() {
		if !isPacked(form.Bytes) {
			continue
		}
		whole, _, _ := c.Read(nil, form.Bytes)
		for n := packedHeader + 1; n < len(form.Bytes); n++ {
			if got, _, err := c.Read(nil, form.Bytes[:n]); err == nil && (len(got) >= len(whole) || !slices.EqualFunc(got, whole[:len(got)], sameRecord)) {
				t.Errorf("%s, cut to %d bytes, is read as %v", form.Name, n, got)
			}
		}
	}
}

// TestChunkCost: a chunk costs at least its length, and recordCost for each of its records.
func TestChunkCost(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 35))
		c := CoderOf(1, 1<<36)
		var records []Record
		tid, subject := uint64(1_767_225_600_000_000)<<ClockBits, dict.ID(1<<36)
		wide := rng.IntN(30)
		for range rng.IntN(300) {
			tid += (1 + rng.Uint64N(1<<wide)) << ClockBits
			subject += dict.ID(rng.Uint64N(1 << wide))
			records = append(records, Record{Path: Path{TID: tid}, Subject: subject})
		}
		v := c.AppendStored(nil, 0, records)
		if cost := ChunkCost(v); cost < len(v) || isPacked(v) && cost < recordCost*len(records) || cost > len(v)+recordCost*2*len(records)+20 {
			t.Fatalf("seed %d: %d records in %d bytes cost %d", seed, len(records), len(v), cost)
		}
	}
}

// BenchmarkPacked decodes and encodes chunks of some sizes in both forms.
//
//	go test ./graph/format -run xxx -bench Packed
func BenchmarkPacked(b *testing.B) {
	for _, n := range []int{10, 30, 300} {
		rng := rand.New(rand.NewPCG(1, 1))
		c := CoderOf(2, 1<<36)
		var records []Record
		at := uint64(1_767_225_600_000_000) << ClockBits
		for range n {
			at += rng.Uint64N(2*(1<<40)/uint64(n+1)) << ClockBits
			records = append(records, Record{Path: Path{TID: at | 17}, Subject: dict.ID(1<<36 + rng.Uint64N(1<<25))})
		}
		plain, packed := c.Append(nil, 0, records), c.AppendStored(nil, 0, records)
		var dst []Record
		var subjects []uint64
		var out []byte
		for name, run := range map[string]func(){
			"read/bytes":      func() { dst, _, _ = c.Read(dst[:0], plain) },
			"read/packed":     func() { dst, _, _ = c.Read(dst[:0], packed) },
			"subjects/bytes":  func() { subjects, _ = c.AppendSubjects(subjects[:0], plain, 0, EndOfTime) },
			"subjects/packed": func() { subjects, _ = c.AppendSubjects(subjects[:0], packed, 0, math.MaxUint64) },
			"write/bytes":     func() { out = c.Append(out[:0], 0, records) },
			"write/packed":    func() { out, _, _ = c.appendPacked(out[:0], 0, records) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
			})
		}
	}
}
