package format

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"

	"skein.blue/intern/dict"
)

// A Path is a record key: the number of a TID, or any other key itself.
type Path struct {
	TID uint64
	Raw []byte // set if the key is not a TID
}

// ParsePath returns the path of a record key. Raw points into rkey.
func ParsePath(rkey []byte) Path {
	if tid, ok := dict.ParseTID(rkey); ok {
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

// Bucket returns the bucket that the path belongs to.
func (p Path) Bucket() uint16 {
	if p.Raw != nil {
		return RawBucket | uint16(p.hash()>>56)
	}
	return uint16(p.TID >> BucketShift)
}

// EndOfTime is above the numbers of all TIDs, whose top bit is 0. A record key may look like
// a TID and still be above it.
const EndOfTime = 1 << 63

// HasTime reports whether the key is a TID, which names a time.
func (p Path) HasTime() bool { return p.Raw == nil && p.TID < EndOfTime }

// hash returns the hash of a raw key. It is SHA-256, so that nobody can choose many keys
// that fall into one chunk.
func (p Path) hash() uint64 {
	sum := sha256.Sum256(p.Raw)
	return binary.BigEndian.Uint64(sum[:])
}

// Spread returns the bits that divide a bucket into chunks, from the top bit down.
func (p Path) Spread() uint64 {
	if p.Raw == nil {
		return p.TID << (64 - BucketShift)
	}
	return p.hash() << 8
}

// ComparePaths orders the paths of one bucket.
func ComparePaths(x, y Path) int {
	if x.Raw != nil || y.Raw != nil {
		return bytes.Compare(x.Raw, y.Raw)
	}
	return cmp.Compare(x.TID, y.TID)
}
