package format

import (
	"encoding/binary"

	"skein.blue/intern/dict"
)

// AppendSubjects appends the subjects of a chunk's records with TIDs in [from, last], without
// building the records. It returns dst unchanged, and false, for a chunk that has raw keys,
// flags or a generation, or is malformed; Read reads those.
func (c ChunkCoder) AppendSubjects(dst []uint64, v []byte, from, last uint64) (out []uint64, ok bool) {
	out = dst
	r := c.simple(v)
	for r.next() {
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
	r := c.simple(v)
	for r.next() {
		if subject := dict.ID(r.subject); wanted(subject) {
			out = append(out, Record{Path: Path{TID: r.tid()}, Subject: subject, IsMany: c.many})
		}
	}
	if r.malformed {
		return dst, false
	}
	return out, true
}

// A simpleReader reads a chunk of TIDs without flags and without a generation, in either form. Others count as malformed.
type simpleReader struct {
	packedReader

	rest  []byte // of a chunk in the byte form
	bytes bool
}

// simple begins to read a chunk.
func (c ChunkCoder) simple(v []byte) simpleReader {
	if isPacked(v) {
		return simpleReader{packedReader: c.unpack(v)}
	}
	return simpleReader{packedReader: packedReader{chunkEnd: c.start(), malformed: c.IsRaw()}, rest: v, bytes: true}
}

// next reads a record. It returns false at the end of the chunk, or if the chunk is malformed.
func (r *simpleReader) next() bool {
	if !r.bytes {
		return r.packedReader.next()
	}
	if len(r.rest) == 0 || r.malformed {
		return false
	}
	v := r.rest
	r.malformed = true // unless the record is read to its end
	n, w := Uvarint(v)
	if w <= 0 {
		return false
	}
	v = v[w:]
	if n&1 != 0 {
		if len(v) < 2 {
			return false
		}
		ext := binary.BigEndian.Uint16(v)
		v = v[2:]
		if r.clock = uint64(ext & clockMask); ext>>ClockBits != 0 {
			return false
		}
	}
	r.micros += n >> 1
	d, w := Uvarint(v)
	if w <= 0 {
		return false
	}
	r.rest = v[w:]
	r.subject += dict.Unzigzag(d)
	r.malformed = false
	return true
}
