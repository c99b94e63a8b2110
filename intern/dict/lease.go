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
	BlockKey

	Owner string // names the writer
	Token uint64
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
		BlockKey: BlockKey{Namespace(key[1]), binary.BigEndian.Uint32(key[2:]), binary.BigEndian.Uint64(key[6:])},
		Token:    binary.BigEndian.Uint64(value), Owner: string(value[8:]),
	}, nil
}
