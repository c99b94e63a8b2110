package kinds

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"skein.blue/intern/dict"
)

// A Form says what the subjects of a kind are. Only DIDs have the namespace dict.DID; all other forms
// share dict.URI.
type Form uint8

// The forms.
const (
	DID   Form = iota // an account
	ATURI             // a record, or a collection or repo: an AT URI
	Link              // any URI of up to MaxLink bytes
	Text              // any string of up to MaxText bytes
)

// The longest subjects, in bytes. The longest DID that the protocol uses is a did:web of a host
// (https://atproto.com/specs/did), whose name has at most 253 bytes.
const (
	MaxDID  = len("did:web:") + 253
	MaxURI  = len("at://") + MaxDID + 1 + dict.MaxNSID + 1 + dict.MaxRkey
	MaxLink = 8 << 10
	MaxText = 640 // as the lexicon of posts bounds a tag
)

var forms = [...]string{"did", "at-uri", "uri", "text"}

// String returns the form's name in a file of kinds.
func (f Form) String() string { return forms[f] }

// Noun returns the form's name in getStats: did, uri for an AT URI, link for any URI, text.
func (f Form) Noun() string { return [...]string{"did", "uri", "link", "text"}[f] }

// IsString reports whether subjects of the form can be other strings than DIDs and AT URIs. Expressions
// may quote them.
func (f Form) IsString() bool { return f >= Link }

// Is returns the namespace of the ids of what has the form.
func (f Form) Is() dict.Namespace {
	if f == DID {
		return dict.DID
	}
	return dict.URI
}

// Described returns what a subject of the form is, with an article, for messages.
func (f Form) Described() string {
	return [...]string{"a DID", "an AT URI", "a URI of up to 8192 bytes", "a string of 1 to 640 bytes"}[f]
}

// FormOf returns the form with a name.
func FormOf(name string) (Form, error) {
	for f, n := range forms {
		if n == name {
			return Form(f), nil
		}
	}
	return 0, fmt.Errorf("%q is not did, at-uri, uri or text", name)
}

// Valid reports whether s is a subject of the form.
func (f Form) Valid(s []byte) bool {
	switch f {
	case DID:
		return len(s) <= MaxDID && dict.ValidDID(s)
	case ATURI:
		return len(s) <= MaxURI && dict.ValidURI(s)
	case Link:
		return ValidLink(s)
	case Text:
		return ValidText(s)
	}
	return false
}

var schemeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// ValidLink reports whether s is a URI: a scheme, a colon and more (https://www.rfc-editor.org/rfc/rfc3986),
// without white space and control characters, of at most MaxLink bytes. Non-ASCII letters may be in it, as
// in the string format uri of lexicons.
func ValidLink[S ~string | ~[]byte](s S) bool {
	if len(s) > MaxLink {
		return false
	}
	scheme, rest, _ := strings.Cut(string(s), ":")
	return schemeName.MatchString(scheme) && rest != "" && utf8.ValidString(rest) &&
		!strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// ValidText reports whether s is a string of 1 to MaxText bytes of UTF-8 without NUL, which the
// dictionary pads strings with.
func ValidText[S ~string | ~[]byte](s S) bool {
	if len(s) == 0 || len(s) > MaxText {
		return false
	}
	return !strings.Contains(string(s), "\x00") && utf8.ValidString(string(s))
}
