package format

import (
	"encoding/binary"
	"slices"

	"skein.blue/intern/dict"
)

// Each write that hides accounts or shows them again leaves its changes under the new version of its partition's hidden accounts, so
// that a reader with an older set needs only the changes since. There is a ring of them: later ones replace the oldest.
const (
	HidingRing = 256
	HidingMax  = 4000 // accounts in one; a write with more makes several versions
)

var errHiding error = dict.Malformed("format: malformed changes of the hidden accounts")

// HidingKey returns the key of the changes that made a version of a partition's hidden accounts.
func (l Layout) HidingKey(part uint8, version uint64) []byte {
	return append(slices.Clip(l.PartKey(KeyHiding, part)), byte(version%HidingRing))
}

// AppendHiding appends the changes that made a version: whether each of some accounts is hidden.
func AppendHiding(dst []byte, version uint64, ids []dict.ID, hidden map[dict.ID]bool) []byte {
	dst = binary.BigEndian.AppendUint64(dst, version)
	for _, id := range ids {
		hides := byte(0)
		if hidden[id] {
			hides = 1
		}
		dst = dict.AppendID(append(dst, hides), id)
	}
	return dst
}

// ReadHiding reads what AppendHiding wrote. It calls each for every account.
func ReadHiding(v []byte, each func(id dict.ID, hide bool)) (version uint64, err error) {
	if len(v) < 8 {
		return 0, errHiding
	}
	version, v = binary.BigEndian.Uint64(v), v[8:]
	for len(v) > 0 {
		id, n := dict.ReadID(v[1:])
		if n == 0 || v[0] > 1 {
			return 0, errHiding
		}
		each(id, v[0] == 1)
		v = v[1+n:]
	}
	return version, nil
}
