package dict

import (
	"encoding/binary"
	"fmt"

	"skein.blue/internal/syntax"
)

// An ID stands for a string within its namespace. The zero ID stands for none
// and is never handed out.
//
// An id is a shard and the shard's counter. The first counters of every shard
// lie below 2^40, so that they are written in five bytes: with w shard bits up
// to 24, the id of a counter below 2^(40-w) is shard<<(40-w) | counter. What
// does not fit there is 1<<63 | shard<<(63-w) | counter. Either way 65,536
// neighbours are one aligned range, a Roaring container. The last 65,536 ids
// of every shard are never handed out, so that callers have numbers of their
// own (see FirstReserved).
type ID uint64

// None is the ID of no string.
const None ID = 0

// FirstReserved is the first of the ids at the end of the id space that are
// never handed out.
const FirstReserved ID = 1<<64 - MaxLeaseSize

// A Namespace has ids of its own: a DID and an AT URI may have the same.
type Namespace uint8

// The namespaces. Their values are in the store.
const (
	DID Namespace = 1
	URI Namespace = 2
)

// Namespaces lists all of them.
var Namespaces = [...]Namespace{DID, URI}

// String returns the name of the namespace in metrics: "did" or "uri".
func (ns Namespace) String() string {
	switch ns {
	case DID:
		return "did"
	case URI:
		return "uri"
	}
	return fmt.Sprintf("namespace(%d)", uint8(ns))
}

// Valid reports whether s may be interned in the namespace.
func (ns Namespace) Valid(s []byte) bool {
	if ns == DID {
		return syntax.ValidDID(s)
	}
	return syntax.ValidURI(s)
}

const (
	shortBits = 40 // ids below 1<<shortBits hold the shards' first counters
	longBit   = 1 << 63
)

// Ids are written in five bytes, big-endian, where they fit under firstLong,
// else in nine, of which the first is 0xff. No id begins with the byte 0xfe,
// which others use as a mark. The order of the bytes is that of the
// numbers.
const (
	FirstLong = 0xfe << 32
	longMark  = 0xff
)

// AppendID appends the written form of id, five bytes or nine.
func AppendID(dst []byte, id ID) []byte {
	if id < FirstLong {
		return append(dst, byte(id>>32), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
	return binary.BigEndian.AppendUint64(append(dst, longMark), uint64(id))
}

// ReadID reads the id that b begins with, and returns how many bytes it took,
// 0 if there is none.
func ReadID(b []byte) (id ID, n int) {
	if len(b) >= 5 && b[0] < FirstLong>>32 {
		return ID(b[0])<<32 | ID(binary.BigEndian.Uint32(b[1:])), 5
	}
	if len(b) >= 9 && b[0] == longMark {
		if id = ID(binary.BigEndian.Uint64(b[1:])); id >= FirstLong {
			return id, 9
		}
	}
	return 0, 0
}
