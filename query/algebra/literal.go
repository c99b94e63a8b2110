package algebra

import (
	"strings"
	"unicode"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// ViewerName stands for the viewer's DID in expressions and feeds.
const ViewerName = "$viewer"

// placeholder stands for an unknown DID in checks of syntax.
const placeholder = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"

// invisible reports whether a character only steers how text is shown, as those around a name that an app
// shows between left-to-right and right-to-left text, which are copied with it.
func invisible(r rune) bool { return unicode.Is(unicode.Cf, r) }

// Pasted returns a name without what comes along when people copy it: invisible characters, and spaces around it.
func Pasted(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if invisible(r) {
			return -1
		}
		return r
	}, s))
}

// LiteralOf parses a DID, a handle, $viewer, an AT URI, or the address of an account or a
// record at bsky.app, as people paste it. ok is false if s is none of them.
func LiteralOf(s string) (l Literal, ok bool) {
	s = Pasted(s)
	if rest, ok := strings.CutPrefix(s, "https://bsky.app/profile/"); ok {
		s, ok = uriOfAddress(strings.TrimPrefix(rest, "@"))
		if !ok {
			return Literal{}, false
		}
	}
	if rest, ok := strings.CutPrefix(s, "at://@"); ok {
		s = "at://" + rest
	} else if rest, ok := strings.CutPrefix(s, "@"); ok && syntax.ValidDID(rest) {
		s = rest
	}
	switch {
	case s == ViewerName:
		return Literal{S: s, Is: dict.DID, Handle: ViewerName}, true
	case strings.HasPrefix(s, "at://"+ViewerName+"/"):
		return Literal{S: s, Is: dict.URI, Handle: ViewerName}, syntax.ValidURI("at://" + placeholder + strings.TrimPrefix(s, "at://"+ViewerName))
	case strings.HasPrefix(s, "@"):
		s = strings.ToLower(s)
		return Literal{S: s, Is: dict.DID, Handle: s[1:]}, syntax.ValidHandle(s[1:])
	case syntax.ValidDID(s):
		return Literal{S: s, Is: dict.DID}, true
	case syntax.ValidURI(s):
		l := Literal{S: s, Is: dict.URI}
		if authority, _, _ := strings.Cut(strings.TrimPrefix(s, "at://"), "/"); !strings.HasPrefix(authority, "did:") {
			l.Handle = strings.ToLower(authority)
			l.S = "at://" + l.Handle + strings.TrimPrefix(s, "at://"+authority)
		}
		return l, true
	}
	return Literal{}, false
}

// NamesSpace reports whether s is the URI of a space or of a record in one. The authority is
// a DID, a handle or $viewer.
func NamesSpace(s string) bool {
	rest, isURI := strings.CutPrefix(s, "at://")
	authority, path, _ := strings.Cut(rest, "/")
	if isURI && (authority == ViewerName || syntax.ValidHandle(authority)) {
		s = "at://" + placeholder + "/" + path
	}
	return syntax.ValidSpaceURI(s)
}

// addressed maps the path segments of addresses at bsky.app to collections.
var addressed = map[string]string{"post": "app.bsky.feed.post", "lists": "app.bsky.graph.list", "feed": "app.bsky.feed.generator"}

// uriOfAddress returns the account or the AT URI of an address at bsky.app; path is the part
// after /profile/. The account may be $viewer.
func uriOfAddress(path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	isDID := parts[0] == ViewerName || syntax.ValidDID(parts[0])
	switch {
	case !isDID && !syntax.ValidHandle(parts[0]):
	case len(parts) == 1 && isDID:
		return parts[0], true
	case len(parts) == 1:
		return "@" + parts[0], true
	case len(parts) == 3 && addressed[parts[1]] != "":
		return "at://" + parts[0] + "/" + addressed[parts[1]] + "/" + parts[2], true
	}
	return "", false
}

// Resolve replaces the literal's handle with the DID.
func (l *Literal) Resolve(did string) {
	switch {
	case l.Label != "":
		l.S = kinds.LabelSet(did, l.Label)
	case l.Is == dict.DID:
		l.S = did
	default:
		l.S = "at://" + did + strings.TrimPrefix(l.S, "at://"+l.Handle)
	}
	l.Handle = ""
}
