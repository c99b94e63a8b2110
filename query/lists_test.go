package query_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/oracle"
)

// named are the kinds whose sets have names.
var named = slices.DeleteFunc(slices.Clone(kinds.All), func(k kinds.Info) bool { return !k.HasSets() })

// listSets returns, of the records in a window, who is on each list, and on which lists each
// account is.
func (w *world) listSets(s span) (listed, lists map[string][]string) {
	listed, lists = map[string][]string{}, map[string][]string{}
	for _, l := range w.model.Listings() {
		if !s.has(l.Rkey) {
			continue
		}
		if !w.model.Hidden[l.Member] {
			listed[l.List] = append(listed[l.List], l.Member)
		}
		lists[l.Member] = append(lists[l.Member], l.List)
	}
	for _, sets := range []map[string][]string{listed, lists} {
		for of := range sets {
			slices.Sort(sets[of])
			sets[of] = slices.Compact(sets[of])
		}
	}
	return listed, lists
}

// listLeaf picks a list and who is on it, or an account and the lists that it is on.
func (w *world) listLeaf(rng *rand.Rand, s span) (name, of string, members []string) {
	accounts := w.history.Accounts()
	listed, lists := w.listSets(s)
	of = accounts[rng.IntN(len(accounts))]
	if rng.IntN(2) == 0 {
		of = oracle.ListOf(of, rng.IntN(oracle.Lists))
		return "listed", of, listed[of]
	}
	return "lists", of, lists[of]
}

// listRecord picks, of the records by which an account is on a list, the one that is shown.
func (w *world) listRecord(list, member string, s span) string {
	var rkeys []string
	for _, l := range w.model.Listings() {
		if l.List == list && l.Member == member && s.has(l.Rkey) {
			rkeys = append(rkeys, l.Rkey)
		}
	}
	rkey := slices.Min(rkeys) // an account has no time
	author, _, _ := strings.Cut(strings.TrimPrefix(list, "at://"), "/")
	return "at://" + author + "/app.bsky.graph.listitem/" + rkey
}

// listBlocks returns the records by which accounts block others by lists, by the two: of the
// lists that the other is on and that the account blocks, the lowest of the records that are
// shown.
func (w *world) listBlocks() map[[2]string]string {
	k := *kinds.ByName("listblock")
	blockers := w.in(span{all: true}).Reverse[k.Name]
	best := map[[2]string]string{}
	for _, l := range w.model.Listings() {
		for _, actor := range blockers[l.List] {
			at := [2]string{actor, l.Member}
			uri := w.record(k, actor, l.List, span{all: true})
			if !w.model.Hidden[l.Member] && (best[at] == "" || uri < best[at]) {
				best[at] = uri
			}
		}
	}
	return best
}

// blockLists has accounts make lists, put others on them, theirs and those of others, and
// block lists, some of them several times, under keys of all sorts.
func (w *world) blockLists(rng *rand.Rand, commits int) {
	accounts := w.history.Accounts()
	some := func() string { return accounts[rng.IntN(len(accounts))] }
	list := func(of string) string {
		if rng.IntN(2) == 0 {
			return oracle.ListOf(of, rng.IntN(oracle.Lists))
		}
		return "at://" + of + "/app.bsky.graph.list/" + oracle.TID(uint64(1+rng.IntN(3))<<58)
	}
	key := func() string {
		if rng.IntN(3) == 0 {
			return []string{"A", "zz", "self"}[rng.IntN(3)]
		}
		return oracle.TID(uint64(1+rng.IntN(500)) << 51)
	}
	var events []*oracle.Event
	for n := range commits {
		e := &oracle.Event{Type: oracle.CommitEvent, Seq: int64(1_000_000 + n), DID: some(), Rev: oracle.TID(3<<59 + uint64(n))}
		for i := range 3 {
			if n%2 == 0 {
				of := e.DID
				if i == 0 {
					of = some()
				}
				e.Ops = append(e.Ops, oracle.Op{Kind: oracle.ListItem, Rkey: key(), Subject: some(), List: list(of)})
				continue
			}
			e.Ops = append(e.Ops, oracle.Op{Kind: "listblock", Rkey: key(), Subject: list(some())})
		}
		w.model.Apply(e)
		events = append(events, e)
	}
	w.apply(events)
}

