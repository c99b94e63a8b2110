package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A ChunkCoder reads and writes the chunks of one actor and one bucket, which their key names.
// A chunk holds an actor's records of one kind whose paths share a bucket, by path; or, once
// spilled, the newest changes to them. On disk it is
//
//	uvarint 1, flagSpilled in 2 bytes, uvarint generation   if it was spilled
//	n × record:
//	  of a TID  uvarint: 2 × (microseconds since the previous record, or since
//	            the start of the bucket), +1 if the next field is present
//	            flags(6 bits) clock(10 bits), big-endian; if absent, no flags, and
//	            the clock of the previous record, or 0 for the first
//	  else      uvarint: 2 × length, +1 if the flags are present
//	            the record key; flags(6 bits) 0(10 bits)
//	  without flags: the subject, as its difference to the previous subject, or
//	  to the actor's id for the first; zigzag uvarint
//
// Nearly all records of an actor have the clock of its PDS. This is the byte form, of all merge operands and of stored chunks that are not
// packed (packed.go). In a fold, the last write to a path wins. Removed paths are kept like the
// removed members of a Row.
//
// If records of the kind can name several subjects (kinds.Kind.IsMany), an entry is a pair of a record
// and one of its subjects: entries ascend by path and subject, the last write to a pair wins, and removed
// pairs have a subject, too. A record is removed by removing its pairs. A record key of length 0 is that of
// the entry before.
type ChunkCoder struct {
	Bucket uint16
	many   bool
	first  uint64 // the subject that the first record's is a difference to
}

// Record is an entry of a chunk.
type Record struct {
	Path    Path
	Subject dict.ID // None if there are flags; with IsMany also the subject of a removed pair
	Flags   uint8
	IsMany  bool   // the record may have more subjects: path and subject identify the entry
	Age     uint32 // in a fold, the index of its value; in a read, the depth of its chunk
}

// CompareEntries orders the entries of one bucket, by what identifies them: the path, and the subject if
// the record may have several.
func CompareEntries(x, y *Record) int {
	if c := ComparePaths(x.Path, y.Path); c != 0 || !x.IsMany {
		return c
	}
	return cmp.Compare(x.Subject, y.Subject)
}

// The flags of a record.
const (
	Removed     = 1 << iota // the path has no record
	NoSubject               // the path has a record, which names no subject
	flagSpilled             // a flag of the whole chunk: see ChunkCoder
)

// ErrChunk is returned for a malformed chunk.
var ErrChunk error = dict.Malformed("format: malformed record chunk")

// CoderOfKey returns the coder of the chunk under a key.
func CoderOfKey(key []byte) (c ChunkCoder, err error) {
	k, actor, bucket, _, err := ParseChunkKey(key)
	if err != nil {
		return c, err
	}
	if !k.Valid() {
		return c, fmt.Errorf("format: record key %x is of an unknown kind", key)
	}
	return CoderOf(k, actor, bucket), nil
}

// CoderOf returns the coder of the chunks of an actor in a bucket.
func CoderOf(k kinds.Kind, actor dict.ID, bucket uint16) ChunkCoder {
	return ChunkCoder{bucket, k.IsMany(), uint64(actor)}
}

// IsRaw reports whether the records have keys that are not TIDs.
func (c ChunkCoder) IsRaw() bool { return c.Bucket >= RawBucket }

// The lowest bits of a TID are the id of a clock.
const (
	ClockBits = 10
	clockMask = 1<<ClockBits - 1
)

// Append appends the byte form of a chunk whose records ascend (CompareEntries).
func (c ChunkCoder) Append(dst []byte, generation uint64, records []Record) []byte {
	if generation > 0 {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, flagSpilled<<ClockBits)
		dst = binary.AppendUvarint(dst, generation)
	}
	return c.appendAfter(dst, c.start(), records)
}

// chunkEnd is the state after a record of a chunk, from which the next is a difference.
type chunkEnd struct{ micros, clock, subject uint64 }

// tid returns the TID of the last record.
func (e *chunkEnd) tid() uint64 { return e.micros<<ClockBits | e.clock }

// start is the end of an empty chunk.
func (c ChunkCoder) start() chunkEnd {
	return chunkEnd{micros: uint64(c.Bucket) << (BucketShift - ClockBits), subject: c.first}
}

// AppendStored appends what a base fold stores for records, which ascend: the packed form, if there is one and it is shorter. check
// compares stored chunks with it.
func (c ChunkCoder) AppendStored(dst []byte, generation uint64, records []Record) []byte {
	if c.packs(generation, len(records)) && !hasFlags(records) {
		if out, _, ok := c.appendPacked(dst, appendEnds(nil, records)); ok {
			return out
		}
	}
	return c.Append(dst, generation, records)
}

