package query_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// counts has the sizes that the sets have in the model, for subjects that are given twice, are
// hidden, or were never seen, and for sets whose members fill several containers.
func TestCounts(t *testing.T) {
	t.Parallel()
	for seed, l := range map[uint64]write.Limits{21: {}, 22: {Row: 5, Chunk: 3}} {
		w := newWorldOf(t, oracle.NewHistory(seed, 40), l, 5000)
		rng := rand.New(rand.NewPCG(seed, 3))
		accounts := append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa")
		some := map[string]uint64{}
		for range 60 {
			w.grow(20)
			v := w.model.Views()
			sizes := map[string]func(x string) int{
				"lists": func(x string) (n int) {
					lists := map[string]bool{}
					for _, l := range w.model.Listings() {
						if l.Member == x {
							lists[l.List] = true
						}
					}
					return len(lists)
				},
				"listed": func(x string) int {
					members := map[string]bool{}
					for _, l := range w.model.Listings() {
						if l.List == x && !w.model.Hidden[l.Member] {
							members[l.Member] = true
						}
					}
					return len(members)
				},
			}
			for name, edge := range map[string][2]string{"follows": {"follow", "f"}, "followers": {"follow"}, "likes": {"like", "f"}, "likers": {"like"}, "reposts": {"repost", "f"}, "reposters": {"repost"}, "blocks": {"block", "f"}, "blockers": {"block"}, "listblocks": {"listblock", "f"}, "listblockers": {"listblock"}} {
				sets := v.Reverse[edge[0]]
				if edge[1] != "" {
					sets = v.Forward[edge[0]]
				}
				sizes[name] = func(x string) int { return len(sets[x]) }
			}
			names, subjects := []string{"follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists"}, accounts
			if rng.IntN(2) == 0 {
				names, subjects = []string{"likers", "reposters", "listblockers", "listed"}, []string{"at://did:plc:neverseenaaaaaaaaaaaaaaa/app.bsky.feed.post/x"}
				for _, k := range []string{"like", "repost", "listblock"} {
					subjects = slices.AppendSeq(subjects, maps.Keys(v.Reverse[k]))
				}
				for _, l := range w.model.Listings() {
					subjects = append(subjects, l.List)
				}
				subjects = slices.DeleteFunc(subjects, func(uri string) bool {
					return language.Literal{S: uri, Is: dict.URI}.Unusable() != ""
				})
			}
			p := url.Values{}
			for range 1 + rng.IntN(8) {
				p.Add("edge", names[rng.IntN(len(names))])
			}
			for range 1 + rng.IntN(100) {
				p.Add("subject", subjects[rng.IntN(len(subjects))])
			}
			var got struct {
				Subjects []struct {
					Subject string
					Totals  []int
				}
			}
			w.ask("blue.skein.graph.counts", url.Values{"edge": p["edge"], "subject": quoted(rng, p["subject"])}, &got)
			if len(got.Subjects) != len(p["subject"]) {
				t.Fatalf("%v: %d subjects", p, len(got.Subjects))
			}
			for i, g := range got.Subjects {
				if g.Subject != p["subject"][i] || len(g.Totals) != len(p["edge"]) {
					t.Fatalf("%v: %+v", p, g)
				}
				for n, edge := range p["edge"] {
					if want := sizes[edge](g.Subject); g.Totals[n] != want {
						t.Fatalf("%s of %s: %d, want %d", edge, g.Subject, g.Totals[n], want)
					}
					some[edge] += uint64(g.Totals[n])
				}
			}
		}
		for _, name := range []string{"follows", "followers", "likes", "likers", "reposts", "reposters", "blocks", "blockers", "listblocks", "listblockers", "lists", "listed"} {
			if some[name] == 0 {
				t.Errorf("%+v: no %s were counted", l, name)
			}
		}
	}
}

// A mistake in counts is an error that names the parameter.
func TestMistakesInCounts(t *testing.T) {
	w := newWorld(t, 23, 50)
	const d, u = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.post/x"
	for query, want := range map[string]string{
		"":                                    "edge\\\" is missing",
		"subject=" + d:                        "edge\\\" is missing",
		"edge=followers":                      "subject\\\" is missing",
		"edge=follow&subject=" + d:            `parameter edge is \"follow\"; it must be one of follows, followers`,
		"edge=followed_by&subject=" + d:       "; did you mean followers?",
		"edge=like&subject=" + u:              "; did you mean likes?",
		"edge=members&subject=" + d:           `parameter edge is \"members\"`,
		"edge=followers&subject=" + u:         "is not an account",
		"edge=likers&subject=" + d:            "is not an AT URI",
		"edge=likers&edge=likes&subject=" + u: "cannot be in one call, because likers takes an AT URI and likes takes an account",
		strings.Repeat("edge=likes&", 9) + "subject=" + d: "parameter edge occurs 9 times; at most 8",
		"edge=likes" + strings.Repeat("&subject="+d, 101): "parameter subject occurs 101 times; at most 100",
	} {
		status, body, _ := w.get("/xrpc/blue.skein.graph.counts?" + query)
		if status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", fmt.Sprintf("%.80s", query), status, body, want)
		}
	}
}
