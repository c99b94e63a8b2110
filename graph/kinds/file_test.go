package kinds_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

const someKinds = `# what else is indexed
sh.tangled.graph.follow   subject            did     tangledFollows  tangledFollowers
app.bsky.feed.post        reply.parent.uri   at-uri  repliedTo       repliers

	app.bsky.feed.post  embed.record.uri  at-uri  quoted  quoters
`

// A file of kinds is read, gets numbers, and is written as it was.
func TestFile(t *testing.T) {
	all, err := kinds.Parse(someKinds)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, all)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, k := range table.Configured() {
		if k.Kind != kinds.FirstConfigured+kinds.Kind(i) || table.Info(k.Kind).Name != k.Forward || table.ByName(k.Forward).Kind != k.Kind || !k.Optional {
			t.Errorf("%+v", k)
		}
		lines = append(lines, k.Line())
	}
	again, err := kinds.Parse(strings.Join(lines, "\n"))
	if err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
		t.Errorf("%q is %v, %v", lines, again, err)
	}
	if of := table.CollectionOf([]byte("app.bsky.feed.post/x")); of == nil || len(of.Kinds) != 2 || of.Kinds[1].Source() != "app.bsky.feed.post:embed.record.uri" {
		t.Errorf("%+v", of)
	}
	if got := table.Numbers(); len(got) != len(kinds.All)+3 || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	if kinds.BuiltIn.Collection("app.bsky.feed.post") != nil || kinds.BuiltIn.ByName("quoted") != nil {
		t.Error("what is built in has changed")
	}
}

// Each line that is wrong is refused, with its number and why.
func TestFileRefused(t *testing.T) {
	for line, says := range map[string]string{
		"a.b.c subject did x":                              "it has 4 words",
		"a.b.c subject did x y z":                          "it has 6 words",
		"a.b.c subject DID xs ys":                          "neither did nor at-uri",
		"follow subject did xs ys":                         "no NSID",
		"a.b.c facets[].did did xs ys":                     "through a list",
		"a.b.c facets[] did xs ys":                         "through a list",
		"a.b.c . did xs ys":                                "no name of a field",
		"a.b.c a.b.c.d.e.f.g.h.i did xs ys":                "more than 8 parts",
		"a.b.c " + strings.Repeat("x", 24) + " did xs ys":  "no name of a field",
		"a.b.c subject did x,s ys":                         "no name of a set",
		"a.b.c subject did xs 1ys":                         "no name of a set",
		"a.b.c subject did xs xs":                          "cannot be called xs",
		"a.b.c subject did follows ys":                     "cannot be called follows",
		"a.b.c subject did union ys":                       "a word of expressions",
		"a.b.c subject did xs lists":                       "a word of expressions",
		"a.b.c subject did like ys":                        "both called like",
		"app.bsky.graph.follow subject did xs ys":          "indexed already",
		"a.b.c subject did us vs\na.b.c subject did xs ys": "indexed already",
	} {
		_, err := kinds.Parse("# first\n" + line)
		want := fmt.Sprintf("line %d: ", 2+strings.Count(line, "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s… %s", line, err, want, says)
		}
	}
	var many strings.Builder
	for i := range int(kinds.MaxConfigured) + 1 {
		fmt.Fprintf(&many, "a.b.c f%d did x%d y%d\n", i, i, i)
	}
	if _, err := kinds.Parse(many.String()); err == nil || !strings.Contains(err.Error(), "more than 64") {
		t.Errorf("%v", err)
	}
}

// What a store has stays as it is: it may be named again, more is added after it, and what
// contradicts it is refused.
func TestConfigure(t *testing.T) {
	all, err := kinds.Parse(someKinds)
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, all[1:2])
	if err != nil {
		t.Fatal(err)
	}
	again, err := kinds.Configure(table, all)
	if err != nil {
		t.Fatal(err)
	}
	for source, number := range map[string]kinds.Kind{all[1].Source(): 64, all[0].Source(): 65, all[2].Source(): 66} {
		if k := again.Info(number); k == nil || k.Source() != source {
			t.Errorf("%d is %+v, want %s", number, k, source)
		}
	}
	for what, change := range map[string]func(k *kinds.Info){
		"another set":  func(k *kinds.Info) { k.Reverse = "answerers" },
		"another name": func(k *kinds.Info) { k.Name, k.Forward = "answered", "answered" },
		"another type": func(k *kinds.Info) { k.To.Is = dict.DID },
	} {
		k := all[1]
		change(&k)
		if _, err := kinds.Configure(again, []kinds.Info{k}); !errors.Is(err, kinds.ErrContradiction) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := all[1]
	other.To.Field = []string{"reply", "root", "uri"} // of the same names
	if _, err := kinds.Configure(again, []kinds.Info{other}); err == nil {
		t.Error("a set has two meanings")
	}
	for what, change := range map[string]func(k *kinds.Info){
		"a number that is built in": func(k *kinds.Info) { k.Kind = 3 },
		"a number past the last":    func(k *kinds.Info) { k.Kind = kinds.FirstConfigured + kinds.MaxConfigured },
		"a name of its own":         func(k *kinds.Info) { k.Name = "x" },
		"no type":                   func(k *kinds.Info) { k.To.Is = 0 },
	} {
		k := all[0]
		k.Kind = kinds.FirstConfigured
		change(&k)
		if _, err := kinds.TableOf([]kinds.Info{k}); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// What a store has stays, also where a later program has built in the same.
func TestStoredKindsStay(t *testing.T) {
	clash := kinds.Info{
		Kind: kinds.FirstConfigured, Name: "follows", Collection: "app.bsky.graph.follow", Forward: "follows", Reverse: "union", Optional: true,
		To: kinds.End{Is: dict.DID, Field: []string{"subject"}},
	}
	if _, err := kinds.TableOf([]kinds.Info{clash}); err == nil {
		t.Error("a file may say so")
	}
	table, err := kinds.Stored([]kinds.Info{clash})
	if err != nil {
		t.Fatal(err)
	}
	k := table.Info(kinds.FirstConfigured)
	if k == nil || k.Forward != "follows_" || k.Reverse != "union_" || len(table.Collection("app.bsky.graph.follow").Kinds) != 2 {
		t.Errorf("%+v", k)
	}
	more, err := kinds.Parse(someKinds)
	if err != nil {
		t.Fatal(err)
	}
	if table, err = kinds.Configure(table, more); err != nil || len(table.Configured()) != 4 {
		t.Errorf("%v", err)
	}
}
