package query_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

const labeler = "did:plc:llllllllllllllllllllllll"

// labeledWorld is a world in which a labeler says spam of some accounts and of a post.
func labeledWorld(t *testing.T) (w *world, say func(change func(*format.Labeler), labels ...batch.Label)) {
	w = newWorld(t, 26, 300)
	var state format.Labeler
	say = func(change func(*format.Labeler), labels ...batch.Label) {
		t.Helper()
		after := state
		after.Name, after.DID, after.Seq, after.Current, after.Seen = labeler, labeler, state.Seq+1, true, time.Now().UTC()
		if change != nil {
			change(&after)
		}
		if err := w.store.ApplyLabels(t.Context(), time.Now(), labels, state, after); err != nil {
			t.Fatal(err)
		}
		state = after
	}
	return w, say
}

func spam(subject string, at time.Time) batch.Label {
	return batch.Label{Labeler: labeler, Subject: subject, Value: "spam", LabelEntry: format.LabelEntry{Time: at.UnixMicro()}}
}

func (w *world) refused(path string, want ...string) {
	w.t.Helper()
	status, body, _ := w.get(path)
	for _, part := range want {
		if status != 400 || !strings.Contains(body, part) {
			w.t.Errorf("%s: %d %s, want %q", path, status, body, part)
		}
	}
}

// What a labeler said is a set for every method: query, contains, list, histogram.
func TestLabeledSets(t *testing.T) {
	w, say := labeledWorld(t)
	set := "labeled(" + labeler + ",spam)"
	path := "/xrpc/blue.skein.graph.query?set=" + url.QueryEscape(set)
	w.refused(path, "has no labels of any labeler", "--labelers")
	visible := slices.DeleteFunc(slices.Clone(w.history.Accounts()), func(did string) bool { return w.model.Hidden[did] })
	post := "at://" + visible[0] + "/app.bsky.feed.post/3kkkkkkkkkkkk"
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var labels []batch.Label
	for i, did := range visible[:8] {
		labels = append(labels, spam(did, begin.Add(time.Duration(i)*time.Hour)))
	}
	say(nil, append(labels, spam(post, begin))...)
	w.refused("/xrpc/blue.skein.graph.query?set="+url.QueryEscape("labeled(did:plc:mmmmmmmmmmmmmmmmmmmmmmmm,spam)"), "unknown labeler did:plc:m", labeler)

	w.refused("/xrpc/blue.skein.graph.subscribe?set="+url.QueryEscape("labeled(did:plc:mmmmmmmmmmmmmmmmmmmmmmmm,spam)"), "unknown labeler")
	w.refused(path+"&records=true", "a label is not a record")
	var results struct{ Items []struct{ Member string } }
	w.ask("blue.skein.graph.rank", url.Values{"of": {"follows(" + visible[0] + ")"}, "via": {"likes"}, "except": {set}}, &results)
	w.ask("blue.skein.graph.rank", url.Values{"of": {set}, "via": {"likers"}}, &results)
	old := format.Labeler{Name: "https://labels.example.com", DID: labeler, Problem: format.LabelerRemoved} // an earlier name of it
	if err := w.store.ApplyLabels(t.Context(), time.Now(), nil, old, old); err != nil {
		t.Fatal(err)
	}

	got, totals := w.all(set, 3, nil)
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(visible[:8])); !slices.Equal(got, want) || totals[0] != 8 {
		t.Errorf("%q of %v, want %q", got, totals, want)
	}
	if a := w.query(url.Values{"set": {"intersect(members(" + post + "), " + set + ")"}}); a.Total != 1 || a.Type != "uri" {
		t.Errorf("the post: %+v", a)
	}
	if a := w.query(url.Values{"set": {"labeled(" + labeler + ",spam,since=2026-05-01T14:00:00Z,until=2026-05-01T17:00:00Z)"}}); a.Total != 3 {
		t.Errorf("a window: %+v", a)
	}
	var in struct {
		Members []struct{ Contained bool }
	}
	w.ask("blue.skein.graph.contains", url.Values{"set": {set}, "member": {visible[3], visible[9]}}, &in)
	if len(in.Members) != 2 || !in.Members[0].Contained || in.Members[1].Contained {
		t.Errorf("contains: %+v", in)
	}
	var listed struct {
		Order string
		Items []struct{ Member, Record, Time string }
	}
	w.ask("blue.skein.graph.list", url.Values{"set": {set}, "limit": {"2"}}, &listed)
	if len(listed.Items) != 2 || listed.Order != "newest" || listed.Items[0].Member != visible[7] || listed.Items[0].Record != "" || listed.Items[0].Time != "2026-05-01T19:00:00.000000Z" {
		t.Errorf("list: %+v", listed)
	}
	var drawn struct {
		Buckets []struct{ Count int }
	}
	w.ask("blue.skein.graph.histogram", url.Values{"set": {set}, "bucket": {"2h"}, "since": {"2026-05-01T12:00:00Z"}, "until": {"2026-05-01T20:00:00Z"}}, &drawn)
	for _, b := range drawn.Buckets {
		if len(drawn.Buckets) != 4 || b.Count != 2 {
			t.Errorf("histogram: %+v", drawn)
		}
	}
}

