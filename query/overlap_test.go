package query_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
)

type overlaps struct {
	Type   string
	Totals []int
	Pairs  [][]int
}

// overlap has the sizes that query has: of each set, and of the intersection of each two.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 71, 5000)
	rng := rand.New(rand.NewPCG(71, 71))
	common := 0
	for round := range 25 {
		dids := round%2 == 0
		var texts []string
		for range 1 + rng.IntN(6) {
			expr, _ := w.expression(rng, dids, 1)
			texts = append(texts, strings.ReplaceAll(expr, "\n", ""))
		}
		if !dids {
			texts = append(texts, "by("+texts[0]+", members("+w.history.Accounts()[0]+","+never+"))")
		} else if round%4 == 0 {
			texts = append(texts, texts[0], "authors(likes("+w.history.Accounts()[0]+"))")
		}
		p := url.Values{"set": texts}
		if all := slices.Clone(texts); round%3 > 0 {
			p.Set("with", all[len(all)-1])
			p["set"] = all[:max(len(all)-1, 1)]
			texts = append(slices.Clone(p["set"]), p.Get("with"))
		}
		var got overlaps
		w.ask("overlap", p, &got)
		if len(got.Totals) != len(texts) || len(got.Pairs) != len(texts) || got.Type != map[bool]string{true: "did", false: "uri"}[dids] {
			t.Fatalf("%q: %+v", texts, got)
		}
		for i, x := range texts {
			if want := w.query(x).Total; got.Totals[i] != want {
				t.Errorf("%s: %d, want %d", x, got.Totals[i], want)
			}
			for j, y := range texts {
				if want := w.query("intersect(" + x + "," + y + ")").Total; got.Pairs[i][j] != want || len(got.Pairs[i]) != len(texts) {
					t.Errorf("%s and %s: %v, want %d at %d", x, y, got.Pairs[i], want, j)
				} else if i != j {
					common += want
				}
			}
		}
	}
	if common < 100 {
		t.Errorf("the pairs have only %d members in common", common)
	}
	a, b := w.history.Accounts()[0], w.history.Accounts()[1]
	many := strings.Repeat("set=follows("+a+")&", 21)
	w.says("overlap", 400, "parameter set occurs 0 times; it must occur 1 to 20 times")
	w.says("overlap?"+many, 400, "parameter set occurs 21 times; it must occur 1 to 20 times")
	w.says("overlap?set=follows("+a+")&set=follows("+b+"", 400, `set (number 2): at position 40: expected "," or ")" in follows(…`)
	w.says("overlap?set=follows("+a+"),follows("+b+")", 400, "set (number 1): at position 41: unexpected")
	w.says("overlap?set=follows("+a+")&set=likes("+b+")", 400, "the sets together: at position 48: union cannot combine a set of DIDs with a set of AT URIs")
	w.says("overlap?set=follows("+a+")&with=follows("+a+"),x", 400, "with: at position 41: unexpected")
	w.says("overlap?set=follows("+a+")&set=follows(@none.example.com)", 400, "set (number 2): at position 8: ")
	w.says("overlap?"+strings.Repeat("set=union("+strings.Repeat("follows("+a+"),", 6)+"follows("+a+"))&", 10), 400, "the expression has more than 64 sets")
}

// counts and rank refuse or count what authors(…) can have: a record has one author, and no more.
func TestAuthorsOfRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 72, 3000)
	shown, hidden := 0, 0
	for _, post := range append(w.posts(), "at://"+never+"/app.bsky.feed.post/3lzzzzzzzzz2z") {
		author, _, _ := strings.Cut(strings.TrimPrefix(post, "at://"), "/")
		want := []string{author}
		if w.model.Hidden[author] {
			want = nil
			hidden++
		}
		if a := w.query("authors(members(" + post + "))"); !slices.Equal(a.Members, want) || a.Total != len(want) {
			t.Errorf("the author of %s: %+v", post, a)
		}
		if a := w.query("by(members(" + post + "), members(" + author + "," + never + "))"); a.Total != len(want) {
			t.Errorf("%s by %s: %+v", post, author, a)
		}
		for _, set := range []string{"authors(members(" + post + "))", "sample(authors(members(" + post + ")), 3)"} {
			if in := w.contains(set, author, w.history.Accounts()[0]); in[0] != (len(want) > 0) || in[1] != slices.Contains(want, w.history.Accounts()[0]) {
				t.Errorf("%s contains %s: %v", set, author, in)
			}
		}
		if a := w.answer("rank", url.Values{"of": {"members(" + post + ")"}, "via": {"authors"}}); len(a.Items) != len(want) || len(want) > 0 && (a.Items[0].Member != author || a.Items[0].Count != 1) {
			t.Errorf("the ranking of the author of %s: %+v", post, a)
		}
		a := w.answer("counts", url.Values{"edge": {"authors", "likers"}, "subject": {post}})
		if got := a.Subjects[0].Totals[0]; got != len(want) {
			t.Errorf("%s has %d authors", post, got)
		}
		shown += len(want)
	}
	if shown < 20 || hidden < 3 {
		t.Errorf("%d authors are shown, %d hidden", shown, hidden)
	}
	of := "rank?of=likes(" + w.history.Accounts()[0] + ")&via=authors"
	for _, more := range []string{"by=share", "by=lift", "damp=0.5"} {
		name, _, _ := strings.Cut(more, "=0")
		w.says(of+"&"+more, 400, fmt.Sprintf("%s does not work with via=authors", name))
	}
	w.says("list?set=likes("+w.history.Accounts()[0]+")&order=size(authors)", 400, `NAME is "authors"; for a set of AT URIs it must be one of likers`)
	w.says("subscribe?set=authors(likes("+w.history.Accounts()[0]+"))", 400, "cannot be watched")
}
