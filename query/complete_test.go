package query_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/sim/oracle"
)

type complete struct {
	Incomplete bool
	Reason     string
}

// An answer that depends on an incomplete account is incomplete, and getAccount describes every
// account as the model does.
func TestIncomplete(t *testing.T) {
	w := newWorld(t, 91, 3000)
	anybody := false
	seen := map[string]int{}
	for _, r := range w.model.Repos {
		anybody = anybody || (r.Partial || r.Desync) && !r.Hidden
	}
	for _, did := range append(w.history.Accounts(), "did:plc:neverseenaaaaaaaaaaaaaaa") {
		want := "complete"
		switch r := w.model.Repos[did]; {
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
		w.ask("blue.skein.graph.getAccount", url.Values{"did": {did}}, &a)
		records := map[string]int{}
		for p := range w.model.Records {
			if p.DID == did {
				records[p.Kind]++
			}
		}
		if a.DID != did || a.State != want || a.Description == "" || a.Active == w.model.Hidden[did] || !sameCounts(a.Records, records) {
			t.Errorf("%s: %+v, want %s with %v", did, a, want, records)
		}
		if r := w.model.Repos[did]; r != nil && a.Rev != r.Rev {
			t.Errorf("%s: rev %q, want %q", did, a.Rev, r.Rev)
		}
		if r := w.model.Repos[did]; want == "unknown" && !a.Partial || want != "unknown" && (a.Partial != r.Partial || a.Desynchronized != r.Desync) {
			t.Errorf("%s: %+v, want %+v", did, a, r)
		}
		forward := want != "complete" && !w.model.Hidden[did]
		if w.model.Hidden[did] { // its sets are empty, and that is all
			forward = false
		}
		for set, incomplete := range map[string]bool{
			"follows(" + did + ")": forward, "listed(" + oracle.ListOf(did, 0) + ")": forward, "members(" + did + ")": false,
			"followers(" + did + ")": anybody, "lists(" + did + ")": anybody, "union(likes(" + did + "),likes(" + did + "))": forward,
		} {
			method := "query"
			if strings.HasPrefix(set, "follow") {
				method = "list"
			}
			var c complete
			w.ask("blue.skein.graph."+method, url.Values{"set": {set}}, &c)
			if c.Incomplete != incomplete || (c.Reason != "") != incomplete {
				t.Errorf("%s, of one that is %s: %+v, want %v", set, want, c, incomplete)
			}
		}
	}
	if seen["complete"] == 0 || seen["partial"] == 0 || seen["desynchronized"] == 0 || seen["unknown"] == 0 {
		t.Errorf("the accounts are %v", seen)
	}
	var c complete
	for method, p := range map[string]url.Values{
		"rank":     {"of": {"members(" + w.history.Accounts()[0] + ")"}, "via": {"likes"}},
		"counts":   {"edge": {"followers"}, "subject": {w.history.Accounts()[1]}},
		"known":    {"actor": {w.history.Accounts()[0]}, "edge": {"followers"}, "subject": {w.history.Accounts()[1]}},
		"contains": {"set": {"followers(" + w.history.Accounts()[0] + ")"}, "member": {w.history.Accounts()[1]}},
	} {
		if w.ask("blue.skein.graph."+method, p, &c); !c.Incomplete || c.Reason == "" {
			t.Errorf("%s: %+v", method, c)
		}
	}
}

func sameCounts(a, b map[string]int) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// The sizes of the members' sets depend on everybody, also where the set depends on one account.
func TestSizesDependOnAll(t *testing.T) {
	w := newWorld(t, 93, 0)
	a := w.history.Accounts()
	commit := func(seq int64, did, since string) {
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Since: since, Rev: oracle.TID(1<<20 + uint64(seq)), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: a[1]}}})
	}
	commit(1, a[0], "")
	commit(2, a[2], oracle.TID(1<<19)) // an older record of it may be missing
	for query, incomplete := range map[string]bool{"": false, "&order=oldest": false, "&order=id": false, "&order=size(follows)": true, "&order=size(likes)": true, "&order=size(followers)": true} {
		_, body, _ := w.get("/xrpc/blue.skein.graph.list?set=follows(" + a[0] + ")" + query)
		if strings.Contains(body, `"incomplete":true`) != incomplete || !strings.Contains(body, a[1]) {
			t.Errorf("%s: %s", query, body)
		}
	}
}