// An answer with a labeler's labels says when they may be incomplete, and only then.
func TestIncompleteLabels(t *testing.T) {
	w, say := labeledWorld(t)
	set := url.Values{"set": {"labeled(" + labeler + ",spam)"}}
	say(nil)
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
		var a struct {
			Incomplete bool
			Reason     string
		}
		w.ask("blue.skein.graph.query", set, &a)
		if a.Incomplete != (c.reason != "") || !strings.Contains(a.Reason, c.reason) || strings.Contains(a.Reason, "10.0.0.1") {
			t.Errorf("%+v, want %q", a, c.reason)
		}
		var stats struct {
			Labelers []struct {
				DID     string
				Cursor  int
				Reason  string
				Current bool
			}
		}
		w.ask("blue.skein.graph.getStats", nil, &stats)
		if len(stats.Labelers) != 1 || stats.Labelers[0].Reason != a.Reason || stats.Labelers[0].DID != labeler || stats.Labelers[0].Cursor == 0 {
			t.Errorf("getStats: %+v", stats)
		}
	}
}

// A labeler that was configured under another name before is one labeler.
func TestLabelerOfTwoNames(t *testing.T) {
	w, say := labeledWorld(t)
	say(nil)
	old := format.Labeler{Name: "https://labels.example.com", DID: labeler, Problem: format.LabelerRemoved}
	if err := w.store.ApplyLabels(t.Context(), time.Now(), nil, old, old); err != nil {
		t.Fatal(err)
	}
	var a struct{ Reason string }
	w.ask("blue.skein.graph.query", url.Values{"set": {"labeled(" + labeler + ",spam)"}}, &a)
	var stats struct{ Labelers []struct{ DID string } }
	w.ask("blue.skein.graph.getStats", nil, &stats)
	if a.Reason != "" || len(stats.Labelers) != 1 {
		t.Errorf("%q, %+v", a.Reason, stats)
	}
}

// A subscription receives what gets a label, and what loses it.
func TestSubscribeToLabels(t *testing.T) {
	t.Parallel()
	w, say := labeledWorld(t)
	visible := slices.DeleteFunc(slices.Clone(w.history.Accounts()), func(did string) bool { return w.model.Hidden[did] })
	say(nil)
	set := "except(members(" + strings.Join(visible[:4], ",") + "),labeled(" + labeler + ",spam))"
	members := map[string]bool{}
	for _, did := range visible[:4] {
		members[did] = true
	}
	l := w.listen(set, "", members)
	say(nil, spam(visible[1], time.Now()), spam(visible[2], time.Now()))
	l.becomes(map[string]bool{visible[0]: true, visible[3]: true})
	taken := spam(visible[2], time.Now().Add(time.Second))
	taken.Negated = true
	say(nil, taken)
	l.becomes(map[string]bool{visible[0]: true, visible[2]: true, visible[3]: true})
}
