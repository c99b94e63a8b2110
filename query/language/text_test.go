package language

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
)

// builtIn is the vocabulary of the built-in kinds.
var builtIn = NewVocabulary(kinds.BuiltIn)

// noon is the time of the questions in these tests.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func parsed(t *testing.T, text string) *Expr {
	t.Helper()
	e, err := builtIn.Parse(text, MaxForm, noon)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// shown writes an expression in its plainest form: no spaces, DIDs as they are, windows in
// microseconds as RFC 3339.
func shown(e *Expr) string {
	var write func(n *Node) string
	write = func(n *Node) string {
		name, args := nameOf(e.words, n), []string{}
		switch {
		case n.Op == OpMembers:
			for _, l := range e.Strings[n.First:n.End] {
				args = append(args, spelled(l))
			}
		case n.Op.IsSet():
			args = append(args, spelled(e.Strings[n.Of]))
			args = append(args, shownWindow(n)...)
		case n.Op == OpRank:
			args = append(args, "of="+write(&n.Args[0]))
			if len(n.Args) > 1 {
				if args = append(args, "except="+write(&n.Args[1])); n.Args[1].Offset < n.Args[0].Offset {
					slices.Reverse(args)
				}
			}
			args = append(args, "via="+n.Rank.Via.Name, fmt.Sprint("min=", n.Rank.Min))
			if n.Rank.Top > 0 {
				args = append(args, fmt.Sprint("top=", n.Rank.Top))
			}
			if n.Rank.OfScores {
				args = append(args, "weigh=score")
			}
			if n.Rank.Damped {
				args = append(args, fmt.Sprint("damp=", n.Rank.Damp))
			}
			if n.Rank.Decay > 0 {
				args = append(args, fmt.Sprint("decay=", n.Rank.Decay))
			}
			args = append(args, shownWindow(n)...)
		case n.Op == OpSample:
			args = append(args, write(&n.Args[0]), fmt.Sprint(n.Least), fmt.Sprint("seed=", n.Seed))
		case n.Op == OpBlend:
			for i, weight := range n.Rank.Weights {
				args = append(args, fmt.Sprint(weight), write(&n.Args[i]))
			}
			for i := len(n.Rank.Weights); i < len(n.Args); i++ {
				args = append(args, "except="+write(&n.Args[i]))
			}
			if args = append(args, fmt.Sprint("min=", n.Rank.Min)); n.Rank.Top > 0 {
				args = append(args, fmt.Sprint("top=", n.Rank.Top))
			}
		default:
			if n.Op == OpAtLeast {
				args = append(args, fmt.Sprint(n.Least))
			}
			for i := range n.Args {
				args = append(args, write(&n.Args[i]))
			}
			args = append(args, shownWindow(n)...)
		}
		return name + "(" + strings.Join(args, ",") + ")"
	}
	return write(&e.Root)
}

// canonical is shown, with what is not written.
func canonical(e *Expr) string {
	s := shown(e)
	for n := range e.Root.All() {
		if n.Rank != nil {
			s += fmt.Sprint(" ", n.Rank.Exact, n.Rank.Now, n.Rank.Scored)
		}
	}
	return s
}

func shownWindow(n *Node) (args []string) {
	at := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano) }
	if n.Window.From > math.MinInt64 && !n.Window.All() {
		args = append(args, "since="+at(n.Window.From))
	}
	if n.Window.To < math.MaxInt64 && !n.Window.All() {
		args = append(args, "until="+at(n.Window.To))
	}
	return args
}

// spelled returns a literal as it may be written.
func spelled(l Literal) string {
	if l.Is == dict.DID && l.Handle != "" && l.Handle != ViewerName {
		return "@" + l.Handle
	}
	if plain, ok := LiteralOf(l.S); !ok || plain != l || l.Unusable() != "" {
		return quote(l.S)
	}
	return l.S
}

// quote writes a string as JSON does.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func nameOf(v *Vocabulary, n *Node) string {
	for name, f := range v.functions {
		if f.Op == n.Op && (f.Kind == n.Kind || !n.Op.IsSet()) {
			return name
		}
	}
	return "?"
}

