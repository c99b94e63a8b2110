package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A ChunkCoder reads and writes the chunks of one actor and one kind, which their keys name.
//
// The records of an actor and kind lie in a head and in leaves. Writes merge changes into the head, without reading it. Nearly all actors
// have few records, and the head has them all. A head that has grown too large is spilled: its records move into leaves, which
// divide the paths among themselves (AppendLeafKey), and have a bounded size each. From then on, the head has the newest changes, which override the
// leaves, until it is spilled again. So a leaf spans years of a quiet account, and hours of a busy one. A spill writes the leaves that it changes again:
// nothing is merged into them. On disk, a chunk, which is a head or a leaf, is
//
//	uvarint 1, flagSpilled in 2 bytes, uvarint reach   of a head that was spilled: the leaves have only paths below it (Reaches)
//	n × record:
//	  of a TID  uvarint: 2 × (microseconds since the previous record, or since
//	            firstMicros, modulo 2^63), +1 if the next field is present
//	            flags(6 bits) clock(10 bits), big-endian; if absent, no flags, and
//	            the clock of the previous record, or 0 for the first
//	  else      uvarint 1; flags and flagRaw (6 bits) 0(10 bits), big-endian
//	            uvarint length of the record key, record key
//	  without flags: the subject, as its difference to the previous subject, or
//	  to the actor's id for the first; zigzag uvarint
//
// Nearly all records of an actor have the clock of its PDS. Records ascend by path: those whose keys are not TIDs come last.
// This is the byte form, of all merge operands and of stored chunks that are not
// packed (packed.go). In a fold, the last write to a path wins. Removed paths are kept in a head that was spilled, and until a fold includes the oldest value.
//
// If records of the kind can name several subjects (kinds.Kind.IsMany), an entry is a pair of a record
// and one of its subjects: entries ascend by path and subject, the last write to a pair wins, and removed
// pairs have a subject, too. A record is removed by removing its pairs. A record key of length 0 is that of
// the entry before.
type ChunkCoder struct {
	many  bool
	first uint64 // the subject that the first record's is a difference to
}

// firstMicros is the beginning of 2022, before the network. Hardly any record is older.
const firstMicros = 1_640_995_200_000_000

// Record is an entry of a chunk.
type Record struct {
	Path    Path
	Subject dict.ID // None if there are flags; with IsMany also the subject of a removed pair
	Flags   uint8
	IsMany  bool // the record may have more subjects: path and subject identify the entry
}

// CompareEntries orders the entries of an actor, by what identifies them: the path, and the subject if
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
	flagRaw                 // the path is not a TID: see ChunkCoder
)

// ErrChunk is returned for a malformed chunk.
var ErrChunk error = dict.Malformed("format: malformed record chunk")

// CoderOfKey returns the coder of the chunk under a key.
func CoderOfKey(key []byte) (c ChunkCoder, err error) {
	k, actor, _, _, err := ParseChunkKey(key)
	if err != nil {
		return c, err
	}
	if !k.Valid() {
		return c, fmt.Errorf("format: record key %x is of an unknown kind", key)
	}
	return CoderOf(k, actor), nil
}

// CoderOf returns the coder of the chunks of an actor and kind.
func CoderOf(k kinds.Kind, actor dict.ID) ChunkCoder { return ChunkCoder{k.IsMany(), uint64(actor)} }

// The lowest bits of a TID are the id of a clock.
const (
	ClockBits = 10
	clockMask = 1<<ClockBits - 1
)

