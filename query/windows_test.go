package query_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
)

// spreadLimits have rows and chunks spilled soon.
var spreadLimits = write.Limits{Row: 6, Chunk: 3}

// spread is a world over centuries, whose chunks and rows are spilled.
func spread(t *testing.T, seed uint64) *world {
	return newWorldOf(t, oracle.NewSpreadHistory(seed, 30), spreadLimits, 5000)
}

// span is a window of the model, in microseconds: [from, to), or all.
type span struct {
	all      bool
	from, to int64
}

// micros is the time that a record key says.
func micros(rkey string) (at int64, ok bool) {
	tid, ok := dict.ParseTID(rkey)
	return int64(tid >> 10), ok
}

func (s span) has(rkey string) bool {
	at, ok := micros(rkey)
	return s.all || ok && at >= s.from && at < s.to
}

// span picks a window, mostly one that begins or ends at a record, or a microsecond
// beside it, and returns what asks for it.
func (w *world) span(rng *rand.Rand, times []int64) (s span, ask string) {
	if rng.IntN(5) == 0 {
		return span{all: true}, ""
	}
	at := func() int64 { return times[rng.IntN(len(times))] + rng.Int64N(3) - 1 }
	s = span{false, 0, math.MaxInt64}
	if rng.IntN(4) > 0 {
		s.from = at()
		ask += ", since=" + time.UnixMicro(s.from).UTC().Format(time.RFC3339Nano)
	}
	if ask == "" || rng.IntN(2) == 0 {
		if s.to = at(); s.to <= s.from {
			s.to = s.from + 1 + rng.Int64N(1<<40)
		}
		ask += ",until=" + time.UnixMicro(s.to).UTC().Format(time.RFC3339Nano)
	}
	return s, ask
}

// in computes the sets of the records in a window.
func (w *world) in(s span) oracle.Views {
	return oracle.ViewsOf(func(yield func(oracle.Edge) bool) {
		for p, subject := range w.model.Records {
			if s.has(p.Rkey) && !yield(oracle.Edge{Kind: p.Kind, Actor: p.DID, Subject: subject}) {
				return
			}
		}
	}, func(did string) bool { return w.model.Hidden[did] })
}

