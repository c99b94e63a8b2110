package query_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
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

// heard lets enough of the stream come that its times say since when it is heard.
func (w *world) heard() {
	w.t.Helper()
	var b batch.Batch
	b.Heard = time.Unix(1, 0)
	must(w.t, w.store.Apply(w.t.Context(), "memory", &b))
}

// Where all is known, no answer says that something is missing. What depends on an account that is not is incomplete: on its
// own records, or on those of everybody.
func TestComplete(t *testing.T) {
	w := newWorld(t, 92, 0)
	a := w.history.Accounts()
	w.says("query?set=followers("+a[1]+")", 200, `"reason":"nothing is indexed yet"`)
	w.says("path?from="+never+"&to="+never, 200, `{"path":["`+never+`"]}`)
	w.commit(1, a[0], oracle.Op{Kind: "follow", Rkey: "x", Subject: a[1]})
	w.heard()
	everybody := []string{
		"query?set=followers(" + a[1] + ")", "list?set=followers(" + a[1] + ")", "histogram?set=followers(" + a[1] + ")", "histogram?set=followers(" + a[1] + ")&since=2026-01-01", "histogram?set=atleast(1,followers(" + a[1] + "))&since=2100-01-01", "path?from=" + a[0] + "&to=" + never, "list?set=follows(" + a[0] + ")&order=size(followers)", "list?set=follows(" + a[0] + ")&order=size(likes)",
		"getBlocks?actor=" + a[0] + "&direction=blockedBy", "counts?edge=followers&subject=" + a[1], "query?set=rank(of=members(" + never + "),via=followers)", "rank?of=members(" + never + ")&via=followers",
		"known?actor=" + a[0] + "&edge=followers&subject=" + a[1],
	}
	handled := "%22at://a.example.com/app.bsky.graph.list/x%22" // it has no author
	own := []string{"query?set=rank(of=members(" + handled + "),via=listed)", "counts?edge=listed&subject=" + handled, "path?from=" + a[0] + "&to=" + never + "&max=1", "histogram?set=followers(" + a[1] + ")&since=2100-01-01", "histogram?set=union(followers(" + a[1] + "),union(blockers(" + a[1] + ")))&since=2100-01-01", "histogram?set=followers(" + a[1] + ",since=2100-01-01)&since=2026-01-01", "rank?of=members(" + a[0] + ")&via=follows", "query?set=follows(" + a[0] + ")", "list?set=follows(" + a[0] + ")", "list?set=follows(" + a[0] + ")&order=oldest", "list?set=follows(" + a[0] + ")&order=id", "query?set=members(" + a[0] + "," + never + ")"}
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
		w.commit(int64(i+1), did, oracle.Op{Kind: "follow", Rkey: "x", Subject: a[(i+1)%3]}, oracle.Op{Kind: "listblock", Rkey: "x", Subject: oracle.ListOf(a[0], 0)})
	}
	apply := func(fill func(b *batch.Batch)) {
		t.Helper()
		var b batch.Batch
		fill(&b)
		must(t, w.store.Apply(t.Context(), "relay", &b))
	}
	want := func(what string, everybody, first bool, state string) {
		t.Helper()
		t.Log(what)
		byList := "app.bsky.graph.getRelationships?actor=" // by a list of the first account, which may have put the others on it
		for call, incomplete := range map[string]bool{
			"query?set=followers(" + a[0] + ")": everybody, "query?set=follows(" + a[0] + ")": first, byList + never + "&others=" + a[1]: first, byList + a[1] + "&others=" + never: first,
			"getBlocks?direction=blockedBy&actor=" + never + "&others=" + a[1]: first, "getBlocks?direction=blocking&actor=" + a[1] + "&others=" + never: first,
		} {
			w.incomplete(call, incomplete)
		}
		for _, call := range []string{"query?set=members(A)", "rank?of=members(at://A/x.y.z/1)&via=authors", "counts?edge=authors&subject=at://A/x.y.z/1", "query?set=by(members(at://A/x.y.z/1),members(A))", "overlap?set=members(A)", "path?from=A&to=A", byList + a[1] + "&others=nobody.example.com"} {
			w.incomplete(strings.ReplaceAll(call, "A", a[0]), state == "unverified") // who is active may have changed
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
	_, err := w.store.ChangeResync(t.Context(), a[0], func(r *format.Resync) bool { r.State, r.Failure = format.ResyncFailed, "host"; return true })
	must(t, err)
	w.says("query?set=follows("+a[0]+")", 200, "could not be fetched (host)")

	w = newWorld(t, 95, 0)
	a = w.history.Accounts()
	w.commit(1, a[0], oracle.Op{Kind: "follow", Rkey: "x", Subject: a[1]})
	apply(func(b *batch.Batch) {
		b.AddGap(format.Gap{After: 1, Reason: "outdated_cursor", Time: time.Now(), Suspect: true})
	})
	want("after a gap", true, true, "unverified")
	w.says("query?set=follows("+a[0]+")", 200, `"missing":{"accounts":1,"roster":1,"labelers":0}`)
	noted, _ := w.store.Holes()
	must(t, w.store.SetCompared(t.Context(), noted))
	want("after the comparison", false, false, "complete")
}

// While a writer is missing, what depends on its accounts is incomplete, and nothing else. getStats says how much of the network that is.
func TestUnwritten(t *testing.T) {
	store := memory(write.Limits{})
	w := newWorldOn(t, oracle.NewHistory(96, 40), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}})
	a := append(w.history.Accounts(), "did:web:unknown.example.com")
	for i, did := range a[:30] {
		w.commit(int64(i+1), did, oracle.Op{Kind: "like", Rkey: "x", Subject: "at://" + a[0] + "/app.bsky.feed.post/x"})
	}
	want := func(percent int, first, last uint8) {
		t.Helper()
		followed := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { followed <- w.store.FollowWriters(ctx) }()
		for w.store.Unwritten().Percent() != percent && t.Context().Err() == nil {
			runtime.Gosched()
		}
		for _, did := range a {
			part := dict.SharedSettings.PartitionOf([]byte(did))
			missing := percent > 0 && part >= first && part <= last
			w.incomplete("query?set=likes("+did+")", missing)
			state := "complete"
			if missing {
				state = "unwritten"
			}
			w.says("getAccount?did="+did, 200, `"state":"`+state+`"`)
		}
		w.incomplete("query?set=likers(at://"+a[0]+"/app.bsky.feed.post/x)", percent > 0)
		for _, call := range []string{"query?set=members(" + a[0] + ")", "counts?edge=follows&subject=" + a[0], "known?edge=follows&actor=" + a[0] + "&subject=" + a[1], "getBlocks?direction=blocking&actor=" + a[0] + "&others=" + a[1], "list?set=listblocks(" + a[0] + ")&order=size(listed)"} {
			w.incomplete(call, percent > 0) // who is active may have changed
		}
		var stats struct {
			Unwritten int
			Reason    string
		}
		w.ask("getStats", nil, &stats)
		if stats.Unwritten != percent || strings.Contains(stats.Reason, "is not indexed at present") != (percent > 0) {
			t.Errorf("%+v, want %d %%", stats, percent)
		}
		if stop(); <-followed != nil {
			t.Error("it failed")
		}
	}
	want(0, 0, 0)
	for _, n := range []int{2, 4} { // of n writers, one is left
		must(t, w.store.Close(t.Context()))
		var writers []*graph.Store
		for range n {
			g, err := graph.Open(t.Context(), store, graph.Options{Joins: true})
			must(t, err)
			writers = append(writers, g)
		}
		for _, g := range writers {
			must(t, g.Move(t.Context()))
		}
		for _, g := range writers[1:] {
			must(t, g.Close(t.Context()))
		}
		w.store = writers[0]
		w.serve(query.Options{})
		want(100-100/n, uint8(64/n), 63)
	}
	must(t, w.store.Close(t.Context()))
}

