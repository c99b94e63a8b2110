package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// A Path is a record key as the record map sees it: the number of a TID, or
// the key itself.
type Path struct {
	TID uint64
	Raw []byte // set if the key is not a TID
}

// ParsePath returns the path of a record key. A key that is not a TID lies in rkey.
func ParsePath(rkey []byte) Path {
	if tid, ok := syntax.ParseTID(rkey); ok {
		return Path{TID: tid}
	}
	return Path{Raw: rkey}
}

// AppendRkey appends the record key.
func (p Path) AppendRkey(dst []byte) []byte {
	if p.Raw != nil {
		return append(dst, p.Raw...)
	}
	return syntax.AppendTID(dst, p.TID)
}

// Bucket returns the bucket that the path belongs to.
func (p Path) Bucket() uint16 {
	if p.Raw != nil {
		return RawBucket | uint16(p.hash()>>56)
	}
	return uint16(p.TID >> BucketShift)
}

// EndOfTime is above the numbers of all TIDs, of which the top bit is 0. A record key may look
// like a TID and lie above it.
const EndOfTime = 1 << 63

// HasTime reports whether the key is a TID, which names a time.
func (p Path) HasTime() bool { return p.Raw == nil && p.TID < EndOfTime }

// hash is that of a raw key. It is SHA-256, so that nobody can choose many keys
// for one place.
func (p Path) hash() uint64 {
	sum := sha256.Sum256(p.Raw)
	return binary.BigEndian.Uint64(sum[:])
}

// Spread is what tells the chunks under a bucket apart, from the top bit down.
func (p Path) Spread() uint64 {
	if p.Raw == nil {
		return p.TID << (64 - BucketShift)
	}
	return p.hash() << 8
}

// ComparePaths orders the paths of one bucket.
func ComparePaths(x, y Path) int {
	switch {
	case x.Raw != nil || y.Raw != nil:
		return bytes.Compare(x.Raw, y.Raw)
	case x.TID < y.TID:
		return -1
	case x.TID > y.TID:
		return 1
	}
	return 0
}

// A ChunkCoder reads and writes chunks: it is what a chunk's key says about it. A chunk
// holds an actor's records of one kind whose paths share a bucket, by
// path, or the newest changes of one whose records were spilled. On disk it is
//
//	uvarint 1, flagSpilled in 2 bytes, uvarint generation   if it was spilled
//	n × record:
//	  of a TID  uvarint: 2 × (microseconds since the record before, or since
//	            the bucket's beginning), +1 if what follows is there
//	            flags(6 bits) clock(10 bits), big-endian; else no flags, and the
//	            clock of the record before, at first 0
//	  else      uvarint: 2 × length, +1 if what follows is there
//	            the record key; flags(6 bits) 0(10 bits)
//	  unless a flag says that there is none: the subject, as its difference to
//	  the one before, zigzag uvarint; the first to the actor's id
//
// Nearly all records of an actor are made by one clock, its PDS. A stored chunk
// and a merge operand have the same form, and the last write to a path wins;
// removed paths are kept as those of a row are.
type ChunkCoder struct {
	Bucket uint16
	first  uint64 // the subject before the first
}

// Record is an entry of a chunk.
type Record struct {
	Path    Path
	Subject dict.ID // None if flags say so
	Flags   uint8
	Age     uint32 // of the value that it is from, in a fold; the depth, in a read
}

// The flags of a record.
const (
	Removed     = 1 << iota // there is no such record
	NoSubject               // there is, and it names no subject
	flagSpilled             // of the chunk: see there
)

// ErrChunk is returned for a chunk that cannot be read.
var ErrChunk = errors.New("format: malformed record chunk")

// CoderOfKey returns the coder of the chunk under a key.
func CoderOfKey(key []byte) (c ChunkCoder, err error) {
	k, actor, bucket, _, err := ParseChunkKey(key)
	if err != nil {
		return c, err
	}
	if !k.Valid() {
		return c, fmt.Errorf("format: record key %x is of an unknown kind", key)
	}
	return CoderOf(actor, bucket), nil
}

// CoderOf returns the coder of the chunks of an actor in a bucket.
func CoderOf(actor dict.ID, bucket uint16) ChunkCoder {
	return ChunkCoder{bucket, uint64(actor)}
}

// IsRaw reports whether the records have keys that are not TIDs.
func (c ChunkCoder) IsRaw() bool { return c.Bucket >= RawBucket }

// Of a TID, a clock's id takes the lowest bits.
const (
	ClockBits = 10
	clockMask = 1<<ClockBits - 1
)

// Append appends a chunk whose records ascend by path.
func (c ChunkCoder) Append(dst []byte, generation uint64, records []Record) []byte {
	if generation > 0 {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, flagSpilled<<ClockBits)
		dst = binary.AppendUvarint(dst, generation)
	}
	return c.appendAfter(dst, c.start(), records)
}

// chunkEnd is what the next record of a chunk is written as a difference to.
type chunkEnd struct{ micros, clock, subject uint64 }