// A printed expression parses to the same expression, whatever spaces the original had, and the
// offsets of nodes and strings point at their text.
func TestPrintedExpressionsParse(t *testing.T) {
	d := oracle.Draw{Rand: rand.New(rand.NewPCG(1, 1))}
	long := 0
	for range 3000 {
		text := d.Expr(d.IntN(2) == 0, 4)
		e, err := builtIn.Parse(text, MaxExpr, noon)
		if err != nil {
			if !strings.Contains(err.Error(), "more than 64 sets") && !strings.Contains(err.Error(), "more than 8 rank") && !strings.Contains(err.Error(), "must be earlier than until") {
				t.Fatalf("%q: %v", text, err)
			}
			continue
		}
		plain := shown(e)
		later := noon.Add(time.Hour)
		if strings.Contains(plain, "decay=") {
			later = noon // edges are as old as they are now
		}
		again, err := builtIn.Parse(plain, MaxForm, later)
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, plain, err)
		}
		if got := shown(again); got != plain {
			t.Fatalf("%q printed as %q, and parsed as %q", text, plain, got)
		}
		if canonical(e) != canonical(again) {
			t.Fatalf("%q and %q differ:\n%s\n%s", text, plain, canonical(e), canonical(again))
		}
		if !slices.Equal(e.Strings, again.Strings) || e.Type() != again.Type() || e.IsLeaf() != again.IsLeaf() {
			t.Fatalf("%q and %q differ in their strings or type", text, plain)
		}
		checkOffsets(t, e)
		if strings.Count(plain, "(") > 5 {
			long++
		}
	}
	if long < 200 {
		t.Errorf("only %d expressions have more than five parts", long)
	}
}

// checkOffsets checks that the places of an expression point at what is there.
func checkOffsets(t *testing.T, e *Expr) {
	t.Helper()
	if len(e.Offsets) != len(e.Strings) {
		t.Fatalf("%q: %d strings and %d offsets", e.Source, len(e.Strings), len(e.Offsets))
	}
	for i, at := range e.Offsets {
		s, quoted, err := (&parser{e: e, i: at}).argument()
		l, ok := LiteralOf(s)
		itself := quoted && e.Strings[i].Handle == "" && (e.Strings[i].S == s || e.Strings[i] == Literal{S: s, Is: dict.URI}.author())
		if err != nil || !itself && (!ok || l != e.Strings[i] && l.author() != e.Strings[i]) {
			t.Fatalf("%q: string %d at %d is %q, not %+v: %v", e.Source, i, at, s, e.Strings[i], err)
		}
	}
	for n := range e.Root.All() {
		if name := nameOf(e.words, n); !strings.HasPrefix(e.Source[n.Offset:], name) {
			t.Fatalf("%q: the node %s is not at %d", e.Source, name, n.Offset)
		}
	}
}

// checkText checks what must hold for every text: errors that point into it, and expressions that
// print and parse.
func checkText(t *testing.T, text string) {
	t.Helper()
	e, err := builtIn.Parse(text, MaxExpr, noon)
	if err != nil {
		bad, ok := errors.AsType[*SyntaxError](err)
		if !ok || e != nil {
			t.Fatalf("%q: %v, %T", text, e, err)
		}
		if bad.Offset < 0 || bad.Offset > len(text) {
			t.Fatalf("%q: an error at %d of %d: %v", text, bad.Offset, len(text), err)
		}
		if len(err.Error()) > 700 {
			t.Fatalf("%q: an error of %d bytes: %v", text, len(err.Error()), err)
		}
		return
	}
	leaves, deepest := 0, 0
	var walk func(n *Node, depth int)
	walk = func(n *Node, depth int) {
		deepest = max(deepest, depth)
		if len(n.Args) == 0 {
			leaves++
		}
		for i := range n.Args {
			walk(&n.Args[i], depth+1)
		}
	}
	walk(&e.Root, 1)
	if leaves > MaxLeaves || deepest > MaxDepth {
		t.Fatalf("%q: %d leaves, %d deep", text, leaves, deepest)
	}
	checkOffsets(t, e)
	plain := shown(e)
	again, err := builtIn.Parse(plain, MaxForm, noon)
	if err != nil || shown(again) != plain || canonical(e) != canonical(again) {
		t.Fatalf("%q printed as %q: %v", text, plain, err)
	}
}

