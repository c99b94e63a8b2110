package language

import (
	"errors"
	"strings"
	"testing"
)

// A name for an expression means what is written out here, in any expression.
func TestShortNames(t *testing.T) {
	const a = "did:web:a.example.com"
	meanings := map[string]string{
		"mutuals":   "intersect(follows(A),followers(A))",
		"blocking":  "union(blocks(A),rank(of=listblocks(A),via=listed))",
		"blockedBy": "union(blockers(A),rank(of=lists(A),via=listblockers))",
	}
	if len(meanings) != len(shortNames) {
		t.Fatalf("%d names, want %d", len(shortNames), len(meanings))
	}
	for name, meaning := range meanings {
		meaning = strings.ReplaceAll(meaning, "A", a)
		for _, in := range []string{"X", "except(union(X, follows(" + a + ")), X)", "rank(of=X, via=likes, top=3)"} {
			short, long := strings.ReplaceAll(in, "X", name+"( "+a+" )"), strings.ReplaceAll(in, "X", meaning)
			if x, y := canonical(parsed(t, short)), canonical(parsed(t, long)); x != y {
				t.Errorf("%s is %s, want %s", short, x, y)
			}
		}
		for text, want := range map[string]string{
			"X()":                       "X(…) needs an argument",
			"X":                         `expected "(" after "X"`,
			"X(" + a + ",since=1d)":     "X takes no since or until",
			"X(" + a + "," + a + ")":    "X takes one argument",
			"X(at://" + a + "/x.y.z/1)": "X takes an account",
		} {
			text, want = strings.ReplaceAll(text, "X", name), strings.ReplaceAll(want, "X", name)
			_, err := builtIn.Parse(text, MaxExpr, noon)
			if e, ok := errors.AsType[*SyntaxError](err); !ok || !strings.Contains(e.What, want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		}
		if _, err := builtIn.Parse("union("+strings.Repeat(name+"("+a+"),", 32)+name+"("+a+"))", MaxExpr, noon); err == nil || !strings.Contains(err.Error(), "more than ") {
			t.Errorf("33 times %s: %v", name, err)
		}
	}
}