func (w *world) times() (all []int64) {
	for p := range w.model.Records {
		if at, ok := micros(p.Rkey); ok {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return all
}

// leaf picks a set, its name, and its members.
func (w *world) leaf(rng *rand.Rand, s span, v oracle.Views) (k kinds.Info, name, of string, members []string) {
	if rng.IntN(5) == 0 {
		name, of, members = w.listLeaf(rng, s)
		return kinds.Info{Forward: "lists", Reverse: "listed"}, name, of, members
	}
	k = named[rng.IntN(len(named))]
	accounts := w.history.Accounts()
	of = accounts[rng.IntN(len(accounts))]
	if rng.IntN(2) == 0 {
		return k, k.Forward, of, v.Forward[k.Name][of]
	}
	if k.To.Is().String() == "uri" {
		posts := w.posts(w.in(span{all: true}))
		of = posts[rng.IntN(len(posts))]
	}
	return k, k.Reverse, of, v.Reverse[k.Name][of]
}

// A window has the edges of exactly the records in it.
func TestWindows(t *testing.T) {
	t.Parallel()
	w := spread(t, 21)
	rng := rand.New(rand.NewPCG(9, 9))
	times := w.times()
	some := 0
	for range 1500 {
		s, ask := w.span(rng, times)
		v := w.in(s)
		_, name, of, want := w.leaf(rng, s, v)
		set := name + "(" + of + ask + ")"
		got, totals := w.all(set, 7, nil)
		slices.Sort(got)
		if !slices.Equal(got, want) || totals[0] != len(want) {
			t.Fatalf("%s: %q, want %q", set, got, want)
		}
		some += len(want)
		s2, ask2 := w.span(rng, times)
		_, name2, of2, other := w.leaf(rng, s2, w.in(s2))
		both := fmt.Sprintf("intersect(%s,%s(%s%s))", set, name2, of2, ask2)
		if isURI(of, name) != isURI(of2, name2) {
			continue
		}
		got, _ = w.all(both, 7, nil)
		if want := intersect(want, other); len(got) != len(want) || len(intersect(got, want)) != len(want) {
			t.Fatalf("%s: %q, want %q", both, got, want)
		}
		if len(want) > 0 {
			m := append(slices.Clone(want), other...)[rng.IntN(len(want))]
			if strings.HasPrefix(m, "at://handle") { // it would be resolved first
				continue
			}
			var in struct {
				Members []struct{ Contained bool }
			}
			w.ask("blue.skein.graph.contains", url.Values{"set": {both}, "member": {m}}, &in)
			if in.Members[0].Contained != slices.Contains(intersect(want, other), m) {
				t.Fatalf("%s contains %s: %v", both, m, in)
			}
		}
	}
	if some < 500 {
		t.Errorf("the windows had %d members", some)
	}
}

// isURI reports whether a set is of URIs.
func isURI(of, name string) bool {
	if name == "lists" {
		return true
	}
	for _, k := range kinds.All {
		if k.Forward == name {
			return k.To.Is().String() == "uri"
		}
	}
	return false
}

// An age is counted from when the first page was asked for.
func TestAges(t *testing.T) {
	w := newWorld(t, 22, 0)
	actor := w.history.Accounts()[0]
	now := time.Now()
	for i, age := range []time.Duration{time.Second, time.Hour, 3 * time.Hour, 30 * time.Hour, 8 * 24 * time.Hour, -time.Hour} {
		key := string(dict.AppendTID(nil, uint64(now.Add(-age).UnixMicro())<<10))
		w.happen(&oracle.Event{
			Type: oracle.CommitEvent, Seq: int64(i + 1), DID: actor, Rev: oracle.TID(uint64(i+1) << 20),
			Ops: []oracle.Op{{Kind: "follow", Rkey: key, Subject: w.history.Accounts()[i+1]}},
		})
	}
	for ask, want := range map[string]int{
		"since=" + now.Add(-time.Minute).UTC().Format(time.RFC3339): 2, "since=1970-01-01": 6, "until=9999-12-31": 6, "since=2560-01-01": 0, "since=2020-01-01,until=9999-12-31": 6, "until=1970-01-01": 0, "until=2900-01-01": 6, "since=0s": 0,
	} {
		if a := w.query(url.Values{"set": {"follows(" + actor + "," + ask + ")"}}); a.Total != want {
			t.Errorf("%s: %d, want %d", ask, a.Total, want)
		}
	}
	set := "follows(" + actor + ",since=24h)"
	first := w.query(url.Values{"set": {set}, "limit": {"1"}})
	again := w.query(url.Values{"set": {set}, "limit": {"1"}, "cursor": {first.Cursor}})
	if again.Total != 3 || len(again.Members) != 1 || again.Members[0] == first.Members[0] {
		t.Errorf("the second page: %+v after %+v", again, first)
	}
}

func TestBadWindows(t *testing.T) {
	w := newWorld(t, 23, 50)
	d := w.history.Accounts()[0]
	for set, want := range map[string]string{
		"follows(" + d + ", since=yesterday)":             `since: "yesterday" is not a time; write`,
		"follows(" + d + ", since=)":                      "expected a time after since=",
		"follows(" + d + ", since=1h, since=2h)":          "since is given twice",
		"follows(" + d + ", before=1h)":                   "follows takes one argument, optionally followed by since=TIME and until=TIME",
		"follows(" + d + ", " + d + ")":                   "follows takes one argument, optionally followed by since=TIME and until=TIME",
		"follows(" + d + ", since=1h, until=2h)":          "since (1h) must be earlier than until (2h)",
		"follows(" + d + ", since=-1h)":                   "is not a time",
		"members(" + d + ", since=1h)":                    `the argument "since=1h" of members is neither a DID nor an AT URI`,
		"intersect(follows(" + d + "), since=1h)":         `"since=1h" is not a set or an operator`,
		"follows(since=1h)":                               `the argument "since=1h" of follows is neither`,
		"follows(" + d + ", since=99999999999999999999d)": "is not a time",
		"follows(" + d + ", since=2026-13-01)":            "is not a time",
		"follows(" + d + ", since=2026-11-22T06:00:00)":   "is not a time",
		"follows(" + d + ", until=2026-11-22T06:00:00Z":   "expected \",\" or \")\"",
	} {
		status, body, _ := w.get("/xrpc/blue.skein.graph.query?set=" + url.QueryEscape(set))
		if status != 400 || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), want) {
			t.Errorf("%s: %d %s, want %q", set, status, body, want)
		}
	}
	if status, body, _ := w.get("/xrpc/blue.skein.graph.rank?of=follows(" + d + ")&via=likes&since=soon"); status != 400 || !strings.Contains(body, "parameter since") {
		t.Errorf("rank: %d %s", status, body)
	}
}

