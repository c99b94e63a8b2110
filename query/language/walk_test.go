package language

import (
	"errors"
	"strings"
	"testing"
)

// An operator without what it needs, or with what it does not take, is an error that says so.
func TestMistakesInOperators(t *testing.T) {
	const leaf, of = "follows(did:web:a.example.com)", "of=follows(did:web:a.example.com)"
	for text, want := range map[string]string{
		"rank()":           "expected name=value in rank(…",
		"rank(" + of:       `expected "," or ")" in rank(…`,
		"rank(" + of + ")": `via is ""; for a set of DIDs it must be one of follows`,
		"rank(via=likes)":  "rank(…) needs of=SET and via=NAME",
		"rank(follows(did:web:a.example.com),via=likes)":                         "expected name=value in rank(…",
		"rank(" + of + "," + of + ",via=likes)":                                  "of is given twice",
		"rank(" + of + ",via=likers)":                                            `via is "likers"; for a set of DIDs it must be one of follows, followers, likes`,
		"rank(of=likes(did:web:a.example.com),via=likes)":                        `via is "likes"; for a set of AT URIs it must be one of likers, reposters, listblockers, listed, authors`,
		"rank(" + of + ",via=authors)":                                           `via is "authors"; for a set of DIDs it must be one of`,
		"rank(of=likes(did:web:a.b),via=authors,damp=0.5)":                       "damp does not work with via=authors",
		"authors(" + leaf + ")":                                                  "authors takes a set of AT URIs here; this one is a set of DIDs",
		"authors(likes(did:web:a.b),likes(did:web:c.d))":                         "authors takes a set of records, by a set of records",
		"authors(likes(did:web:a.b),since=x)":                                    "is not a time",
		"authors(likes(did:web:a.b)":                                             `expected "," or ")" in authors(…`,
		"authors()":                                                              "expected a set",
		"by(likes(did:web:a.b))":                                                 "authors takes a set of records, by a set of records and one of accounts",
		"by(likes(did:web:a.b)," + leaf + "," + leaf + ")":                       "authors takes a set of records, by a set of records and one of accounts",
		"by(likes(did:web:a.b),likes(did:web:a.b))":                              "by takes a set of DIDs here; this one is a set of AT URIs",
		"by(" + leaf + ",likes(did:web:a.b))":                                    "by takes a set of AT URIs here; this one is a set of DIDs",
		"by(likes(did:web:a.b),members(at://did:web:a.b/app.bsky.graph.list/x))": "did you mean listed?",
		"union(authors(likes(did:web:a.b)),likes(did:web:a.b))":                  "cannot combine a set of DIDs with a set of AT URIs",
		"rank(" + of + ",via=likes,top=0)":                                       `top is "0"; it must be a number from 1 to 10000`,
		"rank(" + of + ",via=likes,top=10001)":                                   `top is "10001"`,
		"rank(" + of + ",via=likes,top=1e3)":                                     `top is "1e3"`,
		"rank(" + of + ",via=likes,min=)":                                        "expected a value after min=",
		"rank(" + of + ",via=likes,min=99999999999999999999999)":                 "it must be a number from 1 to 1073741824",
		"rank(" + of + ",via=likes,by=share)":                                    `rank(…) as a set does not take "by"`,
		"blend()":                                                                "the weight of a ranking in blend is \"\"", "blend(1)": "blend takes weights and rankings", "blend(1," + leaf + ")": "this is not a ranking", "blend(rank(" + of + ",via=likes))": "the weight of a ranking in blend is \"rank\"",
		"blend(0.0009,rank(" + of + ",via=likes))": "it must be a number from 0.001 to 1000", "blend(1000.1,rank(" + of + ",via=likes))": "it must be a number from 0.001 to 1000", "blend(NaN,rank(" + of + ",via=likes))": "it must be a number",
		"blend(1,rank(" + of + ",via=likes),2,rank(" + of + ",via=follows))": "blend cannot combine a ranking of AT URIs with a ranking of DIDs", "blend(1,rank(" + of + ",via=likes),top=3,2)": "blend takes weights and rankings",
		"blend(1,rank(" + of + ",via=likes),since=1d)": "the weight of a ranking in blend is \"since=1d\"", "blend(1,rank(" + of + ",via=likes),except=" + leaf + ")": "except must be a set of AT URIs", "blend(1,rank(" + of + ",via=likes),min=2,via=x)": "blend(…) does not take \"via\"; it takes except, min, top",
		"rank(" + of + ",via=likes,weigh=score)":                      "of=rank(…, top=300)",
		"rank(of=rank(" + of + ",via=follows),via=likes,weigh=score)": "of=rank(…, top=300)",
		"rank(" + of + ",via=likes,weigh=1)":                          `weigh is "1"; it must be score`,
		"rank(" + of + ",via=likes,damp=)":                            "expected a value after damp=",
		"rank(" + of + ",via=likes,damp=2)":                           `damp is "2"; it must be a number from 0 to 1`,
		"rank(" + of + ",via=lists,damp=0.5)":                         "damp does not work with via=lists",
		"rank(" + of + ",via=likes,decay=1ms)":                        "decay is \"1ms\"; it must be a half-life from one second to a hundred years",
		"rank(" + of + ",via=likes,except=follows(did:web:a.b))":      "except must be a set of AT URIs, like the results; this one is a set of DIDs",
		"rank(" + of + ",via=likes,since=x)":                          "is not a time",
		"rank(" + of + ",via=likes,since=1h,until=2h)":                "must be earlier than until",
		"rank(" + of + ",via=likes,exact=yes)":                        `exact is "yes"; it must be true or false`,
		"sample()":                                                    "expected a set",
		"sample(" + leaf + ")":                                        "sample takes a set and a number",
		"sample(5," + leaf + ")":                                      `"5" is not a set`,
		"sample(" + leaf + ",0)":                                      "must be a number from 1 to 100000",
		"sample(" + leaf + ",100001)":                                 "must be a number from 1 to 100000",
		"sample(" + leaf + ",)":                                       `the number of members is ""`,
		"sample(" + leaf + ",5,2)":                                    "sample takes a set and a number",
		"sample(" + leaf + ",5,seed=x)":                               `seed is "x"`,
		"sample(" + leaf + ",5,seed=-1)":                              `seed is "-1"`,
		"sample(" + leaf + ",5,seed=1,seed=2)":                        "seed is given twice",
		"sample(" + leaf + ",5":                                       `expected "," or ")" in sample(…`,
		"atleast()":                                                   `the number of sets is ""`,
		"atleast(" + leaf + ")":                                       `the number of sets is "follows"`,
		"atleast(0," + leaf + ")":                                     "it must be a number from 1 to 64",
		"atleast(65," + leaf + ")":                                    "it must be a number from 1 to 64",
		"atleast(2)":                                                  "atleast takes a number and sets",
		"atleast(2," + leaf + ")":                                     "atleast(2, …) needs at least 2 sets, and has 1",
		"atleast(1,":                                                  "expected a set",
		"atleast(1," + leaf:                                           `expected "," or ")" in atleast(…`,
		"atleast(1," + leaf + ",likes(did:web:a.example.com))":        "cannot combine a set of DIDs with a set of AT URIs",
		"union(" + strings.Repeat("rank("+of+",via=follows),", 8) + "rank(" + of + ",via=follows))": "more than 8 rank(…)",
	} {
		_, err := builtIn.Parse(text, MaxExpr, noon)
		if e, ok := errors.AsType[*SyntaxError](err); !ok || !strings.Contains(e.What, want) || e.Offset < 0 || e.Offset > len(text) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
