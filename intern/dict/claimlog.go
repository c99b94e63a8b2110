package dict

import (
	"encoding/binary"
	"fmt"
)

// The log of claims: the DIDs that a lane of a writer created lately, so that other writers need not look up
// every new DID (intern/claimed.go). A row's key ends with the lane's count of claims (KeyClaims) after the row's
// strings. The count before them is that of the previous row, which may have been trimmed. The value has the strings in their stored form, each after its length, a uvarint.

// AppendClaimedKey appends the key of the row of a lane's log that ends with its count.
func AppendClaimedKey(dst []byte, ns Namespace, slot, lane uint8, count uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, KeyClaimed, byte(ns), slot, lane), count)
}

// AppendClaimed appends a string, in its stored form, to a row of the log.
func AppendClaimed(dst, form []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(form))), form...)
}

// A ClaimedRow is a row of the log of claims.
type ClaimedRow struct {
	Namespace  Namespace
	Slot, Lane uint8
	Count      uint64   // the lane's claims up to this row's last string
	Forms      [][]byte // in the memory of the row
}

// Decode decodes a row. It reuses the memory of Forms.
func (r *ClaimedRow) Decode(key, value []byte) error {
	if len(key) != 12 || key[0] != KeyClaimed {
		return fmt.Errorf("dict: key %x of the log of claims is malformed", key)
	}
	r.Namespace, r.Slot, r.Lane, r.Count = Namespace(key[1]), key[2], key[3], binary.BigEndian.Uint64(key[4:])
	r.Forms = r.Forms[:0]
	for len(value) > 0 {
		size, n := binary.Uvarint(value)
		if n <= 0 || size == 0 || size > uint64(len(value)-n) {
			return fmt.Errorf("dict: row %x of the log of claims is malformed", key)
		}
		r.Forms = append(r.Forms, value[n:n+int(size):n+int(size)])
		value = value[n+int(size):]
	}
	if uint64(len(r.Forms)) > r.Count || len(r.Forms) == 0 {
		return fmt.Errorf("dict: row %x of the log of claims has %d strings", key, len(r.Forms))
	}
	return nil
}
