package query_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/sim/oracle"
)

// An answer that depends on an incomplete account is incomplete, and getAccount describes every
// account as the model does.
func TestIncomplete(t *testing.T) {
	w := newWorld(t, 91, 3000)
	anybody := false
	seen := map[string]int{}
	for _, r := range w.model.Repos {
		anybody = anybody || (r.Partial || r.Desync) && !r.Hidden
	}
	for _, did := range w.strings(true) {
		r, want := w.model.Repos[did], "complete"
		switch {
		case r == nil || r.Rev == "":
			want = "unknown"
		case r.Desync:
			want = "desynchronized"
		case r.Partial:
			want = "partial"
		}
		seen[want]++
		var a struct {
			DID, State, Description, Rev string
			Active                       bool
			Partial, Desynchronized      bool
			Records                      map[string]int
		}
		w.ask("getAccount", url.Values{"did": {did}}, &a)
		records := map[string]int{}
		for p := range w.model.Records {
			if p.DID == did {
				records[p.Kind]++
			}
		}
		if a.DID != did || a.State != want || a.Description == "" || a.Active == w.model.Hidden[did] || !maps.Equal(a.Records, records) {
			t.Errorf("%s: %+v, want %s with %v", did, a, want, records)
		}
		if r != nil && a.Rev != r.Rev || want == "unknown" && !a.Partial || want != "unknown" && (a.Partial != r.Partial || a.Desynchronized != r.Desync) {
			t.Errorf("%s: %+v, want %+v", did, a, r)
		}
		forward := want != "complete" && !w.model.Hidden[did] // the sets of a hidden account are empty, and that is all
		for call, incomplete := range map[string]bool{
			"list?set=follows(" + did + ")": forward, "query?set=listed(" + oracle.ListOf(did, 0) + ")": forward, "query?set=members(" + did + ")": false,
			"list?set=followers(" + did + ")": anybody, "query?set=lists(" + did + ")": anybody, "query?set=union(likes(" + did + "),likes(" + did + "))": forward,
			"contains?member=" + never + "&set=followers(" + did + ")": anybody,
		} {
			w.incomplete(call, incomplete)
		}
	}
	if seen["complete"] == 0 || seen["partial"] == 0 || seen["desynchronized"] == 0 || seen["unknown"] == 0 {
		t.Errorf("the accounts are %v", seen)
	}
}

// incomplete checks whether an answer says that it may be incomplete, and why.
func (w *world) incomplete(call string, want bool) {
	w.t.Helper()
	status, body, _ := w.get(call)
	if status != 200 || strings.Contains(body, `"incomplete":true,"reason":"`) != want || strings.Contains(body, "ncomplete") != want {
		w.t.Errorf("%s: %d %s, incomplete: want %v", call, status, body, want)
	}
}