type ranked struct {
	Type         string
	Of, Accounts uint64
	Items        []struct {
		Member             string
		Count              int
		Total, Share, Lift uint64
	}
	Cursor string
}

// A ranking in a window, by share and by lift, with a lowest count, and of recent
// subjects, is that of the model.
func TestRankBy(t *testing.T) {
	t.Parallel()
	w := spread(t, 24)
	rng := rand.New(rand.NewPCG(10, 10))
	times := w.times()
	accounts := 0
	for did := range w.model.Repos {
		if !w.model.Hidden[did] {
			accounts++
		}
	}
	scored, turned := 0, 0
	for range 400 {
		s, ask := w.span(rng, times)
		v := w.in(s)
		via := []string{"follows", "likes", "reposts", "blocks", "followers", "blockers"}[rng.IntN(6)]
		dirs := func(v oracle.Views, back bool) map[string][]string {
			for _, k := range kinds.All {
				switch {
				case via == k.Forward != back && (via == k.Forward || via == k.Reverse):
					return v.Forward[k.Name]
				case via == k.Forward || via == k.Reverse:
					return v.Reverse[k.Name]
				}
			}
			return nil
		}
		of, members := w.expression(rng, true, 1)
		least := 1 + rng.IntN(3)
		p := url.Values{"of": {of}, "via": {via}, "limit": {fmt.Sprint(1 + rng.IntN(40))}, "min": {fmt.Sprint(least)}}
		for part := range strings.SplitSeq(ask, ",") {
			if name, t, ok := strings.Cut(strings.TrimSpace(part), "="); ok {
				p.Set(name, t)
			}
		}
		by := []string{"count", "share", "lift"}[rng.IntN(3)]
		p.Set("by", by)
		since := int64(0)
		if isURI("", via) && rng.IntN(2) == 0 {
			since = times[rng.IntN(len(times))]
			p.Set("subjectsSince", time.UnixMicro(since).UTC().Format(time.RFC3339Nano))
		}
		counts := map[string]int{}
		for m := range members {
			for _, r := range dirs(v, false)[m] {
				if !w.model.Hidden[r] {
					counts[r]++
				}
			}
		}
		maps.DeleteFunc(counts, func(r string, n int) bool {
			at, ok := micros(r[strings.LastIndexByte(r, '/')+1:])
			return n < least || since > 0 && (!ok || at < since)
		})
		total := func(r string) int { return len(dirs(v, true)[r]) } // counts and totals are of the same edges
		better := func(x, y string) int {
			if by == "count" {
				return cmp.Compare(counts[y], counts[x])
			}
			return cmp.Or(cmp.Compare(counts[y]*total(x), counts[x]*total(y)), cmp.Compare(counts[y], counts[x]))
		}
		want := slices.SortedFunc(maps.Keys(counts), better)
		var limit int
		if _, err := fmt.Sscan(p.Get("limit"), &limit); err != nil {
			t.Fatal(err)
		}
		var got ranked
		w.ask("blue.skein.graph.rank", p, &got)
		for cursor, pages := got.Cursor, 1; cursor != ""; pages++ { // page after page, all of them, or some
			if len(got.Items) != pages*limit {
				t.Fatalf("%v: %d items on %d pages, and there are more", p, len(got.Items), pages)
			}
			if pages == 6 {
				want = want[:len(got.Items)]
				break
			}
			p.Set("cursor", cursor)
			var next ranked
			w.ask("blue.skein.graph.rank", p, &next)
			got.Items, cursor = append(got.Items, next.Items...), next.Cursor
			turned++
		}
		if len(got.Items) != len(want) {
			t.Fatalf("%v: %d items, want %d", p, len(got.Items), len(want))
		}
		seen := map[string]bool{}
		for i, g := range got.Items {
			if counts[g.Member] != g.Count || better(g.Member, want[i]) != 0 || seen[g.Member] {
				t.Fatalf("%v: item %d is %+v, want one as %s, with %d of %d", p, i, g, want[i], counts[want[i]], total(want[i]))
			}
			seen[g.Member] = true
			if by == "count" {
				continue
			}
			scored++
			score, said := float64(g.Count)/float64(total(g.Member)), g.Share
			if by == "lift" {
				said = g.Lift
				score *= float64(accounts) / float64(len(members))
			}
			if int(g.Total) != total(g.Member) || math.Abs(float64(said)-1e6*score) > 1 || g.Share*g.Lift > 0 || int(got.Of) != len(members) || int(got.Accounts) != accounts {
				t.Fatalf("%v: %+v of %d of %d accounts; want a total of %d and a score of %f; %d of %d", p, g, got.Of, got.Accounts, total(g.Member), score, len(members), accounts)
			}
		}
	}
	if scored < 300 || turned < 50 {
		t.Errorf("%d results were scored, %d pages turned", scored, turned)
	}
}

