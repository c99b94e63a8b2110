package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	"skein.blue/graph/kinds"
)

// CIDPrefix begins every CID that this protocol uses: version 1, codec dag-cbor, SHA-256.
const CIDPrefix = "\x01\x71\x12\x20"

const cidLen = 4 + 32

// cidSpan returns the length of the CID at the start of b, 0 if there is none.
func cidSpan(b []byte) int {
	if len(b) >= cidLen && string(b[:4]) == CIDPrefix {
		return cidLen
	}
	if len(b) >= 34 && b[0] == 0x12 && b[1] == 0x20 { // version 0
		return 34
	}
	i := 0
	var n uint64
	for range 4 { // version, codec, hash function, digest length
		v, w := binary.Uvarint(b[i:])
		if w <= 0 {
			return 0
		}
		i, n = i+w, v
	}
	if n > uint64(len(b)-i) {
		return 0
	}
	return i + int(n)
}

// hashes reports whether block hashes to cid. It knows only SHA-256.
func hashes(cid, block []byte) bool {
	if len(cid) != cidLen || cid[0] != 1 || cid[2] != 0x12 || cid[3] != 0x20 {
		return false
	}
	sum := sha256.Sum256(block)
	return bytes.Equal(sum[:], cid[4:])
}

// digest returns the value by which roots are compared: the hash in a CID, or the hash of
// a CID of another form.
func digest(cid []byte, buf *[32]byte) []byte {
	if len(cid) == 0 {
		return nil
	}
	if len(cid) == cidLen {
		return cid[4:]
	}
	*buf = sha256.Sum256(cid)
	return buf[:]
}

// carHeader parses the header of a CAR, and returns its first root and the offset of its
// blocks, 0 if it is not a CAR.
func carHeader(car []byte) (root []byte, blocks int) {
	const length, head, tail = 0x3a, "\x3a\xa2eroots\x81\xd8\x2aX\x25\x00", "gversion\x01"
	if len(car) > length && string(car[:len(head)]) == head && string(car[1+length-len(tail):1+length]) == tail {
		return car[len(head) : len(head)+cidLen], 1 + length // the form that everybody writes
	}
	n, w := binary.Uvarint(car)
	if w <= 0 || n > uint64(len(car)-w) {
		return nil, 0
	}
	blocks = w + int(n)
	root, ok := CARHeader(car[w:blocks])
	if !ok {
		return nil, 0
	}
	return root, blocks
}

// want is a CID whose block find looks for.
type want struct {
	cid   []byte
	block []byte // nil until it is found

	// The parsed block of a record of the collection of is in Decoder.named from first
	// on: records with the same bytes have the same CID, and are parsed and stored once.
	of     *kinds.Collection
	first  int
	reads  int
	reason Reason
}

// wants finds blocks by their CIDs in one walk over the CAR, for any number of blocks and
// CIDs: a few CIDs are compared one by one, more go into a table.
type wants struct {
	list  []want
	slots []int32 // 1 + index in list; 0: free. Not used for a few
}

// few is how many CIDs are faster to compare than to hash.
const few = 8

func (w *wants) reset(n int) {
	w.list = w.list[:0]
	if n <= few {
		w.slots = w.slots[:0]
		return
	}
	size := 4
	for size < 2*n {
		size *= 2
	}
	if cap(w.slots) < size {
		w.slots = make([]int32, size)
	}
	w.slots = w.slots[:size]
	clear(w.slots)
}

// lookup returns the index of cid in list, or -1 and a slot for it.
func (w *wants) lookup(cid []byte) (index, slot int) {
	if len(w.slots) == 0 {
		for i := range w.list {
			if c := w.list[i].cid; len(c) == len(cid) && c[len(c)-1] == cid[len(cid)-1] && bytes.Equal(c, cid) {
				return i, -1
			}
		}
		return -1, -1
	}
	mask := len(w.slots) - 1
	slot = int(hashCID(cid)) & mask
	for w.slots[slot] != 0 {
		if index = int(w.slots[slot]) - 1; bytes.Equal(w.list[index].cid, cid) {
			return index, slot
		}
		slot = (slot + 1) & mask
	}
	return -1, slot
}

// keys make the hash of lookup unpredictable for senders.
var keys = [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}

var seed = maphash.MakeSeed()

func hashCID(cid []byte) uint64 {
	if len(cid) != cidLen {
		return maphash.Bytes(seed, cid)
	}
	d := cid[4:]
	hi1, lo1 := bits.Mul64(binary.LittleEndian.Uint64(d)^keys[0], binary.LittleEndian.Uint64(d[8:])^keys[1])
	hi2, lo2 := bits.Mul64(binary.LittleEndian.Uint64(d[16:])^keys[2], binary.LittleEndian.Uint64(d[24:])^keys[3])
	return hi1 ^ lo1 ^ hi2 ^ lo2
}

// add adds a CID to look for, and returns its index.
func (w *wants) add(cid []byte) int {
	index, slot := w.lookup(cid)
	if index >= 0 {
		return index
	}
	w.list = append(w.list, want{cid: cid})
	if slot >= 0 {
		w.slots[slot] = int32(len(w.list))
	}
	return len(w.list) - 1
}

// sectionOf returns the section at the start of b, and its length with that of its length; nil if it is cut short.
func sectionOf(b []byte) (section []byte, width int) {
	n, w := uint64(b[0]), 1
	if n >= 0x80 {
		n, w = binary.Uvarint(b)
	}
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, 0
	}
	return b[w : w+int(n)], w + int(n)
}

// find walks the blocks of a CAR and notes the wanted ones. It reports whether the CAR is
// readable to its end.
func (w *wants) find(blocks []byte) bool {
	for i := 0; i < len(blocks); {
		section, width := sectionOf(blocks[i:])
		c := cidSpan(section)
		if c == 0 {
			return false
		}
		i += width
		if n, _ := w.lookup(section[:c]); n >= 0 && w.list[n].block == nil {
			w.list[n].block = section[c:len(section):len(section)]
		}
	}
	return true
}

// Root returns the first root of a CAR, nil if it is not a CAR.
func Root(car []byte) []byte { root, _ := carHeader(car); return root }

// EachBlock calls each with the CID and the bytes of every block of a CAR.
func EachBlock(car []byte, each func(cid, block []byte)) error {
	_, i := carHeader(car)
	if len(car) > 0 && i == 0 {
		return ErrFrame
	}
	for i < len(car) {
		section, width := sectionOf(car[i:])
		c := cidSpan(section)
		if c == 0 {
			return ErrFrame
		}
		i += width
		each(section[:c], section[c:])
	}
	return nil
}

// CARHeader parses the header of a CAR, without its length
// (https://ipld.io/specs/transport/car/carv1/#header). root is its first root, empty if it has
// none; ok is false if header is not the header of a CAR of version 1.
func CARHeader(header []byte) (root []byte, ok bool) {
	c := Cursor{B: header}
	version := uint64(0)
	for key := range c.Fields {
		switch string(key) {
		case "version":
			version = c.Uint()
		case "roots":
			for i := range c.Count(Array) {
				if cid := c.Link(); i == 0 {
					root = cid
				}
			}
		default:
			c.Skip()
		}
	}
	if c.Bad || version != 1 {
		return nil, false
	}
	return root, true
}
