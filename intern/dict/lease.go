package dict

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A Lease is a block of ids that a writer took. Its row's value is
//
//	token(8) unix seconds(8) used(4) flags(1) owner…
//
// token is random, so that a writer recognizes its own lease after an attempt of unknown
// outcome. flags is 1 once the owner has closed the lease. An open lease belongs to a running
// writer, or to one that crashed, whose unused ids are lost and never handed out.
type Lease struct {
	Namespace Namespace // of the ids
	Shard     uint32    // of the block
	Block     uint64    // its number in the shard
	Taken     time.Time // in the row, to the second
	// Used is the number of the block's ids that have strings. It is known once the lease is
	// Closed: the owner will not hand out any more.
	Used   uint32
	Closed bool   // the owner has closed the lease
	Owner  string // names the writer

	Token uint64
}

const leaseClosed = 1

// Value returns the row.
func (l *Lease) Value() []byte {
	b := binary.BigEndian.AppendUint64(nil, l.Token)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Taken.Unix()))
	b = binary.BigEndian.AppendUint32(b, l.Used)
	flags := byte(0)
	if l.Closed {
		flags = leaseClosed
	}
	return append(append(b, flags), l.Owner...)
}

// Decode reads a row.
func (l *Lease) Decode(key, value []byte) error {
	if len(key) != 14 || len(value) < 21 {
		return fmt.Errorf("dict: lease row %x is malformed", key)
	}
	l.Namespace = Namespace(key[1])
	l.Shard = binary.BigEndian.Uint32(key[2:])
	l.Block = binary.BigEndian.Uint64(key[6:])
	l.Token = binary.BigEndian.Uint64(value)
	l.Taken = time.Unix(int64(binary.BigEndian.Uint64(value[8:])), 0)
	l.Used = binary.BigEndian.Uint32(value[16:])
	l.Closed = value[20] == leaseClosed
	l.Owner = string(value[21:])
	return nil
}

// DecodeLease reads a lease row.
func DecodeLease(key, value []byte) (l Lease, err error) {
	err = l.Decode(key, value)
	return l, err
}

// A ShardRange confines a writer to the shards from First to Last, inclusive.
type ShardRange struct{ First, Last uint32 }

// Check returns the range, or all shards if g is nil.
func (g *ShardRange) Check(s Settings) (ShardRange, error) {
	all := ShardRange{0, uint32(1<<s.ShardBits - 1)}
	switch {
	case g == nil:
		return all, nil
	case g.First > g.Last || g.Last > all.Last:
		return all, fmt.Errorf("%w: shards %d-%d, but the store has 0-%d", ErrSettings, g.First, g.Last, all.Last)
	case s.ShardsOf(*g) == 0:
		return all, fmt.Errorf("%w: shards %d-%d are too few: each of the store's %d partitions needs one",
			ErrSettings, g.First, g.Last, s.Partitions)
	}
	return *g, nil
}

// String formats the range like the flag: "0-127".
func (g ShardRange) String() string { return fmt.Sprintf("%d-%d", g.First, g.Last) }

// ShardsOf returns the number of shards of the range for each partition.
func (s Settings) ShardsOf(g ShardRange) uint64 {
	return (uint64(g.Last) - uint64(g.First) + 1) / uint64(s.Partitions)
}

// BlockKey returns the leased block.
func (l *Lease) BlockKey() BlockKey {
	return BlockKey{Namespace: l.Namespace, Shard: l.Shard, Block: l.Block}
}
