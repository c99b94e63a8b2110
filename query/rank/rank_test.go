package rank

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

var (
	words = language.NewVocabulary(kinds.BuiltIn)
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

// vias returns the names of the built-in sets that a ranking can follow.
func vias() (names []string) {
	for _, from := range dict.Namespaces {
		for _, v := range words.Vias(from) {
			names = append(names, v.Name)
		}
	}
	return names
}

func query(p url.Values) *xrpc.Query {
	return &xrpc.Query{NSID: NSID, Values: p, Words: words, MaxExpr: language.MaxExpr, Resolve: func([]language.Literal, func(int) string) error { return nil }}
}

// reads returns the ranking of some parameters, which must have none that is wrong.
func reads(t *testing.T, p url.Values) Ranking {
	t.Helper()
	r, err := Read(query(p), noon)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return r
}

// evaluated calls fn with the results of a ranking in a state of the store.
func evaluated(t *testing.T, g *oracle.Graph, r Ranking, fn func(st *Standing, late uint64) error) error {
	return g.Store.View(t.Context(), func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(t.Context(), sn, r.Expr, (*xrpc.Work)(nil))
		if err != nil {
			return err
		}
		late := r.Begin(v, nil)
		st, err := Rank(v, nil, r)
		if err != nil {
			return err
		}
		return fn(st, late)
	})
}