// packs reports whether a chunk may be packed, unless records have flags.
func (c ChunkCoder) packs(generation uint64, records int) bool {
	return generation == 0 && records >= minPacked && !c.IsRaw() && !c.many
}

func hasFlags(records []Record) bool {
	for i := range records {
		if records[i].Flags != 0 {
			return true
		}
	}
	return false
}

// appendEnds appends the state after each of the records.
func appendEnds(dst []chunkEnd, records []Record) []chunkEnd {
	for i := range records {
		r := &records[i]
		dst = append(dst, chunkEnd{r.Path.TID >> ClockBits, r.Path.TID & clockMask, uint64(r.Subject)})
	}
	return dst
}

// appendAfter appends records that ascend to a chunk that ends at end.
func (c ChunkCoder) appendAfter(dst []byte, end chunkEnd, records []Record) []byte {
	micros, clock, subject := end.micros, end.clock, end.subject
	for i := range records {
		r := &records[i]
		if c.IsRaw() {
			ext := min(uint64(r.Flags), 1)
			key := r.Path.Raw
			if c.many && i > 0 && bytes.Equal(key, records[i-1].Path.Raw) {
				key = nil // the same
			}
			dst = binary.AppendUvarint(dst, uint64(len(key))<<1|ext)
			dst = append(dst, key...)
			if ext == 1 {
				dst = binary.BigEndian.AppendUint16(dst, uint16(r.Flags)<<ClockBits)
			}
		} else {
			d := (r.Path.TID>>ClockBits - micros) << 1
			micros = r.Path.TID >> ClockBits
			if at := r.Path.TID & clockMask; at != clock || r.Flags != 0 {
				clock = at
				dst = binary.AppendUvarint(dst, d|1)
				dst = binary.BigEndian.AppendUint16(dst, uint16(r.Flags)<<ClockBits|uint16(at))
			} else {
				dst = binary.AppendUvarint(dst, d)
			}
		}
		if r.Flags == 0 || c.many {
			dst = binary.AppendUvarint(dst, dict.Zigzag(uint64(r.Subject)-subject))
			subject = uint64(r.Subject)
		}
	}
	return dst
}

// Read appends the records of v to dst, with an age. Raw keys point into v.
func (c ChunkCoder) Read(dst []Record, v []byte, age uint32) (out []Record, generation uint64, err error) {
	r := c.reader(v)
	for r.next() {
		record := Record{Flags: r.flags, IsMany: c.many, Age: age}
		if c.IsRaw() {
			record.Path.Raw = r.key
		} else {
			record.Path.TID = r.tid()
		}
		if r.flags == 0 || c.many {
			record.Subject = dict.ID(r.subject)
		}
		dst = append(dst, record)
	}
	if r.malformed {
		return dst, 0, ErrChunk
	}
	return dst, r.generation, nil
}

// walked is what walk learns of a chunk.
type walked struct {
	end        chunkEnd
	records    int // removed ones included
	generation uint64
	removed    bool // some are removed
	flags      bool // some have flags
}

// walk walks through a chunk of TIDs without building the records. It appends the state after each to ends, if that is not nil. ok is
// false if the chunk is malformed.
func (c ChunkCoder) walk(v []byte, ends *[]chunkEnd) (w walked, ok bool) {
	r := c.reader(v)
	for r.next() {
		w.records++
		w.removed, w.flags = w.removed || r.flags == Removed, w.flags || r.flags != 0
		if ends != nil {
			*ends = append(*ends, r.chunkEnd)
		}
	}
	w.end, w.generation = r.chunkEnd, r.generation
	return w, !r.malformed
}

// A chunkReader reads the records of a chunk, in either form.
type chunkReader struct {
	packedReader // in the byte form, at is a byte

	packed, raw, many bool
	flags             uint8 // of the last record read
	generation        uint64
	key               []byte // the raw key of the last record read
}

// spilledMark begins the byte form of a spilled chunk, before the generation.
var spilledMark = []byte{1, flagSpilled << ClockBits >> 8, 0}

// reader begins to read a chunk.
func (c ChunkCoder) reader(v []byte) chunkReader {
	if isPacked(v) {
		return chunkReader{packedReader: c.unpack(v), packed: true}
	}
	r := chunkReader{packedReader: packedReader{v: v, chunkEnd: c.start()}, raw: c.IsRaw(), many: c.many}
	if rest, ok := bytes.CutPrefix(v, spilledMark); ok {
		generation, w := binary.Uvarint(rest)
		r.generation, r.at, r.malformed = generation, len(spilledMark)+w, generation == 0
	}
	return r
}

