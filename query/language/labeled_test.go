package language

import (
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// The members of labeled(…) are what the sets around it have.
func TestLabeledTypes(t *testing.T) {
	const a, l, post = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "did:plc:llllllllllllllllllllllll", "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3k"
	e := func(s string) string { return strings.NewReplacer("A", a, "L", l, "P", post).Replace(s) }
	for source, want := range map[string][]kinds.Kind{
		"labeled(L, spam)":                                            {kinds.LabeledAccount},
		"labeled(L, spam, on=records)":                                {kinds.LabeledRecord},
		"labeled(L, spam, since=7d, on=accounts, until=1d)":           {kinds.LabeledAccount},
		`labeled(L, "with space, and (comma)")`:                       {kinds.LabeledAccount},
		"except(likers(P), labeled(L, spam))":                         {kinds.LabeledAccount},
		"except(likes(A), labeled(L, porn))":                          {kinds.LabeledRecord},
		"intersect(labeled(L, porn), likes(A))":                       {kinds.LabeledRecord},
		"intersect(labeled(L, x), labeled(L, y), likes(A))":           {kinds.LabeledRecord, kinds.LabeledRecord},
		"except(likes(A), union(labeled(L, x), labeled(L, y)))":       {kinds.LabeledRecord, kinds.LabeledRecord},
		"intersect(union(labeled(L, x), labeled(L, y)), likes(A))":    {kinds.LabeledRecord, kinds.LabeledRecord},
		"intersect(sample(labeled(L, x), 10), likes(A))":              {kinds.LabeledRecord},
		"rank(of=labeled(L, x), via=likers)":                          {kinds.LabeledRecord},
		"rank(of=labeled(L, x), via=likes)":                           {kinds.LabeledAccount},
		"rank(of=follows(A), via=likes, except=labeled(L, x))":        {kinds.LabeledRecord},
		"rank(of=follows(A), via=follows, except=labeled(L, x))":      {kinds.LabeledAccount},
		"atleast(2, labeled(L, x), labeled(L, y), followers(A))":      {kinds.LabeledAccount, kinds.LabeledAccount},
		"atleast(1, labeled(L, x), labeled(L, y, on=records))":        {kinds.LabeledRecord, kinds.LabeledRecord},
		"except(labeled(@mod.example.com, x), labeled(L, !hide))":     {kinds.LabeledAccount, kinds.LabeledAccount},
		"union(members(P), except(labeled(L, x), labeled(L, !hide)))": {kinds.LabeledRecord, kinds.LabeledRecord},
	} {
		x, err := builtIn.Parse(e(source), MaxExpr, noon)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var got []kinds.Kind
		for n := range x.Root.All() {
			if n.Op.IsSet() && n.Kind.IsLabel() {
				if got = append(got, n.Kind); (n.Kind == kinds.LabeledRecord) != (n.Is == dict.URI) {
					t.Errorf("%s: the members of kind %d are in namespace %s", source, n.Kind, n.Is)
				}
			}
			for i := range n.Args {
				if n.Op != OpRank && n.Args[i].Is != n.Is {
					t.Errorf("%s: an operand of %s in a set of %s", source, n.Args[i].Is, n.Is)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
	for source, want := range map[string]string{
		"labeled(L)":                                     "labeled takes a labeler and a value",
		"labeled(P, x)":                                  "neither a DID nor a handle",
		"labeled($viewer, x)":                            "neither a DID nor a handle",
		"labeled(L, x, on=records, on=accounts)":         "given twice",
		"labeled(L, x, on=posts)":                        "accounts or records",
		"labeled(L, x, spam)":                            "since",
		"labeled(did:plc:short, x)":                      "24 characters",
		"labeled(L, " + strings.Repeat("x", 129) + ")":   "128 bytes",
		`labeled(L, "")`:                                 "128 bytes",
		`labeled(L, "a` + "\x00" + `")`:                  "",
		"except(likes(A), labeled(L, x, on=accounts))":   "cannot combine",
		"union(labeled(L, x, on=records), followers(A))": "cannot combine",
		"intersect(likes(A), followers(A))":              "cannot combine",
	} {
		if _, err := builtIn.Parse(e(source), MaxExpr, noon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", source, err, want)
		}
	}
}

// A labeler that is given as a handle is resolved with its value.
func TestLabelerHandle(t *testing.T) {
	e := parsed(t, "labeled(@mod.example.com, spam)")
	e.Strings[0].Resolve("did:web:mod.example.com")
	if got := e.Strings[0].S; got != "did:web:mod.example.com spam" || e.LabelerOf(&e.Root) != "did:web:mod.example.com" {
		t.Errorf("%q", got)
	}
}
