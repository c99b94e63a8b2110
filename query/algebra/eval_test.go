package algebra

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// noon is the time of the questions in these tests.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

var builtIn = language.NewVocabulary(kinds.BuiltIn)

// early has rows and chunks spilled early, so that few members make a large set.
var early = write.Limits{Row: 6, Chunk: 3}

const (
	unseenDID = "did:plc:zzzzzzzzzzzzzzzzzzzzzzzz"
	unseenURI = "at://did:plc:zzzzzzzzzzzzzzzzzzzzzzzz/app.bsky.feed.post/3kaaaaaaaaaaa"
)

// drawOf draws expressions about a graph.
func drawOf(g *oracle.Graph, seed uint64) oracle.Draw {
	d := oracle.Draw{Labelers: oracle.Labelers, Rand: rand.New(rand.NewPCG(seed, 5)), Accounts: append(slices.Clone(g.Accounts), unseenDID), Records: slices.Concat(g.Posts, g.Lists, g.Lists, []string{unseenURI})}
	length := g.Now().Sub(oracle.Begin)
	for i := range 12 {
		d.Times = append(d.Times, oracle.Begin.Add(length*time.Duration(i)/11).Format(time.RFC3339Nano))
	}
	return d
}

// twin evaluates expressions in maps of strings.
type twin struct{ *oracle.Graph }