// start is the end of an empty chunk.
func (c ChunkCoder) start() chunkEnd {
	return chunkEnd{micros: uint64(c.Bucket) << (BucketShift - ClockBits), subject: c.first}
}

// appendAfter appends records that ascend by path to a chunk that ends so.
func (c ChunkCoder) appendAfter(dst []byte, end chunkEnd, records []Record) []byte {
	micros, clock, subject := end.micros, end.clock, end.subject
	for i := range records {
		r := &records[i]
		if c.IsRaw() {
			ext := min(uint64(r.Flags), 1)
			dst = binary.AppendUvarint(dst, uint64(len(r.Path.Raw))<<1|ext)
			dst = append(dst, r.Path.Raw...)
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
		if r.Flags == 0 {
			dst = binary.AppendUvarint(dst, dict.Zigzag(uint64(r.Subject)-subject))
			subject = uint64(r.Subject)
		}
	}
	return dst
}

// Read appends the records of v to dst, with the age given. Raw keys lie in v.
func (c ChunkCoder) Read(dst []Record, v []byte, age uint32) (out []Record, generation uint64, err error) {
	micros, clock, subject := uint64(c.Bucket)<<(BucketShift-ClockBits), uint64(0), c.first
	for first := true; len(v) > 0; first = false {
		n, w := Uvarint(v)
		if w <= 0 {
			return dst, 0, ErrChunk
		}
		v = v[w:]
		r := Record{Age: age}
		if c.IsRaw() && n > 1 {
			if n>>1 > uint64(len(v)) {
				return dst, 0, ErrChunk
			}
			r.Path.Raw, v = v[:n>>1:n>>1], v[n>>1:]
		}
		if n&1 != 0 {
			if len(v) < 2 {
				return dst, 0, ErrChunk
			}
			ext := binary.BigEndian.Uint16(v)
			v = v[2:]
			clock, r.Flags = uint64(ext&clockMask), uint8(ext>>ClockBits)
			if r.Flags == flagSpilled && first {
				generation, w = binary.Uvarint(v)
				if w <= 0 || generation == 0 {
					return dst, 0, ErrChunk
				}
				v, clock = v[w:], 0
				continue
			}
			if r.Flags > NoSubject {
				return dst, 0, ErrChunk
			}
		}
		if !c.IsRaw() {
			micros += n >> 1
			r.Path.TID = micros<<ClockBits | clock
		} else if r.Path.Raw == nil {
			return dst, 0, ErrChunk
		}
		if r.Flags == 0 {
			d, w := Uvarint(v)
			if w <= 0 {
				return dst, 0, ErrChunk
			}
			v = v[w:]
			subject += dict.Unzigzag(d)
			r.Subject = dict.ID(subject)
		}
		dst = append(dst, r)
	}
	return dst, generation, nil
}

// walk returns how a chunk of TIDs ends, how many records it has, and its
// generation, without reading the records. It returns false for one that holds
// removed paths, or is malformed.
func (c ChunkCoder) walk(v []byte) (end chunkEnd, n int, generation uint64, ok bool) {
	end = c.start()
	for first := true; len(v) > 0; first = false {
		d, w := Uvarint(v)
		if w <= 0 {
			return end, 0, 0, false
		}
		v = v[w:]
		subject := true
		if d&1 != 0 {
			if len(v) < 2 {
				return end, 0, 0, false
			}
			ext := binary.BigEndian.Uint16(v)
			v = v[2:]
			switch end.clock = uint64(ext & clockMask); ext >> ClockBits {
			case 0:
			case NoSubject:
				subject = false
			case flagSpilled:
				if generation, w = binary.Uvarint(v); w <= 0 || generation == 0 || !first {
					return end, 0, 0, false
				}
				v, end.clock = v[w:], 0
				continue
			default:
				return end, 0, 0, false
			}
		}
		end.micros += d >> 1
		if n++; subject {
			d, w := Uvarint(v)
			if w <= 0 {
				return end, 0, 0, false
			}
			v = v[w:]
			end.subject += dict.Unzigzag(d)
		}
	}
	return end, n, generation, true
}

// Uvarint is binary.Uvarint, without a loop where eight bytes can be read at once.
func Uvarint(v []byte) (uint64, int) {
	if len(v) < 8 {
		return binary.Uvarint(v)
	}
	x := binary.LittleEndian.Uint64(v)
	if x&0x80 == 0 {
		return x & 0x7f, 1
	}
	last := ^x & 0x8080808080808080 // the highest bits of bytes that end a number
	if last == 0 {
		return binary.Uvarint(v)
	}
	x &= last ^ (last - 1) // up to the first such
	x &= 0x7f7f7f7f7f7f7f7f
	x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
	x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
	x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
	return x, bits.TrailingZeros64(last)>>3 + 1
}

// AppendSubjects appends the subjects that the records of a chunk of TIDs in [from, last]
// name, without making the records. It returns false, and dst as it was, for one that has
// more than live records of TIDs, or is malformed: Read tells.
func (c ChunkCoder) AppendSubjects(dst []uint64, v []byte, from, last uint64) (out []uint64, ok bool) {
	if c.IsRaw() {
		return dst, false
	}
	end, out := c.start(), dst
	for len(v) > 0 {
		d, w := Uvarint(v)
		if w <= 0 {
			return dst, false
		}
		v = v[w:]
		if d&1 != 0 {
			if len(v) < 2 {
				return dst, false
			}
			ext := binary.BigEndian.Uint16(v)
			v = v[2:]
			if end.clock = uint64(ext & clockMask); ext>>ClockBits != 0 {
				return dst, false
			}
		}
		end.micros += d >> 1
		d, w = Uvarint(v)
		if w <= 0 {
			return dst, false
		}
		v = v[w:]
		end.subject += dict.Unzigzag(d)
		if tid := end.micros<<ClockBits | end.clock; tid >= from && tid <= last {
			out = append(out, end.subject)
		}
	}
	return out, true
}

// CompareRecords orders records by path, and those of one path by age.
func CompareRecords(x, y Record) int {
	if c := ComparePaths(x.Path, y.Path); c != 0 {
		return c
	}
	return int(x.Age) - int(y.Age)
}

// Live yields the live records of a bucket: of each path, the newest change, unless it is
// that the record was removed. chunks is how many chunks the records are from: of several,
// they are put in order, by path.
func Live(records []Record, chunks int) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		if chunks > 1 {
			slices.SortFunc(records, CompareRecords)
		}
		for i := range records {
			r := &records[i]
			if chunks > 1 && i > 0 && ComparePaths(records[i-1].Path, r.Path) == 0 {
				continue
			}
			if r.Flags != Removed && !yield(r) {
				return
			}
		}
	}
}