// Append appends the byte form of a chunk whose records ascend (CompareEntries).
func (c ChunkCoder) Append(dst []byte, reach uint64, records []Record) []byte {
	if reach > 0 {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, flagSpilled<<ClockBits)
		dst = binary.AppendUvarint(dst, reach)
	}
	micros, clock, subject := uint64(firstMicros), uint64(0), c.first
	for i := range records {
		r := &records[i]
		if key := r.Path.Raw; key != nil {
			if c.many && i > 0 && bytes.Equal(key, records[i-1].Path.Raw) {
				key = nil // the same
			}
			dst = binary.BigEndian.AppendUint16(append(dst, 1), uint16(r.Flags|flagRaw)<<ClockBits)
			dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
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

// chunkEnd is the state after a record of a chunk, from which the next is a difference.
type chunkEnd struct{ micros, clock, subject uint64 }

// tid returns the TID of the last record.
func (e *chunkEnd) tid() uint64 { return e.micros<<ClockBits | e.clock }

// start is the end of an empty chunk.
func (c ChunkCoder) start() chunkEnd { return chunkEnd{micros: firstMicros, subject: c.first} }

// endOf returns the state after a record with a TID and a subject.
func endOf(r *Record) chunkEnd {
	return chunkEnd{r.Path.TID >> ClockBits, r.Path.TID & clockMask, uint64(r.Subject)}
}

// AppendStored appends what a base fold stores for records, which ascend: the packed form, if there is one and it is shorter. check
// compares stored chunks with it.
func (c ChunkCoder) AppendStored(dst []byte, reach uint64, records []Record) []byte {
	if out, _, ok := c.appendPacked(dst, reach, records); ok {
		return out
	}
	return c.Append(dst, reach, records)
}

// Read appends the records of v to dst. Raw keys point into v.
func (c ChunkCoder) Read(dst []Record, v []byte) (out []Record, reach uint64, err error) {
	r := c.reader(v)
	for r.next() {
		record := Record{Path: r.path(), Flags: r.flags, IsMany: c.many}
		if r.flags == 0 || c.many {
			record.Subject = dict.ID(r.subject)
		}
		dst = append(dst, record)
	}
	if r.malformed {
		return dst, 0, ErrChunk
	}
	return dst, r.reach, nil
}

// A chunkReader reads the records of a chunk, in either form.
type chunkReader struct {
	packedReader // in the byte form, it has the state alone

	v            []byte // in the byte form, what is left
	packed, many bool
	flags        uint8 // of the last record read
	reach        uint64
	key          []byte // of the last record read, if it is not a TID
}

// path returns the path of the last record read.
func (r *chunkReader) path() Path {
	if r.key != nil {
		return Path{Raw: r.key}
	}
	return Path{TID: r.tid()}
}

// spilledMark begins a head that was spilled, before the reach.
var spilledMark = []byte{1, flagSpilled << ClockBits >> 8, 0}

// ReachOf returns the lowest reach above a path.
func ReachOf(p Path) uint64 {
	if p.Raw != nil {
		return math.MaxUint64
	}
	return p.TID + 1
}

// Reaches reports whether the leaves below a head with a reach may have paths from p on. It is false if the head has none.
func Reaches(reach uint64, p Path) bool { return reach >= ReachOf(p) }

// reader begins to read a chunk.
func (c ChunkCoder) reader(v []byte) chunkReader {
	if isPacked(v) {
		return chunkReader{packedReader: c.unpack(v), packed: true}
	}
	r := chunkReader{packedReader: packedReader{chunkEnd: c.start()}, v: v, many: c.many}
	if rest, ok := bytes.CutPrefix(v, spilledMark); ok {
		reach, w := binary.Uvarint(rest)
		r.reach, r.v, r.malformed = reach, rest[max(w, 0):], w <= 0 || reach == 0
	}
	return r
}

// next reads a record. It returns false at the end of the chunk, or if the chunk is malformed.
func (r *chunkReader) next() bool {
	if r.packed {
		return r.packedReader.next()
	}
	if r.malformed || len(r.v) == 0 {
		return false
	}
	v := r.v
	n, w := Uvarint(v)
	if w <= 0 {
		return r.fail()
	}
	v = v[w:]
	flags, raw := uint8(0), false
	if n&1 != 0 {
		if len(v) < 2 {
			return r.fail()
		}
		ext := binary.BigEndian.Uint16(v)
		v = v[2:]
		if flags = uint8(ext >> ClockBits); flags&flagRaw == 0 {
			r.clock = uint64(ext & clockMask)
		} else {
			if v, raw = r.cutKey(v); !raw || n != 1 || ext&clockMask != 0 {
				return r.fail()
			}
			flags &^= flagRaw
		}
		if flags > NoSubject || r.many && flags == NoSubject {
			return r.fail()
		}
	}
	if r.key != nil && !raw { // TIDs come first
		return r.fail()
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
	r.v = v
	return true
}

// cutKey cuts a record key, and its length before it, from the front of v.
func (r *chunkReader) cutKey(v []byte) (rest []byte, ok bool) {
	n, w := Uvarint(v)
	if w <= 0 || n > uint64(len(v)-w) || n == 0 && (!r.many || r.key == nil) { // only a pair may have the key of the one before
		return nil, false
	}
	if n > 0 {
		r.key = v[w : w+int(n) : w+int(n)]
	}
	return v[w+int(n):], true
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

// Merged calls each for the live records of a head and of leaves, in order, until each returns false: the head overrides the leaves.
func Merged(head, leaves []Record, each func(*Record) bool) (more bool) {
	return merged(head, leaves, false, each)
}

// AppendNewest appends the entries of two ascending lists to dst, removed ones included. The newer ones win.
func AppendNewest(dst, newer, older []Record) []Record {
	merged(newer, older, true, func(r *Record) bool { dst = append(dst, *r); return true })
	return dst
}

func merged(head, leaves []Record, removed bool, each func(*Record) bool) (more bool) {
	for len(head) > 0 || len(leaves) > 0 {
		c := -1
		switch {
		case len(head) == 0:
			c = 1
		case len(leaves) > 0:
			c = CompareEntries(&head[0], &leaves[0])
		}
		var r *Record
		if c > 0 {
			r, leaves = &leaves[0], leaves[1:]
		} else {
			r, head = &head[0], head[1:]
		}
		if c == 0 {
			leaves = leaves[1:]
		}
		if (removed || r.Flags != Removed) && !each(r) {
			return false
		}
	}
	return true
}

// AppendSubjects appends the subjects of a chunk's records with TIDs in [from, last], without
// building the records. It returns dst unchanged, and false, for a chunk that has raw keys,
// flags or a reach, or is malformed in what it reads; Read reads those.
func (c ChunkCoder) AppendSubjects(dst []uint64, v []byte, from, last uint64) (out []uint64, ok bool) {
	out = dst
	r := c.reader(v)
	isAll := r.packed && from == 0 && last == math.MaxUint64
	for isAll && r.nextSubject() {
		out = append(out, r.subject)
	}
	for !isAll && r.nextSimple() {
		if tid := r.tid(); tid >= from && tid <= last {
			out = append(out, r.subject)
		}
	}
	if r.malformed {
		return dst, false
	}
	return out, true
}

// AppendNaming appends the records of a chunk that name wanted subjects, without building the others. It returns dst unchanged, and
// false, for the chunks for which AppendSubjects does.
func (c ChunkCoder) AppendNaming(dst []Record, v []byte, wanted func(subject dict.ID) bool) (out []Record, ok bool) {
	out = dst
	r := c.reader(v)
	if r.packed { // first the subjects, and then only the times that lead to those of the records
		for n := uint64(0); r.nextSubject(); n++ {
			if subject := dict.ID(r.subject); wanted(subject) {
				out = append(out, Record{Path: Path{TID: n}, Subject: subject})
			}
		}
		named := out[len(dst):]
		for n := uint64(0); !r.malformed && len(named) > 0; n++ {
			if r.nextTime(); n == named[0].Path.TID {
				named[0].Path.TID, named = r.tid(), named[1:]
			}
		}
		if r.malformed || r.times.fails() {
			return dst, false
		}
		return out, true
	}
	for r.nextSimple() {
		if subject := dict.ID(r.subject); wanted(subject) {
			out = append(out, Record{Path: Path{TID: r.tid()}, Subject: subject, IsMany: c.many})
		}
	}
	if r.malformed {
		return dst, false
	}
	return out, true
}

// nextSimple is next for the chunks that AppendSubjects reads: others count as malformed.
func (r *chunkReader) nextSimple() bool {
	if !r.next() {
		r.malformed = r.malformed || r.reach != 0
		return false
	}
	return r.flags == 0 && r.reach == 0 && r.key == nil || r.fail()
}
