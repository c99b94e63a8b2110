package kinds_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
)

const someKinds = `# what else is indexed
sh.tangled.graph.follow   subject            did     tangledFollows  tangledFollowers
app.bsky.feed.post        reply.parent.uri   at-uri  repliedTo       repliers

	app.bsky.feed.post  embed.record.uri  at-uri  quoted  quoters
`

// moreKinds adds records themselves, and names a set of what someKinds has.
const moreKinds = `app.bsky.feed.post self at-uri posts
app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers replies
app.bsky.feed.post tags[] text tags taggers tagged`

func parsed(t *testing.T, file string) []kinds.Info {
	t.Helper()
	all, err := kinds.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The kinds of a file get numbers, and have the same lines when written.
func TestFile(t *testing.T) {
	all := parsed(t, someKinds)
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
	if again := parsed(t, strings.Join(lines, "\n")); fmt.Sprint(again) != fmt.Sprint(all) {
		t.Errorf("%q is %v", lines, again)
	}
	if of := table.CollectionOf([]byte("app.bsky.feed.post/x")); of == nil || len(of.Kinds) != 2 || of.Kinds[1].Source() != "app.bsky.feed.post:embed.record.uri" {
		t.Errorf("%+v", of)
	}
	if got := table.Numbers(); len(got) != len(kinds.All)+3 || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
	if kinds.BuiltIn.Collection("app.bsky.feed.post") != nil || kinds.BuiltIn.ByName("quoted") != nil {
		t.Error("the built-in table has changed")
	}
}

// A wrong line is an error with its number and the reason.
func TestWrongLines(t *testing.T) {
	for line, reason := range map[string]string{
		"a.b.c subject did x":                              "got 4",
		"a.b.c subject did w x y z":                        "got 7",
		"a.b.c self at-uri x y":                            "got 5",
		"a.b.c self did xs":                                "of the type at-uri",
		"a.b.c self at-uri union":                          "a reserved word of expressions",
		"a.b.c self at-uri xs\na.b.c self at-uri ys":       "already indexed",
		"a.b.c subject did x y z":                          "path self for that collection must come first",
		"a.b.c self at-uri xs\na.b.c a.b? did x y":         "not a field name",
		"a.b.c a?.b did x y":                               "not a field name",
		"a.b.c a.b?.c[] did x y":                           "not a field name",
		"a.b.c self at-uri xs\na.b.c b did x y xs":         "cannot be named xs",
		"a.b.c subject DID xs ys":                          "is not did, at-uri, uri or text",
		"follow subject did xs ys":                         "not the NSID",
		"a.b.c facets[.did did xs ys":                      "a [ without a ]",
		"a.b.c facets]x.did did xs ys":                     "not a field name",
		"a.b.c [].did did xs ys":                           "not a field name",
		"a.b.c facets[#x] did xs ys":                       "not a $type",
		"a.b.c facets[a][b] did xs ys":                     "not a $type",
		"a.b.c . did xs ys":                                "not a field name",
		"a.b.c a.b.c.d.e.f.g.h.i did xs ys":                "more than 8 parts",
		"a.b.c " + strings.Repeat("x", 24) + " did xs ys":  "not a field name",
		"a.b.c subject did x,s ys":                         "not a name for a set",
		"a.b.c subject did xs 1ys":                         "not a name for a set",
		"a.b.c subject did xs xs":                          "cannot be named xs",
		"a.b.c subject did follows ys":                     "cannot be named follows",
		"a.b.c subject did union ys":                       "a reserved word of expressions",
		"a.b.c subject did xs lists":                       "a reserved word of expressions",
		"a.b.c subject did like ys":                        "both named like",
		"app.bsky.graph.follow subject did xs ys":          "already indexed",
		"a.b.c subject did us vs\na.b.c subject did xs ys": "already indexed",
	} {
		_, err := kinds.Parse("# first\n" + line)
		want := fmt.Sprintf("line %d: ", 2+strings.Count(line, "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v, want %s… %s", line, err, want, reason)
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

// A store's kinds stay as they are: they may be configured again, new ones are added after them,
// and contradictions are errors.
func TestConfigure(t *testing.T) {
	all, more := parsed(t, someKinds), parsed(t, moreKinds)
	table, err := kinds.Configure(kinds.BuiltIn, all[1:2])
	if err != nil {
		t.Fatal(err)
	}
	again, err := kinds.Configure(table, all)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, nothing is new
		if again, err = kinds.Configure(again, more); err != nil {
			t.Fatal(err)
		}
	}
	if again, err = kinds.Configure(again, all); err != nil || again.Info(64).Records != "replies" { // it keeps its name
		t.Fatal(err, again)
	}
	all[1].Records = "replies"
	for source, number := range map[string]kinds.Kind{all[1].Source(): 64, all[0].Source(): 65, all[2].Source(): 66, more[0].Source(): kinds.FirstSelf, more[2].Source(): kinds.FirstMany} {
		if k := again.Info(number); k == nil || k.Source() != source {
			t.Errorf("%d is %+v, want %s", number, k, source)
		}
	}
	for what, change := range map[string]func(k *kinds.Info){
		"another set":   func(k *kinds.Info) { k.Reverse = "answerers" },
		"other records": func(k *kinds.Info) { k.Records = "answers" },
		"another name":  func(k *kinds.Info) { k.Name, k.Forward = "answered", "answered" },
		"another type":  func(k *kinds.Info) { k.To.Form = kinds.DID },
	} {
		k := all[1]
		change(&k)
		if _, err := kinds.Configure(again, []kinds.Info{k}); !errors.Is(err, kinds.ErrContradiction) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if again.Self(64) != kinds.FirstSelf || again.Collection("sh.tangled.graph.follow").HasMany() || !again.Collection("app.bsky.feed.post").HasMany() {
		t.Errorf("%+v", again.Configured())
	}
	other := all[1]
	other.To.Field = []string{"reply", "root", "uri"} // with the same names
	if _, err := kinds.Configure(again, []kinds.Info{other}); err == nil {
		t.Error("a set can have two meanings")
	}
	for what, change := range map[string]func(k *kinds.Info){
		"a built-in number":      func(k *kinds.Info) { k.Kind = 3 },
		"a number past the last": func(k *kinds.Info) { k.Kind = kinds.FirstConfigured + kinds.MaxConfigured },
		"another name":           func(k *kinds.Info) { k.Name = "x" },
		"no type":                func(k *kinds.Info) { k.To.Form = 99 },
		"a verb":                 func(k *kinds.Info) { k.Verb = "x" },
		"a built-in source":      func(k *kinds.Info) { k.Collection, k.To.Field = "app.bsky.graph.follow", []string{"subject"} },
	} {
		k := all[0]
		k.Kind = kinds.FirstConfigured
		change(&k)
		if _, err := kinds.TableOf([]kinds.Info{k}); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
