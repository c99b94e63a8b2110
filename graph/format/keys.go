package format

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// The keyspaces: the first bytes of keys.
const (
	KeyRecord     = 'r'
	KeyReverse    = 'v'
	KeyRows       = 'o'
	KeyDates      = 'k'
	KeyAccount    = 'a'
	KeyErase      = 'e'
	KeyCursor     = 'c'
	KeyDeadLetter = 'd'
	KeyGap        = 'g'
	KeyClaim      = 'p'
	KeyHeartbeat  = 'q'
)

// The keys of rows that exist once, or once per partition.
var (
	KeyCounts = []byte("mcounts")
	KeyHidden = []byte("mhidden")
	KeyHiding = []byte("mhiding")
	KeySecret = []byte("msecret")
	KeyKinds  = []byte("mkinds")
	// KeyLacking is the key of the kinds that were added to a store with accounts: a Lack by
	// the name of each, in JSON.
	KeyLacking = []byte("mlacking")
	KeyWriter  = []byte("mwriter")
	KeyImport  = []byte("mimport")
)

// A bucket has the records whose TIDs share the upper 14 bits, 12.7 days. The bucket of a
// record key that is not a TID is RawBucket and the first byte of the key's hash.
const (
	BucketShift = 50
	RawBucket   = 1 << 14
)

// AppendRecordsKey appends the prefix of the keys of an actor's records.
func AppendRecordsKey(dst []byte, k kinds.Kind, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyRecord, byte(k)), actor)
}

// MaxChunkDepth is how many times spilled records can be spilled again. Each time, the key
// gets the next byte of the TID, or of the record key's hash.
const MaxChunkDepth = 6

// AppendChunkKey appends the key of the chunk at a depth that a path belongs to.
func AppendChunkKey(dst []byte, k kinds.Kind, actor dict.ID, p Path, depth int) []byte {
	dst = binary.BigEndian.AppendUint16(AppendRecordsKey(dst, k, actor), p.Bucket())
	bits := p.Spread()
	for range depth {
		dst = append(dst, byte(bits>>56))
		bits <<= 8
	}
	return dst
}

// ParseChunkKey returns the parts of a chunk's key.
func ParseChunkKey(key []byte) (k kinds.Kind, actor dict.ID, bucket uint16, depth int, err error) {
	if len(key) > 2 && key[0] == KeyRecord {
		id, n := dict.ReadID(key[2:])
		if rest := key[2+n:]; n > 0 && len(rest) >= 2 && len(rest) <= 2+MaxChunkDepth {
			return kinds.Kind(key[1]), id, binary.BigEndian.Uint16(rest), len(rest) - 2, nil
		}
	}
	return 0, 0, 0, 0, fmt.Errorf("format: record key %x is malformed", key)
}

// BlockOf returns the block of a member, its id without the low 16 bits. A container has the
// members of one block.
func BlockOf(member uint64) uint64 { return member >> 16 }

// AppendRowKey appends the key of a reverse set's row. It is a prefix of the keys of the
// set's containers.
func AppendRowKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	return dict.AppendID(append(dst, KeyReverse, byte(k)), subject)
}

// ParseCursorKey returns the parts of a cursor's key.
func ParseCursorKey(key []byte) (part uint8, source string) {
	if len(key) > 2 && key[1] == 0 { // a source never begins with 0
		return key[2], string(key[3:])
	}
	return 0, string(key[1:])
}

// AppendBlock appends a block in 3 or 7 bytes: an encoded id without its last two.
func AppendBlock(dst []byte, block uint64) []byte {
	dst = dict.AppendID(dst, dict.ID(block<<16))
	return dst[:len(dst)-2]
}

// ParseReverseKey returns the parts of the key of a row or a container.
func ParseReverseKey(key []byte) (k kinds.Kind, subject dict.ID, block uint64, isRow bool, err error) {
	if len(key) > 2 && key[0] == KeyReverse {
		id, n := dict.ReadID(key[2:])
		rest := key[2+n:]
		if n > 0 && (len(rest) == 0 || len(rest) == 1 && rest[0] < dict.MaxPartitions) {
			return kinds.Kind(key[1]), id, 0, true, nil
		}
		if (len(rest) == 4 || len(rest) == 8) && rest[0] == containersMark {
			rest = rest[1:]
		}
		if first, m := dict.ReadID(append(bytes.Clone(rest), 0, 0)); n > 0 && m == len(rest)+2 {
			return kinds.Kind(key[1]), id, BlockOf(uint64(first)), false, nil
		}
	}
	return 0, 0, 0, false, fmt.Errorf("format: set key %x is malformed", key)
}

// EraseKey returns the key of the job that erases an account.
func EraseKey(actor dict.ID) []byte { return dict.AppendID([]byte{KeyErase}, actor) }

// ParseActorKey reads the id in the key of an erase job, or the first id of a group of
// accounts.
func ParseActorKey(key []byte) (dict.ID, error) {
	if len(key) == 0 {
		return 0, fmt.Errorf("format: an account's key is empty")
	}
	if id, n := dict.ReadID(key[1:]); n > 0 && n == len(key)-1 {
		return id, nil
	}
	return 0, fmt.Errorf("format: account key %x is malformed", key)
}

// DecodeVersion reads the version of the hidden set.
func DecodeVersion(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("format: the hidden set's version is %x", v)
	}
	return binary.BigEndian.Uint64(v), nil
}

// AppendContainerKey appends the key of a container of the set whose row has the key row.
func AppendContainerKey(dst, row []byte, block uint64) []byte {
	_, n := dict.ReadID(row[2:])
	dst = append(dst, row...)
	if len(row) > 2+n {
		dst[len(dst)-1] = containersMark // instead of the partition
	}
	return AppendBlock(dst, block)
}
