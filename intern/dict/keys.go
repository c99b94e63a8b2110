package dict

import "encoding/binary"

// The keys of the dictionary. The first byte names the keyspace. AppendID encodes ids,
// pack.go describes strings, and other numbers are big-endian. ns is the Namespace, a byte.
//
//	'i' ns string        → id                from string to id
//	's' ns id            → group             from id to string, 64 ids in a row: group.go
//	'n' ns shard(4)      → next block (8)    the shard's counter
//	'l' ns shard(4) block(8) → lease row     see lease.go
//	'h' ns               → shard(4)          the shard of the last lease
//	'h' ns part slot     → shard(4)          the same, with several partitions
//	'u' ns slot lane     → strings (8)       the number of strings that a writer has claimed
//
// A writer's slot is the first of its partitions.
const (
	KeyID     = 'i'
	KeyString = 's'
	KeyNext   = 'n'
	KeyLease  = 'l'
	KeyHome   = 'h'
	KeyClaims = 'u'
)

// AppendNextKey appends the key of a shard's counter.
func AppendNextKey(dst []byte, ns Namespace, shard uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, KeyNext, byte(ns)), shard)
}

// AppendLeaseKey appends the key of a lease row.
func AppendLeaseKey(dst []byte, ns Namespace, shard uint32, block uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(append(dst, KeyLease, byte(ns)), shard), block)
}
