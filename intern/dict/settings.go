package dict

import (
	"errors"
	"fmt"
)

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
	var form [PackedDIDLen]byte
	if v, ok := PackPLC(form[:0], did); ok {
		return s.PartitionOfForm(v)
	}
	return s.PartitionOfForm(did)
}

// PartitionOfForm hashes the packed form of a DID, or its text, with FNV-1a,
// whose upper bits are folded into the lower.
func (s Settings) PartitionOfForm(form []byte) uint8 {
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
var ErrSettings = errors.New("dict: unusable settings")

// Check reports whether the settings are within bounds.
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
	return nil
}

// ShortCounters is how many counters of each shard lie below 1<<shortBits.
func (s Settings) ShortCounters() uint64 {
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

// Start returns the first id of a block of a shard.
func (s Settings) Start(shard uint32, block uint64) ID {
	counter := block * uint64(s.LeaseSize)
	if counter < s.ShortCounters() {
		return ID(uint64(shard)<<(shortBits-s.ShardBits) | counter)
	}
	return ID(longBit | uint64(shard)<<(63-s.ShardBits) | counter)
}

// Long reports whether a block's ids take nine bytes where others would not.
func (s Settings) Long(shard uint32, block uint64) bool {
	return s.ShortCounters() > 0 && s.Start(shard, block)+ID(s.LeaseSize) > FirstLong
}

// Blocks is how many blocks a shard may lease.
func (s Settings) Blocks() uint64 {
	return (1<<(63-s.ShardBits) - MaxLeaseSize) / uint64(s.LeaseSize)
}

// PartitionsOf is how many partitions the namespace has: AT URIs have one.
func (s Settings) PartitionsOf(ns Namespace) uint8 {
	if ns == DID {
		return s.Partitions
	}
	return 1
}

// Or fills what is zero from defaults.
func (s Settings) Or(defaults Settings) Settings {
	if s.ShardBits == 0 {
		s.ShardBits = defaults.ShardBits
	}
	if s.LeaseSize == 0 {
		s.LeaseSize = defaults.LeaseSize
	}
	if s.Partitions == 0 {
		s.Partitions = defaults.Partitions
	}
	return s
}

// A BlockKey names a block of ids.
type BlockKey struct {
	Namespace Namespace
	Shard     uint32
	Block     uint64
}

// BlockOf returns the block that an id lies in.
func (s Settings) BlockOf(ns Namespace, id ID) BlockKey {
	return BlockKey{Namespace: ns, Shard: s.Shard(id), Block: s.Block(id)}
}
