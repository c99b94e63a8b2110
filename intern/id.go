// Package intern turns DIDs and AT URIs into uint64s and back: one id per
// string for ever, whatever the number of writers and of crashes. It owns the
// shard counters, the leases, both directions of the dictionary and the cache
// in front of it. It does not know what the ids are used for.
//
// Ids are drawn from random shards in leased blocks: a writer takes an aligned
// block of a container's worth (65,536) from a shard that it drew at random,
// in one small transaction, and hands the ids out from memory. Writers thus
// contend 65,536 times less than one that draws single ids, and the ids of a
// block fill one Roaring container. What was measured is in docs/ids.md.
package intern

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An ID stands for a string within its namespace. The zero ID stands for none
// and is never handed out.
//
// An id is a shard and the shard's counter. The first counters of every shard
// lie below 2^40, so that they are written in five bytes: with w shard bits up
// to 24, the id of a counter below 2^(40-w) is shard<<(40-w) | counter. What
// does not fit there is 1<<63 | shard<<(63-w) | counter. Either way 65,536
// neighbours are one aligned stretch, a Roaring container. The last 65,536 ids
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
		return ValidDID(s)
	}
	return ValidURI(s)
}

// Settings are fixed when a store is made, and checked when it is opened.
type Settings struct {
	// ShardBits is the width of the shard number, 1 to 32.
	ShardBits uint8
	// LeaseSize is how many ids one lease takes: a power of two, 1 to 65,536.
	LeaseSize uint32
	// Partitions is how many partitions the DIDs are in, a power of two, 1 to
	// 64: 1 where one process writes, 64 where several do. The ids of a
	// partition's DIDs come from shards of its own.
	Partitions uint8
}

// MaxPartitions is how many partitions a store for several writers has.
const MaxPartitions = 64

// PartitionOf returns the partition that a DID is in. It is stored: it must
// stay as it is.
func (s Settings) PartitionOf(did []byte) uint8 {
	if s.Partitions == 1 {
		return 0
	}
	var form [packedDID]byte
	if v, ok := packPLC(form[:0], did); ok {
		return s.partitionOfForm(v)
	}
	return s.partitionOfForm(did)
}

