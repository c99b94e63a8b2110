package network

import (
	"math"
	"slices"
	"testing"
)

// The history has the shape that the comment in history.go describes, and its records have distinct keys.
func TestHistory(t *testing.T) {
	const accounts, mean = 40 * block, 60
	n := New(Options{Seed: 3, Accounts: accounts, History: mean})
	counts := make([]int, 0, accounts)
	kinds := map[string]int{}
	all, early, spam, twice := 0, 0, 0, 0
	for account := range n.Accounts() {
		h := n.Repo(account)
		counts = append(counts, h.Count)
		all += h.Count
		if h.spam {
			spam++
		}
		if account%16 != 0 && rankOf(account) > 3 {
			continue
		}
		last := uint64(0)
		celebrities := map[int32]bool{}
		for k := range h.Count {
			o := n.Record(&h, k)
			micros := o.TID >> 10
			if o.TID <= last || micros < startMicros-historyMicros || micros >= startMicros || o.TID >= n.RevOf(account) {
				t.Fatalf("account %d, record %d of %d has the TID %d after %d", account, k, h.Count, o.TID, last)
			}
			last = o.TID
			kinds[o.Kind.String()]++
			if o.SubjectTID > 0 && (o.SubjectTID > o.TID+100_000_000<<10 || float64(o.SubjectTID>>10) < startMicros-historyMicros-2*viralEvery*n.gap) {
				t.Fatalf("account %d likes at %d a post of %d", account, micros, o.SubjectTID>>10)
			}
			if int(o.Subject) == account && o.Kind == Follow {
				t.Fatalf("account %d follows itself", account)
			}
			if o.Kind == Follow && int(o.Subject)%(accounts/min(maxCelebrities, accounts)) == 0 {
				if celebrities[o.Subject] {
					twice++
				}
				celebrities[o.Subject] = true
			}
			if micros < startMicros-historyMicros/2 {
				early++
			}
			if again := n.Record(&h, k); again != o {
				t.Fatalf("record %d of account %d is %+v, and then %+v", k, account, o, again)
			}
		}
	}
	if got := n.Records(); got != int64(all) {
		t.Errorf("%d records in all, counted one by one %d", got, all)
	}
	if got := float64(all) / accounts / mean; math.Abs(got-1) > 0.1 {
		t.Errorf("an account has %.2f times as many records as asked for", got)
	}
	slices.SortFunc(counts, func(x, y int) int { return y - x })
	share := func(of int) float64 {
		sum := 0
		for _, c := range counts[:of] {
			sum += c
		}
		return float64(sum) / float64(all)
	}
	top, tenth, few := share(accounts/block), share(accounts*400/block), 0
	for _, c := range counts {
		if c <= mean/30 {
			few++
		}
	}
	t.Logf("the liveliest of 4,096 have %.2f of the records, 400 of them %.2f; %.2f have next to none; %d spam; early: %d; %v; %d follows twice",
		top, tenth, float64(few)/accounts, spam, early, kinds, twice)
	if top < 0.08 || top > 0.25 || tenth < 0.7 || tenth > 0.95 || few < accounts/5 || spam < accounts/400 || spam > accounts/100 || early == 0 {
		t.Error("this is another shape")
	}
	total := kinds["follow"] + kinds["like"] + kinds["repost"] + kinds["block"]
	if f := float64(kinds["follow"]) / float64(total); f < 0.12 || f > 0.3 || kinds["like"] < total/2 || kinds["block"] == 0 || kinds["repost"] == 0 {
		t.Errorf("kinds %v", kinds)
	}
	if twice > kinds["follow"]/20 { // by the draws for the other two thirds
		t.Errorf("%d of %d follows are of a celebrity that the account follows already", twice, kinds["follow"])
	}
}
