package dict

import "encoding/binary"

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

// AppendNextKey appends the key of a shard's counter.
func AppendNextKey(dst []byte, ns Namespace, shard uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, KeyNext, byte(ns)), shard)
}

// AppendLeaseKey appends the key of a lease row.
func AppendLeaseKey(dst []byte, ns Namespace, shard uint32, block uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(append(dst, KeyLease, byte(ns)), shard), block)
}
