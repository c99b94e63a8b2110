package dict

import (
	"cmp"
	"errors"
	"fmt"
)

// Settings are fixed when a store is created, and checked when it is opened.
type Settings struct {
	// ShardBits is the width of the shard number, 1 to 32.
	ShardBits uint8
	// LeaseSize is the number of ids in a lease: a power of two, 1 to 65,536.
	LeaseSize uint32
	// Partitions is the number of partitions of the DIDs, a power of two, 1 to 64: 1 for a
	// single writer, 64 for several. The ids of a partition's DIDs come from its own shards.
	Partitions uint8
	// Group is how many accounts with neighbouring ids share a value, a power of two, 1 to 256. Posts whose sets share one are
	// the square root of it. Larger groups take less space. FoundationDB reads a large value before it appends to it, so there each account has its own.
	Group uint16
}

// MaxPartitions is the number of partitions of a store for several writers.
const MaxPartitions = 64

// MaxGroup is the size of a group in a store for a single writer.
const MaxGroup = 256

// PartitionOf returns the partition of a DID. Stores depend on it: it must never change.
func (s Settings) PartitionOf(did []byte) uint8 {
	if s.Partitions == 1 {
		return 0
	}
	var form [PackedDIDLen]byte
	if v, ok := PackPLC(form[:0], did); ok {
		return s.PartitionOfForm(v)
	}
	return s.PartitionOfForm(did)
}

// PartitionOfForm hashes the packed form of a DID, or its text, with FNV-1a, and folds the
// upper bits into the lower.
func (s Settings) PartitionOfForm(form []byte) uint8 {
	h := uint64(14695981039346656037)
	for _, c := range form {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	h ^= h >> 16
	return uint8(h) & (s.Partitions - 1)
}

// PartitionOfID returns the partition of the DID with an id. A shard belongs to the partition
// that is its number modulo the number of partitions.
func (s Settings) PartitionOfID(id ID) uint8 { return uint8(s.Shard(id)) & (s.Partitions - 1) }

// MaxLeaseSize is the largest lease, one container of a Roaring bitmap.
const MaxLeaseSize = 1 << 16

// DefaultSettings are the settings of a new store with one writer.
var DefaultSettings = Settings{ShardBits: 14, LeaseSize: MaxLeaseSize, Partitions: 1, Group: MaxGroup}

// SharedSettings are the settings of a new store with several writers.
var SharedSettings = Settings{ShardBits: 14, LeaseSize: MaxLeaseSize, Partitions: MaxPartitions, Group: 1}

// String formats the settings for messages.
func (s Settings) String() string {
	return fmt.Sprintf("%d shard bits, leases of %d, %d partitions, groups of %d", s.ShardBits, s.LeaseSize, s.Partitions, s.Group)
}

// ErrSettings is returned for settings that are out of bounds.
var ErrSettings = errors.New("dict: unusable settings")

// Check returns an error if the settings are out of bounds.
func (s Settings) Check() error {
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
	if s.Group < 1 || s.Group > MaxGroup || s.Group&(s.Group-1) != 0 {
		return fmt.Errorf("%w: groups of %d, must be a power of two up to %d", ErrSettings, s.Group, MaxGroup)
	}
	return nil
}

// ShortCounters returns the number of each shard's counters whose ids are below 1<<shortBits.
func (s Settings) ShortCounters() uint64 {
	if s.ShardBits > shortBits-16 {
		return 0
	}
	return 1 << (shortBits - s.ShardBits)
}

// LastID returns the highest id of a partition.
func (s Settings) LastID(part uint8) ID { return ^ID(0) - ID(s.Partitions-1-part)<<(63-s.ShardBits) }

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

// Block returns the number of an id's block within its shard.
func (s Settings) Block(id ID) uint64 {
	_, counter := s.split(id)
	return counter / uint64(s.LeaseSize)
}

// Start returns the first id of a block of a shard.
func (s Settings) Start(shard uint32, block uint64) ID {
	counter := block * uint64(s.LeaseSize)
	if counter < s.ShortCounters() {
		return ID(uint64(shard)<<(shortBits-s.ShardBits) | counter)
	}
	return ID(longBit | uint64(shard)<<(63-s.ShardBits) | counter)
}

// Long reports whether a block's ids take nine bytes, although the store has shorter ids.
func (s Settings) Long(shard uint32, block uint64) bool {
	return s.ShortCounters() > 0 && s.Start(shard, block)+ID(s.LeaseSize) > FirstLong
}

// Blocks returns the number of blocks of a shard.
func (s Settings) Blocks() uint64 {
	return (1<<(63-s.ShardBits) - MaxLeaseSize) / uint64(s.LeaseSize)
}

// PartitionsOf returns the number of partitions of a namespace: AT URIs have one.
func (s Settings) PartitionsOf(ns Namespace) uint8 {
	if ns == DID {
		return s.Partitions
	}
	return 1
}

// Or replaces zero fields by the defaults.
func (s Settings) Or(defaults Settings) Settings {
	return Settings{
		ShardBits: cmp.Or(s.ShardBits, defaults.ShardBits), LeaseSize: cmp.Or(s.LeaseSize, defaults.LeaseSize),
		Partitions: cmp.Or(s.Partitions, defaults.Partitions), Group: cmp.Or(s.Group, defaults.Group),
	}
}

// A BlockKey identifies a block of ids.
type BlockKey struct {
	Namespace Namespace
	Shard     uint32
	Block     uint64
}

// BlockOf returns the block of an id.
func (s Settings) BlockOf(ns Namespace, id ID) BlockKey {
	return BlockKey{Namespace: ns, Shard: s.Shard(id), Block: s.Block(id)}
}