// fold appends what values, oldest first, come to, and returns how many paths
// the result holds.
func (f *chunkFolder) fold(dst, key []byte, values [][]byte, base bool) (out []byte, n int, err error) {
	c, err := CoderOfKey(key)
	if err != nil {
		return nil, 0, err
	}
	if out, n, ok := f.Extend(dst, c, values, base); ok {
		return out, n, nil
	}
	f.Records = f.Records[:0]
	var generation uint64
	oldest := 0 // how many records the oldest value has
	for age, v := range values {
		var g uint64
		if f.Records, g, err = c.Read(f.Records, v, uint32(age)); err != nil {
			return nil, 0, err
		}
		generation = max(generation, g)
		if age == 0 {
			oldest = len(f.Records)
		}
	}
	f.sort(oldest)
	kept := f.Newest(base && generation == 0)
	return c.Append(dst, generation, kept), len(kept), nil
}

// extend folds as fold does where the newer values are all of later paths than
// the oldest one, as what an account does mostly is: that one's bytes stay as they
// are. It returns false if they are not.
func (f *chunkFolder) Extend(dst []byte, c ChunkCoder, values [][]byte, base bool) (out []byte, n int, ok bool) {
	if c.IsRaw() || len(values) < 2 {
		return nil, 0, false
	}
	f.Records = f.Records[:0]
	for age, v := range values[1:] {
		var generation uint64
		var err error
		if f.Records, generation, err = c.Read(f.Records, v, uint32(age)); err != nil || generation > 0 {
			return nil, 0, false
		}
	}
	f.sort(len(f.Records))
	end, n, generation, ok := c.walk(values[0])
	if !ok || len(f.Records) > 0 && n > 0 && f.Records[0].Path.TID <= end.micros<<ClockBits|end.clock {
		return nil, 0, false
	}
	kept := f.Newest(base && generation == 0)
	return c.appendAfter(append(dst, values[0]...), end, kept), n + len(kept), true
}

// newest leaves, of the sorted records, the newest of each path, and of those the
// removed ones only if there may be older ones elsewhere.
func (f *chunkFolder) Newest(base bool) []Record {
	kept := f.Records[:0]
	for i := range f.Records {
		r := &f.Records[i]
		if i+1 < len(f.Records) && ComparePaths(r.Path, f.Records[i+1].Path) == 0 {
			continue
		}
		if r.Flags == Removed && base {
			continue
		}
		kept = append(kept, *r)
	}
	return kept
}

// chunkFolder is the scratch of a fold.
type chunkFolder struct{ Records, newer []Record }

// sort sorts the records. The first so many are the oldest value's: mostly they
// are many, and sorted, and the rest few.
func (f *chunkFolder) sort(oldest int) {
	all := f.Records
	for _, part := range [][]Record{all[:oldest], all[oldest:]} {
		if !slices.IsSortedFunc(part, CompareRecords) {
			slices.SortFunc(part, CompareRecords)
		}
	}
	if oldest == 0 || oldest == len(all) || CompareRecords(all[oldest-1], all[oldest]) < 0 {
		return
	}
	// Merge from the end, into the place of the newer ones and on.
	f.newer = append(f.newer[:0], all[oldest:]...)
	for i, j, at := oldest-1, len(f.newer)-1, len(all)-1; j >= 0; at-- {
		if i >= 0 && CompareRecords(all[i], f.newer[j]) > 0 {
			all[at] = all[i]
			i--
		} else {
			all[at] = f.newer[j]
			j--
		}
	}
}
