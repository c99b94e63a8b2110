package query_test

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/internal/oracle"
	"skein.blue/internal/syntax"
	"skein.blue/internal/testing/history"
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
		of = history.ListOf(of, rng.IntN(history.Lists))
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
	rkey := slices.MinFunc(rkeys, func(x, y string) int {
		a, isA := syntax.ParseTID(x)
		b, isB := syntax.ParseTID(y)
		if isA != isB {
			return cmp.Compare(boolInt(isB), boolInt(isA))
		}
		return cmp.Or(cmp.Compare(a, b), cmp.Compare(x, y))
	})
	author, _, _ := strings.Cut(strings.TrimPrefix(list, "at://"), "/")
	return "at://" + author + "/app.bsky.graph.listitem/" + rkey
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A list counts in the repo of its own author, while that is active; the others' records
// that name it do not.
func TestListsOfOthers(t *testing.T) {
	w := newWorld(t, 71, 0)
	a := w.history.Accounts()
	list, seq := history.ListOf(a[0], 0), int64(0)
	commit := func(did string, ops ...oracle.Op) {
		seq++
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: history.TID(uint64(seq) << 20), Ops: ops})
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
	commit(a[4], item("3jzfcijpj2z2a", a[5], list), item("3jzfcijpj2z2b", a[1], history.ListOf(a[4], 1)))
	expect("another's record", map[string][]string{listed: {a[1], a[2], a[3]}, lists: {list, history.ListOf(a[4], 1)}, "lists(" + a[5] + ")": nil})
	account(a[2], false)
	expect("a hidden member", map[string][]string{listed: {a[1], a[3]}, "lists(" + a[2] + ")": {list}})
	account(a[4], false)
	expect("a hidden author", map[string][]string{lists: {list}})
	account(a[0], false)
	expect("two hidden authors", map[string][]string{listed: nil, lists: nil})
	account(a[0], true)
	commit(a[0], item("3jzfcijpj2z2a", a[1], history.ListOf(a[0], 2)))
	expect("moved to another list", map[string][]string{listed: {a[3]}, lists: {history.ListOf(a[0], 2)}})
	commit(a[0], item("3jzfcijpj2z2d", a[1], list), item("3jzfcijpj2z2e", a[1], list))
	commit(a[0], oracle.Op{Kind: oracle.ListItem, Rkey: "3jzfcijpj2z2d", Delete: true})
	expect("one of two", map[string][]string{listed: {a[1], a[3]}, lists: {list, history.ListOf(a[0], 2)}})
	commit(a[0], oracle.Op{Kind: oracle.ListItem, Rkey: "3jzfcijpj2z2e", Delete: true}, item("self", a[3], ""))
	expect("deleted, and malformed", map[string][]string{listed: nil, lists: {history.ListOf(a[0], 2)}})
}

// Sets of lists take what they are of, and are not ranked along.
func TestBadLists(t *testing.T) {
	w := newWorld(t, 72, 50)
	d := w.history.Accounts()[0]
	for ask, want := range map[string]string{
		"query?set=listed(" + d + ")":                                        "the argument",
		"query?set=lists(" + history.ListOf(d, 0) + ")":                      "the argument",
		"query?set=intersect(lists(" + d + "),follows(" + d + "))":           "mixes",
		"rank?of=follows(" + d + ")&via=lists":                               "parameter via",
		"subscribe?set=lists(" + d + ")":                                     "is not watched",
		"subscribe?set=union(listed(" + history.ListOf(d, 0) + ",since=1d))": "in a window",
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