// record picks, of the records of an edge, the one that is shown.
func (w *world) record(k kinds.Info, actor, subject string, s span) string {
	since, _ := micros(subject[strings.LastIndexByte(subject, '/')+1:])
	if k.To.Is().String() == "did" {
		since = 0
	}
	tidOf := func(rkey string) uint64 { tid, _ := dict.ParseTID(rkey); return tid }
	sinceTID := tidOf(subject[strings.LastIndexByte(subject, '/')+1:])
	if since == 0 {
		sinceTID = 0
	}
	var after, before, other []string
	for p, of := range w.model.Records {
		if p.Kind != k.Name || p.DID != actor || of != subject || !s.has(p.Rkey) {
			continue
		}
		switch tid, ok := dict.ParseTID(p.Rkey); {
		case sinceTID == 0: // of a subject without a time the lowest key is shown
			other = append(other, p.Rkey)
		case !ok:
			other = append(other, p.Rkey)
		case tid >= sinceTID:
			after = append(after, p.Rkey)
		default:
			before = append(before, p.Rkey)
		}
	}
	rkey := ""
	switch {
	case len(after) > 0:
		rkey = slices.MinFunc(after, func(x, y string) int { return cmp.Compare(tidOf(x), tidOf(y)) })
	case len(before) > 0:
		rkey = slices.MaxFunc(before, func(x, y string) int { return cmp.Compare(tidOf(x), tidOf(y)) })
	case len(other) > 0:
		rkey = slices.Min(other)
	}
	return "at://" + actor + "/" + k.Collection + "/" + rkey
}

// recordsOf returns the records that are shown for the members of a leaf.
func (w *world) recordsOf(k kinds.Info, name, of string, members []string, s span) map[string]string {
	records := map[string]string{}
	for _, m := range members {
		actor, subject := of, m
		if name == k.Reverse {
			actor, subject = m, of
		}
		switch name {
		case "listed":
			records[m] = w.listRecord(of, m, s)
		case "lists":
			records[m] = w.listRecord(m, of, s)
		default:
			records[m] = w.record(k, actor, subject, s)
		}
	}
	return records
}