// Each parameter has its default, its bounds, and an error that names it.
func TestReadRankings(t *testing.T) {
	const a = "follows(did:web:a.example.com)"
	base := url.Values{"of": {a}, "via": {"likes"}}
	with := func(more ...string) url.Values {
		p := maps.Clone(base)
		for i := 0; i < len(more); i += 2 {
			p.Set(more[i], more[i+1])
		}
		return p
	}
	r, err := Read(query(base), noon)
	if err != nil || r.By != language.ByCount || r.Min != 1 || r.Limit != 100 || len(r.Expr.Root.Args) > 1 || !r.Expr.Root.Window.All() || !r.Subjects.All() || r.Via.Op != language.OpForward || r.Via.Is != dict.URI || r.Expr.HasAge {
		t.Errorf("%+v, %v", r, err)
	}
	for by, least := range map[string]uint32{language.ByCount: 1, language.ByShare: 5, language.ByLift: 5} {
		if r, err := Read(query(with("by", by)), noon); err != nil || r.Min != least || r.By != by {
			t.Errorf("%s: %+v, %v", by, r, err)
		}
		if r, err := Read(query(with("by", by, "min", "1073741824")), noon); err != nil || r.Min != 1<<30 {
			t.Errorf("%s: %+v, %v", by, r, err)
		}
	}
	for _, c := range []struct {
		p    url.Values
		says string
	}{
		{nil, "rank(…) needs of=SET and via=NAME"},
		{url.Values{"of": {a}}, `via is ""; for a set of DIDs it must be one of follows, followers, likes, reposts, blocks, blockers, listblocks, lists`},
		{with("of", ""), "of: at position 0: expected a set"},
		{with("of", "likes(did:web:a.example.com)"), `via is "likes"; for a set of AT URIs it must be one of likers, reposters, listblockers, listed`},
		{with("via", "lists", "by", "share"), "by=share does not work with via=lists"},
		{with("set", "rank(of="+a+",via=likes)"), "parameter of does not go together with set"},
		{url.Values{"set": {a}}, "set: at position 0: expected a ranking: rank(…) or blend(…)"},
		{url.Values{"set": {"rank(of=" + a + ",via=follows,subjectsSince=1d)"}}, "set: at position 65: subjectsSince works only"},
		{url.Values{"set": {"rank(of=rank(of=" + a + ",via=follows,by=lift),via=likes)"}}, `rank(…) as a set does not take "by"`},
		{with("via", strings.Repeat("x", 9000)), "via is"},
		{with("except", a), "except must be a set of AT URIs, like the results; this one is a set of DIDs"},
		{with("except", ""), "except: at position 0"},
		{with("via", "following"), "blockers, listblocks, lists; did you mean follows?"},
		{with("of", "members(at://a.example.com/app.bsky.graph.list/k)"), `via=likes: "members" of a list is the list itself, not the accounts on it; did you mean listed?`},
		{with("via", "follows", "except", "members(at://a.example.com/app.bsky.graph.list/k)"), `"members" of a list is the list itself`},
		{with("via", "follows", "except", "likes(did:web:a.example.com)"), "except must be a set of DIDs, like the results; this one is a set of AT URIs"},
		{with("via", "likes,min=2"), `via: at position 5: unexpected ",min=2" after the end`},
		{with("of", a+",min=2"), `of: at position 30: unexpected ",min=2" after the end`},
		{with("of", a+"),x", "except", "(likes(did:web:a.example.com)"), `of: at position 30: unexpected "),x" after the end`},
		{with("of", "rank(of="+a+",via=follows", "except", "likes(did:web:a.example.com))"), `of: at position 50: expected "," or ")" in rank(…`},
		{with("by", ""), "by: at position 0: expected a value"},
		{with("by", "Count"), `by is "Count"; it must be one of count, share, lift, score`},
		{with("weigh", "score"), "weigh=score works only if of= is a ranking with top, such as of=rank(…, top=300)"},
		{with("of", "rank(of="+a+",via=follows)", "weigh", "score"), "of=rank(…, top=300)"},
		{with("weigh", ""), "weigh: at position 0: expected a value after weigh="},
		{with("damp", ""), "damp: at position 0: expected a value after damp="},
		{with("damp", "1.01"), `damp is "1.01"; it must be a number from 0 to 1`},
		{with("damp", "-0.1"), "damp is"},
		{with("damp", "NaN"), "damp is"},
		{with("damp", "0.50000000000000000000001"), "damp is"},
		{with("decay", ""), "decay: at position 0: expected a value after decay="},
		{with("decay", "0s"), "half-life from one second to a hundred years"},
		{with("decay", "999ms"), "half-life from one second to a hundred years"},
		{with("decay", "2026-11-01"), "half-life from one second to a hundred years"},
		{with("decay", "6h", "by", "share"), "by=share does not work with weigh, damp or decay"},
		{with("damp", "0.5", "by", "count"), "by=count does not work with weigh, damp or decay"},
		{with("min", "0"), "from 1 to 1073741824"},
		{with("min", "1073741825"), "from 1 to 1073741824"},
		{with("limit", "0"), "from 1 to 1000"},
		{with("limit", "1001"), "from 1 to 1000"},
		{with("since", ""), "since: at position 0: expected a value after since="},
		{with("until", "x"), `until: "x" is not a time`},
		{with("since", "1h", "until", "2h"), "since (1h) must be earlier than until (2h)"},
		{with("subjectsSince", ""), "subjectsSince: at position 0: expected a value"},
		{with("subjectsSince", "x"), `subjectsSince: "x" is not a time`},
		{with("via", "follows", "subjectsSince", "1d"), "subjectsSince works only for results that are AT URIs; these are DIDs, which have no time"},
	} {
		_, err := Read(query(c.p), noon)
		if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Status != 400 || !strings.Contains(e.Message, c.says) || len(e.Message) > 400 {
			t.Errorf("%v: %v, want %q", c.p, err, c.says)
		}
	}
	for _, c := range []struct {
		p   url.Values
		age bool
	}{
		{with("since", "1d"), true},
		{with("until", "1d"), true},
		{with("subjectsSince", "1w"), true},
		{with("decay", "1w"), true},
		{with("of", "rank(of=follows(did:web:a.example.com),via=follows,decay=1h)"), true},
		{with("damp", "1"), false},
		{with("of", "follows(did:web:a.example.com,since=1h)"), true},
		{with("except", "likes(did:web:a.example.com,since=1h)"), true},
		{with("since", "2026-01-01", "until", "2026-02-01", "subjectsSince", "2026-01-01"), false},
	} {
		q := query(c.p)
		if r, err := Read(q, noon); err != nil || r.Expr.HasAge != c.age {
			t.Errorf("%v has an age: %v, %v", c.p, r.Expr.HasAge, err)
		}
	}
}

