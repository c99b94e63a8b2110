package intern

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// How strings lie in the dictionary. Those that nearly all are get a packed
// form, the rest are stored as they are:
//
//	a DID of did:plc with 24 characters of base32    15 bytes: the 120 bits
//	an AT URI did/collection/rkey, the collection    8 bytes of TID, the id of
//	one of packedCollections, the rkey a TID           its DID (AppendID), and
//	                                                   1 byte of collection
//	anything else                                    as it is
//
// The length tells the forms apart: a string that is as long as a packed form
// may be is stored with a zero byte after it, which no DID and no URI holds.
// TIDs come first because the network's URIs are young when they are met: the
// keys that are written, and asked for, lie close together.
const (
	packedDID      = 15
	packedURI      = 8 + 5 + 1
	packedURILong  = 8 + 9 + 1
	plcPrefix      = "did:plc:"
	plcChars       = 24
	uriPrefix      = "at://"
	tidChars       = 13
	base32Alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	tidAlphabet    = "234567abcdefghijklmnopqrstuvwxyz"
)

// packedCollections are those whose URIs are packed, by their number in the
// store: append only.
var packedCollections = [...]string{
	"app.bsky.feed.post",
	"app.bsky.feed.like",
	"app.bsky.feed.repost",
	"app.bsky.feed.generator",
	"app.bsky.graph.list",
	"app.bsky.graph.starterpack",
}

var errPacked = errors.New("malformed dictionary row")

func reverseAlphabet(alphabet string) (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(alphabet) {
		t[alphabet[i]] = byte(i)
	}
	return t
}

var base32Value, tidValue = reverseAlphabet(base32Alphabet), reverseAlphabet(tidAlphabet)

// ParseTID returns the number that a TID stands for. TIDs compare as their
// numbers do. The upper 54 bits are microseconds since 1970, the lower 10 a
// clock's id (https://atproto.com/specs/tid).
func ParseTID[S ~string | ~[]byte](s S) (tid uint64, ok bool) {
	if !ValidTID(s) {
		return 0, false
	}
	for i := range len(s) {
		tid = tid<<5 | uint64(tidValue[s[i]])
	}
	return tid, true
}

// AppendTID appends the 13 characters of a TID.
func AppendTID(dst []byte, tid uint64) []byte {
	for shift := 60; shift >= 0; shift -= 5 {
		dst = append(dst, tidAlphabet[tid>>shift&31])
	}
	return dst
}

// appendRaw appends a string that is not packed.
func appendRaw(dst []byte, ns Namespace, s []byte) []byte {
	dst = append(dst, s...)
	if ns == DID && len(s) == packedDID || ns == URI && (len(s) == packedURI || len(s) == packedURILong) {
		dst = append(dst, 0)
	}
	return dst
}

func unpackRaw(v []byte) []byte {
	if len(v) > 0 && v[len(v)-1] == 0 {
		return v[:len(v)-1]
	}
	return v
}

// appendPackedDID appends the form of a DID.
func appendPackedDID(dst, did []byte) []byte {
	if v, ok := packPLC(dst, did); ok {
		return v
	}
	return appendRaw(dst, DID, did)
}

// packPLC appends the packed form of a DID, if it has one.
func packPLC(dst, did []byte) (v []byte, ok bool) {
	if len(did) != len(plcPrefix)+plcChars || string(did[:len(plcPrefix)]) != plcPrefix {
		return dst, false
	}
	id := did[len(plcPrefix):]
	bad := byte(0)
	for i := 0; i < plcChars; i += 8 { // eight characters are five bytes
		var n uint64
		for _, c := range id[i : i+8] {
			v := base32Value[c]
			bad |= v
			n = n<<5 | uint64(v&31)
		}
		dst = append(dst, byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return dst, bad&0x80 == 0
}

// appendUnpackedDID appends the DID that v is the form of.
func appendUnpackedDID(dst, v []byte) []byte {
	if len(v) != packedDID {
		return append(dst, unpackRaw(v)...)
	}
	dst = append(dst, plcPrefix...)
	for i := 0; i < packedDID; i += 5 {
		n := uint64(v[i])<<32 | uint64(binary.BigEndian.Uint32(v[i+1:]))
		for shift := 35; shift >= 0; shift -= 5 {
			dst = append(dst, base32Alphabet[n>>shift&31])
		}
	}
	return dst
}

// uriParts are those of a URI that can be packed.
type uriParts struct {
	author     []byte // its DID
	collection byte
	tid        uint64
}

// splitURI takes a valid URI apart; ok is false if it is not to be packed.
func splitURI(uri []byte) (p uriParts, ok bool) {
	rest := uri[len(uriPrefix):]
	if len(rest) < tidChars || string(rest[:4]) != "did:" {
		return p, false
	}
	author, path, _ := cut(rest)
	collection, rkey, hasRkey := cut(path)
	if !hasRkey {
		return p, false
	}
	for i, c := range packedCollections {
		if string(collection) == c {
			p.author, p.collection = author, byte(i)
			p.tid, ok = ParseTID(rkey)
			return p, ok
		}
	}
	return p, false
}

// appendPackedURI appends the form of a URI whose author has the id given.
func appendPackedURI(dst []byte, tid uint64, author ID, collection byte) []byte {
	return append(AppendID(binary.BigEndian.AppendUint64(dst, tid), author), collection)
}

// unpackURI takes the form of a URI apart; packed is false if it is raw.
func unpackURI(v []byte) (tid uint64, author ID, collection string, packed bool, err error) {
	if len(v) != packedURI && len(v) != packedURILong {
		return 0, 0, "", false, nil
	}
	author, n := ReadID(v[8:])
	c := int(v[len(v)-1])
	if n != len(v)-9 || c >= len(packedCollections) {
		return 0, 0, "", true, fmt.Errorf("intern: %w: %x", errPacked, v)
	}
	return binary.BigEndian.Uint64(v), author, packedCollections[c], true, nil
}

// appendURI appends the text of a packed URI.
func appendURI(dst, author []byte, collection string, tid uint64) []byte {
	dst = append(append(append(dst, uriPrefix...), author...), '/')
	return AppendTID(append(append(dst, collection...), '/'), tid)
}
