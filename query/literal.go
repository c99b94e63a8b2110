package query

import (
	"strings"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// viewerName stands for the DID of the viewer, in questions and in feeds.
const viewerName = "$viewer"

// placeholder stands for the viewer where an expression is checked without one.
const placeholder = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"

// literalOf reads what names an account or a record. ok is false if it is no such thing.
func literalOf(s string) (l literal, ok bool) {
	if rest, ok := strings.CutPrefix(s, "https://bsky.app/profile/"); ok {
		s, ok = uriOfAddress(rest)
		if !ok {
			return literal{}, false
		}
	}
	switch {
	case s == viewerName:
		return literal{s, dict.DID, viewerName}, true
	case strings.HasPrefix(s, "at://"+viewerName+"/"):
		return literal{s, dict.URI, viewerName}, syntax.ValidURI("at://" + placeholder + strings.TrimPrefix(s, "at://"+viewerName))
	case strings.HasPrefix(s, "@"):
		return literal{s, dict.DID, s[1:]}, syntax.ValidHandle(s[1:])
	case syntax.ValidDID(s):
		return literal{s: s, is: dict.DID}, true
	case syntax.ValidURI(s):
		l := literal{s: s, is: dict.URI}
		if authority, _, _ := strings.Cut(strings.TrimPrefix(s, "at://"), "/"); !strings.HasPrefix(authority, "did:") {
			l.handle = authority
		}
		return l, true
	}
	return literal{}, false
}

// namesSpace reports whether s names a space, or a record in one, by the DID of its
// authority, or as people may write it, by a handle or $viewer.
func namesSpace(s string) bool {
	rest, isURI := strings.CutPrefix(s, "at://")
	authority, path, _ := strings.Cut(rest, "/")
	if isURI && (authority == viewerName || syntax.ValidHandle(authority)) {
		s = "at://" + placeholder + "/" + path
	}
	return syntax.ValidSpaceURI(s)
}

// addressed are the collections of the records that have addresses at bsky.app.
var addressed = map[string]string{"post": "app.bsky.feed.post", "lists": "app.bsky.graph.list", "feed": "app.bsky.feed.generator"}

// uriOfAddress returns what an address at bsky.app, behind …/profile/, is of.
func uriOfAddress(path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	isDID := syntax.ValidDID(parts[0])
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

// resolved puts a DID in the place of the literal's handle.
func (l *literal) resolved(did string) {
	if l.is == dict.DID {
		l.s = did
	} else {
		l.s = "at://" + did + strings.TrimPrefix(l.s, "at://"+l.handle)
	}
	l.handle = ""
}