// Texts that differ by a few bytes from expressions are errors at a place in the text, or
// expressions.
func TestDamagedExpressions(t *testing.T) {
	d := oracle.Draw{Rand: rand.New(rand.NewPCG(2, 2))}
	for range 6000 {
		b := []byte(d.Expr(d.IntN(2) == 0, 3))
		for range 1 + d.IntN(3) {
			at := d.IntN(len(b))
			switch d.IntN(4) {
			case 0:
				b = slices.Delete(b, at, at+1)
			case 1:
				b[at] = "(),= \n@$:/.%\x00\xff\xc3é0az\"\\"[d.IntN(22)]
			case 2:
				b = slices.Insert(b, at, []byte(d.One("(", ")", ",", "since=", "until=7d", "members(", "\xe2\x82", "did:", "at://", "$viewer", `"`, `"\`, `"\ud800`))...)
			default:
				b = b[:at+1]
			}
			if len(b) == 0 {
				b = []byte{'x'}
			}
		}
		checkText(t, string(b))
	}
}

func FuzzExpression(f *testing.F) {
	d := oracle.Draw{Rand: rand.New(rand.NewPCG(3, 3))}
	for range 30 {
		f.Add(d.Expr(d.IntN(2) == 0, 3))
	}
	for _, s := range []string{"", " ", "(", "union(", "members(did:web:a,", "likes(did:web:a,since=", "likes(did:web:a,since=20000w)", "\xff\xff(", strings.Repeat("union(", 40)} {
		f.Add(s)
	}
	f.Fuzz(checkText)
}

// Each limit holds at its value, and not one above it. The error names the limit.
func TestLimitsOfExpressions(t *testing.T) {
	const leaf = "follows(did:web:a.example.com)"
	nested := func(n int) string { return strings.Repeat("union(", n-1) + leaf + strings.Repeat(")", n-1) }
	wide := func(n int) string { return "union(" + strings.Repeat(leaf+",", n-1) + leaf + ")" }
	given := func(parts ...int) string {
		var sets []string
		for _, n := range parts {
			sets = append(sets, "members("+strings.Repeat("did:web:a.example.com,", n-1)+"did:web:a.example.com)")
		}
		return "union(" + strings.Join(sets, ",") + ")"
	}
	padded := func(n int) string { return leaf + strings.Repeat(" ", n-len(leaf)) }
	for name, c := range map[string]struct {
		text string
		most int
		says string // "" if it must parse
		at   int
	}{
		"nested":               {nested(MaxDepth), MaxExpr, "", 0},
		"nested too deep":      {nested(MaxDepth + 1), MaxExpr, "nested more than 32 deep", 6 * MaxDepth},
		"wide":                 {wide(MaxLeaves), MaxExpr, "", 0},
		"too wide":             {wide(MaxLeaves + 1), MaxExpr, "more than 64 sets", len("union(") + MaxLeaves*(len(leaf)+1)},
		"many given":           {given(MaxGiven), MaxForm, "", 0},
		"many given in two":    {given(MaxGiven-1, 1), MaxForm, "", 0},
		"too many given":       {given(MaxGiven + 1), MaxForm, "more than 20000 arguments", len("union(members(") + MaxGiven*22},
		"too many given, two":  {given(MaxGiven, 1), MaxForm, "more than 20000 arguments", len("union(members(),members(") + MaxGiven*22 - 1},
		"long":                 {padded(MaxExpr), MaxExpr, "", 0},
		"too long":             {padded(MaxExpr + 1), MaxExpr, "has 16385 bytes; at most 16384 are allowed here, and 1048576 in a form", MaxExpr},
		"long in a form":       {padded(MaxForm), MaxForm, "", 0},
		"too long for a form":  {padded(MaxForm + 1), MaxForm, "at most 1048576", MaxForm},
		"a limit of no bytes":  {"x", 0, "has 1 bytes", 0},
		"operators are no cap": {"union(" + strings.Repeat("union("+leaf+"),", 63) + "union(" + leaf + "))", MaxExpr, "", 0},
	} {
		_, err := builtIn.Parse(c.text, c.most, noon)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		bad, ok := errors.AsType[*SyntaxError](err)
		if !ok || !strings.Contains(bad.What, c.says) || bad.Offset != c.at {
			t.Errorf("%s: %v, want %q at position %d", name, err, c.says, c.at)
		}
	}
	form := map[string][]string{"of": {given(MaxGiven)}, "via": {"follows"}, "except": {given(1)}}
	if _, err := builtIn.Ranking(form, MaxForm, noon); err == nil || !strings.Contains(err.Error(), "except: at position 14: more than 20000 arguments") {
		t.Errorf("too many given in a form: %v", err)
	}
}

// Each mistake is an error that says what is wrong, at the place where it is.
func TestMistakesInExpressions(t *testing.T) {
	const a, p = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.post/3kaaaaaaaaaaa"
	for _, c := range [][2]string{
		{"", "at position 0: expected a set"},
		{"  ", "at position 2: expected a set"},
		{"\u202a follows(\u2068@a.example.com\u2069\u200b, since=7d )\ufeff x", "at position 51: unexpected \"x\" after the end"},
		{"(", "at position 0: expected a set"},
		{"union(,", "at position 6: expected a set"},
		{"followz(x)", `at position 0: "followz" is not a set or an operator; did you mean follows?`},
		{"Union(x)", `did you mean union?`},
		{"zzzzzzzzzzzzzzz(x)", `at position 0: "zzzzzzzzzzzzzzz" is not a set or an operator`},
		{"union follows(" + a + ")", `at position 6: expected "(" after "union"`},
		{"union", `at position 5: expected "(" after "union"`},
		{"follows(" + a, `at position 29: expected "," or ")" in follows(…`},
		{"follows(" + a + " x)", `at position 30: expected "," or ")" in follows(…`},
		{"follows(" + a + ",)", "at position 30: follows takes one argument, optionally followed by since=TIME and until=TIME"},
		{"follows(" + a + "," + a + ")", "at position 30: follows takes one argument"},
		{"follows(" + a + ",since)", "at position 30: follows takes one argument"},
		{"follows(" + a + ",after=1d)", "at position 30: follows takes one argument"},
		{"follows(" + a + ",since=)", "at position 36: expected a value after since="},
		{"follows(" + a + ",since=1d,since=2d", "at position 39: since is given twice"},
		{"follows(" + a + ",until=1d,until=1d", "at position 39: until is given twice"},
		{"follows(" + a + ",since=soon)", `since: "soon" is not a time`},
		{"follows(" + a + ",since=1d,until=2d", `expected "," or ")"`},
		{"follows(" + a + ",since=1d,until=2d)", "at position 30: since (1d) must be earlier than until (2d)"},
		{"follows(" + a + ",since=1d,until=1d)", "since (1d) must be earlier than until (1d)"},
		{"members(" + a + ",since=1d)", `at position 30: the argument "since=1d" of members is neither a DID nor an AT URI`},
		{"members()", "at position 8: members(…) needs an argument"},
		{"members(" + a + "," + p + ")", "is an AT URI; members takes an account"},
		{"members(" + p + "," + a + ")", "is an account; members takes an AT URI"},
		{"likers(" + a + ")", "is an account; likers takes an AT URI"},
		{"lists(" + p + ")", "is an AT URI; lists takes an account"},
		{"listed(" + a + ")", "is an account; listed takes an AT URI"},
		{"union(follows(" + a + "),likes(" + a + "))", "at position 37: union cannot combine a set of DIDs with a set of AT URIs"},
		{"except(lists(" + a + "),listed(" + p + "))", "cannot combine a set of AT URIs with a set of DIDs"},
		{"likers(at://" + a + "/space/com.example.forum/main)", "is neither a DID nor an AT URI"},
		{"likers(https://example.com/x)", "of web addresses, skein understands only links"},
		{"likers(https://bsky.app/profile/a.example.com/feed)", "of web addresses, skein understands only links"},
		{"follows(alice.example.com)", "write a handle as @alice.example.com"},
		{"follows(@alice)", `"@alice" of follows is neither`},
		{"follows(did:plc:abc)", "a did:plc has 24 characters"},
		{"likers(at://did:plc:abc/app.bsky.feed.post/x)", "a did:plc has 24 characters"},
		{"follows(" + a + "))", `at position 30: unexpected ")" after the end of the expression`},
		{"follows(" + a + ") union", `at position 31: unexpected "union" after the end`},
	} {
		_, err := builtIn.Parse(c[0], MaxExpr, noon)
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: %v, want %q", c[0], err, c[1])
		}
	}
}

// A handle that moves to another account makes another question.
func TestQuestionNamesTheAccounts(t *testing.T) {
	ask := func(did string) string {
		e := parsed(t, "union(follows(@a.example.com),listed(at://a.example.com/app.bsky.graph.list/x),members($viewer))")
		for i := range e.Strings {
			if e.Strings[i].Handle == "" {
				t.Errorf("string %d has no handle: %+v", i, e.Strings[i])
			}
			e.Strings[i].Resolve(did)
		}
		account, list := Literal{S: did, Is: dict.DID}, Literal{S: "at://" + did + "/app.bsky.graph.list/x", Is: dict.URI}
		want := []Literal{account, list, account, account}
		if !slices.Equal(e.Strings, want) {
			t.Errorf("resolved to %+v, want %+v", e.Strings, want)
		}
		return e.Question()
	}
	if ask("did:web:one.example.com") == ask("did:web:two.example.com") {
		t.Error("the question does not depend on the account")
	}
}

// The ages of an expression move with the time, and nothing else does.
func TestAsOf(t *testing.T) {
	d := oracle.Draw{Rand: rand.New(rand.NewPCG(4, 4))}
	moved := 0
	for range 500 {
		e, err := builtIn.Parse(d.Expr(true, 2), MaxExpr, noon)
		if err != nil {
			continue
		}
		for i := range e.Strings {
			if e.Strings[i].Handle != "" {
				e.Strings[i].Resolve("did:web:resolved.example.com")
			}
		}
		same, err := e.AsOf(noon)
		if err != nil || canonical(same) != canonical(e) || same.HasAge != e.HasAge || !slices.Equal(same.Strings, e.Strings) {
			t.Fatalf("%q as of the same time: %v", e.Source, err)
		}
		later, err := e.AsOf(noon.Add(time.Hour))
		if err != nil {
			continue // since is then after until
		}
		if differs := canonical(later) != canonical(e); differs != e.HasAge {
			t.Fatalf("%q, with an age: %v, an hour later: %s, was %s", e.Source, e.HasAge, canonical(later), canonical(e))
		} else if differs {
			moved++
		}
		if later.Question() != e.Question() {
			t.Fatalf("%q: the question has changed", e.Source)
		}
	}
	if moved < 50 {
		t.Errorf("only %d expressions had ages", moved)
	}
}

// The nearest name does not depend on the order of the names, and a long word has none.
func TestNearest(t *testing.T) {
	names := slices.Collect(maps.Keys(builtIn.functions))
	for word, want := range map[string]string{"": "", strings.Repeat("follows", 5): "", "FOLLOWS": "follows", "x": "", "likerz": "likers"} {
		if got := Nearest(word, slices.Values(names)); got != want {
			t.Errorf("nearest to %q: %q, want %q", word, got, want)
		}
	}
}

// A word that people use for a set or an operator leads to it, and not to the name with the nearest letters.
func TestMeanings(t *testing.T) {
	const a, post, list = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.post/k", "at://a.example.com/app.bsky.graph.list/k"
	more, err := kinds.Parse("app.bsky.feed.post reply.parent.uri at-uri answers answerers\napp.bsky.feed.post embed.record.record?.uri at-uri cited citers")
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, more)
	if err != nil {
		t.Fatal(err)
	}
	configured := NewVocabulary(table)
	says := func(v *Vocabulary, text, what string) {
		t.Helper()
		if _, err := v.Parse(text, MaxExpr, noon); err == nil || !strings.HasSuffix(err.Error(), what) {
			t.Errorf("%s: %v, want … %s", text, err, what)
		}
	}
	for word, want := range map[string]string{
		"following(@a.example.com)": "follows", "Following(x)": "follows", "followedBy(" + a + ")": "followers", "followed_by(x)": "followers", "likedBy(" + post + ")": "likers",
		"difference(x)": "except", "not(x)": "except", "exclude(x)": "except", "minus(x)": "except", "and(x)": "intersect", "or(x)": "union",
		"list(" + list + ")": "listed", "list(" + a + ")": "lists", "blockedby(x)": "blockedBy", "likez(" + post + ")": "likers", "likez(" + a + ")": "likes", "reposted(x)": "reposts",
	} {
		says(builtIn, word, "is not a set or an operator; did you mean "+want+"?")
	}
	for word, want := range map[string]string{"quotes(" + a + ")": "cited", "quotes( https://bsky.app/profile/a.example.com/post/k )": "citers", "replies(" + post + ")": "answerers", "replies(@a.example.com)": "answers"} {
		says(configured, word, "; did you mean "+want+"?")
	}
	says(builtIn, "Replies("+post+")", `"Replies" is not a set or an operator; this server does not index replies (its administrator can, with skein serve --posts)`)
	for text, want := range map[string]string{
		"rank(of=follows(" + a + "),via=following)":                                          "lists; did you mean follows?",
		"rank(of=likes(" + a + "),via=likedBy)":                                              "; did you mean likers?",
		"rank(of=follows(" + a + "),via=likedBy)":                                            "lists",
		"intersect(members(" + list + "),likers(x))":                                         "",
		"union(followers(" + a + "),members(" + a + "),members(" + list + "))":               "at position 70: " + errNotItsMembers.Error(),
		"except(members(https://bsky.app/profile/a.example.com/lists/k),follows(" + a + "))": "at position 7: " + errNotItsMembers.Error(),
		"rank(of=members(" + list + "),via=likes)":                                           "at position 8: via=likes: " + errNotItsMembers.Error(),
		"rank(of=follows(" + a + "),via=follows,except=members(" + list + "))":               "at position 58: " + errNotItsMembers.Error(),
	} {
		says(builtIn, text, want)
	}
	for _, text := range []string{"members(" + list + ")", "union(members(" + list + "),lists(" + a + "))", "rank(of=members(" + list + "),via=listed)"} {
		if _, err := builtIn.Parse(text, MaxExpr, noon); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for word, meant := range meanings {
		if _, isName := builtIn.functions[word]; isName || word != strings.ToLower(word) {
			t.Errorf("%s is a name, or has capital letters", word)
		}
		for _, m := range meant {
			_, known := builtIn.functions[m]
			if collection, path, isSource := strings.Cut(m, ":"); known == isSource || isSource && configured.KindAt(collection, path) == nil {
				t.Errorf("%s may mean %s, which is neither a name nor the source of a kind", word, m)
			}
		}
	}
}

// Each spelling of an account or a record is one literal.
func TestLiterals(t *testing.T) {
	const plc = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	for s, want := range map[string]*Literal{
		plc:                                      {plc, dict.DID, "", ""},
		"did:web:a.example.com":                  {"did:web:a.example.com", dict.DID, "", ""},
		"$viewer":                                {"$viewer", dict.DID, "$viewer", ""},
		"@a.example.com":                         {"@a.example.com", dict.DID, "a.example.com", ""},
		"at://" + plc:                            {"at://" + plc, dict.URI, "", ""},
		"at://a.example.com/x.y.z/k":             {"at://a.example.com/x.y.z/k", dict.URI, "a.example.com", ""},
		"at://$viewer/x.y.z/k":                   {"at://$viewer/x.y.z/k", dict.URI, "$viewer", ""},
		"https://bsky.app/profile/a.example.com": {"@a.example.com", dict.DID, "a.example.com", ""},
		"https://bsky.app/profile/a.example.com/":        {"@a.example.com", dict.DID, "a.example.com", ""},
		"https://bsky.app/profile/" + plc + "?ref=x#y":   {plc, dict.DID, "", ""},
		"https://bsky.app/profile/a.example.com/post/3k": {"at://a.example.com/app.bsky.feed.post/3k", dict.URI, "a.example.com", ""},
		"https://bsky.app/profile/" + plc + "/lists/x/":  {"at://" + plc + "/app.bsky.graph.list/x", dict.URI, "", ""},
		"https://bsky.app/profile/" + plc + "/feed/x":    {"at://" + plc + "/app.bsky.feed.generator/x", dict.URI, "", ""},
		"":                              nil,
		"$Viewer":                       nil,
		"$viewer/x":                     nil,
		"@":                             nil,
		"@a":                            nil,
		"@did:web:a.example.com":        {"did:web:a.example.com", dict.DID, "", ""},
		"@@a.example.com":               nil,
		"@a.example.com@":               nil,
		"@Alice.Example.COM":            {"@alice.example.com", dict.DID, "alice.example.com", ""},
		"at://@A.example.com/x.y.z/Key": {"at://a.example.com/x.y.z/Key", dict.URI, "a.example.com", ""},
		"https://bsky.app/profile/@A.example.com/post/3k":     {"at://a.example.com/app.bsky.feed.post/3k", dict.URI, "a.example.com", ""},
		"\u2068@a.example.com\u2069":                          {"@a.example.com", dict.DID, "a.example.com", ""},
		"\u2068\u2069":                                        nil,
		"@a.example.com b":                                    nil,
		"a.example.com":                                       nil,
		"did:plc":                                             nil,
		"at://":                                               nil,
		"at://$viewer":                                        nil,
		"at://$viewer/x":                                      nil,
		"at://$viewerx/x.y.z/k":                               nil,
		"https://bsky.app/profile/":                           nil,
		"https://bsky.app/profile/$viewer/lists/x":            {"at://$viewer/app.bsky.graph.list/x", dict.URI, "$viewer", ""},
		"https://bsky.app/profile/$viewer":                    {"$viewer", dict.DID, "$viewer", ""},
		"https://bsky.app/profile/$viewers":                   nil,
		"https://bsky.app/profile/a.example.com/post":         nil,
		"https://bsky.app/profile/a.example.com/likes/x":      nil,
		"https://bsky.app/profile/a.example.com/post/x/y":     nil,
		"https://bsky.app/profile/a.example.com/post/":        nil,
		"https://bsky.app/profile/a.example.com/post/a b":     nil,
		"https://bsky.app/profile/a.example.com/post/$x":      nil,
		"http://bsky.app/profile/a.example.com":               nil,
		"https://bsky.app.evil.example/profile/a.example.com": nil,
	} {
		l, ok := LiteralOf(s)
		if ok != (want != nil) || ok && l != *want {
			t.Errorf("%q: %+v %v, want %+v", s, l, ok, want)
		}
	}
}

// A literal that is written by a handle, once resolved, is the literal with the DID.
func TestResolvedLiterals(t *testing.T) {
	const did = "did:web:owner.example.com"
	for by, of := range map[string]string{
		"@a.example.com": did, "$viewer": did, "https://bsky.app/profile/a.example.com": did,
		"at://a.example.com": "at://" + did, "at://a.example.com/x.y.z/k": "at://" + did + "/x.y.z/k", "at://$viewer/x.y.z/k": "at://" + did + "/x.y.z/k",
		"https://bsky.app/profile/a.example.com/post/a.example.com": "at://" + did + "/app.bsky.feed.post/a.example.com",
	} {
		l, ok := LiteralOf(by)
		want, _ := LiteralOf(of)
		if l.Unusable() != "" {
			t.Errorf("%s is unusable before it is resolved: %s", by, l.Unusable())
		}
		author := l.author()
		if l.Resolve(did); !ok || l != want {
			t.Errorf("%s is %+v, want %+v", by, l, want)
		}
		if author.Resolve(did); author != (Literal{S: did, Is: dict.DID}) {
			t.Errorf("the author of %s is %+v", by, author)
		}
	}
	for did, usable := range map[string]bool{
		"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa": true, "did:web:a.example.com": true, "did:key:z6Mk": true,
		"did:plc:aaaaaaaaaaaaaaaaaaaaaaa": false, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaaa": false, "did:plc:aaaaaaaaaaaaaaaaaaaaaaa1": false, "did:plc:Aaaaaaaaaaaaaaaaaaaaaaaa": false,
	} {
		for _, l := range []Literal{{S: did, Is: dict.DID}, {S: "at://" + did, Is: dict.URI}, {S: "at://" + did + "/x.y.z/k", Is: dict.URI}} {
			if got := l.Unusable() == ""; got != usable {
				t.Errorf("%+v is usable: %v", l, got)
			}
		}
	}
}

// Only fields that make edges have an expression of their actors, and only targets that can be
// members of the graph.
func TestActorsOf(t *testing.T) {
	const did, uri = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.post/x"
	for i := range kinds.BuiltIn.All {
		k := &kinds.BuiltIn.All[i]
		if got := builtIn.KindAt(k.Collection, k.To.Path()); got != k {
			t.Errorf("%s is found as %+v", k.Source(), got)
		}
		for target, ok := range map[string]bool{
			did: k.To.Is() == dict.DID, uri: k.To.Is() == dict.URI, "@a.example.com": false, "$viewer": false, "at://a.example.com/x.y.z/k": k.To.Is() == dict.URI, "did:plc:short": false,
			"https://bsky.app/profile/" + did: false, "https://bsky.app/profile/" + did + "/post/x": false, "": false, "x)": false,
		} {
			e := builtIn.ActorsOf(k, target)
			if (e != nil) != ok {
				t.Errorf("%s %q: %v", k.Source(), target, e)
			}
			if e != nil && (e.Root.Op != OpReverse || e.Root.Kind != k.Kind || e.Type() != dict.DID || !e.IsLeaf() || e.Strings[0].S != target || e.Info(&e.Root) != k) {
				t.Errorf("%s %q: %+v", k.Source(), target, e)
			}
		}
	}
	for _, at := range [][2]string{{"app.bsky.feed.like", "subject"}, {"app.bsky.feed.like", ""}, {"app.bsky.feed.like", ".subject.uri"}, {"app.bsky.feed.post", "subject"}, {"", ""}} {
		if k := builtIn.KindAt(at[0], at[1]); k != nil {
			t.Errorf("%q: %+v", at, k)
		}
	}
	if builtIn.ActorsOf(nil, did) != nil {
		t.Error("a kind that is not indexed has actors")
	}
}

// A short text stays as it is, and a long one is shortened to a bounded length.
func TestBrief(t *testing.T) {
	for n := range 100 {
		s := strings.Repeat("x", n)
		if got := Brief(s); n <= 60 && got != s || n > 60 && got != s[:60]+"…" {
			t.Errorf("%d bytes become %q", n, got)
		}
	}
	for n := range 70 { // wherever the cut is, no rune is cut
		s := strings.Repeat("x", n) + strings.Repeat("é🦋", 30)
		if got := Brief(s); !utf8.ValidString(got) || len(got) > 70 {
			t.Errorf("%q", got)
		}
	}
}

// The vocabulary has the sets of a table of kinds, the configured ones included.
func TestConfiguredVocabulary(t *testing.T) {
	configured, err := kinds.Parse("app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers\nsh.tangled.graph.follow subject did tangledFollows tangledFollowers\n")
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, configured)
	if err != nil {
		t.Fatal(err)
	}
	v := NewVocabulary(table)
	for text, is := range map[string]dict.Namespace{
		"repliedTo(did:web:a.example.com)": dict.URI, "repliers(at://did:web:a.example.com/app.bsky.feed.post/x)": dict.DID,
		"union(tangledFollows(did:web:a.example.com),tangledFollowers(did:web:a.example.com))": dict.DID,
	} {
		e, err := v.Parse(text, MaxExpr, noon)
		if err != nil || e.Type() != is || shown(e) != text {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := builtIn.Parse(text, MaxExpr, noon); err == nil {
			t.Errorf("%s is a built-in set", text)
		}
	}
	if k := v.KindAt("app.bsky.feed.post", "reply.parent.uri"); k == nil || k.Forward != "repliedTo" {
		t.Errorf("%+v", k)
	}
	if got := fmt.Sprint(v.Parse("repliers(did:web:a.example.com)", MaxExpr, noon)); !strings.Contains(got, "repliers takes an AT URI") {
		t.Error(got)
	}
}
