package language

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
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
	} else if rest, ok := strings.CutPrefix(s, "@"); ok && dict.ValidDID(rest) {
		s = rest
	}
	switch {
	case s == ViewerName:
		return Literal{S: s, Is: dict.DID, Handle: ViewerName}, true
	case strings.HasPrefix(s, "at://"+ViewerName+"/"):
		return Literal{S: s, Is: dict.URI, Handle: ViewerName}, dict.ValidURI("at://" + placeholder + strings.TrimPrefix(s, "at://"+ViewerName))
	case strings.HasPrefix(s, "@"):
		s = strings.ToLower(s)
		return Literal{S: s, Is: dict.DID, Handle: s[1:]}, dict.ValidHandle(s[1:])
	case dict.ValidDID(s):
		return Literal{S: s, Is: dict.DID}, true
	case dict.ValidURI(s):
		l := Literal{S: s, Is: dict.URI}
		if authority := dict.AuthorityOf(s); !strings.HasPrefix(authority, "did:") {
			l.Handle = strings.ToLower(authority)
			l.S = "at://" + l.Handle + strings.TrimPrefix(s, "at://"+authority)
		}
		return l, true
	}
	return Literal{}, false
}

// unquote reads a string in double quotes, which is written as in JSON. JSON's decoder would replace what is not
// Unicode, such as half of a surrogate pair.
func unquote(quoted string) (s string, err error) {
	const replaced = string(utf8.RuneError)
	bad := !utf8.ValidString(quoted) || json.Unmarshal([]byte(quoted), &s) != nil
	if bad || strings.Contains(s, replaced) && !strings.Contains(strings.ReplaceAll(strings.ToLower(quoted), `\ufffd`, replaced), replaced) {
		return "", fmt.Errorf(`%s is not a string in double quotes as in JSON, where \" is a double quote and \\ a backslash`, Brief(quoted))
	}
	return s, nil
}

var errNoName = errors.New(" is neither a DID nor an AT URI")

// literalAs reads a name of what has one of some forms; without forms, of an account or a
// record. A text is itself, character for character. So is a string in double quotes: no handle in it is
// resolved. The error is the end of a message.
func literalAs(s string, quoted bool, forms ...kinds.Form) (l Literal, err error) {
	texts := slices.ContainsFunc(forms, kinds.Form.IsString)
	l, ok := LiteralOf(s)
	if quoted || texts {
		understood := quoted && ok && l.Is == forms[0].Is()
		l = Literal{S: s, Is: forms[0].Is()}
		if ok = slices.ContainsFunc(forms, func(f kinds.Form) bool { return f.Valid([]byte(s)) }); !ok && understood {
			return l, fmt.Errorf(" is not %s; leave out the double quotes, in which a string is itself", described(forms))
		}
	}
	switch {
	case !ok && (quoted || texts):
		return l, fmt.Errorf(" is not %s", described(forms))
	case !ok:
		return l, errNoName
	case !texts && l.Unusable() != "":
		return l, fmt.Errorf(": %s", l.Unusable())
	}
	return l, nil
}

// LiteralAs reads the value of a parameter that names what has one of some forms. If it
// begins with a double quote, it is a string of JSON, of the namespace of the first form. The error is the end of a message.
func LiteralAs(s string, forms ...kinds.Form) (l Literal, err error) {
	quoted := strings.HasPrefix(s, `"`)
	if quoted {
		if s, err = unquote(s); err != nil {
			return l, fmt.Errorf(": %w", err)
		}
	}
	if l, err = literalAs(s, quoted, forms...); errors.Is(err, errNoName) || err == nil && !slices.ContainsFunc(forms, func(f kinds.Form) bool { return f.Is() == l.Is }) {
		var names []string
		for _, f := range forms {
			names = append(names, Singular(f.Is()))
		}
		err = fmt.Errorf(" is not %s%s", strings.Join(slices.Compact(names), " or "), Hint(s))
	}
	return l, err
}

// addressed maps the path segments of addresses at bsky.app to collections.
var addressed = map[string]string{"post": "app.bsky.feed.post", "lists": "app.bsky.graph.list", "feed": "app.bsky.feed.generator"}

// uriOfAddress returns the account or the AT URI of an address at bsky.app; path is the part
// after /profile/. The account may be $viewer.
func uriOfAddress(path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	isDID := parts[0] == ViewerName || dict.ValidDID(parts[0])
	switch {
	case !isDID && !dict.ValidHandle(parts[0]):
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