// A stream is unbroken since its newest hole, or its first event. If accounts were indexed before it, it begins with a hole; else
// all accounts are those of the stream, until one is older.
func TestUnbroken(t *testing.T) {
	for _, before := range []string{"none", "", "archive https://archive.example.com"} { // a source of accounts
		w, late := newWorld(t, 97, 0), before != "none"
		did := w.history.Accounts()[0]
		seq, noted := format.Seq(0), uint64(0)
		apply := func(source string, fill func(b *batch.Batch)) (h format.Holes) {
			t.Helper()
			var b batch.Batch
			if fill(&b); source != "" {
				seq++
				b.Seen(seq, nil)
			}
			err := w.store.Apply(t.Context(), source, &b)
			if err == nil {
				err = w.store.View(t.Context(), func(sn *ask.View) error { h = sn.Known().Holes; return nil })
			}
			must(t, err)
			return h
		}
		gap := func(suspect bool) func(b *batch.Batch) {
			return func(b *batch.Batch) { b.AddGap(format.Gap{After: seq, Reason: "test", Suspect: suspect}) }
		}
		if late {
			noted = 1
			apply(before, func(b *batch.Batch) { b.AddResync([]byte(did), batch.Cause{Reason: "test"}) })
		}
		first, roster := apply("relay", func(*batch.Batch) {}), w.store.Backfill().Roster
		again, after := apply("relay", gap(false)), apply("relay", gap(true))
		if first.Noted != noted || first.Unbroken.IsZero() || again.Noted != noted || !again.Unbroken.Equal(first.Unbroken) || after.Noted != noted+1 || !after.Unbroken.After(first.Unbroken) {
			t.Errorf("late %v: %+v, %+v, %+v", late, first, again, after)
		}
		apply("relay", func(b *batch.Batch) {
			b.AddCommit(seq+1, &batch.Commit{DID: []byte(did), Rev: []byte(oracle.TID(2 << 20)), Since: []byte(oracle.TID(1 << 20)), Data: make([]byte, 32)})
		})
		apply("relay", func(*batch.Batch) {})
		if refuted := w.store.Backfill().Roster; roster.Known() == late || refuted.Known() {
			t.Errorf("late %v: the roster is %+v, then %+v", late, roster, refuted)
		}
	}
}

