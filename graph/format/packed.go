package format

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"skein.blue/intern/dict"
)

// A base fold, which is one with the oldest value, packs a chunk if
//
//   - it has at least minPacked records;
//   - all of them have TIDs, name a subject, and are of a kind whose records name one subject;
//   - it is not the head of leaves; and
//   - the packed form is shorter than the byte form, which ChunkCoder describes.
//
// Operands and all other chunks have the byte form. The packed form has the same differences, without flags, in two columns, so that a question
// can read the subjects alone, and a processor the codes of both at once (Abadi, Madden and Ferreira, "Integrating compression and execution in
// column-oriented database systems", 2006). Its first three bytes are a number in a longer form than needed, which AppendUvarint never writes,
// so they tell the forms apart. The number of records is not stored: the last byte of a column is filled with bits that are 1, which are the
// beginning of a code and not a whole one.
//
//	0x80 | k of times, 0x80 | k of subjects, 0x00
//	uvarint bytes of the subjects' column
//	n × the subject, as its difference to the previous subject, or to the actor's id, zigzag: a code with
//	  the k of subjects
//	a bit 1 for each bit that the byte has left
//	n × time:
//	  2 × (microseconds since the previous record, or since firstMicros, modulo 2^63), +1 if the clock
//	  differs from the previous record's, or from 0 for the first: a code with the k of times
//	  the clock, if it differs: a bit 0 and 5 bits, or a bit 1 and 10 bits
//	a bit 1 for each bit that the byte has left
//
// A code is an exponential Golomb code of order k (Teuhola, "A compression method for clustered bit-vectors", 1978): for a
// number n, with q the logarithm of (n>>k)+1 to base 2, rounded down, it is q bits 1, a bit 0, the lowest q bits of
// (n>>k)+1, and the lowest k bits of n. The k of numbers is the mean of their lengths in bits, rounded down, from 1 to 63.
//
// Decision 30 says what that saves.
const (
	minPacked    = 2 // one is never shorter
	packedHeader = 3
	shortClock   = 5 // bits; the reference PDS draws clocks below 32
)

// isPacked reports whether a chunk has the packed form.
func isPacked(v []byte) bool {
	return len(v) > packedHeader && v[0] >= 0x80 && v[1] >= 0x80 && v[2] == 0
}

// ChunkCost returns what a chunk costs its reader, in bytes: its length, or, if it is packed and its records are very small, recordCost for each
// record that it may have. A code has at least 1+k bits.
func ChunkCost(v []byte) int {
	if !isPacked(v) {
		return len(v)
	}
	return max(len(v), recordCost*8*len(v)/(2+int(v[0]&0x7f)+int(v[1]&0x7f)))
}

// recordCost is less than most records take, packed or not. Strangers can choose keys and subjects that take half a byte.
const recordCost = 6

// appendPacked appends the packed form of a chunk. bytes is the length of its byte form. ok is false, and dst is unchanged, if a base fold does
// not pack the chunk.
func (c ChunkCoder) appendPacked(dst []byte, reach uint64, records []Record) (out []byte, bytes int, ok bool) {
	if reach > 0 || len(records) < minPacked || c.many {
		return dst, 0, false
	}
	var times, subjects int // lengths in bits
	before := c.start()
	for i := range records {
		if records[i].Flags != 0 || records[i].Path.Raw != nil {
			return dst, 0, false
		}
		at := endOf(&records[i])
		time, subject := bits.Len64(at.timeSince(before)), bits.Len64(at.subjectSince(before))
		times, subjects = times+time, subjects+subject
		bytes += bytesOf(time) + bytesOf(subject)
		if at.clock != before.clock {
			bytes += 2
		}
		before = at
	}
	kTimes, kSubjects := order(times, len(records)), order(subjects, len(records))
	w := bitWriter{dst: append(dst, 0x80|byte(kTimes), 0x80|byte(kSubjects), 0)}
	column := len(w.dst)
	before = c.start()
	for i := range records {
		at := endOf(&records[i])
		w.code(at.subjectSince(before), kSubjects)
		before = at
	}
	out = w.end()
	var size [binary.MaxVarintLen64]byte
	w = bitWriter{dst: slices.Insert(out, column, size[:binary.PutUvarint(size[:], uint64(len(out)-column))]...)}
	before = c.start()
	for i := range records {
		at := endOf(&records[i])
		n := at.timeSince(before)
		w.code(n, kTimes)
		if n&1 != 0 {
			if at.clock < 1<<shortClock {
				w.write(at.clock, 1+shortClock)
			} else {
				w.write(1<<ClockBits|at.clock, 1+ClockBits)
			}
		}
		before = at
	}
	if out = w.end(); len(out)-len(dst) >= bytes {
		return dst, bytes, false
	}
	return out, bytes, true
}

// order returns the order k for n numbers that have so many bits together.
func order(length, n int) int { return min(max(length/n, 1), 63) }

// bytesOf returns how many bytes AppendUvarint needs for a number of so many bits.
func bytesOf(length int) int { return (max(length, 1) + 6) / 7 }

// timeSince returns the number that stands for the time and for whether the clock differs.
func (e *chunkEnd) timeSince(last chunkEnd) uint64 {
	n := (e.micros - last.micros) << 1
	if e.clock != last.clock {
		n |= 1
	}
	return n
}

// subjectSince returns the number that stands for the subject.
func (e *chunkEnd) subjectSince(last chunkEnd) uint64 { return dict.Zigzag(e.subject - last.subject) }

// packedReader reads the records of a packed chunk.
type packedReader struct {
	subjects, times column
	chunkEnd        // the state after the last record read
	malformed       bool
}

// A column reads the codes of the bits of v up to end.
type column struct {
	v         []byte
	at, end   int // bits of v
	k         int // the order of its codes
	malformed bool
}

