package format

import (
	"skein.blue/intern/dict"
)

// AppendSubjects appends the subjects of a chunk's records with TIDs in [from, last], without
// building the records. It returns dst unchanged, and false, for a chunk that has raw keys,
// flags or a reach, or is malformed; Read reads those.
func (c ChunkCoder) AppendSubjects(dst []uint64, v []byte, from, last uint64) (out []uint64, ok bool) {
	out = dst
	r := c.reader(v)
	for r.nextSimple() {
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