func (w twin) members(e *language.Expr) []string {
	set := w.set(e, &e.Root)
	if e.Type() == dict.DID {
		for did := range w.Model.Hidden {
			delete(set, did)
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// span returns a node's window in microseconds.
func span(n *language.Node) (windowed bool, since, until int64) {
	return !n.Window.All(), n.Window.From, n.Window.To
}

func (w twin) set(e *language.Expr, n *language.Node) map[string]bool {
	var list []string
	windowed, since, until := span(n)
	switch n.Op {
	case language.OpForward, language.OpReverse:
		if n.Kind.IsLabel() {
			labeler, value, _ := strings.Cut(e.Strings[n.Of].S, " ")
			list = w.Labeled(labeler, value, n.Is == dict.URI, windowed, since, until)
			break
		}
		v := w.Between(windowed, since, until)
		sets := v.Forward
		if n.Op == language.OpReverse {
			sets = v.Reverse
		}
		list = sets[e.Info(n).Name][e.Strings[n.Of].S]
	case language.OpListed:
		list = w.Listed(e.Strings[n.Of].S, windowed, since, until)
	case language.OpLists:
		list = w.ListsOf(e.Strings[n.Of].S, windowed, since, until)
	case language.OpMembers:
		for _, l := range e.Strings[n.First:n.End] {
			list = append(list, l.S)
		}
	case language.OpRank, language.OpBlend:
		return w.ranked(e, n)
	case language.OpSample:
		return w.sampled(e, n)
	case language.OpAuthors:
		for uri := range w.set(e, &n.Args[0]) {
			list = append(list, authorIn(uri, windowed, since, until)...)
		}
		n = &language.Node{} // its operand is not a set of accounts
	case language.OpBy:
		by := w.set(e, &n.Args[1])
		for uri := range w.set(e, &n.Args[0]) {
			if a := authorIn(uri, false, 0, 0); len(a) > 0 && by[a[0]] && !w.Model.Hidden[a[0]] {
				list = append(list, uri)
			}
		}
		n = &language.Node{}
	default:
	}
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	if n.Op == language.OpAtLeast {
		in := map[string]int{}
		for i := range n.Args {
			for s := range w.set(e, &n.Args[i]) {
				in[s]++
				set[s] = in[s] >= n.Least
			}
		}
		maps.DeleteFunc(set, func(_ string, enough bool) bool { return !enough })
		return set
	}
	for i := range n.Args {
		part := w.set(e, &n.Args[i])
		switch {
		case i == 0:
			set = part
		case n.Op == language.OpUnion:
			maps.Copy(set, part)
		default:
			maps.DeleteFunc(set, func(s string, _ bool) bool { return part[s] == (n.Op == language.OpExcept) })
		}
	}
	return set
}

// authorIn returns the account that a URI names, if the record's own key is in a window.
func authorIn(uri string, windowed bool, since, until int64) []string {
	parts := strings.Split(uri, "/")
	if len(parts) < 3 || parts[0] != "at:" || !strings.HasPrefix(parts[2], "did:") || windowed && !oracle.InWindow(parts[len(parts)-1], since, until) {
		return nil
	}
	return parts[2:3]
}

// sampled sorts the visible members by the hashes of their ids, those that the sample names by the hashes of their names.
func (w twin) sampled(e *language.Expr, n *language.Node) map[string]bool {
	set := w.set(e, &n.Args[0])
	if n.Is == dict.DID {
		for did := range w.Model.Hidden {
			delete(set, did)
		}
	}
	list := slices.Sorted(maps.Keys(set))
	ids := w.ids(list, n.Is)
	named := map[string]bool{}
	for n := range n.Args[0].All() {
		for i := n.First; n.Op == language.OpMembers && i < n.End; i++ {
			if named[e.Strings[i].S] = true; n.By > 0 { // an authors(…) or by(…) may name their authors
				named[e.Strings[n.By+i-n.First].S] = true
			}
		}
	}
	hash := func(s string) uint64 {
		if named[s] {
			h := fnv.New64a()
			_, _ = h.Write([]byte(s))
			return mix(h.Sum64(), n.Seed)
		}
		return mix(uint64(ids[s]), n.Seed)
	}
	slices.SortFunc(list, func(x, y string) int { return cmp.Compare(hash(x), hash(y)) })
	for _, s := range list[min(n.Least, len(list)):] {
		delete(set, s)
	}
	return set
}

func (w twin) ranked(e *language.Expr, n *language.Node) map[string]bool {
	set := map[string]bool{}
	for _, r := range w.scored(e, n) {
		set[r.member] = true
	}
	return set
}

// scored is a result of a ranking.
type scored struct {
	member string
	count  int
	score  float64
}

// scored counts and weighs in maps, and sorts. Ties go to the higher count, and then to the lower
// id.
func (w twin) scored(e *language.Expr, n *language.Node) (all []scored) {
	if n.Op == language.OpBlend {
		sums, out := map[string]scored{}, map[string]bool{}
		for i, weight := range n.Rank.Weights {
			for _, r := range w.scored(e, &n.Args[i]) {
				sums[r.member] = scored{r.member, sums[r.member].count + r.count, sums[r.member].score + weight*r.score}
			}
		}
		if except := n.Args[len(n.Rank.Weights):]; len(except) > 0 {
			out = w.set(e, &except[0])
		}
		for s, r := range sums {
			if !out[s] && r.count >= int(n.Rank.Min) {
				all = append(all, r)
			}
		}
		return w.first(n, all)
	}
	windowed, since, until := span(n)
	v, kind := w.Between(windowed, since, until), ""
	if n.Rank.Via.Op != language.OpAuthors {
		kind = e.Info(n).Name
	}
	sets := map[language.Op]map[string][]string{language.OpForward: v.Forward[kind], language.OpReverse: v.Reverse[kind]}
	weights := map[string]float64{}
	for member := range w.set(e, &n.Args[0]) {
		weights[member] = 1
	}
	if n.Rank.OfScores {
		clear(weights)
		inner := w.scored(e, &n.Args[0])
		for _, r := range inner {
			if highest := inner[0].score; highest > 0 {
				weights[r.member] = r.score / highest
			} else {
				weights[r.member] = 0
			}
		}
	}
	counts, sums := map[string]int{}, map[string]float64{}
	via := n.Rank.Via
	of := slices.Collect(maps.Keys(weights))
	ids := w.ids(of, via.From)
	slices.SortFunc(of, func(x, y string) int { return cmp.Compare(ids[x], ids[y]) }) // sums of floats depend on the order
	for _, member := range of {
		if w.Model.Hidden[member] {
			continue
		}
		list := sets[via.Op][member]
		switch via.Op {
		case language.OpLists:
			list = w.ListsOf(member, windowed, since, until)
		case language.OpListed:
			list = w.Listed(member, windowed, since, until)
		case language.OpAuthors:
			list = authorIn(member, windowed, since, until)
		default:
		}
		for _, s := range list {
			counts[s]++
			weight := weights[member]
			if n.Rank.Decay > 0 {
				weight *= math.Exp2(-w.halvings(e, n, member, s))
			}
			sums[s] += weight
		}
	}
	out := map[string]bool{}
	if len(n.Args) > 1 {
		out = w.set(e, &n.Args[1])
	}
	for s, count := range counts {
		if w.Model.Hidden[s] || out[s] || count < int(n.Rank.Min) {
			continue
		}
		score := sums[s]
		if n.Rank.Damp > 0 {
			score /= math.Pow(float64(max(w.Between(false, 0, 0).Total(e.Info(n).Name, s, via.Op == language.OpReverse), 1)), n.Rank.Damp)
		}
		all = append(all, scored{s, count, score})
	}
	return w.first(n, all)
}

// first sorts the results of a ranking, and cuts them at its top.
func (w twin) first(n *language.Node, all []scored) []scored {
	var members []string
	for _, r := range all {
		members = append(members, r.member)
	}
	ids := w.ids(members, n.Is)
	slices.SortFunc(all, func(x, y scored) int {
		if !n.Rank.ByScore() {
			x.score, y.score = 0, 0
		}
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(y.count, x.count), cmp.Compare(ids[x.member], ids[y.member]))
	})
	if n.Rank.Top > 0 {
		all = all[:min(n.Rank.Top, len(all))]
	}
	return all
}

// halvings returns how many half-lives old an edge from a member to a result is at noon, infinitely many if it has no time.
func (w twin) halvings(e *language.Expr, n *language.Node, member, result string) float64 {
	windowed, since, until := span(n)
	newest, found := int64(0), false
	offer := func(rkey string) {
		if at, ok := oracle.Micros(rkey); ok && (!windowed || at >= since && at < until) {
			newest, found = max(newest, at), true
		}
	}
	switch n.Rank.Via.Op {
	case language.OpLists, language.OpListed:
		for _, l := range w.Model.Listings() {
			if l.Member == member && l.List == result || l.List == member && l.Member == result {
				offer(l.Rkey)
			}
		}
	case language.OpAuthors:
		offer(member[strings.LastIndexByte(member, '/')+1:])
	default:
		actor, subject := member, result
		if n.Rank.Via.Op == language.OpReverse {
			actor, subject = result, member
		}
		for p, s := range w.Model.Records {
			if p.Kind == e.Info(n).Name && p.DID == actor && s == subject {
				offer(p.Rkey)
			}
		}
	}
	if !found {
		return math.Inf(1)
	}
	return float64(max(noon.UnixMicro()-newest, 0)) / float64(n.Rank.Decay.Microseconds())
}

// ids returns the ids of strings.
func (w twin) ids(list []string, is dict.Namespace) map[string]dict.ID {
	all := make([]language.Literal, len(list))
	for i, s := range list {
		all[i] = language.Literal{S: s, Is: is}
	}
	ids := map[string]dict.ID{}
	err := w.Store.View(context.Background(), func(sn *ask.View) error {
		found, err := Lookup(sn, all)
		for i, id := range found {
			ids[list[i]] = id
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return ids
}

// errHeavy ends an evaluation at its first expensive read.
var errHeavy = errors.New("heavy")

// allowed is a Budget of a number of expensive reads.
type allowed struct{ left, asked int }

func (a *allowed) Heavy() error {
	if a.asked++; a.asked > a.left {
		return errHeavy
	}
	return nil
}

func free() *allowed { return &allowed{left: math.MaxInt} }

// on evaluates an expression in the present state of a graph.
func on(t *testing.T, g *oracle.Graph, e *language.Expr, b Budget, fn func(v *Evaluation) error) error {
	t.Helper()
	return g.Store.View(t.Context(), func(sn *ask.View) error {
		v, err := NewEvaluation(t.Context(), sn, e, b)
		if err != nil {
			return err
		}
		if len(e.Source)%2 == 0 { // half of the expressions read the dates of small sets, too
			v.dateAbove = 0
		}
		return fn(v)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func parsed(t *testing.T, text string) *language.Expr {
	t.Helper()
	e, err := builtIn.Parse(text, language.MaxForm, noon)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// partitioned returns a store that several writers may write.
func partitioned(t *testing.T, l write.Limits) kv.Store {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(l), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}})
	s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.Settings{ShardBits: 14, LeaseSize: 64, Partitions: 4}, Owner: "test"}})
	must(t, err)
	must(t, s.Close(t.Context()))
	return store
}

// Random expressions have the members that the maps have: as a whole, counted, asked for one by
// one, and in pages of every size. A budget that ends an evaluation changes no answer.
func TestEvaluation(t *testing.T) {
	for seed, l := range map[uint64]write.Limits{1: early, 2: {Row: 2, Chunk: 2}, 3: {}, 4: early} {
		g := oracle.NewGraph(t, seed, 30, l)
		if seed == 4 {
			g = oracle.GraphOn(t, seed, 30, partitioned(t, l))
		}
		g.Grow(2000)
		d := drawOf(g, seed)
		some, refused := 0, 0
		for range 150 {
			text := d.Expr(d.IntN(2) == 0, 3)
			e, err := builtIn.Parse(text, language.MaxExpr, noon)
			if err != nil {
				continue // two sets of one expression may have the same text of a window
			}
			want := twin{g}.members(e)
			if len(want) > 0 {
				some++
			}
			budget := &allowed{left: d.IntN(3)} // before the large sets are in the cache
			err = on(t, g, e, budget, func(v *Evaluation) error {
				_, total, err := v.Result()
				if err == nil && total != uint64(len(want)) {
					t.Fatalf("%s with a budget of %d: %d members, want %d", text, budget.left, total, len(want))
				}
				return err
			})
			if err != nil && (!errors.Is(err, errHeavy) || budget.asked <= budget.left) {
				t.Fatalf("%s: %v after %d of %d", text, err, budget.asked, budget.left)
			} else if err != nil {
				refused++
			}
			checkEvaluation(t, g, d, e, want)
			g.Grow(3)
		}
		if some < 50 || refused == 0 && l == early {
			t.Errorf("%+v: %d sets had members, %d were refused", l, some, refused)
		}
	}
}

func checkEvaluation(t *testing.T, g *oracle.Graph, d oracle.Draw, e *language.Expr, want []string) {
	t.Helper()
	var got []string
	must(t, on(t, g, e, free(), func(v *Evaluation) error {
		set, total, err := v.Result()
		if err != nil || total != uint64(len(want)) {
			t.Fatalf("%s: %d members, want %d: %q (%v)", e.Source, total, len(want), want, err)
		}
		pool := slices.Concat(d.Accounts, []string{"did:web:never.example.com"})
		if e.Type() == dict.URI {
			pool = d.Records
		}
		for range 12 {
			m, _ := language.LiteralOf(pool[d.IntN(len(pool))])
			ids, err := Lookup(v.View, []language.Literal{m})
			must(t, err)
			in, err := v.Contains(m, ids[0])
			if _, has := slices.BinarySearch(want, m.S); err != nil || in != has {
				t.Fatalf("%s contains %s: %v %v, want %v", e.Source, m.S, in, err, has)
			}
		}
		limit := 1 + d.IntN(7)
		for after, pages := dict.None, 0; ; pages++ {
			ids, members, last, err := v.Page(set, after, limit)
			must(t, err)
			if len(members) > limit || len(members) != len(ids) || pages > len(want) {
				t.Fatalf("%s: page %d of %d members, limit %d", e.Source, pages, len(members), limit)
			}
			if got = append(got, members...); last == dict.None {
				return nil
			}
			after = last
		}
	}))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("%s in pages: %q, want %q", e.Source, got, want)
	}
}

// Members that are in a set all the time are on exactly one page, and others on at most one,
// while the graph grows, accounts disappear and return, and strings get their ids.
func TestPagesWhileTheGraphChanges(t *testing.T) {
	g := oracle.NewGraph(t, 4, 30, early)
	g.Grow(1000)
	d := drawOf(g, 4)
	several, late := 0, 100
	for i := range 150 {
		text := d.Expr(d.IntN(2) == 0, 1)
		if i%3 == 0 { // strings that get their ids between two pages, some of them given twice
			before, after, end := "", "", ")"
			if i%2 == 0 { // as the authors of records
				text, before, after, end = "union(authors(members(", "at://", "/app.bsky.feed.post/self", "))"
			} else {
				text = "union(members("
			}
			for j := range 6 {
				text += before + oracle.Account(late+j*j%5) + after + ","
			}
			text += before + g.Accounts[0] + after + end + "," + d.Expr(true, 1) + ")"
		}
		e, err := builtIn.Parse(text, language.MaxExpr, noon)
		if err != nil {
			continue
		}
		always := map[string]bool{}
		for _, m := range (twin{g}).members(e) {
			always[m] = true
		}
		seen := map[string]int{}
		var after dict.ID
		pages := 0
		for more := true; more; pages++ {
			must(t, on(t, g, e, free(), func(v *Evaluation) error {
				set, _, err := v.Result()
				must(t, err)
				_, members, last, err := v.Page(set, after, 1)
				for _, m := range members {
					seen[m]++
				}
				after, more = last, last != dict.None
				return err
			}))
			g.Grow(4)
			if i%3 == 0 {
				g.Put(g.Any(g.Accounts), "follow", oracle.Account(late+4-pages%5))
			}
			now := map[string]bool{}
			for _, m := range (twin{g}).members(e) {
				now[m] = true
			}
			if more {
				maps.DeleteFunc(always, func(m string, _ bool) bool { return !now[m] })
			}
		}
		for m := range always {
			if seen[m] != 1 {
				t.Fatalf("%s: %s was on %d pages", e.Source, m, seen[m])
			}
		}
		for m, n := range seen {
			if n > 1 {
				t.Fatalf("%s: %s was on %d pages", e.Source, m, n)
			}
		}
		if late += 5; pages > 3 {
			several++
		}
	}
	if several < 25 {
		t.Errorf("only %d sets had several pages", several)
	}
}

// An evaluation ends soon after its request, whatever it evaluates.
func TestEvaluationEndsWithItsRequest(t *testing.T) {
	g := oracle.NewGraph(t, 5, 20, early)
	g.Grow(500)
	d := drawOf(g, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		e, err := builtIn.Parse(d.Expr(true, 2), language.MaxExpr, noon)
		if err != nil {
			continue
		}
		must(t, g.Store.View(t.Context(), func(sn *ask.View) error {
			v, err := NewEvaluation(ctx, sn, e, free())
			must(t, err)
			if _, _, err := v.Result(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", e.Source, err)
			}
			if _, err := v.Contains(language.Literal{S: g.Accounts[0], Is: dict.DID}, dict.None); !errors.Is(err, context.Canceled) {
				t.Errorf("%s contains: %v", e.Source, err)
			}
			return nil
		}))
	}
}

// slowShown is the rule of docs/semantics.md#s68 on record keys.
func slowShown(rkeys []string, subject string) string {
	slices.Sort(rkeys)
	key := subject[strings.LastIndexByte(subject, '/')+1:]
	if _, timed := oracle.Micros(key); !timed || !strings.HasPrefix(subject, "at://") {
		return rkeys[0]
	}
	best := ""
	for _, k := range rkeys { // TIDs sort as their times
		_, isTime := oracle.Micros(k)
		_, bestIsTime := oracle.Micros(best)
		switch {
		case !isTime:
			if best == "" {
				best = k
			}
		case !bestIsTime, best < key:
			best = k
		}
	}
	return best
}

// shownOf returns the keys of the records that are shown for members of a source, and how many could be: of several sets, the newest, and of these the first.
func (w twin) shownOf(e *language.Expr, n *language.Node, members []string) (shown map[string]string, several int) {
	shown = map[string]string{}
	if n = n.Source(); n.Op.IsSet() {
		for _, m := range members {
			rkeys, subject := w.rkeysOf(e, n, m)
			shown[m] = slowShown(rkeys, subject)
			several += len(rkeys) - 1
		}
		return shown, several
	}
	at := func(rkey string) int64 {
		if at, timed := oracle.Micros(rkey); timed && at <= noon.Add(5*time.Minute+time.Second).UnixMicro() {
			return at
		}
		return -1
	}
	for i := range n.Args {
		in := w.set(e, &n.Args[i])
		part, _ := w.shownOf(e, &n.Args[i], slices.DeleteFunc(slices.Clone(members), func(m string) bool { return !in[m] }))
		for m, rkey := range part {
			if old, both := shown[m]; both {
				several++
				if at(rkey) <= at(old) {
					continue
				}
			}
			shown[m] = rkey
		}
	}
	return shown, several
}

// rkeysOf returns the keys of the records in a window that make a member of a leaf one.
func (w twin) rkeysOf(e *language.Expr, n *language.Node, member string) (rkeys []string, subject string) {
	of := e.Strings[n.Of].S
	windowed, since, until := span(n)
	in := func(rkey string) bool { return !windowed || oracle.InWindow(rkey, since, until) }
	if n.Op == language.OpListed || n.Op == language.OpLists {
		list, account := of, member
		if n.Op == language.OpLists {
			list, account = member, of
		}
		for _, l := range w.Model.Listings() {
			if l.List == list && l.Member == account && in(l.Rkey) {
				rkeys = append(rkeys, l.Rkey)
			}
		}
		return rkeys, account
	}
	if n.Kind.IsLabel() {
		labeler, value, _ := strings.Cut(of, " ")
		return []string{w.LabeledAt(labeler, value, member)}, of
	}
	actor, subject := of, member
	if n.Op == language.OpReverse {
		actor, subject = member, of
	}
	for p, s := range w.Model.Records {
		if p.Kind == e.Info(n).Name && p.DID == actor && s == subject && in(p.Rkey) {
			rkeys = append(rkeys, p.Rkey)
		}
	}
	return rkeys, subject
}

// The records of a set, and of what operators leave of it, are, in pages of every size, those that the
// rule of the specification shows: newest first, and oldest first in the opposite order.
func TestRecordsOfSets(t *testing.T) {
	g := oracle.NewGraph(t, 7, 25, early)
	g.Grow(3000)
	d := drawOf(g, 7)
	some, repeated, cut := 0, 0, 0
	for range 800 {
		e, err := builtIn.Parse(d.Expr(d.IntN(2) == 0, d.IntN(3)), language.MaxExpr, noon)
		if err != nil {
			continue
		}
		members := twin{g}.members(e)
		if e.Type() == dict.URI {
			keys := map[string]string{}
			for _, m := range members {
				keys[m] = m[strings.LastIndexByte(m, '/')+1:]
			}
			limit := 1 + d.IntN(5)
			inOrder(t, e, listed(t, g, e, limit, OrderAt(noon, false), keys, (*Evaluation).Created), listed(t, g, e, limit, OrderAt(noon, true), keys, (*Evaluation).Created), keys)
		}
		if e.Root.Source() == nil {
			continue
		}
		want, several := twin{g}.shownOf(e, &e.Root, members)
		repeated += several
		newest := listed(t, g, e, 1+d.IntN(5), OrderAt(noon, false), want, bySource)
		oldest := listed(t, g, e, 1+d.IntN(5), OrderAt(noon, true), want, bySource)
		inOrder(t, e, newest, oldest, want)
		if some += len(members); !e.IsLeaf() {
			cut += len(members)
		}
	}
	if some < 500 || repeated < 30 || cut < 100 {
		t.Errorf("%d members, %d with several records, %d of operators", some, repeated, cut)
	}
}

// Members of random expressions, sorted by the sizes of their sets in pages of every size, are in the
// order that the maps give; a set that is too large is an error with both numbers.
func TestBySize(t *testing.T) {
	g := oracle.NewGraph(t, 9, 25, early)
	g.Grow(2500)
	d := drawOf(g, 9)
	some, ties := 0, 0
	for range 300 {
		e, err := builtIn.Parse(d.Expr(d.IntN(2) == 0, d.IntN(3)), language.MaxExpr, noon)
		if err != nil {
			continue
		}
		vias := builtIn.Vias(e.Type())
		via := vias[d.IntN(len(vias))]
		if via.Op == language.OpAuthors { // a record has one
			continue
		}
		want := twin{g}.members(e)
		sets := g.Between(false, 0, 0).Forward[builtIn.Table.Info(via.Kind).Name]
		switch via.Op {
		case language.OpReverse:
			sets = g.Between(false, 0, 0).Reverse[builtIn.Table.Info(via.Kind).Name]
		case language.OpLists, language.OpListed:
			sets = map[string][]string{}
			for _, s := range want {
				if sets[s] = g.ListsOf(s, false, 0, 0); via.Op == language.OpListed {
					sets[s] = slices.DeleteFunc(g.Listed(s, false, 0, 0), func(did string) bool { return g.Model.Hidden[did] })
				}
			}
		default:
		}
		ids := twin{g}.ids(want, e.Type())
		for s, id := range ids {
			if id == dict.None {
				ids[s] = dict.FirstReserved + dict.ID(slices.IndexFunc(e.Strings, func(l language.Literal) bool { return l.S == s && l.Is == e.Type() }))
			}
		}
		slices.SortFunc(want, func(x, y string) int {
			return cmp.Or(cmp.Compare(len(sets[y]), len(sets[x])), cmp.Compare(ids[x], ids[y]))
		})
		var got []string
		var sizes []uint64
		for place, limit := (Place{}), 1+d.IntN(6); ; {
			var last *Place
			must(t, on(t, g, e, free(), func(v *Evaluation) error {
				set, _, err := v.Result()
				must(t, err)
				var page []Sized
				if page, last, err = v.BySize(set, via, place, limit); err != nil {
					return err
				}
				if len(page) > limit || last != nil && len(page) < limit {
					t.Fatalf("%s: a page of %d members, limit %d", e.Source, len(page), limit)
				}
				for _, m := range page {
					name, err := v.Names(v.Expr.Root.Is, []uint64{uint64(m.ID)})
					must(t, err)
					got, sizes = append(got, name[0]), append(sizes, m.Size)
				}
				return nil
			}))
			if last == nil {
				break
			}
			place = *last
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s by size(%s): %q, want %q", e.Source, via.Name, got, want)
		}
		for i, s := range want {
			if sizes[i] != uint64(len(sets[s])) {
				t.Fatalf("%s of %s: %d, want %d", via.Name, s, sizes[i], len(sets[s]))
			}
			if i > 0 && sizes[i] == sizes[i-1] && sizes[i] > 0 {
				ties++
			}
		}
		some += len(want)
	}
	if some < 500 || ties < 50 {
		t.Errorf("%d members, %d ties", some, ties)
	}
	large := make([]uint64, MaxSized+1)
	for i := range large {
		large[i] = uint64(i + 1)
	}
	err := on(t, g, parsed(t, "followers("+g.Accounts[0]+")"), free(), func(v *Evaluation) error {
		_, _, _ = v.BySize(sets.FromList(large), builtIn.Vias(dict.DID)[0], Place{}, 6)
		page, _, err := v.BySize(sets.FromList(large), builtIn.Vias(dict.DID)[0], Place{}, 5)
		if sampled := v.Sampled(); err != nil || len(page) != 5 || sampled != "order=size(follows) sorted 20000 of 20001 members" {
			t.Errorf("%d members sorted, %q: %v", len(page), sampled, err)
		}
		v.Exact = true
		_, _, err = v.BySize(sets.FromList(large), builtIn.Vias(dict.DID)[0], Place{}, 5)
		return err
	})
	if limit, ok := errors.AsType[*LimitError](err); !ok || !strings.Contains(limit.Error(), "20000") || !strings.Contains(limit.Error(), "20001") {
		t.Errorf("%v", err)
	}
}

// inOrder checks that both orders are by the times of the records, and opposites, with the members at the end whose
// records have no time, or one of more than five minutes after noon.
func inOrder(t *testing.T, e *language.Expr, newest, oldest []string, want map[string]string) {
	t.Helper()
	at := func(m string) int64 { at, _ := oracle.Micros(want[m]); return at }
	comesLast := func(m string) bool {
		at, timed := oracle.Micros(want[m])
		return !timed || at > noon.Add(5*time.Minute+time.Second).UnixMicro()
	}
	n := slices.IndexFunc(newest, comesLast)
	if n < 0 {
		n = len(newest)
	}
	if slices.ContainsFunc(newest[n:], func(m string) bool { return !comesLast(m) }) || !slices.IsSortedFunc(newest[:n], func(x, y string) int { return cmp.Compare(at(y), at(x)) }) {
		t.Fatalf("%s: not the newest first: %q", e.Source, newest)
	}
	slices.Reverse(oldest[:n])
	if slices.Reverse(oldest[n:]); !slices.Equal(newest, oldest) {
		t.Fatalf("%s: oldest first is not the opposite of newest first", e.Source)
	}
}

// A pageReader is Evaluation.Created, or bySource.
type pageReader func(v *Evaluation, set sets.Set, after *Place, limit int, order Order) ([]MemberRecord, *Place, error)

func bySource(v *Evaluation, set sets.Set, after *Place, limit int, order Order) ([]MemberRecord, *Place, error) {
	return v.Records(v.Expr.Root.Source(), set, after, limit, order)
}

// listed reads the records of a set in pages, and compares them with the wanted keys.
func listed(t *testing.T, g *oracle.Graph, e *language.Expr, limit int, order Order, want map[string]string, read pageReader) (all []string) {
	t.Helper()
	var place Place
	for pages := 0; ; pages++ {
		var next *Place
		must(t, on(t, g, e, free(), func(v *Evaluation) error {
			set, _, err := v.Result()
			must(t, err)
			page, last, err := read(v, set, &place, limit, order)
			must(t, err)
			if next = last; len(page) > limit || pages > len(want) {
				t.Fatalf("%s: page %d of %d records, sorted: %v", e.Source, pages, len(page), place.Sorted)
			}
			ids := make([]uint64, len(page))
			for i, r := range page {
				ids[i] = uint64(r.ID)
			}
			names, err := v.Names(e.Type(), ids)
			for i, s := range names {
				_, timed := oracle.Micros(want[s])
				if got := string(page[i].Path.AppendRkey(nil)); page[i].Path.HasTime() != timed || got != want[s] && (timed || page[i].By != nil) {
					t.Errorf("%s: %s by the record %s, want %s", e.Source, s, got, want[s])
				}
			}
			all = append(all, names...)
			return err
		}))
		if next == nil {
			break
		}
		place = *next
	}
	if sorted := slices.Sorted(slices.Values(all)); !slices.Equal(sorted, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("%s: records of %q, want of %q", e.Source, sorted, slices.Sorted(maps.Keys(want)))
	}
	return all
}

// Sets of more members than a list holds, and their limits: each holds at its value, and fails one
// above it, with both numbers.
func TestLargeSets(t *testing.T) {
	const star, other, third = "did:web:star.example.com", "did:web:other.example.com", "did:web:third.example.com"
	g := oracle.NewGraph(t, 8, 1, write.Limits{})
	n := MaxWindowed + 1
	g.Crowd(n, func(i int) []string {
		all := []string{star}
		if i%2 == 0 {
			all = append(all, other)
		}
		if i%5 > 0 {
			all = append(all, third)
		}
		return all
	})
	count := func(text string) (total uint64) {
		t.Helper()
		b := free()
		must(t, on(t, g, parsed(t, text), b, func(v *Evaluation) (err error) {
			_, total, err = v.Result()
			return err
		}))
		if total > sets.ListMax && b.asked == 0 {
			t.Errorf("%s: a large set was read without asking", text)
		}
		return total
	}
	var both, all, two, none uint64
	for i := range n {
		switch {
		case i%2 == 0 && i%5 > 0:
			all++
			fallthrough
		case i%2 == 0:
			both++
		case i%5 == 0:
			none++
		}
	}
	two = both - all
	for text, want := range map[string]uint64{
		"followers(" + star + ")":                                                                            uint64(n),
		"intersect(followers(" + star + "),followers(" + other + "))":                                        both,
		"intersect(followers(" + star + "),followers(" + other + "),followers(" + third + "))":               all,
		"intersect(followers(" + third + "),followers(" + other + "),followers(" + star + "))":               all,
		"except(followers(" + star + "),followers(" + other + "),followers(" + third + "))":                  none,
		"except(followers(" + other + "),followers(" + third + "))":                                          two,
		"union(followers(" + third + "),followers(" + other + "))":                                           uint64(n) - none,
		"intersect(union(followers(" + other + ")),union(followers(" + third + ")),followers(" + star + "))": all,
		"intersect(followers(" + star + "),members(" + oracle.Account(7) + "," + unseenDID + "))":            1,
		"intersect(followers(" + star + "),followers(" + unseenDID + "))":                                    0,
	} {
		if got := count(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	window := parsed(t, "followers("+star+",since=1970-01-01)")
	place := Place{}
	result := func(e *language.Expr) (total uint64, err error) {
		err = on(t, g, e, free(), func(v *Evaluation) (err error) {
			_, total, err = v.Result()
			return err
		})
		return total, err
	}
	if total, err := result(window); err != nil || total != uint64(n) {
		t.Errorf("a window on %d members, nearly all dated: %d, %v", n, total, err)
	}
	recent := parsed(t, "followers("+star+",since="+oracle.Begin.Add(time.Duration(n-9)*10*time.Microsecond).Format(time.RFC3339Nano)+")")
	// All members came within a second, so a window that begins in it reads the records of all.
	_, err := result(recent)
	limit, ok := errors.AsType[*LimitError](err)
	if !ok || !strings.Contains(limit.What, "followers with since or until") || !strings.Contains(limit.Error(), "above 50000 such members; this set has 50001") {
		t.Errorf("a window that begins within the second of %d members: %v", n, err)
	}
	g.Uncrowd(0)
	if total, err := result(recent); err != nil || total != 9 {
		t.Errorf("a window that begins within the second of %d members: %d, %v", n-1, total, err)
	}
	if total, err := result(window); err != nil || total != MaxWindowed {
		t.Errorf("a window on %d members: %d, %v", MaxWindowed, total, err)
	}
	must(t, on(t, g, parsed(t, "followers("+star+")"), free(), func(v *Evaluation) error {
		set, _, err := v.Result()
		must(t, err)
		page, last, err := v.Records(v.Expr.Root.Source(), set, &place, 10, OrderAt(noon, false))
		if err != nil || len(page) != 10 || !place.Sorted || last == nil || !last.Sorted {
			t.Fatalf("%d records, sorted: %v, then %+v: %v", len(page), place.Sorted, last, err)
		}
		for i, r := range page { // all have the same date
			if want := oracle.Begin.Add(time.Duration(n-1-i) * 10 * time.Microsecond).UnixMicro(); int64(ask.TimeOf(r.Path)) != want {
				t.Errorf("record %d of the page is of %d, want %d", i, ask.TimeOf(r.Path), want)
			}
		}
		return nil
	}))
}
