package dict

import "strings"

// ValidTID reports whether s is a timestamp identifier
// (https://atproto.com/specs/tid), as revs are.
func ValidTID[S ~string | ~[]byte](s S) bool {
	return len(s) == 13 && class[s[0]]&tidFirst != 0 && all(s, tidRest)
}

// Values returns the index of each byte in an alphabet, or 0xff if the alphabet lacks it.
func Values(alphabet string) (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(alphabet) {
		t[alphabet[i]] = byte(i)
	}
	return t
}

// ParseTID converts a TID to its number. TIDs sort like their numbers. The upper 54
// bits are microseconds since 1970, the lower 10 the id of a clock
// (https://atproto.com/specs/tid).
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

// FirstTID returns the number of the first TID that does not sort before s, and reports whether there is one.
func FirstTID[S ~string | ~[]byte](s S) (tid uint64, ok bool) {
	const length, most = 13, 16 // a TID has 64 bits: the first character has four
	for i := range length {
		if i >= len(s) {
			return tid << (5 * (length - i)), true
		}
		v := uint64(strings.IndexFunc(tidAlphabet+"\u00ff", func(c rune) bool { return c >= rune(s[i]) }))
		if i == 0 && v >= most {
			return 0, false
		}
		if v < uint64(len(tidAlphabet)) && tidAlphabet[v] == s[i] {
			tid = tid<<5 | v
			continue
		}
		if v == uint64(len(tidAlphabet)) { // after all TIDs that begin with what was read
			if tid++; tid == most<<(5*(i-1)) {
				return 0, false
			}
			return tid << (5 * (length - i)), true
		}
		return (tid<<5 | v) << (5 * (length - 1 - i)), true
	}
	if len(s) > length {
		tid++
	}
	return tid, tid > 0 || len(s) == length
}

const tidAlphabet = "234567abcdefghijklmnopqrstuvwxyz"

var tidValue = Values(tidAlphabet)
