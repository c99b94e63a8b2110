package algebra

import (
	"iter"
	"strings"
	"unicode/utf8"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// Nearest returns the name with the smallest edit distance from a misspelt word, "" if no
// name is close. Ties go to the alphabetically first.
func Nearest(word string, names iter.Seq[string]) string {
	const longest = 30 // no name is near a longer word
	if len(word) > longest {
		return ""
	}
	best, least := "", len(word)/3+2
	if len(word) <= 3 {
		least = 2 // most other short words differ in two letters
	}
	for name := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least || d == least && best != "" && name < best {
			best, least = name, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d++
			}
			corner = row[j+1]
			row[j+1] = min(d, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Brief shortens a user's input for an error message. It cuts no character in two.
func Brief(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Plural returns the noun for the members of a namespace.
func Plural(ns dict.Namespace) string {
	if ns == dict.DID {
		return "DIDs"
	}
	return "AT URIs"
}

// Singular returns the noun for one member of a namespace, with its article.
func Singular(ns dict.Namespace) string {
	if ns == dict.DID {
		return "an account"
	}
	return "an AT URI"
}

// Hint returns the end of an error message about s, which is neither a DID nor an AT URI:
// what to write instead, or nothing.
func Hint(s string) string {
	switch {
	case syntax.ValidHandle(s):
		return ": write a handle as @" + s
	case strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://"):
		return "; of web addresses, skein understands only links to accounts, posts, lists and feeds at https://bsky.app/profile/…"
	}
	return ""
}