// Where all is known, no answer says that something is missing.
func TestComplete(t *testing.T) {
	w := newWorld(t, 92, 0)
	a := w.history.Accounts()
	if _, body, _ := w.get("/xrpc/blue.skein.graph.query?set=followers(" + a[1] + ")"); !strings.Contains(body, `"reason":"nothing is indexed yet"`) {
		t.Errorf("an index of nothing: %s", body)
	}
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 1, DID: a[0], Rev: oracle.TID(1 << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: a[1]}}})
	for _, path := range []string{"query?set=follows(" + a[0] + ")", "query?set=followers(" + a[1] + ")", "list?set=followers(" + a[1] + ")", "histogram?set=followers(" + a[1] + ")", "list?set=follows(" + a[0] + ")&order=size(followers)", "rank?of=members(" + a[0] + ")&via=follows", "getBlocks?actor=" + a[0] + "&direction=blockedBy", "getBlocks?actor=" + a[0] + "&direction=blocking&others=" + a[1], "counts?edge=followers&subject=" + a[1] + "&subject=did:plc:neverseenaaaaaaaaaaaaaaa", "counts?edge=follows&subject=" + a[0], "query?set=rank(of=members(did:plc:neverseenaaaaaaaaaaaaaaa),via=followers)"} {
		if _, body, _ := w.get("/xrpc/blue.skein.graph." + path); strings.Contains(body, "ncomplete") {
			t.Errorf("%s: %s", path, body)
		}
	}
	const unknown = "did:plc:neverseenaaaaaaaaaaaaaaa"
	for _, path := range []string{
		"rank?of=members(" + unknown + ")&via=follows", "rank?of=members(" + a[0] + ")&via=follows&except=follows(" + unknown + ")",
		"counts?edge=follows&subject=" + a[0] + "&subject=" + unknown, "counts?edge=listed&subject=" + oracle.ListOf(unknown, 0),
		"getBlocks?actor=" + unknown + "&direction=blocking", "getBlocks?actor=" + a[0] + "&direction=blockedBy&others=" + unknown,
		"histogram?set=follows(" + unknown + ")", "query?set=rank(of=members(" + unknown + "),via=follows)", "query?set=rank(of=rank(of=members(" + unknown + "),via=follows),via=followers)",
		"rank?of=members(" + oracle.ListOf(unknown, 0) + ")&via=listed", "query?set=rank(of=union(members(" + oracle.ListOf(unknown, 0) + "),lists(" + a[0] + ")),via=listed)",
	} {
		if _, body, _ := w.get("/xrpc/blue.skein.graph." + path); !strings.Contains(body, `"incomplete":true`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if _, body, _ := w.get("/xrpc/blue.skein.graph.rank?of=members(" + unknown + ")&via=followers"); strings.Contains(body, "ncomplete") {
		t.Errorf("what others did: %s", body)
	}
}

// An account that is not active puts nothing in doubt until it is back; one that waits to be
// fetched does, and is not complete itself; and after a gap in the stream nothing is complete
// until the repos have been compared.
func TestInDoubt(t *testing.T) {
	w := newWorld(t, 94, 0)
	a := w.history.Accounts()
	for i, did := range a[:3] {
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: int64(i + 1), DID: did, Rev: oracle.TID(1 << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: a[(i+1)%3]}}})
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
		for path, incomplete := range map[string]bool{"query?set=followers(" + a[0] + ")": everybody, "query?set=follows(" + a[0] + ")": first, "query?set=members(" + a[0] + ")": false} {
			if _, body, _ := w.get("/xrpc/blue.skein.graph." + path); strings.Contains(body, `"incomplete":true`) != incomplete {
				t.Errorf("%s: %s: %s", what, path, body)
			}
		}
		if _, body, _ := w.get("/xrpc/blue.skein.graph.getAccount?did=" + a[0]); !strings.Contains(body, `"state":"`+state+`"`) {
			t.Errorf("%s: %s", what, body)
		}
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
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: 1, DID: a[0], Rev: oracle.TID(1 << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: a[1]}}})
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

// The descriptions are there, and name each other as they should.
func TestDescriptions(t *testing.T) {
	w := newWorld(t, 93, 0)
	_, body, _ := w.get("/openapi.json")
	var api struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(body), &api); err != nil || api.OpenAPI != "3.1.0" || len(api.Paths) < 8 {
		t.Fatalf("%v: %d methods", err, len(api.Paths))
	}
	for _, part := range strings.Split(body, `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if api.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	for path := range api.Paths {
		nsid := strings.TrimPrefix(path, "/xrpc/")
		if status, body, _ := w.get("/lexicons/" + nsid + ".json"); status != 200 || !strings.Contains(body, `"id":"`+nsid+`"`) {
			t.Errorf("%s: %d %.80s", nsid, status, body)
		}
	}
	if status, _, _ := w.get("/lexicons/none.json"); status != 404 {
		t.Errorf("a lexicon that is not there: %d", status)
	}
}
