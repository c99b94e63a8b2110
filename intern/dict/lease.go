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

// BlockKey returns the leased block.
func (l *Lease) BlockKey() BlockKey {
	return BlockKey{Namespace: l.Namespace, Shard: l.Shard, Block: l.Block}
}