// list gives the newest first, page by page, and query the same records.
func TestList(t *testing.T) {
	t.Parallel()
	w := spread(t, 25)
	rng := rand.New(rand.NewPCG(11, 11))
	times := w.times()
	some, early := 0, 0
	for range 600 {
		s, ask := w.span(rng, times)
		v := w.in(s)
		k, name, of, members := w.leaf(rng, s, v)
		set := name + "(" + of + ask + ")"
		want := w.recordsOf(k, name, of, members, s)
		var items []struct{ Member, Record, Time string }
		for cursor := ""; ; {
			p := url.Values{"set": {set}, "limit": {fmt.Sprint(1 + rng.IntN(9))}}
			if cursor != "" {
				p.Set("cursor", cursor)
			}
			var got struct {
				Type, Order, Cursor string
				Total               int
				Items               []struct{ Member, Record, Time string }
			}
			w.ask("blue.skein.graph.list", p, &got)
			if got.Total != len(members) || got.Order != "newest" || got.Items == nil {
				t.Fatalf("%s: %+v, want %d", set, got, len(members))
			}
			items = append(items, got.Items...)
			if cursor = got.Cursor; cursor == "" {
				break
			}
		}
		if len(items) != len(want) {
			t.Fatalf("%s: %d items, want %d", set, len(items), len(want))
		}
		for i, it := range items {
			at, _ := micros(it.Record[strings.LastIndexByte(it.Record, '/')+1:])
			said := int64(0)
			if it.Time != "" {
				parsed, err := time.Parse(time.RFC3339Nano, it.Time)
				if err != nil {
					t.Fatal(err)
				}
				said = parsed.UnixMicro()
			}
			if want[it.Member] != it.Record || said != at {
				t.Fatalf("%s: %+v, want %s", set, it, want[it.Member])
			}
			if name == k.Reverse {
				if since, ok := micros(of[strings.LastIndexByte(of, '/')+1:]); ok && at > 0 && at < since {
					early++
				}
			}
			delete(want, it.Member)
			if i > 0 && it.Time > items[i-1].Time {
				t.Fatalf("%s: %s comes after %s", set, it.Time, items[i-1].Time)
			}
		}
		some += len(items)
		var got struct{ Members, Records []string }
		w.ask("blue.skein.graph.query", url.Values{"set": {set}, "records": {"true"}, "limit": {"1000"}}, &got)
		if len(got.Records) != len(items) {
			t.Fatalf("%s: %d records, want %d", set, len(got.Records), len(items))
		}
		for i, m := range got.Members {
			if !slices.ContainsFunc(items, func(it struct{ Member, Record, Time string }) bool {
				return it.Member == m && it.Record == got.Records[i]
			}) {
				t.Fatalf("%s: %s by %s, not so in the list", set, m, got.Records[i])
			}
		}
	}
	if some < 500 || early < 5 {
		t.Errorf("%d items, %d of them from before their subject", some, early)
	}
	for _, ask := range []string{"list?set=union(follows(did:plc:a))", "query?records=true&set=members(did:web:a.example)"} {
		if status, body, _ := w.get("/xrpc/blue.skein.graph." + ask); status != 400 {
			t.Errorf("%s: %d %s", ask, status, body)
		}
	}
}

