package page

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
)

// run returns what functions of scripts make of texts, by the name of the function.
func run(t *testing.T, scripts string, texts []string, functions string) (results map[string][]string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed")
	}
	given, err := json.Marshal(texts)
	must(t, err)
	program := ""
	for name := range strings.FieldsSeq(scripts) {
		program += string(files[name].plain)
	}
	program += "\nprocess.stdout.write(JSON.stringify(Object.fromEntries(Object.entries({" + functions + "}).map(([name, f]) => [name, " + string(given) + ".map(f)]))));"
	out, err := exec.CommandContext(t.Context(), node, "-e", program).Output()
	must(t, err)
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return results
}

// A spreadsheet computes no cell of the page's CSV or of what the page copies, and a line break in a text begins no line.
func TestCells(t *testing.T) {
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	texts := []string{"=1+1", "+1", "-1", "@sum(a1)", "\t=1", "\r=1", "=a,\"b\"", "good\n" + did, "evil\r", "a,b", `"`, "a=b", " =1", did}
	want := []string{"'=1+1", "'+1", "'-1", "'@sum(a1)", "'\t=1", "\"'\r=1\"", `"'=a,""b"""`, "\"good\n" + did + `"`, "\"evil\r\"", `"a,b"`, `""""`, "a=b", " =1", did}
	if got := run(t, "actions.js", texts, "safe"); !slices.Equal(got["safe"], want) {
		t.Errorf("%q, want %q", got["safe"], want)
	}
}

// A pasted name is the same whatever comes along with it; the marks in an expression's texts stay.
func TestPastedNames(t *testing.T) {
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	names := map[string]string{
		"@alice.example.com":                                 "account @alice.example.com",
		"Alice.Example.COM":                                  "account @alice.example.com",
		"\u2068@Alice.example.com\u2069":                     "account @alice.example.com",
		" \u202aalice\u200b.example.com\u202c\u00a0":         "account @alice.example.com",
		"at://alice.example.com":                             "account @alice.example.com",
		"at://" + did:                                        "account " + did,
		"@" + did:                                            "account " + did,
		"\u200e" + did + "\u200f":                            "account " + did,
		"bsky.app/profile/@Alice.example.com":                "account @alice.example.com",
		"https://bsky.app/profile/" + did + "/post/k?x":      "post https://bsky.app/profile/" + did + "/post/k",
		"https://bsky.app/profile/alice.example.com/lists/k": "list https://bsky.app/profile/alice.example.com/lists/k",
		"at://" + did + "/app.bsky.feed.post/k":              "post at://" + did + "/app.bsky.feed.post/k",
		"\u202afollowers(@alice.example.com)\u202c":          "followers(@alice.example.com)",
		"taggers(\"👩\u200d👧\")":                              "taggers(\"👩\u200d👧\")",
		"cats":                                               "cats",
	}
	var texts []string
	for text := range names {
		texts = append(texts, text)
	}
	got := run(t, "app.js", texts, "of: text => { const q = clean(text), s = subjectOf(q); return s ? s.kind + ' ' + s.name : q; }")
	for i, text := range texts {
		if got["of"][i] != names[text] {
			t.Errorf("%q: %q, want %q", text, got["of"][i], names[text])
		}
	}
}

// The page draws the sets that an expression combines, whatever is inside them, and only those.
func TestOperands(t *testing.T) {
	want := map[string]string{
		"intersect(likers(at://did:plc:a/b/c), followers(@a.test))":                                                "intersect: likers(at://did:plc:a/b/c) | followers(@a.test)",
		" except( follows(@a.test) ,\n union(follows(@b.test), follows(@c.test)), followers(@d.test, since=7d) ) ": "except: follows(@a.test) | union(follows(@b.test), follows(@c.test)) | followers(@d.test, since=7d)",
		`atleast(2, labeled(@a.test, "b, (c"), follows(@a.test), follows(@b.test))`:                                `atleast 2: labeled(@a.test, "b, (c") | follows(@a.test) | follows(@b.test)`,
		"mutuals(@a.test)":                                                                      "intersect: follows(@a.test) | followers(@a.test)",
		"union(follows(@a.test))":                                                               "",
		"likes(@a.test, since=7d)":                                                              "",
		"union(follows(@a.test), likes(@b.test))":                                               "", // the server refuses it
		"sample(union(follows(@a.test), follows(@b.test)), 3)":                                  "",
		"union(" + strings.Repeat("follows(@a.test), ", 20) + "follows(@a.test))":               "",
		"rank(of=union(follows(@a.test), follows(@b.test)), via=likes)":                         "",
		"blend(1, rank(of=likes(@a.test), via=likers), 2, rank(of=likes(@b.test), via=likers))": "",
	}
	texts := slices.Sorted(maps.Keys(want))
	sets, err := json.Marshal(setsOf(kinds.BuiltIn))
	must(t, err)
	got := run(t, "app.js mend.js loose.js pictures.js", texts, "of: (config.sets = "+string(sets)+", q => { const o = operandsOf(q); return o ? o.operator + (o.least ? ' ' + o.least : '') + ': ' + o.sets.join(' | ') : ''; })")
	for i, q := range texts {
		if got["of"][i] != want[q] {
			t.Errorf("%q: %q, want %q", q, got["of"][i], want[q])
		}
	}
}

