package format

import (
	"bytes"
	"cmp"

	"skein.blue/intern/dict"
)

// A Path is a record key: the number of a TID, or any other key itself.
type Path struct {
	TID uint64 // below EndOfTime
	Raw []byte // set if the key is not a TID
}

// ParsePath returns the path of a record key. Raw points into rkey.
func ParsePath(rkey []byte) Path {
	if tid, ok := dict.ParseTID(rkey); ok && tid < EndOfTime {
		return Path{TID: tid}
	}
	return Path{Raw: rkey}
}

// AppendRkey appends the record key.
func (p Path) AppendRkey(dst []byte) []byte {
	if p.Raw != nil {
		return append(dst, p.Raw...)
	}
	return dict.AppendTID(dst, p.TID)
}

// EndOfTime is above the numbers of all TIDs, whose top bit is 0 (https://atproto.com/specs/tid). A record key may look like
// a TID and still be above it; it names no time.
const EndOfTime = 1 << 63

// HasTime reports whether the key is a TID, which names a time.
func (p Path) HasTime() bool { return p.Raw == nil }

// ComparePaths orders the paths of an actor: TIDs by number, then the other keys.
func ComparePaths(x, y Path) int {
	if x.Raw != nil || y.Raw != nil {
		return bytes.Compare(x.Raw, y.Raw)
	}
	return cmp.Compare(x.TID, y.TID)
}
