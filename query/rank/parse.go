package rank

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// NSID is the method that rankings are asked of.
const NSID = "blue.skein.graph.rank"

// Takes returns the parameters of a ranking.
var Takes = sync.OnceValue(func() []string { return xrpc.Method{NSID: NSID}.Described().Takes })

// Parse parses a ranking in text, such as rank(of=follows(did:…), via=likes, since=24h), and
// returns the parameters for the method rank. is is false if text is not a ranking.
func Parse(text string) (asked url.Values, is bool, err error) {
	inside, is := strings.CutPrefix(strings.TrimSpace(text), "rank(")
	if !is {
		return nil, false, nil
	}
	inside, ok := strings.CutSuffix(inside, ")")
	if !ok {
		return nil, true, errors.New(`expected ")" at the end of rank(…`)
	}
	asked = url.Values{}
	for _, part := range Arguments(inside) {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok:
			return nil, true, fmt.Errorf("%q in rank(…): write name=value", language.Brief(part))
		case !slices.Contains(Takes(), name):
			return nil, true, fmt.Errorf("rank has no parameter %q; it takes %s", language.Brief(name), strings.Join(Takes(), ", "))
		case asked.Has(name):
			return nil, true, fmt.Errorf("%s is given twice", name)
		}
		asked.Set(name, value)
	}
	return asked, true, nil
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
