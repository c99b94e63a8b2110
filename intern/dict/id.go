package dict

import (
	"encoding/binary"
	"fmt"
)

// An ID stands for a string within its namespace. The zero ID stands for no string, and is
// never handed out.
//
// An id consists of a shard and the shard's counter. The ids of each shard's first counters
// are below 2^40 and so take five bytes: with w shard bits up to 24, the id of a counter below
// 2^(40-w) is shard<<(40-w) | counter. Any other id is 1<<63 | shard<<(63-w) | counter. Either
// way, 65,536 neighbours are one aligned range, a container of a Roaring bitmap. The last 65,536 ids of
// every shard are never handed out, so that callers have numbers of their own (see
// FirstReserved).
type ID uint64

// None is the ID of no string.
const None ID = 0

// FirstReserved is the first id at the end of the id space that is never handed out.
const FirstReserved ID = 1<<64 - MaxLeaseSize

// A Namespace has its own ids: a DID and an AT URI may have the same id.
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

const (
	shortBits = 40 // the ids of the shards' first counters are below 1<<shortBits
	longBit   = 1 << 63
)

// An id below FirstLong is encoded in five bytes, big-endian; any other in nine, the first of
// them 0xff. No encoded id begins with 0xfe, which is free for marks. Encoded ids sort like
// their numbers.
const (
	FirstLong = 0xfe << 32
	longMark  = 0xff
)

// AppendID appends the encoded id, in five or nine bytes.
func AppendID(dst []byte, id ID) []byte {
	if id < FirstLong {
		return append(dst, byte(id>>32), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
	return binary.BigEndian.AppendUint64(append(dst, longMark), uint64(id))
}

// ReadID reads the id at the beginning of b, and returns the number of its bytes, or 0 if there
// is none.
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
