package format

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"skein/graph/kinds"
	"skein/intern/dict"
)

// How the graph lies in the store. Nothing outside this file, chunk.go, row.go
// and container.go knows it. The first byte of a key names the keyspace; ids
// are written by intern.AppendID, other numbers big-endian. Package intern has
// keyspaces of its own in the same store (intern/id.go).
//
//	'r' kind actor bucket(2)     → chunk          the records (chunk.go)
//	'r' kind actor bucket(2) n×1 → chunk          what a chunk spilled
//	'v' kind subject             → row            who has an edge to subject (row.go)
//	'v' kind subject block       → container      what a row spilled (container.go)
//	'v' 0 0 …                    → row, containers  the hidden accounts
//	'a' actor, first of a group  → repo states    (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' source                   → cursor row
//	'd' source-number(4) seq(8) path → dead letter, JSON
//	'g' source-number(4) seq(8) reason … → gap, JSON
//	'm' "graph"                  → format version (3)
//	'm' "counts"                 → Counts, JSON
//	'm' "hidden"                 → version of the hidden set (8)
//	'm' "import"                 → nothing        while an import is not finished
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "writer"                 → token of the last write (16), see lane.update
//
// In a store that several processes write (intern.Settings.Partitions), nothing
// that is read to be written again belongs to two partitions, so that two
// writers never conflict on it. Some keys then are longer; their lengths tell
// the two layouts apart:
//
//	'v' kind subject part        → row            the members of one partition
//	'v' kind subject 0xff block  → container      a block's ids are of one partition
//	'a' actor                    → repo state, a group of one
//	'c' 0 part source            → cursor row
//	'm' "counts", "hidden", "writer", each followed by the first partition of
//	                               the lane that writes it; totals are sums
//	'd', 'g'                       the source's number has that in its first byte
//	'p' part                     → claim, JSON    who indexes it (claim.go)
//	'q' token(16)                → heartbeat      of a claim
//
// 'r' answers what a delete names, and is the forward set. 'v' is the reverse
// set. Both are written blind, by merge operands, into a value that is small
// for nearly every actor and subject. One that has grown too large is spilled
// (spill.go): what it holds moves to finer keys under it, and it goes on as the
// place where changes land, which stand over what lies below. So a change
// touches one small value, whatever the size of the set, and whoever reads
// needs no list of what is large.
const (
	KeyRecord     = 'r'
	KeyReverse    = 'v'
	KeyAccount    = 'a'
	KeyErase      = 'e'
	KeyCursor     = 'c'
	KeyDeadLetter = 'd'
	KeyGap        = 'g'
	KeyClaim      = 'p'
	KeyHeartbeat  = 'q'
)

var (
	KeyCounts = []byte("mcounts")
	KeyHidden = []byte("mhidden")
	KeySecret = []byte("msecret")
	KeyWriter = []byte("mwriter")
	KeyImport = []byte("mimport")
)

// A bucket of records: the upper 14 bits of a TID, which are 12.7 days, or for
// record keys that are no TIDs rawBucket and the first byte of their hash.
const (
	BucketShift = 50
	RawBucket   = 1 << 14
)

// appendRecordsKey appends the prefix of the keys of an actor's records.
func AppendRecordsKey(dst []byte, k kinds.Kind, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyRecord, byte(k)), actor)
}

// maxChunkDepth is how often what was spilled may be spilled again: each time
// the next byte of the TID, or of the hash of the record key, is added.
const MaxChunkDepth = 6

// appendChunkKey appends the key of the chunk that holds a path, at a depth.
func AppendChunkKey(dst []byte, k kinds.Kind, actor dict.ID, p Path, depth int) []byte {
	dst = binary.BigEndian.AppendUint16(AppendRecordsKey(dst, k, actor), p.Bucket())
	bits := p.Spread()
	for range depth {
		dst = append(dst, byte(bits>>56))
		bits <<= 8
	}
	return dst
}

// parseChunkKey takes a chunk's key apart.
func ParseChunkKey(key []byte) (k kinds.Kind, actor dict.ID, bucket uint16, depth int, err error) {
	if len(key) > 2 && key[0] == KeyRecord {
		id, n := dict.ReadID(key[2:])
		if rest := key[2+n:]; n > 0 && len(rest) >= 2 && len(rest) <= 2+MaxChunkDepth {
			return kinds.Kind(key[1]), id, binary.BigEndian.Uint16(rest), len(rest) - 2, nil
		}
	}
	return 0, 0, 0, 0, fmt.Errorf("format: record key %x is malformed", key)
}

// A member's id is its container's block and 16 bits within it.
func BlockOf(member uint64) uint64 { return member >> 16 }

// appendRowKey appends the key of a reverse set's row, the prefix of those of
// its containers.
func AppendRowKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	return dict.AppendID(append(dst, KeyReverse, byte(k)), subject)
}

func ParseCursorKey(key []byte) (part uint8, source string) {
	if len(key) > 2 && key[1] == 0 { // no source begins with it
		return key[2], string(key[3:])
	}
	return 0, string(key[1:])
}

// appendBlock appends a block's number, in 3 bytes or 7: an id without its
// lowest two.
func AppendBlock(dst []byte, block uint64) []byte {
	dst = dict.AppendID(dst, dict.ID(block<<16))
	return dst[:len(dst)-2]
}

// parseReverseKey takes the key of a row or of a container apart.
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

func EraseKey(actor dict.ID) []byte { return dict.AppendID([]byte{KeyErase}, actor) }

// parseActorKey reads the id of an erase key, or the first of a group of accounts.
func ParseActorKey(key []byte) (dict.ID, error) {
	if len(key) == 0 {
		return 0, fmt.Errorf("format: an account's key is empty")
	}
	if id, n := dict.ReadID(key[1:]); n > 0 && n == len(key)-1 {
		return id, nil
	}
	return 0, fmt.Errorf("format: account key %x is malformed", key)
}

func DecodeVersion(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("format: the hidden set's version is %x", v)
	}
	return binary.BigEndian.Uint64(v), nil
}

func isRowKey(key []byte) bool {
	if len(key) < 3 || key[0] != KeyReverse {
		return false
	}
	_, n := dict.ReadID(key[2:])
	return n > 0 && (len(key) == 2+n || len(key) == 3+n && key[2+n] < dict.MaxPartitions)
}

// appendContainerKey appends the key of a container of the set whose row has
// the key given.
func AppendContainerKey(dst, row []byte, block uint64) []byte {
	_, n := dict.ReadID(row[2:])
	dst = append(dst, row...)
	if len(row) > 2+n {
		dst[len(dst)-1] = containersMark // in the place of the partition
	}
	return AppendBlock(dst, block)
}
