package language

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
)

// A name for an expression means what is written out here, in any expression.
func TestShortNames(t *testing.T) {
	const a = "did:web:a.example.com"
	meanings := map[string]string{
		"mutuals":   "intersect(follows(A),followers(A))",
		"blocking":  "union(blocks(A),rank(of=listblocks(A),via=listed))",
		"blockedBy": "union(blockers(A),rank(of=lists(A),via=listblockers))",
		within:      "except(union(follows(A),rank(of=follows(A),via=follows,exact=true)),members(A))",
	}
	if len(meanings) != len(shortNames) {
		t.Fatalf("%d names, want %d", len(shortNames), len(meanings))
	}
	for name, meaning := range meanings {
		meaning = strings.ReplaceAll(meaning, "A", a)
		call, more := name+"( "+a+" )", "X takes no since or until"
		if name == within {
			call, more = name+"( "+a+" , 2 )", "the number of steps"
		}
		for _, in := range []string{"X", "except(union(X, follows(" + a + ")), X)", "rank(of=X, via=likes, top=3)"} {
			short, long := strings.ReplaceAll(in, "X", call), strings.ReplaceAll(in, "X", meaning)
			if x, y := canonical(parsed(t, short)), canonical(parsed(t, long)); x != y {
				t.Errorf("%s is %s, want %s", short, x, y)
			}
		}
		for text, want := range map[string]string{
			"X()":                       "X(…) needs an argument",
			"X":                         `expected "(" after "X"`,
			"X(" + a + ",since=1d)":     more,
			"X(" + a + "," + a + ")":    cmp.Or(strings.Replace(more, "X takes no since or until", "", 1), "X takes one argument"),
			"X(at://" + a + "/x.y.z/1)": "X takes an account",
		} {
			text, want = strings.ReplaceAll(text, "X", name), strings.ReplaceAll(want, "X", name)
			_, err := builtIn.Parse(text, MaxExpr, noon)
			if e, ok := errors.AsType[*SyntaxError](err); !ok || !strings.Contains(e.What, want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		}
		if _, err := builtIn.Parse("union("+strings.Repeat(call+",", 32)+call+")", MaxExpr, noon); err == nil || !strings.Contains(err.Error(), "more than ") {
			t.Errorf("33 times %s: %v", name, err)
		}
	}
}

// within takes a number of steps: one is follows.
func TestWithin(t *testing.T) {
	const a = "did:web:a.example.com"
	if x, y := canonical(parsed(t, "union(likes("+a+"), rank(of=within("+a+",1), via=likes))")), canonical(parsed(t, "union(likes("+a+"), rank(of=follows("+a+"), via=likes))")); x != y {
		t.Errorf("within(A, 1) is %s, want %s", x, y)
	}
	for text, want := range map[string]string{
		"within(" + a + ")":         "within takes an account and the most steps",
		"within(" + a + ", 3)":      "from 1 to 2",
		"within(" + a + ", 0)":      "from 1 to 2",
		"within(" + a + ", 2, 2)":   "within takes an account and a number",
		"within(" + a + ", 2":       `expected "," or ")" in within(`,
		"follows(" + a + ", 2)":     "follows takes one argument",
		"within(at://" + a + ", 2)": "within takes an account",
	} {
		_, err := builtIn.Parse(text, MaxExpr, noon)
		if e, ok := errors.AsType[*SyntaxError](err); !ok || !strings.Contains(e.What, want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// No configured kind takes a word of the language for one of its sets.
func TestWordsAreReserved(t *testing.T) {
	for name, f := range NewVocabulary(kinds.BuiltIn).functions {
		if slices.Contains([]Op{OpForward, OpReverse}, f.Op) || f.Op == OpLists && name != "lists" {
			continue // of a kind
		}
		if _, err := kinds.Parse("a.b.c subject did xs " + name); err == nil || !strings.Contains(err.Error(), "a reserved word") {
			t.Errorf("%s is not reserved: %v", name, err)
		}
	}
}
