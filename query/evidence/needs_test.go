package evidence_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
)

// The accounts, the post, the list and the labeler of these tests.
var names = strings.NewReplacer(
	"A", "did:web:a.example.com", "B", "did:web:b.example.com", "C", "did:web:c.example.com",
	"P", "at://did:web:p.example.com/app.bsky.feed.post/p", "L", "at://did:web:l.example.com/app.bsky.graph.list/l", "M", "did:web:m.example.com",
)

var words = language.NewVocabulary(kinds.BuiltIn)

func parse(t *testing.T, text string) *language.Expr {
	t.Helper()
	e, err := words.Parse(names.Replace(text), language.MaxExpr, time.Now())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// shown writes a part of an expression.
func shown(e *language.Expr, n *language.Node) string {
	var args []string
	for i := range n.Args {
		args = append(args, shown(e, &n.Args[i]))
	}
	name := [...]string{"", "", "listed", "lists", "members", "intersect", "union", "except", "atleast", "rank", "blend", "sample", "authors", "by"}[n.Op]
	switch {
	case n.Kind.IsLabel():
		name, args = "labeled", []string{e.LabelerOf(n)}
	case n.Op.IsSet():
		switch args = []string{e.Strings[n.Of].S}; n.Op {
		case language.OpForward:
			name = e.Info(n).Forward
		case language.OpReverse:
			name = e.Info(n).Reverse
		default:
		}
	}
	for _, l := range e.Strings[n.First:n.End] {
		if n.Op == language.OpMembers {
			args = append(args, l.S)
		}
	}
	s := name + "(" + strings.Join(args, ", ") + ")"
	for _, name := range []string{"A", "B", "C", "P", "L", "M"} {
		s = strings.ReplaceAll(s, names.Replace(name), name)
	}
	return s
}

// text writes needs.
func text(e *language.Expr, needs []evidence.Need) string {
	var all []string
	for _, n := range needs {
		s := kinds.BuiltIn.Info(n.Kind).Name
		switch {
		case n.Own != nil:
			s += " of " + shown(e, n.Own)
		case n.Labels != nil:
			s = "labels of " + shown(e, n.Labels)
		case n.Everybody != nil:
			s += " of everybody in " + shown(e, n.Everybody)
		default:
			var sets []string
			for _, m := range n.Members {
				sets = append(sets, shown(e, m))
			}
			s += " of members of " + strings.Join(sets, " and ")
		}
		if !n.Window.All() {
			s += " since " + time.UnixMicro(n.Window.From).UTC().Format(time.DateOnly)
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

// An expression depends on what the members of its sets depend on, and of a set that depends on everybody, only on those
// members that other sets leave.
func TestNeeds(t *testing.T) {
	for expr, want := range map[string]string{
		// One set.
		"follows(A)":                                  "follow of follows(A)",
		"follows(A, since=2026-11-01)":                "follow of follows(A) since 2026-11-01",
		"likers(P)":                                   "like of everybody in likers(P)",
		"likers(P, since=2026-11-01)":                 "like of everybody in likers(P) since 2026-11-01",
		"listed(L)":                                   "listitem of listed(L)",
		"lists(A)":                                    "listitem_list of everybody in lists(A)",
		"labeled(M, spam)":                            "labels of labeled(M)",
		"labeled(M, spam, since=2026-11-01)":          "labels of labeled(M) since 2026-11-01",
		"members(A, B)":                               "",
		"union(follows(A), likers(P))":                "follow of follows(A); like of everybody in likers(P)",
		"atleast(2, follows(A), likers(P))":           "follow of follows(A); like of everybody in likers(P)",
		"sample(intersect(follows(A), likers(P)), 5)": "follow of follows(A); like of members of follows(A)",

		// The authors of records are known with the records; of accounts, it matters whether they have these authors.
		"authors(likes(A))":                               "like of likes(A)",
		"rank(of=likes(A), via=authors, top=3)":           "like of likes(A)",
		"by(likes(A), followers(B))":                      "like of likes(A); follow of members of authors(likes(A))",
		"by(lists(A), followers(B))":                      "listitem_list of everybody in lists(A); follow of everybody in followers(B)",
		"except(likes(A), by(likes(A), followers(B)))":    "like of likes(A); like of likes(A); follow of members of authors(likes(A)) and authors(likes(A))",
		"intersect(likes(A), by(lists(B), followers(B)))": "like of likes(A); listitem_list of members of likes(A); follow of members of authors(likes(A))",
		"intersect(authors(likes(A)), followers(B))":      "like of likes(A); follow of members of authors(likes(A))",
		"intersect(authors(lists(A)), followers(B))":      "listitem_list of everybody in lists(A); follow of everybody in followers(B)",
		"intersect(follows(A), authors(lists(B)))":        "follow of follows(A); listitem_list of everybody in lists(B)",

		// Of an intersection, the sets that depend on everybody matter within the others.
		"intersect(follows(A), likers(P))":                                         "follow of follows(A); like of members of follows(A)",
		"intersect(likers(P), follows(A))":                                         "like of members of follows(A); follow of follows(A)",
		"intersect(likers(P, since=2026-11-01), members(A))":                       "like of members of members(A) since 2026-11-01",
		"intersect(follows(A), follows(B), likers(P))":                             "follow of follows(A); follow of follows(B); like of members of follows(A) and follows(B)",
		"intersect(likers(P), reposters(P))":                                       "like of everybody in likers(P); repost of everybody in reposters(P)",
		"intersect(likers(P), labeled(M, spam))":                                   "like of members of labeled(M); labels of labeled(M)",
		"intersect(lists(A), likes(B))":                                            "listitem_list of members of likes(B); like of likes(B)",
		"intersect(follows(A), union(likers(P), followers(B)))":                    "follow of follows(A); like of members of follows(A); follow of members of follows(A)",
		"intersect(follows(A), atleast(1, likers(P), follows(B)))":                 "follow of follows(A); like of members of follows(A); follow of follows(B)",
		"intersect(follows(A), except(followers(A), likers(P)))":                   "follow of follows(A); follow of members of follows(A); like of members of follows(A)",
		"intersect(follows(A), sample(likers(P), 5))":                              "follow of follows(A); like of everybody in likers(P)",
		"intersect(union(likers(P), follows(A)), union(followers(B), follows(B)))": "like of everybody in likers(P); follow of follows(A); follow of everybody in followers(B); follow of follows(B)",

		// A set is known if some of those that it intersects are. Those that depend on no members are read whole, and the others within them: no set restricts its own members.
		"intersect(intersect(follows(A), likers(P)), followers(B))":                        "follow of follows(A); like of members of follows(A); follow of members of intersect(follows(A), likers(P))",
		"intersect(follows(C), intersect(follows(A), likers(P)))":                          "follow of follows(C); follow of follows(A); like of members of follows(C) and follows(A)",
		"intersect(intersect(follows(A), likers(P)), intersect(follows(B), followers(C)))": "follow of follows(A); like of members of follows(A); follow of follows(B); follow of members of follows(B)",
		"intersect(follows(C), union(follows(A), intersect(likers(P), followers(B))))":     "follow of follows(C); follow of follows(A); like of members of follows(C); follow of members of follows(C)",

		// An exception matters only within the first set.
		"except(follows(A), likers(P))":                                               "follow of follows(A); like of members of follows(A)",
		"except(follows(A), followers(B), likers(P))":                                 "follow of follows(A); follow of members of follows(A); like of members of follows(A)",
		"except(likers(P), follows(A))":                                               "like of everybody in likers(P); follow of follows(A)",
		"except(likers(P), followers(B))":                                             "like of everybody in likers(P); follow of everybody in followers(B)",
		"intersect(likers(P), except(follows(A), followers(B)))":                      "like of members of except(follows(A), followers(B)); follow of follows(A); follow of members of follows(A)",
		"intersect(follows(C), except(likers(P), except(followers(A), blockers(B))))": "follow of follows(C); like of members of follows(C); follow of members of follows(C); block of members of follows(C)",

		// A ranking by the members' records depends on these; by the results', on everybody, or on those that are left.
		"rank(of=follows(A), via=likes)":                                   "follow of follows(A); like of members of follows(A)",
		"rank(of=follows(A), via=likes, top=5, min=2, since=2026-11-01)":   "follow of follows(A); like of members of follows(A) since 2026-11-01",
		"rank(of=lists(A), via=listed)":                                    "listitem_list of everybody in lists(A); listitem of everybody in rank(lists(A))",
		"rank(of=members(L), via=listed)":                                  "listitem of members of members(L)",
		"rank(of=likers(P), via=likes)":                                    "like of everybody in likers(P); like of everybody in rank(likers(P))",
		"rank(of=follows(A), via=followers)":                               "follow of follows(A); follow of everybody in rank(follows(A))",
		"rank(of=follows(A), via=lists)":                                   "follow of follows(A); listitem_list of everybody in rank(follows(A))",
		"rank(of=follows(A), via=likes, except=likes(A))":                  "follow of follows(A); like of members of follows(A); like of likes(A)",
		"rank(of=follows(A), via=follows, except=likers(P))":               "follow of follows(A); follow of members of follows(A); like of everybody in likers(P)",
		"rank(of=follows(A), via=likes, damp=1, top=5)":                    "follow of follows(A); like of members of follows(A); like of everybody in rank(follows(A))",
		"rank(of=follows(A), via=likes, damp=0, top=5)":                    "follow of follows(A); like of members of follows(A)",
		"rank(of=follows(A), via=likes, damp=1)":                           "follow of follows(A); like of members of follows(A)",
		"rank(of=follows(A), via=likes, decay=1d, top=5)":                  "follow of follows(A); like of members of follows(A)",
		"rank(of=members(P), via=likers, damp=1, top=5, since=2026-11-01)": "like of everybody in rank(members(P)) since 2026-11-01; like of everybody in rank(members(P))",
		"blend(2, rank(of=follows(A), via=follows), 1, rank(of=follows(B), via=followers, damp=1), except=likers(P))": "follow of follows(A); follow of members of follows(A); follow of follows(B); follow of everybody in rank(follows(B)); like of everybody in likers(P)",
		"intersect(follows(A), blend(2, rank(of=follows(B), via=followers, damp=1), except=likers(P)))":               "follow of follows(A); follow of follows(B); follow of members of follows(A); like of members of follows(A)",
		"intersect(follows(A), blend(2, rank(of=follows(B), via=followers), top=5, except=likers(P)))":                "follow of follows(A); follow of follows(B); follow of everybody in rank(follows(B)); like of everybody in likers(P)",
		"intersect(follows(A), blend(2, blend(1, rank(of=follows(B), via=follows, damp=1)), top=5))":                  "follow of follows(A); follow of follows(B); follow of members of follows(B); follow of everybody in rank(follows(B))",
		"intersect(follows(B), rank(of=follows(A), via=followers))":                                                   "follow of follows(B); follow of follows(A); follow of members of follows(B)",
		"intersect(follows(B), rank(of=follows(A), via=followers, top=5))":                                            "follow of follows(B); follow of follows(A); follow of everybody in rank(follows(A))",
		"intersect(follows(B), rank(of=follows(A), via=follows, except=likers(P)))":                                   "follow of follows(B); follow of follows(A); follow of members of follows(A); like of members of follows(B)",
		"intersect(follows(B), rank(of=follows(A), via=follows, top=9, except=likers(P)))":                            "follow of follows(B); follow of follows(A); follow of members of follows(A); like of everybody in likers(P)",
		"rank(of=rank(of=follows(A), via=likes, top=9), via=likers, weigh=score, top=5)":                              "follow of follows(A); like of members of follows(A); like of everybody in rank(rank(follows(A)))",
		"intersect(likers(P), rank(of=follows(A), via=follows))":                                                      "like of members of rank(follows(A)); follow of follows(A); follow of members of follows(A)",
		"intersect(likers(P), rank(of=follows(A), via=follows, damp=1, top=5))":                                       "like of everybody in likers(P); follow of follows(A); follow of members of follows(A); follow of everybody in rank(follows(A))",
	} {
		e := parse(t, expr)
		if got := text(e, evidence.Of(&e.Root)); got != want {
			t.Errorf("%s depends on\n%s, want\n%s", expr, got, want)
		}
	}
}

// The method rank shows the first results, so with damp their own sets matter.
func TestNeedsOfRankings(t *testing.T) {
	for _, c := range []struct {
		of, via string
		damp    float64
		want    string
	}{
		{"follows(A)", "likes", 0, "follow of follows(A); like of members of follows(A) since 2026-11-01"},
		{"follows(A)", "likes", 1, "follow of follows(A); like of members of follows(A) since 2026-11-01; like of everybody in rank(follows(A))"},
		{"likers(P)", "follows", 0, "like of everybody in likers(P); follow of everybody in rank(likers(P)) since 2026-11-01"},
		{"follows(A)", "followers", 0.5, "follow of follows(A); follow of everybody in rank(follows(A)) since 2026-11-01; follow of everybody in rank(follows(A))"},
	} {
		e, err := words.Ranking(map[string][]string{"of": {names.Replace(c.of)}, "via": {c.via}, "since": {"2026-11-01"}, "damp": {fmt.Sprint(c.damp)}}, language.MaxExpr, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := text(e, evidence.Of(&e.Root)); got != c.want {
			t.Errorf("%s via %s, damp %v: %s, want %s", c.of, c.via, c.damp, got, c.want)
		}
	}
}

// Whether a set depends on known accounts only decides whether it restricts others.
func TestKnown(t *testing.T) {
	for expr, want := range map[string]bool{
		"follows(A)": true, "followers(A)": false, "members(A)": true, "labeled(M, spam)": true, "lists(A)": false, "listed(L)": true,
		"union(follows(A), followers(A))": false, "union(follows(A), members(B))": true,
		"intersect(follows(A), followers(A))": true, "intersect(followers(A), followers(B))": false, "intersect(follows(A), sample(followers(A), 3))": false,
		"except(follows(A), followers(A))": true, "except(followers(A), follows(A))": false,
		"atleast(1, follows(A), followers(A))": false, "sample(follows(A), 3)": true,
		"rank(of=follows(A), via=likes)": true, "rank(of=likers(P), via=likes)": false, "rank(of=follows(A), via=followers)": false, "rank(of=follows(A), via=follows, except=followers(A))": false,
		"rank(of=follows(A), via=likes, damp=1, top=3)": false, "rank(of=follows(A), via=likes, damp=1)": true,
		"intersect(follows(B), blend(1, rank(of=follows(A), via=followers)))": true, "intersect(follows(B), blend(1, rank(of=follows(A), via=followers), top=3))": false,
		"intersect(follows(B), rank(of=follows(A), via=followers))": true, "intersect(follows(B), rank(of=follows(A), via=followers, top=3))": false,
		"intersect(follows(B), rank(of=likers(P), via=followers))": false,
	} {
		e := parse(t, expr)
		if got := evidence.Known(&e.Root); got != want {
			t.Errorf("%s: %v", expr, got)
		}
	}
}
