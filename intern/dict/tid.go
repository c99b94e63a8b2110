package dict

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
	var buf [13]byte
	for bit := uint64(1) << 63; bit > 0; bit >>= 1 {
		if string(AppendTID(buf[:0], tid|(bit-1))) < string(s) { // and so are all TIDs without this bit
			tid |= bit
		}
	}
	return tid, string(AppendTID(buf[:0], tid)) >= string(s)
}

const tidAlphabet = "234567abcdefghijklmnopqrstuvwxyz"

var tidValue = Values(tidAlphabet)
