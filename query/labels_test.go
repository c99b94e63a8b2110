package query_test

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/query"
)

const (
	labeler = "did:plc:llllllllllllllllllllllll"
	other   = "did:plc:mmmmmmmmmmmmmmmmmmmmmmmm"
)

// labeledWorld is a world in which a labeler says spam of some accounts and of a post.
func labeledWorld(t *testing.T) (w *world, visible []string, say func(change func(*format.Labeler), labels ...batch.Label)) {
	w = newWorld(t, 26, 300)
	var state format.Labeler
	say = func(change func(*format.Labeler), labels ...batch.Label) {
		t.Helper()
		after := state
		after.Name, after.DID, after.Seq, after.Current, after.Seen = labeler, labeler, state.Seq+1, true, time.Now().UTC()
		if change != nil {
			change(&after)
		}
		must(t, w.store.ApplyLabels(t.Context(), time.Now(), labels, state, after))
		state = after
	}
	return w, slices.DeleteFunc(slices.Clone(w.history.Accounts()), func(did string) bool { return w.model.Hidden[did] }), say
}

func spam(subject string, at time.Time) batch.Label {
	return batch.Label{Labeler: labeler, Subject: subject, Value: "spam", LabelEntry: format.LabelEntry{Time: at.UnixMicro()}}
}

const labeled = "labeled(" + labeler + ",spam)"

// What a labeler said is a set for every method: query, contains, list, histogram, rank, subscribe.
func TestLabeledSets(t *testing.T) {
	t.Parallel()
	w, visible, say := labeledWorld(t)
	w.says("query?set="+labeled, 400, "--labelers")
	post := "at://" + visible[0] + "/app.bsky.feed.post/3kkkkkkkkkkkk"
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	labels := []batch.Label{spam(post, begin)}
	for i, did := range visible[:8] {
		labels = append(labels, spam(did, begin.Add(time.Duration(i)*time.Hour)))
	}
	say(nil, labels...)
	w.says("query?set=labeled(did:plc:mmmmmmmmmmmmmmmmmmmmmmmm,spam)", 400, "unknown labeler did:plc:m")
	w.says("subscribe?set=labeled(did:plc:mmmmmmmmmmmmmmmmmmmmmmmm,spam)", 400, "unknown labeler")
	w.says("query?records=true&set="+labeled, 400, "a label is not a record")
	w.answer("rank", url.Values{"of": {"follows(" + visible[0] + ")"}, "via": {"likes"}, "except": {labeled}})
	w.answer("rank", url.Values{"of": {labeled}, "via": {"likers"}})

	got, totals := w.all(labeled, 3, nil)
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(visible[:8])); !slices.Equal(got, want) || totals[0] != 8 {
		t.Errorf("%q of %v, want %q", got, totals, want)
	}
	if a := w.query("intersect(members(" + post + "), " + labeled + ")"); a.Total != 1 || a.Type != "uri" {
		t.Errorf("the post: %+v", a)
	}
	if a := w.query("labeled(" + labeler + ",spam,since=2026-05-01T14:00:00Z,until=2026-05-01T17:00:00Z)"); a.Total != 3 {
		t.Errorf("a window: %+v", a)
	}
	if in := w.contains(labeled, visible[3], visible[9]); !in[0] || in[1] {
		t.Errorf("contains: %v", in)
	}
	if a := w.answer("list", url.Values{"set": {labeled}, "limit": {"2"}}); a.Order != "newest" || !slices.Equal(a.Items, []item{{Member: visible[7], Time: "2026-05-01T19:00:00.000000Z"}, {Member: visible[6], Time: "2026-05-01T18:00:00.000000Z"}}) {
		t.Errorf("list: %+v", a)
	}
	w.says("histogram?bucket=4h&since=2026-05-01T12:00:00Z&until=2026-05-01T20:00:00Z&set="+labeled, 200, `"buckets":[{"start":"2026-05-01T12:00:00Z","count":4},{"start":"2026-05-01T16:00:00Z","count":4}]`)

	w.serve(query.Options{})
	conn, err := w.dial("except(members("+strings.Join(visible[8:12], ",")+"),"+labeled+")", "")
	must(t, err)
	next := func() (c change) {
		t.Helper()
		must(t, conn.ReadJSON(&c))
		return c
	}
	next()
	say(nil, spam(visible[9], time.Now()))
	if c := next(); !slices.Equal(c.Left, visible[9:10]) || c.Entered != nil {
		t.Errorf("labeled: %+v", c)
	}
	taken := spam(visible[9], time.Now().Add(time.Second))
	taken.Negated = true
	say(nil, taken)
	if c := next(); !slices.Equal(c.Entered, visible[9:10]) || c.Left != nil {
		t.Errorf("taken back: %+v", c)
	}
}

