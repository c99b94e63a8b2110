package rank

import (
	"net/url"
	"strings"
)

// NSID is the method that rankings are asked of.
const NSID = "blue.skein.graph.rank"

// Parse returns the parameters for the method rank of a ranking in text, such as rank(of=follows(did:…), via=likes, since=24h). is is false if
// text is not a ranking.
func Parse(text string) (asked url.Values, is bool) {
	name, _, _ := strings.Cut(text, "(")
	name = strings.TrimSpace(name)
	return url.Values{"set": {text}}, name == "rank" || name == "blend"
}

// Arguments splits arguments at the commas outside of parentheses and of strings in double quotes.
func Arguments(s string) (parts []string) {
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(s); i++ {
		if quoted {
			switch s[i] {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch s[i] {
		case '"':
			quoted = true
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, s[start:])
}