// Where all is known, no answer says that something is missing. What depends on an account that is not is incomplete: on its
// own records, or on those of everybody.
func TestComplete(t *testing.T) {
	w := newWorld(t, 92, 0)
	a := w.history.Accounts()
	w.says("query?set=followers("+a[1]+")", 200, `"reason":"nothing is indexed yet"`)
	w.commit(1, a[0], oracle.Op{Kind: "follow", Rkey: "x", Subject: a[1]})
	everybody := []string{
		"query?set=followers(" + a[1] + ")", "list?set=followers(" + a[1] + ")", "histogram?set=followers(" + a[1] + ")", "list?set=follows(" + a[0] + ")&order=size(followers)", "list?set=follows(" + a[0] + ")&order=size(likes)",
		"getBlocks?actor=" + a[0] + "&direction=blockedBy", "counts?edge=followers&subject=" + a[1], "query?set=rank(of=members(" + never + "),via=followers)", "rank?of=members(" + never + ")&via=followers",
		"known?actor=" + a[0] + "&edge=followers&subject=" + a[1],
	}
	own := []string{"rank?of=members(" + a[0] + ")&via=follows", "query?set=follows(" + a[0] + ")", "list?set=follows(" + a[0] + ")", "list?set=follows(" + a[0] + ")&order=oldest", "list?set=follows(" + a[0] + ")&order=id", "query?set=members(" + a[0] + "," + never + ")"}
	for _, call := range append(everybody, own...) {
		w.incomplete(call, false)
	}
	ofUnknown := []string{ // accounts that are not in the network, as long as all of them are known
		"rank?of=members(" + never + ")&via=follows", "rank?of=members(" + a[0] + ")&via=follows&except=follows(" + never + ")",
		"counts?edge=follows&subject=" + a[0] + "&subject=" + never, "counts?edge=listed&subject=" + oracle.ListOf(never, 0),
		"getBlocks?actor=" + never + "&direction=blocking", "getBlocks?actor=" + a[0] + "&direction=blockedBy&others=" + never,
		"histogram?set=follows(" + never + ")", "query?set=rank(of=members(" + never + "),via=follows)", "query?set=rank(of=rank(of=members(" + never + "),via=follows),via=followers)",
		"rank?of=members(" + oracle.ListOf(never, 0) + ")&via=listed", "query?set=rank(of=union(members(" + oracle.ListOf(never, 0) + "),lists(" + a[0] + ")),via=listed)",
		"app.bsky.graph.getRelationships?actor=" + a[0] + "&others=" + never,
	}
	for _, call := range ofUnknown {
		w.incomplete(call, false)
	}
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 2, DID: a[2], Since: oracle.TID(1 << 19), Rev: oracle.TID(1 << 21)}) // an older record of it may be missing
	for _, call := range append(everybody, ofUnknown...) {
		w.incomplete(call, true)
	}
	for _, call := range own {
		w.incomplete(call, false)
	}
}

// An account that is not active puts nothing in doubt until it is back; one that waits to be
// fetched does, and is not complete itself; and after a gap in the stream nothing is complete
// until the repos have been compared.
func TestInDoubt(t *testing.T) {
	w := newWorld(t, 94, 0)
	a := w.history.Accounts()
	for i, did := range a[:3] {
		w.commit(int64(i+1), did, oracle.Op{Kind: "follow", Rkey: "x", Subject: a[(i+1)%3]})
	}
	apply := func(fill func(b *batch.Batch)) {
		t.Helper()
		var b batch.Batch
		fill(&b)
		if err := w.store.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, everybody, first bool, state string) {
		t.Helper()
		t.Log(what)
		for call, incomplete := range map[string]bool{"query?set=followers(" + a[0] + ")": everybody, "query?set=follows(" + a[0] + ")": first, "query?set=members(" + a[0] + ")": state == "unverified"} { // who is active may have changed
			w.incomplete(call, incomplete)
		}
		w.says("getAccount?did="+a[0], 200, `"state":"`+state+`"`)
	}
	want("all is known", false, false, "complete")
	apply(func(b *batch.Batch) { b.AddAccount(10, []byte(a[2]), false, false); b.Seen(10, nil) })
	apply(func(b *batch.Batch) { b.AddResync([]byte(a[2]), batch.Cause{Reason: "test"}) })
	want("one that is not active is queued", false, false, "complete")
	apply(func(b *batch.Batch) { b.AddAccount(11, []byte(a[2]), true, false); b.Seen(11, nil) })
	want("it is back", true, false, "complete")
	apply(func(b *batch.Batch) { b.AddResync([]byte(a[0]), batch.Cause{Reason: "test"}) })
	want("the account is queued", true, true, "queued")

	w = newWorld(t, 95, 0)
	a = w.history.Accounts()
	w.commit(1, a[0], oracle.Op{Kind: "follow", Rkey: "x", Subject: a[1]})
	apply(func(b *batch.Batch) {
		b.AddGap(format.Gap{After: 1, Reason: "outdated_cursor", Time: time.Now(), Suspect: true})
	})
	want("after a gap", true, true, "unverified")
	noted, _ := w.store.Holes()
	if err := w.store.SetCompared(t.Context(), noted); err != nil {
		t.Fatal(err)
	}
	want("after the comparison", false, false, "complete")
}
