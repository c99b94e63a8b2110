package format

import (
	"encoding/binary"
	"math/bits"
	"sort"
	"sync"

	"skein.blue/intern/dict"
)

// A container holds the members of one large set that share all but the low 16 bits of their
// ids. Only spills write containers. On disk it is
//
//	uvarint n | n × member(2, LE)   the removed, ascending
//	the present: either m < 4096 × member(2, LE), ascending, or a bitmap of
//	exactly 8,192 bytes, bit i%8 of byte i/8 being member i
//
// which is Roaring's limit between arrays and bitmaps. A merge operand is a small container,
// and the last write to a member wins. Removed members are kept until a fold includes the
// oldest value (see kv.Merger); readers ignore them.
const (
	BitmapBytes = 8192
	bitmapWords = BitmapBytes / 8
	ArrayMax    = 4096 // from this many members on, a bitmap
)

// ErrContainer is returned for a malformed container.
var ErrContainer error = dict.Malformed("format: malformed container")

// SplitContainer returns the two parts of a container, which point into v.
func SplitContainer(v []byte) (removed, present []byte, err error) {
	if len(v) == 0 {
		return nil, nil, nil
	}
	n, w := binary.Uvarint(v)
	if w <= 0 || n > 1<<16 || uint64(len(v)-w) < 2*n || (len(v)-w)%2 != 0 {
		return nil, nil, ErrContainer
	}
	cut := w + 2*int(n)
	removed, present = v[w:cut], v[cut:]
	if len(present) > BitmapBytes {
		return nil, nil, ErrContainer
	}
	return removed, present, nil
}

// AppendContainer appends an operand that adds and removes members. Both lists
// are ascending, and disjoint.
func AppendContainer(dst []byte, add, remove []uint16) []byte {
	dst = appendMembers(binary.AppendUvarint(dst, uint64(len(remove))), remove)
	if len(add) < ArrayMax {
		return appendMembers(dst, add)
	}
	var b [bitmapWords]uint64
	for _, m := range add {
		b[m>>6] |= 1 << (m & 63)
	}
	return appendBitmap(dst, &b)
}

func appendMembers(dst []byte, members []uint16) []byte {
	for _, m := range members {
		dst = binary.LittleEndian.AppendUint16(dst, m)
	}
	return dst
}

func appendBitmap(dst []byte, b *[bitmapWords]uint64) []byte {
	for _, w := range b {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

// ContainerMembers returns the members present in a container, each with base added.
func ContainerMembers(base uint64, v []byte) (dst []uint64, err error) {
	_, present, err := SplitContainer(v)
	if err != nil {
		return nil, err
	}
	if len(present) < BitmapBytes {
		for i := 0; i < len(present); i += 2 {
			dst = append(dst, base+uint64(binary.LittleEndian.Uint16(present[i:])))
		}
		return dst, nil
	}
	for i := range bitmapWords {
		for w := binary.LittleEndian.Uint64(present[8*i:]); w != 0; w &= w - 1 {
			dst = append(dst, base+uint64(64*i+bits.TrailingZeros64(w)))
		}
	}
	return dst, nil
}

// ContainerHas reports whether member is present.
func ContainerHas(v []byte, member uint16) (bool, error) {
	_, present, err := SplitContainer(v)
	if err != nil {
		return false, err
	}
	if len(present) == BitmapBytes {
		return present[member>>3]&(1<<(member&7)) != 0, nil
	}
	at := func(i int) uint16 { return binary.LittleEndian.Uint16(present[2*i:]) }
	i := sort.Search(len(present)/2, func(i int) bool { return at(i) >= member })
	return 2*i < len(present) && at(i) == member, nil
}

type foldScratch struct{ present, removed [bitmapWords]uint64 }

var foldPool = sync.Pool{New: func() any { return new(foldScratch) }}

// foldContainers appends the container that values, oldest first, fold to.
func foldContainers(dst []byte, values [][]byte, base bool) ([]byte, error) {
	s, _ := foldPool.Get().(*foldScratch)
	defer foldPool.Put(s)
	clear(s.present[:])
	clear(s.removed[:])
	for _, v := range values {
		removed, present, err := SplitContainer(v)
		if err != nil {
			return nil, err
		}
		for i := 0; i < len(removed); i += 2 {
			m := binary.LittleEndian.Uint16(removed[i:])
			s.removed[m>>6] |= 1 << (m & 63)
			s.present[m>>6] &^= 1 << (m & 63)
		}
		if len(present) == BitmapBytes {
			for i := range s.present {
				w := binary.LittleEndian.Uint64(present[8*i:])
				s.present[i] |= w
				s.removed[i] &^= w
			}
			continue
		}
		for i := 0; i < len(present); i += 2 {
			m := binary.LittleEndian.Uint16(present[i:])
			s.present[m>>6] |= 1 << (m & 63)
			s.removed[m>>6] &^= 1 << (m & 63)
		}
	}
	np, nr := count(&s.present), 0
	if !base {
		nr = count(&s.removed)
	}
	if np == 0 && nr == 0 {
		return dst, nil
	}
	dst = binary.AppendUvarint(dst, uint64(nr))
	if nr > 0 {
		dst = appendArray(dst, &s.removed)
	}
	if np < ArrayMax {
		return appendArray(dst, &s.present), nil
	}
	return appendBitmap(dst, &s.present), nil
}

func count(b *[bitmapWords]uint64) int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

func appendArray(dst []byte, b *[bitmapWords]uint64) []byte {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(64*i+bits.TrailingZeros64(w)))
		}
	}
	return dst
}

// TakeBlock moves the ids of a block from the front of ids to dst.
func TakeBlock(dst []uint16, ids []uint64, block uint64) (taken []uint16, rest []uint64) {
	for len(ids) > 0 && BlockOf(ids[0]) == block {
		dst = append(dst, uint16(ids[0]))
		ids = ids[1:]
	}
	return dst, ids
}