// A window of time replaces the one that a set has.
func TestWithin(t *testing.T) {
	texts := []string{"likes(@a.test)", "likers(at://x/y/z, since=7d)", "likes(x, until=2026-01-01, since=2025-01-01) "}
	want := []string{"likes(@a.test, since=A, until=B)", "likers(at://x/y/z, since=A, until=B)", "likes(x, since=A, until=B)"}
	if got := run(t, "times.js", texts, "in: q => within(q, 'A', 'B')"); !slices.Equal(got["in"], want) {
		t.Errorf("%q, want %q", got["in"], want)
	}
}

// A text that is nearly an expression is corrected, also several mistakes at once, to an expression that needs no
// correction. Other text is left alone.
func TestMeant(t *testing.T) {
	const post, list = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/k", "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.graph.list/k"
	meant := map[string]string{
		"followers(@a.test) and followers(@b.test) AND likers(" + post + ")":  "intersect(followers(@a.test), followers(@b.test), likers(" + post + "))",
		"(follows(@a.test) or follows(@b.test)) but not listed(" + list + ")": "except(union(follows(@a.test), follows(@b.test)), listed(" + list + "))",
		"Followers of A.test without followers of @b.test":                    "except(followers(@a.test), followers(@b.test))",
		"@a.test’s followers":                                           "followers(@a.test)",
		"people who follow both @a.test and @b.test":                    "intersect(followers(@a.test), followers(@b.test))",
		"who follows @a.test but doesn’t follow @b.test?":               "except(followers(@a.test), followers(@b.test))",
		"who does @a.test follow":                                       "follows(@a.test)",
		"who liked https://bsky.app/profile/a.test/post/k":              "likers(https://bsky.app/profile/a.test/post/k)",
		"posts liked by accounts that @a.test follows":                  "rank(of=follows(@a.test), via=likes)",
		"people on " + list:                                             "listed(" + list + ")",
		"lists that include @a.test":                                    "lists(@a.test)",
		"@a.test and " + post:                                           "intersect(followers(@a.test), likers(" + post + "))",
		"likes(" + post + ")":                                           "likers(" + post + ")",
		"followers(" + post + ")":                                       "followers(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)",
		"mutuals(" + post + ")":                                         "mutuals(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)",
		"likers(@a.test)":                                               "likes(@a.test)",
		"blockers(" + list + ")":                                        "listblockers(" + list + ")",
		"likes(followers(@a.test), since=24h)":                          "rank(of=followers(@a.test), via=likes, since=24h)",
		"followers(@a.test, @b.test)":                                   "intersect(followers(@a.test), followers(@b.test))",
		"mutuals of @a.test and @b.test":                                "intersect(mutuals(@a.test), mutuals(@b.test))",
		"intersect(folowers('@a.test') followers(\"b.test\"":            "intersect(followers(@a.test), followers(@b.test))",
		"union(follows(@a.test), likes(@b.test)))":                      "union(follows(@a.test), authors(likes(@b.test)))",
		"by(likes(@a.test), likes(@b.test))":                            "by(likes(@a.test), authors(likes(@b.test)))",
		"by(likes(@a.test), @b)":                                        "by(likes(@a.test), members(@b.bsky.social))",
		"rank(of=@a.test, via=liks, since 7d, limit=9, except=@b.test)": "rank(of=follows(@a.test), via=likes, since=7d, top=9, except=members(@b.test))",
		"likes(bsky.app/profile/a.test, 24h)":                           "likes(@a.test, since=24h)",
		"few = rank(of=folows($viewer), via=likes), each=2":             "few = rank(of=follows($viewer), via=likes), each=2",
	}
	texts := slices.Sorted(maps.Keys(meant))
	for _, q := range append(slices.Sorted(maps.Values(meant)), "", "cats", "hello world", "(((", "who", "mutuals(follows(@a.test))", "follows(@)", "atleast(2, follows(@a.test))", "sample(likes(@a.test), 10, seed=3)", "except(follows(@a.test), labeled(@b.test, spam, on=accounts))",
		"blend(3, rank(of=likes(@a.test), via=likers, damp=0.5), 1, rank(of=members(@a.test, @b.test), via=lists, top=3))", "within(@a.test, 2)", "likes(@a.test, since=2026-11-01T00:00:00Z)") {
		texts, meant[q] = append(texts, q), ""
	}
	sets, err := json.Marshal(setsOf(kinds.BuiltIn))
	must(t, err)
	for i, got := range run(t, "app.js mend.js loose.js", texts, "meant: (config.sets = "+string(sets)+", q => meant(q) || '')")["meant"] {
		if got != meant[texts[i]] {
			t.Errorf("%q: %q, want %q", texts[i], got, meant[texts[i]])
		}
	}
}