// An answer with a labeler's labels says when they may be incomplete, and only then.
func TestIncompleteLabels(t *testing.T) {
	w, _, say := labeledWorld(t)
	say(nil)
	old := format.Labeler{Name: "https://labels.example.com", DID: labeler, Problem: format.LabelerRemoved} // an earlier name of it
	good := format.Labeler{Name: other, DID: other, Seq: 1, Current: true, Seen: time.Now()}
	must(t, errors.Join(w.store.ApplyLabels(t.Context(), time.Now(), nil, old, old), w.store.ApplyLabels(t.Context(), time.Now(), nil, good, good)))
	for _, c := range []struct {
		change func(*format.Labeler)
		reason string
	}{
		{func(*format.Labeler) {}, ""},
		{func(l *format.Labeler) { l.Current = false }, "skein may not have read all labels of " + labeler + " yet"},
		{func(l *format.Labeler) { l.Current, l.Problem = false, "connecting to 10.0.0.1: refused" }, "cannot read labeler "},
		{func(l *format.Labeler) { l.Problem, l.Seen = "", time.Now().Add(-time.Hour) }, "last read labeler"},
		{func(l *format.Labeler) { l.Current, l.Problem = false, format.LabelerRemoved }, "no longer reads labeler"},
		{func(l *format.Labeler) { l.Missed, l.Problem = time.Unix(1700000000, 0).UTC(), "" }, "no longer has all of its labels"},
	} {
		say(c.change)
		a := w.query(labeled)
		if a.Incomplete != (c.reason != "") || !strings.Contains(a.Reason, c.reason) || strings.Contains(a.Reason, "10.0.0.1") {
			t.Errorf("%+v, want %q", a, c.reason)
		}
		if n := w.query("union(" + labeled + ",labeled(" + labeler + ",rude))").Missing.Labelers; a.Incomplete != (n == 1) || n > 1 {
			t.Errorf("two sets of one labeler miss %d labelers", n)
		}
		var on struct{ Reason string }
		w.ask("labels", url.Values{"subject": {labeler}}, &on)
		var at, of struct{ Reason string }
		w.ask("com.atproto.label.queryLabels", url.Values{"uriPatterns": {"*"}, "sources": {labeler}}, &at)
		w.ask("com.atproto.label.queryLabels", url.Values{"uriPatterns": {"*"}, "sources": {other}}, &of)
		if on.Reason != a.Reason || at.Reason != a.Reason || of.Reason != "" {
			t.Errorf("labels: %q, queryLabels: %q, want %q; of another labeler: %q", on.Reason, at.Reason, a.Reason, of.Reason)
		}
		var stats struct {
			Labelers []struct {
				DID, Reason string
				Cursor      int
				Current     bool
			}
		}
		w.ask("getStats", nil, &stats)
		if len(stats.Labelers) != 2 || stats.Labelers[0].Reason != a.Reason || stats.Labelers[0].DID != labeler || stats.Labelers[0].Cursor == 0 {
			t.Errorf("getStats: %+v", stats)
		}
	}
}

// labels has what is in effect: of all subjects, by every labeler, and nothing of an inactive account.
func TestLabels(t *testing.T) {
	t.Parallel()
	w, visible, say := labeledWorld(t)
	w.says("labels?subject="+visible[0], 400, "this server reads no labelers (operators: --labelers)")
	post := "at://" + visible[0] + "/app.bsky.feed.post/3kkkkkkkkkkkk"
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	hidden := slices.IndexFunc(w.history.Accounts(), func(did string) bool { return w.model.Hidden[did] })
	if hidden < 0 {
		t.Fatal("no account is hidden")
	}
	named := func(l batch.Label, value string) batch.Label { l.Value = value; return l }
	negated, version, ends := spam(visible[1], begin.Add(time.Hour)), spam(post, begin), named(spam(visible[2], begin), "rude")
	negated.Negated, version.CID, ends.Expires = true, "bafyversion", begin.AddDate(200, 0, 0).UnixMicro()
	say(nil, spam(visible[0], begin), spam(visible[1], begin), negated, version, ends, spam(visible[2], begin.Add(time.Second)), spam(w.history.Accounts()[hidden], begin))
	var got struct {
		Labels []struct{ Src, URI, CID, Val, Cts, Exp string }
	}
	w.ask("labels", url.Values{"subject": append([]string{post, "at://did:web:unknown.example.com/a.b.c/1"}, w.history.Accounts()[:min(len(w.history.Accounts()), 90)]...)}, &got)
	var texts []string
	for _, l := range got.Labels {
		texts = append(texts, strings.Join([]string{l.Src, l.URI, l.CID, l.Val, l.Cts, l.Exp}, " "))
	}
	want := []string{
		labeler + " " + post + " bafyversion spam 2026-05-01T12:00:00Z ",
		labeler + " " + visible[0] + "  spam 2026-05-01T12:00:00Z ",
		labeler + " " + visible[2] + "  rude 2026-05-01T12:00:00Z 2226-05-01T12:00:00Z",
		labeler + " " + visible[2] + "  spam 2026-05-01T12:00:01Z ",
	}
	uri := func(text string) string { return strings.Fields(text)[1] }
	slices.SortStableFunc(want, func(x, y string) int { return strings.Compare(uri(x), uri(y)) })
	if !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
}

