package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"skein.blue/graph/kinds"
)

// CIDPrefix begins every CID that this protocol uses: version 1, codec dag-cbor, SHA-256.
const CIDPrefix = "\x01\x71\x12\x20"

const cidLen = 4 + 32

// Digest returns the hash in a CID. ok is false for CIDs that this protocol does not use.
func Digest(cid []byte) (d [sha256.Size]byte, ok bool) {
	if len(cid) != cidLen || string(cid[:len(CIDPrefix)]) != CIDPrefix {
		return d, false
	}
	return [sha256.Size]byte(cid[len(CIDPrefix):]), true
}

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
	sum := sha256.Sum256(block)
	return len(cid) == cidLen && cid[0] == 1 && cid[2] == 0x12 && cid[3] == 0x20 && string(sum[:]) == string(cid[4:])
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
// CIDs: a few CIDs are compared one by one, more are in an index. It looks for no CID of another length
// than those of this protocol.
type wants struct {
	list  []want
	index map[[cidLen]byte]int // in list; empty for a few
}

// few is how many CIDs are faster to compare than to hash.
const few = 8

func (w *wants) reset() {
	w.list = w.list[:0]
	clear(w.index)
}

// lookup returns the wanted block with a CID, nil if it is not wanted.
func (w *wants) lookup(cid []byte) *want {
	if len(cid) != cidLen {
		return nil
	}
	if len(w.index) > 0 {
		if i, ok := w.index[[cidLen]byte(cid)]; ok {
			return &w.list[i]
		}
		return nil
	}
	for i := range w.list {
		if c := w.list[i].cid; c[cidLen-1] == cid[cidLen-1] && bytes.Equal(c, cid) {
			return &w.list[i]
		}
	}
	return nil
}

// add adds a CID to look for.
func (w *wants) add(cid []byte) {
	if len(cid) != cidLen || w.lookup(cid) != nil {
		return
	}
	w.list = append(w.list, want{cid: cid})
	if len(w.list) <= few {
		return
	}
	if w.index == nil {
		w.index = map[[cidLen]byte]int{}
	}
	for i := len(w.index); i < len(w.list); i++ {
		w.index[[cidLen]byte(w.list[i].cid)] = i
	}
}

// blockAt returns the CID and the bytes of the block of a CAR at i, and where the next one is; 0 if it is
// cut short.
func blockAt(car []byte, i int) (cid, block []byte, next int) {
	b := car[i:]
	n, w := uint64(b[0]), 1
	if n >= 0x80 {
		n, w = binary.Uvarint(b)
	}
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, 0
	}
	section := b[w : w+int(n) : w+int(n)]
	c := cidSpan(section)
	if c == 0 {
		return nil, nil, 0
	}
	return section[:c], section[c:], i + w + int(n)
}

// find walks the blocks of a CAR from i on, and notes the wanted ones. It reports whether the CAR is
// readable to its end.
func (w *wants) find(car []byte, i int) bool {
	for i < len(car) {
		cid, block, next := blockAt(car, i)
		if next == 0 {
			return false
		}
		i = next
		if one := w.lookup(cid); one != nil && one.block == nil {
			one.block = block
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
		cid, block, next := blockAt(car, i)
		if next == 0 {
			return ErrFrame
		}
		i = next
		each(cid, block)
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