// next reads a record. It returns false at the end of the chunk, or if the chunk is malformed.
func (r *chunkReader) next() bool {
	if r.packed {
		return r.packedReader.next()
	}
	if r.malformed || r.at == len(r.v) {
		return false
	}
	v := r.v[r.at:]
	n, w := Uvarint(v)
	if w <= 0 {
		return r.fail()
	}
	v = v[w:]
	if r.raw && n > 1 {
		if n>>1 > uint64(len(v)) {
			return r.fail()
		}
		r.key, v = v[:n>>1:n>>1], v[n>>1:]
	} else if r.raw && (!r.many || r.key == nil) { // only a pair may have the key of the one before
		return r.fail()
	}
	flags := uint8(0)
	if n&1 != 0 {
		if len(v) < 2 {
			return r.fail()
		}
		ext := binary.BigEndian.Uint16(v)
		v = v[2:]
		r.clock, flags = uint64(ext&clockMask), uint8(ext>>ClockBits)
		if flags > NoSubject || r.many && flags == NoSubject {
			return r.fail()
		}
	}
	r.micros += n >> 1
	r.flags = flags
	if flags == 0 || r.many {
		d, w := Uvarint(v)
		if w <= 0 {
			return r.fail()
		}
		v = v[w:]
		r.subject += dict.Unzigzag(d)
	}
	r.at = len(r.v) - len(v)
	return true
}

func (r *chunkReader) fail() bool {
	r.malformed = true
	return false
}

// Uvarint is binary.Uvarint without a loop, if v has eight bytes to read at once.
func Uvarint(v []byte) (uint64, int) {
	if len(v) < 8 {
		return binary.Uvarint(v)
	}
	x := binary.LittleEndian.Uint64(v)
	if x&0x80 == 0 {
		return x & 0x7f, 1
	}
	last := ^x & 0x8080808080808080 // the top bit of each byte that ends a number
	if last == 0 {
		return binary.Uvarint(v)
	}
	x &= last ^ (last - 1) // up to the first of them
	x &= 0x7f7f7f7f7f7f7f7f
	x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
	x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
	x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
	return x, bits.TrailingZeros64(last)>>3 + 1
}

// CompareRecords orders records like CompareEntries, then by age.
func CompareRecords(x, y Record) int {
	if c := CompareEntries(&x, &y); c != 0 {
		return c
	}
	return int(x.Age) - int(y.Age)
}

// Live yields the live records of a bucket, ascending: the newest change of each entry, unless it
// removed it. chunks is the number of chunks that the records come from: in the order of their keys, and so each before those that
// it was spilled to.
func Live(records []Record, chunks int) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		if chunks <= 1 {
			for i := range records {
				if r := &records[i]; r.Flags != Removed && !yield(r) {
					return
				}
			}
			return
		}
		if upper, lower, ok := twoRuns(records); ok {
			merged(upper, lower, yield)
			return
		}
		starts := []int{0}
		for i := 1; i < len(records); i++ {
			if records[i].Age != records[i-1].Age {
				starts = append(starts, i)
			}
		}
		records, _ := mergeRuns(records, nil, starts, CompareEntries)
		for i := range records {
			r := &records[i]
			if i > 0 && CompareEntries(&records[i-1], r) == 0 {
				continue
			}
			if r.Flags != Removed && !yield(r) {
				return
			}
		}
	}
}

// twoRuns divides the records of a chunk that was spilled once into those of the chunk itself and those
// below it. ok is false if either does not ascend by path, as where chunks below were spilled in turn.
func twoRuns(records []Record) (upper, lower []Record, ok bool) {
	n := 0
	for n < len(records) && records[n].Age == records[0].Age {
		n++
	}
	upper, lower = records[:n], records[n:]
	for _, run := range [][]Record{upper, lower} {
		for i := 1; i < len(run); i++ {
			if CompareEntries(&run[i-1], &run[i]) >= 0 {
				return nil, nil, false
			}
		}
	}
	for i := range lower {
		if lower[i].Age <= records[0].Age {
			return nil, nil, false
		}
	}
	return upper, lower, true
}

// merged yields the live records of two runs. upper overrides lower.
func merged(upper, lower []Record, yield func(*Record) bool) {
	for len(upper) > 0 || len(lower) > 0 {
		c := -1
		switch {
		case len(upper) == 0:
			c = 1
		case len(lower) > 0:
			c = CompareEntries(&upper[0], &lower[0])
		}
		var r *Record
		if c > 0 {
			r, lower = &lower[0], lower[1:]
		} else {
			r, upper = &upper[0], upper[1:]
		}
		if c == 0 {
			lower = lower[1:]
		}
		if r.Flags != Removed && !yield(r) {
			return
		}
	}
}
