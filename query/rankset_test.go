package query_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A ranking as a set has the members that the method rank lists, and with top the first of them.
// The second degree is what the method finds for the members of the first.
func TestRankIsASet(t *testing.T) {
	w := newWorld(t, 31, 2500)
	call := func(method string, p url.Values) (members []string) {
		t.Helper()
		status, body, _ := w.get("/xrpc/blue.skein.graph." + method + "?" + p.Encode())
		var answer struct {
			Members []string
			Items   []struct{ Member string }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
			t.Fatalf("%s %v: %d %s", method, p, status, body)
		}
		for _, i := range answer.Items {
			answer.Members = append(answer.Members, i.Member)
		}
		return answer.Members
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	some := 0
	for _, did := range w.history.Accounts() {
		ranked := call("rank", url.Values{"of": {"follows(" + did + ")"}, "via": {"likes"}, "limit": {"1000"}})
		text := "rank(of=follows(" + did + "),via=likes"
		if got := call("query", url.Values{"set": {text + ")"}, "limit": {"1000"}}); !slices.Equal(sorted(got), sorted(ranked)) {
			t.Errorf("%s has %q, want %q", text, got, ranked)
		}
		top := min(3, len(ranked))
		first := call("query", url.Values{"set": {fmt.Sprintf("%s,top=3)", text)}, "limit": {"1000"}})
		if !slices.Equal(sorted(first), sorted(ranked[:top])) {
			t.Errorf("the first three of %s are %q, want %q", text, first, ranked[:top])
		}
		if top == 0 || slices.ContainsFunc(first, func(uri string) bool { return !strings.HasPrefix(uri, "at://did:") }) {
			continue // a handle, which is not resolved here
		}
		some++
		second := call("rank", url.Values{"of": {text + ",top=3)"}, "via": {"likers"}, "except": {"members(" + did + ")"}, "limit": {"1000"}})
		members := "members("
		for i, m := range first {
			members += m
			if members += ","; i == len(first)-1 {
				members = members[:len(members)-1] + ")"
			}
		}
		if want := call("rank", url.Values{"of": {members}, "via": {"likers"}, "except": {"members(" + did + ")"}, "limit": {"1000"}}); !slices.Equal(second, want) {
			t.Errorf("the second degree of %s: %q, want %q", did, second, want)
		}
		w.compareScores(t, text+",top=3)", url.Values{"of": {"follows(" + did + ")"}, "via": {"likes"}, "limit": {"3"}})
	}
	if some < 5 {
		t.Errorf("only %d accounts had results", some)
	}
}

// compareScores checks a ranking that weighs the members of another one by their counts there:
// every like of one of three posts adds the post's count, divided by the highest count.
func (w *world) compareScores(t *testing.T, inner string, asked url.Values) {
	t.Helper()
	type answer struct {
		Members []string
		Items   []struct {
			Member string
			Count  int
			Score  uint64
		}
	}
	call := func(method string, p url.Values) (a answer) {
		t.Helper()
		status, body, _ := w.get("/xrpc/blue.skein.graph." + method + "?" + p.Encode())
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
			t.Fatalf("%s %v: %d %s", method, p, status, body)
		}
		return a
	}
	want, counts := map[string]float64{}, map[string]int{}
	first := call("rank", asked).Items
	for _, item := range first {
		for _, liker := range call("query", url.Values{"set": {"likers(" + item.Member + ")"}, "limit": {"1000"}}).Members {
			want[liker] += float64(item.Count) / float64(first[0].Count)
			counts[liker]++
		}
	}
	p := url.Values{"of": {inner}, "via": {"likers"}, "weigh": {"score"}, "limit": {"1000"}}
	last := uint64(math.MaxUint64)
	for _, item := range call("rank", p).Items {
		if math.Abs(float64(item.Score)/1e9-want[item.Member]) > 1e-9 || item.Count != counts[item.Member] || item.Score > last {
			t.Errorf("%v: %+v after %d, want a score of %v and a count of %d", p, item, last, want[item.Member], counts[item.Member])
		}
		last = item.Score
		delete(want, item.Member)
	}
	if len(want) > 0 {
		t.Errorf("%v lacks %v", p, want)
	}
}