// queryLabels has the labels of the subjects that the patterns match, by the sources, once each on pages of every size.
func TestQueryLabels(t *testing.T) {
	t.Parallel()
	w, visible, say := labeledWorld(t)
	ask := func(limit string, patterns, sources []string) (all []string) {
		t.Helper()
		p := url.Values{"uriPatterns": patterns, "limit": {limit}}
		if sources != nil {
			p["sources"] = sources
		}
		for _, page := range w.pages("com.atproto.label.queryLabels", p, nil) {
			for _, l := range page.Labels {
				all = append(all, l.URI+" "+l.Src+" "+l.Val+" "+l.CID)
			}
		}
		return all
	}
	w.says("com.atproto.label.queryLabels?uriPatterns=*", 400, "reads no labelers")
	var want []string
	var labels []batch.Label
	add := func(l batch.Label) {
		labels, want = append(labels, l), append(want, strings.Join([]string{l.Subject, l.Labeler, l.Value, l.CID}, " "))
	}
	for i, did := range visible[:9] {
		for n := range 1 + i%3 {
			l := spam("at://"+did+"/app.bsky.feed.post/3kkkkkkkkkkk"+string(rune('a'+n)), time.Now())
			add(l)
			if l.CID = "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq"; n == 1 {
				add(l)
			}
		}
		l := spam(did, time.Now())
		add(l)
		l.Value = "rude"
		add(l)
	}
	for i := range 20_000 { // as many as one page reads
		l := spam(visible[8], time.Now())
		l.Value = strconv.Itoa(i)
		add(l)
	}
	say(nil, labels...)
	say(func(l *format.Labeler) { l.Name, l.DID = other, other })
	w.says("labels?subject="+visible[8], 200, `"reason":"these subjects have more than 20000 labels; not all were read"`)
	w.incomplete("labels?subject="+visible[0]+"&subject="+visible[7], false)
	matching := func(has func(uri string) bool) (some []string) {
		for _, l := range want {
			if has(l[:strings.Index(l, " ")]) {
				some = append(some, l)
			}
		}
		return slices.Sorted(slices.Values(some))
	}
	post := "at://" + visible[2] + "/app.bsky.feed.post/3kkkkkkkkkkka"
	for _, c := range []struct {
		patterns []string
		has      func(uri string) bool
	}{
		{[]string{"*"}, func(string) bool { return true }},
		{[]string{"did:*"}, func(uri string) bool { return strings.HasPrefix(uri, "did:") }},
		{[]string{"at://" + visible[2] + "/*", visible[4]}, func(uri string) bool { return strings.HasPrefix(uri, "at://"+visible[2]) || uri == visible[4] }},
		{[]string{post, visible[5], visible[5], visible[10], "at://" + visible[3] + "/app.bsky.feed.post/none"}, func(uri string) bool { return uri == post || uri == visible[5] }},
		{[]string{visible[2] + "*"}, func(uri string) bool { return uri == visible[2] }},
	} {
		for _, limit := range []string{"1", "2", "7", "250"} {
			if limit != "250" && len(matching(c.has)) > 1000 {
				continue
			}
			if got, some := slices.Sorted(slices.Values(ask(limit, c.patterns, []string{other, labeler}))), matching(c.has); !slices.Equal(got, some) || len(some) < 2 {
				t.Errorf("%q, pages of %s: %d labels, such as %q, want %d, such as %q", c.patterns, limit, len(got), got[:min(len(got), 7)], len(some), some[:min(len(some), 7)])
			}
		}
		if got := ask("9", c.patterns, []string{other}); got != nil {
			t.Errorf("%q by another labeler: %q", c.patterns, got)
		}
	}
	l := spam(visible[6], time.Now())
	l.Value = "third"
	say(nil, l)
	var first, second struct {
		Labels []struct{ Val string }
		Cursor string
	}
	w.ask("com.atproto.label.queryLabels", url.Values{"uriPatterns": {visible[6]}, "limit": {"2"}}, &first)
	l.Value, l.Negated, l.Time = first.Labels[0].Val, true, time.Now().UnixMicro() // between two pages
	say(nil, l)
	w.ask("com.atproto.label.queryLabels", url.Values{"uriPatterns": {visible[6]}, "limit": {"2"}, "cursor": {first.Cursor}}, &second)
	if all := append(first.Labels, second.Labels...); len(all) != 3 {
		t.Errorf("%q, then %q: want three labels", first.Labels, second.Labels)
	}
	for call, says := range map[string]string{
		"uriPatterns=did:*b": "is not an account or an AT URI", "uriPatterns=**": "end with a *", "uriPatterns=at://alice.example.com/*": "the beginning of a DID", "uriPatterns=x": "is not an account or an AT URI", "sources=" + labeler: "uriPatterns",
		"uriPatterns=*&sources=did:plc:nnnnnnnnnnnnnnnnnnnnnnnn": "unknown labeler did:plc:n", "uriPatterns=*&limit=251": "from 1 to 250", "uriPatterns=*&cursor=x": "the cursor does not belong",
	} {
		w.says("com.atproto.label.queryLabels?"+call, 400, says)
	}
}