// A list counts in the repo of its own author, while that is active; the others' records
// that name it do not.
func TestListsOfOthers(t *testing.T) {
	w := newWorld(t, 71, 0)
	a := w.history.Accounts()
	list, seq := oracle.ListOf(a[0], 0), int64(0)
	commit := func(did string, ops ...oracle.Op) {
		seq++
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: oracle.TID(uint64(seq) << 20), Ops: ops})
	}
	account := func(did string, active bool) {
		seq++
		w.happen(&oracle.Event{Type: oracle.AccountEvent, Seq: seq, DID: did, Active: active})
	}
	expect := func(what string, want map[string][]string) {
		t.Helper()
		for set, members := range want {
			got, _ := w.all(set, 10, nil)
			slices.Sort(got)
			if slices.Sort(members); !slices.Equal(got, members) {
				t.Errorf("%s: %s: %q, want %q", what, set, got, members)
			}
		}
	}
	item := func(rkey, member, list string) oracle.Op {
		return oracle.Op{Kind: oracle.ListItem, Rkey: rkey, Subject: member, List: list}
	}
	listed, lists := "listed("+list+")", "lists("+a[1]+")"
	commit(a[0], item("3jzfcijpj2z2a", a[1], list), item("3jzfcijpj2z2b", a[2], list), item("self", a[3], list))
	commit(a[4], item("3jzfcijpj2z2a", a[5], list), item("3jzfcijpj2z2b", a[1], oracle.ListOf(a[4], 1)))
	expect("another's record", map[string][]string{listed: {a[1], a[2], a[3]}, lists: {list, oracle.ListOf(a[4], 1)}, "lists(" + a[5] + ")": nil})
	account(a[2], false)
	expect("a hidden member", map[string][]string{listed: {a[1], a[3]}, "lists(" + a[2] + ")": {list}})
	account(a[4], false)
	expect("a hidden author", map[string][]string{lists: {list}})
	account(a[0], false)
	expect("two hidden authors", map[string][]string{listed: nil, lists: nil})
	account(a[0], true)
	commit(a[0], item("3jzfcijpj2z2a", a[1], oracle.ListOf(a[0], 2)))
	expect("moved to another list", map[string][]string{listed: {a[3]}, lists: {oracle.ListOf(a[0], 2)}})
	commit(a[0], item("3jzfcijpj2z2d", a[1], list), item("3jzfcijpj2z2e", a[1], list))
	commit(a[0], oracle.Op{Kind: oracle.ListItem, Rkey: "3jzfcijpj2z2d", Delete: true})
	expect("one of two", map[string][]string{listed: {a[1], a[3]}, lists: {list, oracle.ListOf(a[0], 2)}})
	commit(a[0], oracle.Op{Kind: oracle.ListItem, Rkey: "3jzfcijpj2z2e", Delete: true}, item("self", a[3], ""))
	expect("deleted, and malformed", map[string][]string{listed: nil, lists: {oracle.ListOf(a[0], 2)}})
}

// Sets of lists take what they are of, and are not ranked along.
func TestBadLists(t *testing.T) {
	w := newWorld(t, 72, 50)
	d := w.history.Accounts()[0]
	for ask, want := range map[string]string{
		"query?set=listed(" + d + ")":                                       "the argument",
		"query?set=lists(" + oracle.ListOf(d, 0) + ")":                      "the argument",
		"query?set=intersect(lists(" + d + "),follows(" + d + "))":          "cannot combine",
		"rank?of=follows(" + d + ")&via=listed":                             "parameter via",
		"subscribe?set=lists(" + d + ")":                                    "cannot be watched",
		"subscribe?set=union(listed(" + oracle.ListOf(d, 0) + ",since=1d))": "since or until",
	} {
		status, body, _ := w.get("/xrpc/blue.skein.graph." + ask)
		var e struct{ Message string }
		if err := json.Unmarshal([]byte(body), &e); err != nil || status != 400 || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %d %s, want %q", ask, status, body, want)
		}
	}
	// The author's handle may stand in the address; here none is resolved.
	if status, body, _ := w.get("/xrpc/blue.skein.graph.query?" + url.Values{"set": {"listed(https://bsky.app/profile/alice.example.com/lists/x)"}}.Encode()); status != 400 || !strings.Contains(body, "handles are not resolved here") {
		t.Errorf("%d %s", status, body)
	}
}

