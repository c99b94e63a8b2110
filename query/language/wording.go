package language

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
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

// Sources of kinds that many servers are configured with, under names of their own.
const (
	quotes  = "app.bsky.feed.post:embed.record.record?.uri"
	replies = "app.bsky.feed.post:reply.parent.uri"
)

// meanings are words, in lower case, that stand for something else than the name with the nearest letters: what
// they may mean, a name or the source of a kind.
var meanings = map[string][]string{
	"following": {"follows"}, "followings": {"follows"}, "followed": {"follows"}, "followees": {"follows"}, "followedby": {"followers"},
	"liking": {"likes"}, "liked": {"likes"}, "likedby": {"likers"},
	"reposted": {"reposts"}, "retweets": {"reposts"}, "repostedby": {"reposters"}, "retweeters": {"reposters"},
	"blocked": {"blocks"}, "list": {"listed", "lists"}, "listmembers": {"listed"}, "memberof": {"lists"}, "member": {"members", "listed"},
	"difference": {"except"}, "not": {"except"}, "exclude": {"except"}, "excluding": {"except"}, "minus": {"except"}, "subtract": {"except"}, "without": {"except"}, "but": {"except"},
	"and": {"intersect"}, "all": {"intersect"}, "both": {"intersect"}, "or": {"union"}, "any": {"union"}, "either": {"union"},
	"quotes": {quotes}, "quoted": {quotes}, "quoting": {quotes}, "quotedby": {quotes}, "quoters": {quotes},
	"replies": {replies}, "replied": {replies}, "replying": {replies}, "repliedto": {replies}, "repliers": {replies}, "repliesto": {replies},
}

// didYouMean returns the end of an error message about an unknown word: which of the names it may mean, by its
// meaning or else by its letters, or nothing.
func (v *Vocabulary) didYouMean(word string, names []string) string {
	meant, known := meanings[strings.ReplaceAll(strings.ToLower(word), "_", "")]
	for _, m := range meant {
		for i := range v.Table.All {
			if k := &v.Table.All[i]; k.Source() == m {
				meant = append(meant, k.Records, k.Reverse, k.Forward)
			}
		}
	}
	if i := slices.IndexFunc(meant, func(m string) bool { return slices.Contains(names, m) }); i >= 0 {
		return "; did you mean " + meant[i] + "?"
	}
	if known && len(meant) == 1 && strings.Contains(meant[0], ":") {
		return "; this server does not index " + strings.ToLower(word) + " (its administrator can, with skein serve --posts)"
	}
	if near := Nearest(word, slices.Values(names)); near != "" && !known {
		return "; did you mean " + near + "?"
	}
	return ""
}

// errNotItsMembers is the error about members(LIST) where accounts are expected. The client reads it.
var errNotItsMembers = errors.New(`"members" of a list is the list itself, not the accounts on it; did you mean listed?`)

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
	return strings.ToValidUTF8(s[:most], "") + "…"
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

// described returns what has one of some forms.
func described(forms []kinds.Form) string {
	var all []string
	for _, f := range forms {
		if !slices.Contains(all, f.Described()) {
			all = append(all, f.Described())
		}
	}
	return strings.Join(all, " or ")
}

// Hint returns the end of an error message about s, which is neither a DID nor an AT URI:
// what to write instead, or nothing.
func Hint(s string) string {
	s = Pasted(s)
	switch {
	case dict.ValidHandle(s):
		return ": write a handle as @" + s
	case strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://"):
		return "; of web addresses, skein understands only links to accounts, posts, lists and feeds at https://bsky.app/profile/…"
	}
	return ""
}