// unpack begins to read a packed chunk.
func (c ChunkCoder) unpack(v []byte) packedReader {
	n, w := binary.Uvarint(v[packedHeader:])
	begin := packedHeader + max(w, 0)
	middle := begin + int(min(n, uint64(len(v)-begin)))
	of := func(k byte, from, to int) column {
		return column{v: v, at: 8 * from, end: 8 * to, k: int(k & 0x7f), malformed: k&0x7f < 1 || k&0x7f > 63}
	}
	p := packedReader{subjects: of(v[1], begin, middle), times: of(v[0], middle, len(v)), chunkEnd: c.start()}
	p.malformed = c.many || w <= 0 || p.subjects.malformed || p.times.malformed
	return p
}

// next reads a record. It returns false at the end of the chunk, and only then says whether the chunk was malformed.
func (p *packedReader) next() bool {
	if !p.nextSubject() {
		p.malformed = p.malformed || p.times.fails() || !p.times.ended()
		return false
	}
	p.nextTime()
	return true
}

// nextTime is next for the times alone, if there is another record.
func (p *packedReader) nextTime() {
	n := p.times.code()
	p.micros += n >> 1
	if n&1 != 0 {
		p.readClock()
	}
}

// nextSubject is next for the subjects alone.
func (p *packedReader) nextSubject() bool {
	if p.malformed || p.subjects.ended() {
		p.malformed = p.malformed || p.subjects.fails()
		return false
	}
	p.subject += dict.Unzigzag(p.subjects.code())
	return true
}

// ended reports whether nothing is left but bits 1, which fill the last byte.
func (c *column) ended() bool {
	left := c.end - c.at
	return left < 8 && bits.LeadingZeros8(^(c.v[c.end/8-1]<<(8-left))) >= left
}

// fails reports whether a code was malformed, or the last one not whole.
func (c *column) fails() bool { return c.malformed || c.at > c.end }

// readClock reads a clock that differs from the last.
func (p *packedReader) readClock() {
	t := &p.times
	w, before := bitsAt(t.v, t.at), p.clock
	size := shortClock
	if w>>63 != 0 {
		size = ClockBits
	}
	p.clock = w << 1 >> (64 - size)
	t.at += 1 + size
	t.malformed = t.malformed || p.clock == before
}

// code reads a code.
func (c *column) code() uint64 {
	at := c.at
	i := at >> 3
	if i+8 > len(c.v) {
		return c.longCode()
	}
	w := binary.BigEndian.Uint64(c.v[i:]) << (at & 7)
	q := bits.LeadingZeros64(^w)
	size := 2*q + 1 + c.k
	if size > windowBits {
		return c.longCode()
	}
	c.at = at + size
	return (1<<(q&63)-1)<<(c.k&63) + w<<((q+1)&63)>>((64-q-c.k)&63)
}

// longCode reads a code that is at the end of the chunk, or may be longer than windowBits.
func (c *column) longCode() uint64 {
	q, k := 0, c.k
	for {
		ones := min(bits.LeadingZeros64(^bitsAt(c.v, c.at)), windowBits)
		q, c.at = q+ones, c.at+ones
		if ones < windowBits {
			c.at++
			break
		}
		if q > 64 {
			break
		}
	}
	if q+k > 64 || c.at > c.end {
		c.malformed = true
		return 0
	}
	var n uint64
	for left := q + k; left > 0; {
		size := min(left, windowBits)
		n = n<<size | bitsAt(c.v, c.at)>>(64-size)
		c.at, left = c.at+size, left-size
	}
	n, carry := bits.Add64(n, (1<<q-1)<<k, 0)
	c.malformed = c.malformed || carry != 0
	return n
}

// windowBits is how many bits bitsAt returns at least.
const windowBits = 57

// bitsAt returns the bits of v from a bit on, the first one on top; those after the end are 1.
func bitsAt(v []byte, at int) uint64 {
	if i := at >> 3; i+8 <= len(v) {
		return binary.BigEndian.Uint64(v[i:]) << (at & 7)
	}
	w := ^uint64(0)
	for i := at >> 3; i < len(v); i++ {
		shift := 56 - (i-at>>3)*8
		w = w&^(0xff<<shift) | uint64(v[i])<<shift
	}
	return w<<(at&7) | (1<<(at&7) - 1)
}

// bitWriter writes bits, the first one on top.
type bitWriter struct {
	dst     []byte
	pending uint64 // the lowest n bits are still to be written
	n       int    // below 32
}

// write writes the lowest n bits of x; the others are 0.
func (w *bitWriter) write(x uint64, n int) {
	if n > 32 {
		w.write(x>>32, n-32)
		x, n = x&(1<<32-1), 32
	}
	w.pending, w.n = w.pending<<n|x, w.n+n
	if w.n >= 32 {
		w.n -= 32
		w.dst = binary.BigEndian.AppendUint32(w.dst, uint32(w.pending>>w.n))
	}
}

// code writes a code of order k.
func (w *bitWriter) code(n uint64, k int) {
	high := n>>k + 1
	q := bits.Len64(high) - 1
	low := (high-1<<q)<<k | n&(1<<k-1)
	if 2*q+1+k <= 64 {
		w.write((1<<(q+1)-2)<<(q+k)|low, 2*q+1+k)
		return
	}
	w.write(1<<(q+1)-2, q+1)
	w.write(low, q+k)
}

// end fills the last byte, and returns what was written.
func (w *bitWriter) end() []byte {
	if fill := -w.n & 7; fill > 0 {
		w.write(1<<fill-1, fill)
	}
	for w.n > 0 {
		w.n -= 8
		w.dst = append(w.dst, byte(w.pending>>w.n))
	}
	return w.dst
}