// With proof=true, a complete answer says what it rests on: since and until when the stream was heard, what was read, on how many
// accounts it depends, and the time of the oldest evidence.
func TestProof(t *testing.T) {
	w := newWorld(t, 96, 0)
	a := w.history.Accounts()
	at := func(day int) time.Time { return time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC) }
	for i, follows := range []string{a[1], a[2], a[0]} {
		w.happen(&oracle.Event{
			Type: oracle.CommitEvent, Seq: int64(i + 1), DID: a[i], Rev: oracle.TID(uint64(at(20-i).UnixMicro()) << 10),
			Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: follows}},
		})
	}
	l := format.Labeler{Name: oracle.Labelers[0], DID: oracle.Labelers[0], Current: true, Seen: time.Now()}
	must(t, w.store.ApplyLabels(t.Context(), time.Now(), nil, l, l))
	type proof struct {
		Since, Through, Oldest string
		Sources                []string
		Accounts               any
	}
	ask := func(call string) (p *proof) {
		t.Helper()
		var answer struct{ Proof *proof }
		_, body, _ := w.get(call)
		must(t, json.Unmarshal([]byte(body), &answer))
		return answer.Proof
	}
	if got := ask("query?set=members(" + a[0] + ")&proof=true"); got == nil || got.Since != "" || got.Through != "2023-11-14T22:13:23Z" {
		t.Errorf("all events are older than the index: %+v", got)
	}
	newest := time.Now().UTC().Add(time.Second).Format(time.RFC3339)
	var b batch.Batch
	b.Seen(4, []byte(newest))
	must(t, w.store.Apply(t.Context(), "memory", &b))
	whole := proof{Oldest: "roster", Accounts: "everybody", Sources: []string{"memory", "stream"}}
	all := map[string]proof{
		"query?set=members(" + a[0] + ")":                                                          {Accounts: 0.0},
		"query?set=follows(" + a[0] + ")":                                                          {Accounts: 1.0, Oldest: "2026-11-20T00:00:00Z"},
		"query?set=follows(" + never + ")":                                                         {Accounts: 1.0, Oldest: "roster", Sources: []string{"memory", "stream"}},
		"query?set=labeled(" + l.DID + ",x)":                                                       {Accounts: 0.0, Sources: []string{l.DID, "memory"}},
		"list?set=union(follows(" + a[0] + "),follows(" + a[1] + "))":                              {Accounts: 2.0, Oldest: "2026-11-19T00:00:00Z"},
		"list?set=intersect(followers(" + a[1] + "),follows(" + a[2] + "))":                        {Accounts: 2.0, Oldest: "2026-11-18T00:00:00Z"},
		"rank?via=follows&of=members(" + a[0] + "," + a[2] + "," + never + ")":                     {Accounts: 3.0, Oldest: "2026-11-18T00:00:00Z", Sources: []string{"memory", "stream"}},
		"query?set=intersect(followers(" + a[1] + "),follows(" + a[2] + "),members(" + a[1] + "))": {Accounts: 1.0, Oldest: "2026-11-18T00:00:00Z"},
		"rank?via=follows&of=follows(" + a[0] + ")":                                                {Accounts: 2.0, Oldest: "2026-11-19T00:00:00Z"},
		"counts?edge=follows&subject=" + a[0] + "&subject=" + a[1]:                                 {Accounts: 2.0, Oldest: "2026-11-19T00:00:00Z"},
		"counts?edge=followers&subject=" + a[0]:                                                    whole, "query?set=followers(" + a[0] + ")": whole, "rank?via=followers&of=members(" + a[0] + ")": whole,
	}
	ended := time.Now()
	for call, want := range all {
		got := ask(call + "&proof=true")
		if ask(call) != nil || ask(call+"&proof=false") != nil || got == nil {
			t.Fatalf("%s: %+v", call, got)
		}
		if want.Sources == nil {
			want.Sources = []string{"memory"}
		}
		since, err := time.Parse(time.RFC3339, got.Since)
		if want.Oldest == "roster" { // it is of the first event
			oldest, err2 := time.Parse(time.RFC3339, got.Oldest)
			if want.Oldest = got.Oldest; err2 != nil || since.Sub(oldest).Abs() > 2*time.Second {
				t.Errorf("%s: %+v, %v", call, got, err2)
			}
		}
		if err != nil || ended.Sub(since) > time.Minute || since.After(ended) {
			t.Errorf("%s: %+v, %v", call, got, err)
		}
		if want.Since, want.Through = got.Since, newest; !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v", call, *got, want)
		}
	}
	b.Reset()
	b.Seen(1, []byte("2096-01-01T00:00:00Z"))
	must(t, w.store.Apply(t.Context(), graph.RosterArchive+"https://archive.example.com", &b))
	if got := ask("query?set=members(" + a[0] + ")&proof=true"); got == nil || got.Through != newest || len(got.Sources) != 2 {
		t.Errorf("an archive is no stream: %+v", got)
	}
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 5, DID: a[3], Since: oracle.TID(1 << 19), Rev: oracle.TID(1 << 21)}) // an older record of it may be missing
	for call, want := range all {
		if got := ask(call + "&proof=true"); (got == nil) != (want.Oldest == "roster" || strings.Contains(call, never)) {
			t.Errorf("%s of an index that misses something: %+v", call, got)
		}
	}
}
