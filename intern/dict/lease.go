package dict

import (
	"encoding/binary"
	"fmt"
)

// A Lease is a block of ids that a writer took. Its row's value is
//
//	token(8) owner…
//
// token is random, so that a writer recognizes its own lease after an attempt of unknown
// outcome. Ids that the writer has not used when it ends are never handed out again.
type Lease struct {
	Namespace Namespace // of the ids
	Shard     uint32    // of the block
	Block     uint64    // its number in the shard
	Owner     string    // names the writer
	Token     uint64
}

// Value returns the row.
func (l *Lease) Value() []byte {
	return append(binary.BigEndian.AppendUint64(nil, l.Token), l.Owner...)
}

// DecodeLease reads a lease row.
func DecodeLease(key, value []byte) (l Lease, err error) {
	if len(key) != 14 || len(value) < 8 {
		return l, fmt.Errorf("dict: lease row %x is malformed", key)
	}
	return Lease{
		Namespace: Namespace(key[1]), Shard: binary.BigEndian.Uint32(key[2:]), Block: binary.BigEndian.Uint64(key[6:]),
		Token: binary.BigEndian.Uint64(value), Owner: string(value[8:]),
	}, nil
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