// The ends of a window are compared exactly: to the first key that there is, below the
// microsecond that keys count, and outside of the times that keys can name.
func TestWindowEnds(t *testing.T) {
	w := newWorld(t, 26, 0)
	actor, seq := w.history.Accounts()[0], int64(0)
	follow := func(tid uint64) {
		seq++
		w.happen(&oracle.Event{
			Type: oracle.CommitEvent, Seq: seq, DID: actor, Rev: oracle.TID(uint64(seq) << 20),
			Ops: []oracle.Op{{Kind: "like", Rkey: string(dict.AppendTID(nil, tid)), Subject: "at://" + actor + "/app.bsky.feed.post/" + string(dict.AppendTID(nil, tid))}},
		})
	}
	at := time.Date(2026, 11, 22, 6, 0, 0, 123_456_000, time.UTC)
	follow(uint64(at.UnixMicro()-1)<<10 | 1023)
	follow(uint64(at.UnixMicro()) << 10)
	follow(uint64(at.UnixMicro())<<10 | 7)
	follow(uint64(at.UnixMicro()+1) << 10)
	follow(1)       // the first microsecond of 1970
	follow(1 << 10) // the second
	follow(1<<63 - 1)
	const all, odd = 7, "2026-11-22T06:00:00.123456"
	for ask, want := range map[string]int{
		"since=" + odd + "Z":                          4,
		"since=" + odd + "001Z":                       2,
		"since=" + odd + "999Z":                       2,
		"since=2026-11-22T06:00:00.123455001Z":        4,
		"until=" + odd + "Z":                          3,
		"until=" + odd + "001Z":                       5,
		"until=2026-11-22T06:00:00.123455999Z":        3,
		"since=" + odd + "Z,until=" + odd + "001Z":    2,
		"since=" + odd + "001Z,until=" + odd + "002Z": 0,
		"until=1970-01-01T00:00:00Z":                  0,
		"until=1970-01-01T00:00:00.000000001Z":        1,
		"until=1970-01-01T00:00:00.000001Z":           1,
		"until=1970-01-01T00:00:00.000002Z":           2,
		"since=1970-01-01T00:00:00Z":                  all,
		"since=1970-01-01T00:00:00.0000001Z":          all - 1,
		"since=1969-12-31T23:59:59.9999999Z":          all,
		"since=0001-01-01":                            all,
		"until=1969-12-31":                            0,
		"since=1950-01-01,until=1960-01-01":           0,
		"since=1950-01-01,until=2300-01-01":           all,
		"until=2255-06-05T23:47:34.740992Z":           all,
		"since=2255-06-05T23:47:34.740991Z":           1,
		"since=2255-06-05T23:47:34.740992Z":           0,
		"since=2255-06-06":                            0,
		"since=2300-01-01,until=2400-01-01":           0,
		"since=9999-12-31":                            0,
		"until=9999-12-31":                            all,
	} {
		set := "likes(" + actor + "," + ask + ")"
		if a := w.query(url.Values{"set": {set}}); a.Total != want {
			t.Errorf("%s: %d, want %d", ask, a.Total, want)
		}
		p := url.Values{"of": {"members(" + actor + ")"}, "via": {"likes"}}
		for part := range strings.SplitSeq(ask, ",") {
			name, at, _ := strings.Cut(part, "=")
			p.Set(name, at)
		}
		var got ranked
		if w.ask("blue.skein.graph.rank", p, &got); len(got.Items) != want {
			t.Errorf("rank, %s: %d, want %d", ask, len(got.Items), want)
		}
		if since, ok := strings.CutPrefix(ask, "since="); ok && !strings.Contains(ask, "until") {
			p = url.Values{"of": {"members(" + actor + ")"}, "via": {"likes"}, "subjectsSince": {since}}
			if w.ask("blue.skein.graph.rank", p, &got); len(got.Items) != want {
				t.Errorf("subjectsSince=%s: %d, want %d", since, len(got.Items), want)
			}
		}
	}
	for _, bad := range []string{"since=" + odd + "001Z,until=" + odd + "001Z", "since=1960-01-01,until=1960-01-01", "since=2400-01-01,until=2300-01-01"} {
		status, body, _ := w.get("/xrpc/blue.skein.graph.query?set=" + url.QueryEscape("likes("+actor+","+bad+")"))
		if status != 400 || !strings.Contains(body, "must be earlier than until") {
			t.Errorf("%s: %d %s", bad, status, body)
		}
	}
}