// The places of pages are sealed for one ranking, and open for no other.
func TestPlacesReturn(t *testing.T) {
	c := xrpc.NewCursors([]byte("secret"))
	const a, b = "follows(did:web:a.example.com)", "follows(did:web:b.example.com)"
	var all []url.Values
	for _, of := range []string{a, b} {
		for _, more := range []string{"", "by=share", "by=lift", "by=score", "damp=0.5", "damp=1", "decay=1h", "decay=60m", "min=2", "since=1d", "since=24h", "until=1d", "subjectsSince=1d", "except=likes(did:web:a.example.com)", "except=likes(did:web:b.example.com)"} {
			p := url.Values{"of": {of}, "via": {"likes"}}
			if name, v, ok := strings.Cut(more, "="); ok {
				p.Set(name, v)
			}
			all = append(all, p)
		}
	}
	all = append(all, url.Values{"set": {"rank(of=" + a + ",via=likes)"}}, url.Values{"set": {"rank(of=" + a + ",via=likes)"}, "exact": {"true"}})
	questions := make([]string, len(all))
	for i, p := range all {
		r := reads(t, p)
		questions[i] = r.Question()
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for i, question := range questions {
		p := Place{Result{ID: rng.Uint64(), Count: rng.Uint32(), Total: rng.Uint64(), Score: rng.Float64()}, rng.Uint64(), rng.Uint64()}
		cursor := c.Seal(question, p)
		for j, other := range questions {
			var got Place
			_, err := c.Open(other, cursor, &got)
			if (err == nil) != (i == j) || err == nil && got != p || err != nil && !errors.Is(err, xrpc.ErrCursor) {
				t.Errorf("a cursor of %v for %v: %+v, %v", all[i], all[j], got, err)
			}
		}
	}
}

func TestPosts(t *testing.T) {
	for uri, want := range map[string]bool{
		"at://did:web:a.example.com/app.bsky.feed.post/x": true, "at://a.example.com/app.bsky.feed.post/x": true, "at://did:web:a.example.com/app.bsky.feed.generator/x": false,
		"at://did:web:a.example.com/app.bsky.feed.post": false, "at://did:web:a.example.com": false, "did:web:a.example.com": false, "": false,
		"at://did:web:a.example.com/space/com.example.forum/main/did:web:b/app.bsky.feed.post/x": false, "at://did:web:a.example.com/app.bsky.feed.post/x/y": false,
	} {
		if got := IsPost(uri); got != want {
			t.Errorf("%q is a post: %v", uri, got)
		}
	}
	r := Ranking{RankSpec: &language.RankSpec{Subjects: language.Window{From: oracle.Begin.UnixMicro(), To: math.MaxInt64}}}
	for _, uri := range []string{"at://did:web:a.example.com/app.bsky.feed.post/", "https://a.example.com/"} {
		if uri += oracle.TID(uint64(oracle.Begin.UnixMicro()) << 10); r.isRecent(uri) != strings.HasPrefix(uri, "at:") {
			t.Errorf("%q is recent: %v", uri, r.isRecent(uri))
		}
	}
}

// slowRanking is a result of a ranking in maps.
type slowRanking struct {
	member       string
	count, total uint64
	score        float64
}

// slowRank counts in maps: the members of of, their edges in a window, and the accounts with an
// edge to each result.
func slowRank(g *oracle.Graph, p url.Values, of, except map[string]bool, windowed bool, since, until int64) (all []slowRanking) {
	var k kinds.Info
	reverse := false
	for _, info := range oracle.Kinds() {
		if info.Forward == p.Get("via") || info.Reverse == p.Get("via") {
			k, reverse = info, info.Reverse == p.Get("via")
		}
	}
	counts := map[string]uint64{}
	v, every := g.Between(windowed, since, until), g.Between(false, 0, 0)
	if by := p.Get("by"); by == language.ByShare || by == language.ByLift { // counts and totals are of the same edges
		every = v
	}
	sets := v.Forward[k.Name]
	if reverse {
		sets = v.Reverse[k.Name]
	}
	for actor := range of {
		if g.Model.Hidden[actor] {
			continue
		}
		list := sets[actor]
		switch p.Get("via") {
		case "lists":
			list = g.ListsOf(actor, windowed, since, until)
		case "listed":
			list = g.Listed(actor, windowed, since, until)
		case "authors":
			if parts := strings.Split(actor, "/"); !windowed || oracle.InWindow(parts[len(parts)-1], since, until) {
				list = parts[2:3]
			}
		}
		for _, m := range list {
			counts[m]++
		}
	}
	least := uint64(1)
	if p.Get("by") == language.ByShare || p.Get("by") == language.ByLift {
		least = 5
	}
	if p.Has("min") {
		least, _ = strconv.ParseUint(p.Get("min"), 10, 64)
	}
	from := int64(math.MinInt64)
	if p.Has("subjectsSince") {
		at, _, _ := language.ParseTime(p.Get("subjectsSince"), noon)
		from = language.FirstMicro(at)
	}
	for m, n := range counts {
		at, timed := oracle.Micros(m[strings.LastIndexByte(m, '/')+1:])
		if n >= least && !except[m] && !g.Model.Hidden[m] && (!p.Has("subjectsSince") || timed && at >= from) {
			damp, _ := strconv.ParseFloat(p.Get("damp"), 64)
			total := every.Total(k.Name, m, reverse)
			if reverse && windowed && !p.Has("damp") { // in a window, edges are counted
				total = len(every.Forward[k.Name][m])
			}
			all = append(all, slowRanking{m, n, uint64(total), float64(n) / math.Pow(float64(max(total, 1)), damp)})
		}
	}
	return all
}

// Rankings of random graphs have the results that the maps have, in the order of exact scores, in
// pages of every size.
func TestRankings(t *testing.T) {
	some := map[string]int{}
	for seed, l := range map[uint64]write.Limits{1: {Row: 6, Chunk: 3}, 2: {}} {
		g := oracle.NewGraph(t, seed, 25, l)
		g.Grow(3000)
		rng := rand.New(rand.NewPCG(seed, 8))
		c := xrpc.NewCursors(g.Store.Secret())
		length := g.Now().Sub(oracle.Begin)
		for range 250 {
			p := url.Values{"via": {vias()[rng.IntN(len(vias()))]}, "by": {[]string{language.ByCount, language.ByShare, language.ByLift, language.ByScore}[rng.IntN(4)]}, "limit": {fmt.Sprint(1 + rng.IntN(7))}}
			of, except := map[string]bool{}, map[string]bool{}
			members, never := g.Accounts, "did:web:never.example.com"
			switch p.Get("via") {
			case "likers", "reposters":
				members, never = g.Posts, "at://did:web:never.example.com/app.bsky.feed.post/x"
			case "listblockers", "listed":
				members, never = g.Lists, "at://did:web:never.example.com/app.bsky.graph.list/x"
			case "authors": // so an account that the index has never seen is a result, too
				members, never = slices.Concat(g.Posts, g.Lists), "at://did:web:never.example.com/app.bsky.feed.post/3lzzzzzzzzz2z"
				of[never] = true
			}
			if via := p.Get("via"); via == "lists" || via == "listed" || via == "authors" {
				p.Set("by", []string{language.ByCount, language.ByScore}[rng.IntN(2)])
			}
			if by := p.Get("by"); by == language.ByScore {
				if via := p.Get("via"); rng.IntN(2) == 0 && via != "lists" && via != "listed" && via != "authors" {
					p.Set("damp", []string{"0", "0.3", "0.5", "1"}[rng.IntN(4)])
				}
			}
			for range 1 + rng.IntN(15) {
				of[g.Any(members)] = true
			}
			p.Set("of", "members("+strings.Join(slices.Sorted(maps.Keys(of)), ",")+","+never+")")
			if rng.IntN(3) == 0 {
				pool := g.Accounts
				if p.Get("via") == "likes" || p.Get("via") == "reposts" {
					pool = g.Posts
				} else if p.Get("via") == "listblocks" || p.Get("via") == "lists" {
					pool = g.Lists
				}
				for range 1 + rng.IntN(5) {
					except[g.Any(pool)] = true
				}
				if p.Get("via") == "authors" && rng.IntN(2) == 0 {
					except["did:web:never.example.com"] = true
				}
				p.Set("except", "members("+strings.Join(slices.Sorted(maps.Keys(except)), ",")+")")
			}
			if rng.IntN(2) == 0 {
				p.Set("min", fmt.Sprint(1+rng.IntN(3)))
			}
			windowed, since, until := rng.IntN(2) == 0, oracle.Begin.Add(length*time.Duration(rng.IntN(50))/100), oracle.Begin.Add(length*time.Duration(51+rng.IntN(50))/100)
			if windowed {
				p.Set("since", since.Format(time.RFC3339Nano))
				p.Set("until", until.Format(time.RFC3339Nano))
			}
			if p.Get("via") == "likes" && rng.IntN(2) == 0 {
				p.Set("subjectsSince", oracle.Begin.Add(oracle.Step*time.Duration(rng.IntN(60))).Format(time.RFC3339))
			}
			want := slowRank(g, p, of, except, windowed, since.UnixMicro(), until.UnixMicro())
			got := pages(t, g, c, p)
			if len(got) != len(want) {
				t.Fatalf("%v: %d results, want %d\n%v\n%v", p, len(got), len(want), got, want)
			}
			byMember := map[string]slowRanking{}
			for _, r := range want {
				byMember[r.member] = r
			}
			for i, r := range got {
				w := byMember[r.member]
				if delete(byMember, r.member); r.count != w.count || (p.Get("by") != language.ByCount && p.Get("by") != language.ByScore || p.Has("damp") && p.Get("damp") != "0") && r.total != w.total || p.Get("by") == language.ByScore && math.Abs(r.score-w.score) > 1e-9 {
					t.Fatalf("%v: %+v, want %+v", p, r, w)
				}
				if before := max(i-1, 0); p.Get("by") == language.ByScore {
					if cmp.Or(cmp.Compare(r.score, got[before].score), cmp.Compare(r.count, got[before].count)) > 0 {
						t.Fatalf("%v: %+v before %+v", p, got[before], r)
					}
				} else if i > 0 {
					x, y := Result{Count: uint32(got[i-1].count), Total: got[i-1].total}, Result{Count: uint32(r.count), Total: r.total}
					if slowOrder(p.Get("by"), x, y) > 0 {
						t.Fatalf("%v: %+v before %+v", p, got[i-1], r)
					}
				}
			}
			some[p.Get("by")] += len(got)
		}
	}
	for _, by := range []string{language.ByCount, language.ByShare, language.ByLift, language.ByScore} {
		if some[by] < 300 {
			t.Errorf("only %d results by %s", some[by], by)
		}
	}
}

// The later pages of a query that waited read as small a sample as the first, whose budget the wait had halved; with exact=true there is no
// sample. A result whose total shows that its estimate is above its count needs the lowest count, too.
func TestLateRankingsAreSampled(t *testing.T) {
	g := oracle.NewGraph(t, 3, 10, write.Limits{})
	g.Crowd(algebra.DefaultHopUnits>>9/17+1, func(i int) []string { return []string{g.Accounts[0], fmt.Sprintf("did:web:one%d.example.com", i)} })
	for late, want := range map[uint64]bool{8: false, 9: true, 13: true} {
		for _, exact := range []string{"true", "false"} {
			r := reads(t, url.Values{"of": {"followers(" + g.Accounts[0] + ")"}, "via": {"follows"}, "by": {"share"}, "exact": {exact}})
			r.Late = &late
			if err := evaluated(t, g, r, func(st *Standing, was uint64) error {
				if was != late || (st.v.Sampled() != "") != (want && exact == "false") || len(st.results) != 1 || st.results[0].Count < 400 {
					t.Errorf("late %d, exact %s: %d, sampled: %q: %+v", late, exact, was, st.v.Sampled(), st.results)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// pages reads all pages of a ranking, each with a new state of the store, and its scores.
func pages(t *testing.T, g *oracle.Graph, c *xrpc.Cursors, p url.Values) (all []slowRanking) {
	t.Helper()
	for cursor := ""; ; {
		r := reads(t, p)
		if cursor != "" {
			r.After = new(Place)
			if _, err := c.Open(r.Question(), cursor, r.After); err != nil {
				t.Fatal(err)
			}
		}
		more, n := false, 0
		var last Result
		err := evaluated(t, g, r, func(st *Standing, _ uint64) error {
			if visible := uint64(len(g.Model.Repos) - len(g.Model.Hidden)); r.scored() && st.Accounts != visible {
				t.Fatalf("%v: %d accounts, want %d", p, st.Accounts, visible)
			}
			var err error
			more, err = st.Page(r, func(e *Result, member string) bool {
				if score := st.Score(r.By, e); r.scored() && score != slowScore(r.By, st, e) {
					t.Fatalf("%v: a score of %d", p, score)
				}
				n++
				last = *e
				all = append(all, slowRanking{member, uint64(e.Count), e.Total, e.Score})
				return true
			})
			return err
		})
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if n > r.Limit || more && n < r.Limit {
			t.Fatalf("%v: a page of %d results, and more: %v", p, n, more)
		}
		if !more {
			return all
		}
		cursor = c.Seal(r.Question(), Place{Result: last})
	}
}

// The scores of a blend are the weighted sums of those that its rankings have alone, and its counts the sums of their counts, on pages of
// every size.
func TestBlends(t *testing.T) {
	g := oracle.NewGraph(t, 4, 25, write.Limits{Row: 6, Chunk: 3})
	g.Grow(3000)
	c := xrpc.NewCursors(g.Store.Secret())
	d := oracle.Draw{Rand: rand.New(rand.NewPCG(4, 4)), Accounts: g.Accounts, Records: g.Posts}
	some := 0
	for range 60 {
		var args []string
		want := map[string]slowRanking{}
		least := 1 + d.IntN(3)
		for range 1 + d.IntN(4) {
			of, more := "likers("+d.One(g.Posts...)+")", d.One("", ", damp=0.5", ", min=2", ", top=5", ", decay=10000d", ", since=2026-03-01", ", except=members("+d.Name()+")")
			ranking, weight := "rank(of="+of+", via="+d.One("follows", "followers")+more+")", d.One("1", "2.5", "0.25", "30")
			w, _ := strconv.ParseFloat(weight, 64)
			for _, r := range pages(t, g, c, url.Values{"set": {ranking}}) {
				sum, score := want[r.member], r.score
				want[r.member] = slowRanking{member: r.member, count: sum.count + r.count, score: sum.score + w*score}
			}
			args = append(args, weight, ranking)
		}
		out := d.Name()
		delete(want, out)
		maps.DeleteFunc(want, func(_ string, r slowRanking) bool { return r.count < uint64(least) })
		text := fmt.Sprintf("blend(%s, min=%d, except=members(%s))", strings.Join(args, ", "), least, out)
		got := pages(t, g, c, url.Values{"set": {text}, "limit": {fmt.Sprint(1 + d.IntN(9))}})
		for i, r := range got {
			if w := want[r.member]; r.count != w.count || math.Abs(r.score-w.score) > 1e-9 || i > 0 && cmp.Or(cmp.Compare(r.score, got[i-1].score), cmp.Compare(r.count, got[i-1].count)) > 0 {
				t.Fatalf("%s: %+v, want %+v", text, r, w)
			}
		}
		if some += len(got); len(got) != len(want) {
			t.Fatalf("%s: %d results, want %d", text, len(got), len(want))
		}
	}
	if some < 300 {
		t.Errorf("only %d results", some)
	}
}

// A ranking that leaves out what a labeler has labeled fails if the labeler is not read.
func TestUnknownLabelersInExcept(t *testing.T) {
	g := oracle.NewGraph(t, 9, 5, write.Limits{})
	g.Grow(50)
	r := reads(t, url.Values{"of": {"follows(" + g.Accounts[0] + ")"}, "via": {"likes"}, "except": {"labeled(did:plc:mmmmmmmmmmmmmmmmmmmmmmmm,spam)"}})
	err := evaluated(t, g, r, nil)
	if limit, ok := errors.AsType[*algebra.LimitError](err); !ok || !strings.Contains(limit.What, "unknown labeler") {
		t.Error(err)
	}
}
