package rank

import (
	"regexp"
	"strings"
)

// NSID is the method that rankings are asked of.
const NSID = "blue.skein.graph.rank"

// IsRanking reports whether text is a ranking, such as rank(of=follows(did:…), via=likes, since=24h).
func IsRanking(text string) bool {
	name, _, _ := strings.Cut(text, "(")
	name = strings.TrimSpace(name)
	return name == "rank" || name == "blend"
}

// mark is a string in double quotes, also one that does not end, or what Arguments looks for outside of strings.
var mark = regexp.MustCompile(`(?s)"(\\.|[^"\\])*"?|[(),]`)

// Arguments splits arguments at the commas outside of parentheses and of strings in double quotes.
func Arguments(s string) (parts []string) {
	depth, start := 0, 0
	for _, at := range mark.FindAllStringIndex(s, -1) {
		switch s[at[0]] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, s[start:at[0]])
				start = at[1]
			}
		}
	}
	return append(parts, s[start:])
}
