package dict

import (
	"bytes"
	"strings"
)

// Limits of the protocol, in bytes.
const (
	MaxDID  = 2 << 10
	MaxURI  = 8 << 10
	MaxRkey = 512
	MaxNSID = 317
)

// Character classes, one bit each.
const (
	lower = 1 << iota
	upper
	digit
	didRest   // . _ -    allowed anywhere in a DID's identifier, like letters and digits
	didInner  // : %      allowed in a DID's identifier, but not last
	rkeyExtra // _ ~ . : -
	hyphen
	tidFirst // 2-7 a-j
	tidRest  // 2-7 a-z
)

const (
	alpha = lower | upper
	alnum = alpha | digit
)

var class = makeClasses()

func makeClasses() (t [256]uint16) {
	add := func(s string, c uint16) {
		for i := range len(s) {
			t[s[i]] |= c
		}
	}
	const letters, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	add(letters, lower)
	add("ABCDEFGHIJKLMNOPQRSTUVWXYZ", upper)
	add(digits, digit)
	add("._-", didRest)
	add(":%", didInner)
	add("_~.:-", rkeyExtra)
	add("-", hyphen)
	add("234567abcdefghij", tidFirst)
	add("234567"+letters, tidRest)
	return t
}

func all[S ~string | ~[]byte](s S, c uint16) bool {
	bad := uint16(0) // a byte outside the classes of c sets its top bit
	for i := range len(s) {
		bad |= class[s[i]]&c - 1
	}
	return bad>>15 == 0
}

// ValidDID reports whether s is a DID as the protocol defines it
// (https://atproto.com/specs/did), of at most MaxDID bytes.
func ValidDID[S ~string | ~[]byte](s S) bool {
	const prefix = "did:"
	if len(s) > MaxDID || len(s) < len(prefix)+3 || string(s[:len(prefix)]) != prefix {
		return false
	}
	i := len(prefix)
	for i < len(s) && class[s[i]]&lower != 0 {
		i++
	}
	if i == len(prefix) || i >= len(s)-1 || s[i] != ':' {
		return false
	}
	id := s[i+1:]
	return all(id, alnum|didRest|didInner) && class[id[len(id)-1]]&(alnum|didRest) != 0
}

// ValidPLC reports whether s is the identifier in a DID of method plc
// (https://web.plc.directory/spec/v0.1/did-plc): 24 characters of base32. The
// protocol's syntax also allows others, but the method never makes them.
func ValidPLC[S ~string | ~[]byte](s S) bool { return len(s) == 24 && all(s, tidRest) }

// ValidRkey reports whether s is a record key
// (https://atproto.com/specs/record-key).
func ValidRkey[S ~string | ~[]byte](s S) bool {
	if len(s) == 0 || len(s) > MaxRkey || s[0] == '.' && (len(s) == 1 || len(s) == 2 && s[1] == '.') {
		return false
	}
	return all(s, alnum|rkeyExtra)
}

// ValidURI reports whether s is an AT URI (https://atproto.com/specs/at-uri-scheme)
// without query or fragment, of at most MaxURI bytes. Its authority may be a
// handle.
func ValidURI[S ~string | ~[]byte](s S) bool {
	const prefix = "at://"
	if len(s) > MaxURI || len(s) <= len(prefix) || string(s[:len(prefix)]) != prefix {
		return false
	}
	authority, path, hasPath := Cut(s[len(prefix):])
	if !ValidDID(authority) && !ValidHandle(authority) {
		return false
	}
	if !hasPath {
		return true
	}
	collection, rkey, hasRkey := Cut(path)
	const post = "app.bsky.feed.post" // the most common collection, for speed
	return (string(collection) == post || ValidNSID(collection)) && (!hasRkey || ValidRkey(rkey))
}

// AuthorityOf returns the authority of an AT URI, the account in whose repo the record is.
func AuthorityOf(uri string) string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/")
	return authority
}

// AuthorOf returns the DID in whose repo the record of an AT URI is. ok is false for any other string, and for an AT URI that begins
// with a handle.
func AuthorOf[S ~string | ~[]byte](s S) (did S, ok bool) {
	const prefix, method = "at://", "did:"
	if len(s) < len(prefix+method) || string(s[len(prefix):len(prefix+method)]) != method || !ValidURI(s) {
		return did, false
	}
	did, _, _ = Cut(s[len(prefix):])
	return did, true
}

// IsSpaceURI reports whether s begins like the URI of a space, and of a record in one, by proposal 0016 (permissioned data):
// at://{spaceDid}/space/. No such URI is a ValidURI: "space" is not an NSID.
func IsSpaceURI(s []byte) bool {
	rest, isURI := bytes.CutPrefix(s, []byte("at://"))
	authority, path, _ := Cut(rest)
	return isURI && bytes.HasPrefix(path, []byte("space/")) && ValidDID(authority)
}

// Cut splits s at its first slash.
func Cut[S ~string | ~[]byte](s S) (before, after S, found bool) {
	for i := range len(s) {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, s[len(s):], false
}

// labels calls ok for each of the dot-separated parts of s. It returns the number of
// parts, or 0 if ok returns false for one.
func labels[S ~string | ~[]byte](s S, ok func(label S, first, last bool) bool) int {
	n, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			continue
		}
		if !ok(s[start:i], n == 0, i == len(s)) {
			return 0
		}
		n, start = n+1, i+1
	}
	return n
}

// validLabel reports whether l is a label of a domain name: letters, digits and inner
// hyphens.
func validLabel[S ~string | ~[]byte](l S) bool {
	return len(l) > 0 && len(l) <= 63 && all(l, alnum|hyphen) &&
		class[l[0]]&alnum != 0 && class[l[len(l)-1]]&alnum != 0
}

// ValidHandle reports whether s is a handle
// (https://atproto.com/specs/handle).
func ValidHandle[S ~string | ~[]byte](s S) bool {
	return len(s) <= 253 && labels(s, func(l S, _, last bool) bool {
		return validLabel(l) && (!last || class[l[0]]&alpha != 0)
	}) >= 2
}

// ValidNSID reports whether s is an NSID (https://atproto.com/specs/nsid).
func ValidNSID[S ~string | ~[]byte](s S) bool {
	return len(s) <= MaxNSID && labels(s, func(l S, first, last bool) bool {
		return validLabel(l) && (!first && !last || class[l[0]]&alpha != 0) && (!last || all(l, alnum))
	}) >= 3
}