// If several records make an edge, all methods show the same one. For an edge to an account, it is
// the record with the lowest key. For an edge to a post, it is the first record from the post's
// time on, and a key that is not a TID only if there is no other.
func TestOneRecordIsShown(t *testing.T) {
	w := newWorld(t, 87, 0)
	a := w.history.Accounts()
	const early, post, late, later = "3jzfcijpj2z2a", "3kaaaaaaaaa2a", "3kbaaaaaaaa2a", "3kcaaaaaaaa2a"
	uri := "at://" + a[9] + "/app.bsky.feed.post/" + post
	feed := "at://" + a[9] + "/app.bsky.feed.generator/whats-hot"
	seq := int64(0)
	for i, c := range []struct {
		kind, collection, path, subject string
		rkeys                           []string
		want                            string
	}{
		{"follow", "app.bsky.graph.follow", "subject", a[9], []string{late, "1", early}, "1"},
		{"follow", "app.bsky.graph.follow", "subject", a[9], []string{late, "self", early}, early},
		{"block", "app.bsky.graph.block", "subject", a[9], []string{"B", "-A", early}, "-A"},
		{"like", "app.bsky.feed.like", "subject.uri", uri, []string{"1", later, late, early}, late},
		{"like", "app.bsky.feed.like", "subject.uri", uri, []string{"1", early}, early},
		{"like", "app.bsky.feed.like", "subject.uri", feed, []string{"1", later, early}, "1"},
	} {
		actor, k := a[i], kinds.ByName(c.kind)
		for _, rkey := range c.rkeys {
			seq++
			w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: actor, Rev: oracle.TID(uint64(seq) << 20), Ops: []oracle.Op{{Kind: c.kind, Rkey: rkey, Subject: c.subject}}})
		}
		want := "at://" + actor + "/" + c.collection + "/" + c.want
		if model := w.record(*k, actor, c.subject, span{all: true}); model != want {
			t.Fatalf("the model shows %s, want %s", model, want)
		}
		for _, set := range []string{k.Forward + "(" + actor + ")", k.Reverse + "(" + c.subject + ")"} {
			var query struct{ Members, Records []string }
			w.ask("blue.skein.graph.query", url.Values{"set": {set}, "records": {"true"}}, &query)
			var list struct {
				Items []struct{ Member, Record string }
			}
			w.ask("blue.skein.graph.list", url.Values{"set": {set}}, &list)
			if !slices.Contains(query.Records, want) || !slices.ContainsFunc(list.Items, func(it struct{ Member, Record string }) bool { return it.Record == want }) {
				t.Errorf("%s: %v and %v, want %s", set, query, list, want)
			}
		}
		var links struct{ Records []recordID }
		w.ask("blue.microcosm.links.getBacklinks", url.Values{"subject": {c.subject}, "source": {c.collection + ":" + c.path}, "did": {actor}}, &links)
		if len(links.Records) != 1 || links.Records[0].Rkey != c.want {
			t.Errorf("getBacklinks of %s: %+v, want %s", c.subject, links, want)
		}
		if c.subject != a[9] {
			continue
		}
		for _, pair := range [][2]string{{actor, a[9]}, {a[9], actor}} {
			var got struct{ Relationships []map[string]any }
			w.ask("app.bsky.graph.getRelationships", url.Values{"actor": {pair[0]}, "others": {pair[1], pair[1]}}, &got)
			for _, r := range got.Relationships {
				name := map[string]string{"follow": "following", "block": "blocking"}[c.kind]
				if pair[0] != actor {
					name = map[string]string{"follow": "followedBy", "block": "blockedBy"}[c.kind]
				}
				if r[name] != want {
					t.Errorf("getRelationships of %q: %v, want %s of %s", pair, r, name, want)
				}
			}
		}
	}
}
