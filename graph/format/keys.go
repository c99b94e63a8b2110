package format

import (
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

// WatchKey returns the key of the place of a watch, or with "" the prefix of all of them.
func WatchKey(name string) []byte { return []byte("mwatch " + name) }

// SeenKey returns the key of what the viewers of a slot saw on a day, counted from 1970.
func SeenKey(day uint32, slot uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32([]byte("mseen "), day), slot)
}

// AppendRecordsKey appends the key of the head of an actor's records of a kind. It is a prefix of the keys of the leaves below it.
func AppendRecordsKey(dst []byte, k kinds.Kind, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyRecord, byte(k)), actor)
}

// AppendLeafKey appends the key of a leaf to that of its head, given the last path that belongs to the leaf. The leaf that a path belongs
// to is the first whose key is not below the path's own. Keys ascend like ComparePaths.
func AppendLeafKey(head []byte, last Path) []byte {
	if last.Raw != nil {
		return append(append(head, rawLeaf), last.Raw...)
	}
	return binary.BigEndian.AppendUint64(head, last.TID)
}

// rawLeaf is in the place of a TID's first byte, whose top bit is 0.
const rawLeaf = 0x80

// ParseChunkKey returns the parts of a chunk's key. last is the last path of a leaf, and points into the key.
func ParseChunkKey(key []byte) (k kinds.Kind, actor dict.ID, last Path, isLeaf bool, err error) {
	if len(key) > 2 && key[0] == KeyRecord {
		id, n := dict.ReadID(key[2:])
		rest := key[2+n:]
		switch {
		case n == 0:
		case len(rest) == 0:
			return kinds.Kind(key[1]), id, last, false, nil
		case len(rest) == 8 && rest[0] < rawLeaf:
			return kinds.Kind(key[1]), id, Path{TID: binary.BigEndian.Uint64(rest)}, true, nil
		case len(rest) > 1 && rest[0] == rawLeaf:
			return kinds.Kind(key[1]), id, Path{Raw: rest[1:]}, true, nil
		}
	}
	return 0, 0, last, false, fmt.Errorf("format: record key %x is malformed", key)
}

// AppendRowKey appends the key of a reverse set's row. It is a prefix of the keys of the
// set's leaves.
func AppendRowKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	return dict.AppendID(append(dst, KeyReverse, byte(k)), subject)
}

// ParseCursorKey returns the parts of a cursor's key.
func ParseCursorKey(key []byte) (part uint8, source string) {
	if len(key) < 2 {
		return 0, ""
	}
	return key[1], string(key[2:])
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