// partitionOfForm hashes the packed form of a DID, or its text, with FNV-1a,
// whose upper bits are folded into the lower.
func (s Settings) partitionOfForm(form []byte) uint8 {
	h := uint64(14695981039346656037)
	for _, c := range form {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	h ^= h >> 16
	return uint8(h) & (s.Partitions - 1)
}

// PartitionOfID returns the partition of the DID that has id: shards belong to
// the partition that is their number's remainder.
func (s Settings) PartitionOfID(id ID) uint8 { return uint8(s.Shard(id)) & (s.Partitions - 1) }

// MaxLeaseSize is the largest lease, one Roaring container.
const MaxLeaseSize = 1 << 16

// DefaultSettings are those of a new store.
var DefaultSettings = Settings{ShardBits: 14, LeaseSize: MaxLeaseSize, Partitions: 1}

// SharedSettings are those of a new store that several processes write.
var SharedSettings = Settings{ShardBits: 14, LeaseSize: MaxLeaseSize, Partitions: MaxPartitions}

// String names the settings in messages.
func (s Settings) String() string {
	return fmt.Sprintf("%d shard bits, leases of %d, %d partitions", s.ShardBits, s.LeaseSize, s.Partitions)
}

// ErrSettings is returned by Open when the settings are out of bounds, or are
// not those that the store was made with.
var ErrSettings = errors.New("intern: unusable settings")

func (s Settings) check() error {
	if s.ShardBits < 1 || s.ShardBits > 32 {
		return fmt.Errorf("%w: %d shard bits, must be 1 to 32", ErrSettings, s.ShardBits)
	}
	if s.LeaseSize < 1 || s.LeaseSize > MaxLeaseSize || s.LeaseSize&(s.LeaseSize-1) != 0 {
		return fmt.Errorf("%w: lease size %d, must be a power of two up to %d", ErrSettings, s.LeaseSize, MaxLeaseSize)
	}
	if s.Partitions < 1 || s.Partitions > MaxPartitions || s.Partitions&(s.Partitions-1) != 0 || s.ShardBits < 32 && 1<<s.ShardBits < uint32(s.Partitions) {
		return fmt.Errorf("%w: %d partitions, must be a power of two up to %d, and no more than the %d shards",
			ErrSettings, s.Partitions, MaxPartitions, uint64(1)<<s.ShardBits)
	}
	return nil
}

const (
	shortBits = 40 // ids below 1<<shortBits hold the shards' first counters
	longBit   = 1 << 63
)

// shortCounters is how many counters of each shard lie below 1<<shortBits.
func (s Settings) shortCounters() uint64 {
	if s.ShardBits > shortBits-16 {
		return 0
	}
	return 1 << (shortBits - s.ShardBits)
}

func (s Settings) split(id ID) (shard uint32, counter uint64) {
	n, bits := uint64(id), 63-s.ShardBits
	if n&longBit == 0 {
		bits = shortBits - s.ShardBits
	}
	return uint32(n &^ longBit >> bits), n & (1<<bits - 1)
}

// Shard returns the shard that id was drawn from.
func (s Settings) Shard(id ID) uint32 {
	shard, _ := s.split(id)
	return shard
}

// Block returns the number of the block within its shard that id lies in.
func (s Settings) Block(id ID) uint64 {
	_, counter := s.split(id)
	return counter / uint64(s.LeaseSize)
}

func (s Settings) start(shard uint32, block uint64) ID {
	counter := block * uint64(s.LeaseSize)
	if counter < s.shortCounters() {
		return ID(uint64(shard)<<(shortBits-s.ShardBits) | counter)
	}
	return ID(longBit | uint64(shard)<<(63-s.ShardBits) | counter)
}

// long reports whether a block's ids take nine bytes where others would not.
func (s Settings) long(shard uint32, block uint64) bool {
	return s.shortCounters() > 0 && s.start(shard, block)+ID(s.LeaseSize) > firstLong
}

// blocks is how many blocks a shard may lease.
func (s Settings) blocks() uint64 {
	return (1<<(63-s.ShardBits) - MaxLeaseSize) / uint64(s.LeaseSize)
}

// Ids are written in five bytes, big-endian, where they fit under firstLong,
// else in nine, of which the first is 0xff. No id begins with the byte 0xfe,
// which others use as a mark. The order of the bytes is that of the
// numbers.
const (
	firstLong = 0xfe << 32
	longMark  = 0xff
)

// AppendID appends the written form of id, five bytes or nine.
func AppendID(dst []byte, id ID) []byte {
	if id < firstLong {
		return append(dst, byte(id>>32), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
	return binary.BigEndian.AppendUint64(append(dst, longMark), uint64(id))
}

// ReadID reads the id that b begins with, and returns how many bytes it took,
// 0 if there is none.
func ReadID(b []byte) (id ID, n int) {
	if len(b) >= 5 && b[0] < firstLong>>32 {
		return ID(b[0])<<32 | ID(binary.BigEndian.Uint32(b[1:])), 5
	}
	if len(b) >= 9 && b[0] == longMark {
		if id = ID(binary.BigEndian.Uint64(b[1:])); id >= firstLong {
			return id, 9
		}
	}
	return 0, 0
}

// Keys. The first byte names the keyspace; ids are written by AppendID, other
// numbers big-endian, strings as pack.go says. ns is the Namespace, a byte.
//
//	'i' ns string        → id                the dictionary
//	's' ns id            → group             and back, 64 ids to a row: strings.go
//	'n' ns shard(4)      → next block (8)    the shard's counter
//	'l' ns shard(4) block(8) → lease row     see lease.go
//	'h' ns               → shard(4)          where the last lease was drawn
//	'h' ns part slot     → shard(4)          the same, with several partitions
//	'u' ns slot lane     → strings (8)       how many a writer has claimed
//	'm' "intern"         → version, ShardBits, LeaseSize(4), Partitions if not 1
//
// A writer's slot is the first of the partitions that it owns.
const (
	KeyID     = 'i'
	KeyString = 's'
	KeyNext   = 'n'
	KeyLease  = 'l'
	KeyHome   = 'h'
	KeyClaims = 'u'
)

var keySettings = []byte("mintern")

// formatVersion is that of everything this package stores.
const formatVersion = 2

// AppendNextKey appends the key of a shard's counter.
func AppendNextKey(dst []byte, ns Namespace, shard uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, KeyNext, byte(ns)), shard)
}

// AppendLeaseKey appends the key of a lease row.
func AppendLeaseKey(dst []byte, ns Namespace, shard uint32, block uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(append(dst, KeyLease, byte(ns)), shard), block)
}
