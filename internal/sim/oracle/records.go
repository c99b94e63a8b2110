package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"skein.blue/graph/kinds"
)

// The methods that return records and their times.

// windows asks for the sets of an account in windows that start or end just before, at and
// just after the time of one of its records.
func (f facts) windows(ctx context.Context, base, actor string, _ []string) (differences []string, nonEmpty int, err error) {
	for _, k := range kinds.All {
		if !k.HasSets() {
			continue
		}
		var times []int64
		for _, r := range f.t.Records {
			if at, ok := Micros(r.Rkey); ok && r.DID == actor && r.Collection == k.Collection {
				times = append(times, at)
			}
		}
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		for _, at := range []int64{times[0], times[len(times)/2], times[len(times)-1]} {
			for _, edge := range []int64{at - 1, at, at + 1} {
				for _, since := range []bool{true, false} {
					views := ViewsOf(f.t.edgesIn(func(rkey string) bool {
						at, ok := Micros(rkey)
						return ok && (at >= edge) == since
					}), f.t.hidden)
					name := map[bool]string{true: "since", false: "until"}[since]
					set := fmt.Sprintf("%s(%s,%s=%s)", k.Forward, actor, name, time.UnixMicro(edge).UTC().Format(time.RFC3339Nano))
					got, _, err := Members(ctx, base, set, 1000)
					if err != nil {
						return nil, 0, err
					}
					want := views.Forward[k.Name][actor]
					nonEmpty += min(len(want), 1)
					if slices.Sort(got); !slices.Equal(got, want) {
						differences = append(differences, fmt.Sprintf("%s: %q, want %q", set, got, want))
					}
				}
			}
		}
	}
	return differences, nonEmpty, nil
}

// edgesIn yields the edges of the records for whose keys has returns true.
func (t *Truth) edgesIn(has func(rkey string) bool) func(yield func(Edge) bool) {
	return func(yield func(Edge) bool) {
		for _, r := range t.Records {
			if !has(r.Rkey) {
				continue
			}
			for _, k := range kinds.All {
				if k.Collection == r.Collection && !yield(Edge{Kind: k.Name, Actor: r.DID, Subject: r.Subject}) {
					return
				}
			}
		}
	}
}

// records asks for the records behind the sets of an account, and of those about it, with
// list and with Constellation's method.
func (f facts) records(ctx context.Context, base, actor string, _ []string) (differences []string, nonEmpty int, err error) {
	for _, k := range kinds.All {
		if !k.HasSets() {
			continue
		}
		for name, want := range map[string][]string{k.Forward: f.Forward[k.Name][actor], k.Reverse: f.Reverse[k.Name][actor]} {
			if name == k.Reverse && k.To.Is().String() == "uri" {
				continue
			}
			set := name + "(" + actor + ")"
			var got struct {
				Total int
				Items []struct{ Member, Record, Time string }
			}
			if err := Get(ctx, base+"/xrpc/blue.skein.graph.list?"+url.Values{"set": {set}, "limit": {"1000"}}.Encode(), &got); err != nil {
				return nil, 0, err
			}
			nonEmpty += min(len(want), 1)
			var members []string
			for i, it := range got.Items {
				members = append(members, it.Member)
				of, to := actor, it.Member
				if name == k.Reverse {
					of, to = to, of
				}
				r, ok := f.t.Records[it.Record]
				if !ok || r.DID != of || r.Subject != to || r.Collection != k.Collection {
					differences = append(differences, fmt.Sprintf("list of %s: %+v has the wrong record: %+v", set, it, r))
				}
				if i > 0 && it.Time > got.Items[i-1].Time {
					differences = append(differences, fmt.Sprintf("list of %s: %+v is newer than the one before", set, it))
				}
			}
			if slices.Sort(members); !slices.Equal(members, want) || got.Total != len(want) {
				differences = append(differences, fmt.Sprintf("list of %s: %q, want %q", set, members, want))
			}
		}
	}
	if diffs, err := f.links(ctx, base, actor); err != nil {
		return nil, 0, err
	} else if len(diffs) > 0 {
		differences = append(differences, diffs...)
	}
	return differences, nonEmpty, nil
}

// links compares the records that name an account, and their number.
func (f facts) links(ctx context.Context, base, actor string) (differences []string, err error) {
	var all struct {
		Links map[string]map[string]int
	}
	if err := Get(ctx, base+"/links/all/count?"+url.Values{"target": {actor}}.Encode(), &all); err != nil {
		return nil, err
	}
	for _, k := range kinds.All {
		want := f.Reverse[k.Name][actor]
		if k.To.Is().String() == "did" && all.Links[k.Collection]["."+k.To.Path()] != len(want) {
			differences = append(differences, fmt.Sprintf("links to %s: %v, want %d of %s", actor, all.Links, len(want), k.Name))
		}
		if len(want) == 0 {
			continue
		}
		var got struct {
			Records []struct{ DID, Collection, Rkey string }
		}
		if err := Get(ctx, base+"/xrpc/blue.microcosm.links.getBacklinks?"+url.Values{"subject": {actor}, "source": {k.Source()}, "limit": {"1000"}}.Encode(), &got); err != nil {
			return nil, err
		}
		var dids []string
		for _, r := range got.Records {
			dids = append(dids, r.DID)
			if f.t.Records["at://"+r.DID+"/"+r.Collection+"/"+r.Rkey].Subject != actor {
				differences = append(differences, fmt.Sprintf("links to %s: %+v does not link to it", actor, r))
			}
		}
		if slices.Sort(dids); !slices.Equal(dids, want) {
			differences = append(differences, fmt.Sprintf("links to %s of %s: %q, want %q", actor, k.Name, dids, want))
		}
	}
	return differences, nil
}

// shares asks for what the accounts that an account follows like, ranked by their share of
// the likers.
func (f facts) shares(ctx context.Context, base, actor string, _ []string) (differences []string, nonEmpty int, err error) {
	var got struct {
		Of    int
		Items []struct {
			Member       string
			Count        int
			Total, Share int
		}
	}
	q := url.Values{"of": {"follows(" + actor + ")"}, "via": {"likes"}, "by": {"share"}, "min": {"1"}, "limit": {"1000"}}
	if err := Get(ctx, base+"/xrpc/blue.skein.graph.rank?"+q.Encode(), &got); err != nil {
		return nil, 0, err
	}
	counts := map[string]int{}
	for _, member := range f.Forward[follow][actor] {
		for _, post := range f.Forward["like"][member] {
			counts[post]++
		}
	}
	for i, it := range got.Items {
		total := len(f.Reverse["like"][it.Member])
		if it.Count != counts[it.Member] || it.Total != total || it.Share != it.Count*1_000_000/total && it.Share != it.Count*1_000_000/total+1 || i > 0 && it.Share > got.Items[i-1].Share {
			differences = append(differences, fmt.Sprintf("share for %s: %+v, want %d of %d", actor, it, counts[it.Member], total))
		}
	}
	if len(got.Items) != len(counts) || got.Of != len(f.Forward[follow][actor]) {
		differences = append(differences, fmt.Sprintf("share for %s: %d of %d, want %d of %d", actor, len(got.Items), got.Of, len(counts), len(f.Forward[follow][actor])))
	}
	return differences, min(len(counts), 1), nil
}

// Watched is a watched set: the members that have entered and not left.
type Watched struct {
	Set string

	mu      sync.Mutex
	members map[string]bool
	wrong   []string // impossible messages
	body    interface{ Close() error }
}

// Watch watches a set that is empty now. It returns once the server watches it.
func Watch(ctx context.Context, base, set string) (w *Watched, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/xrpc/blue.skein.graph.subscribe?"+url.Values{"set": {set}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", set, resp.Status), resp.Body.Close())
	}
	w = &Watched{Set: set, members: map[string]bool{}, body: resp.Body}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 16<<20)
	next := func() bool {
		for in.Scan() {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				w.take([]byte(data))
				return true
			}
		}
		return false
	}
	if !next() {
		return nil, errors.Join(fmt.Errorf("%s: no message", set), in.Err(), resp.Body.Close())
	}
	go func() {
		for next() {
		}
	}()
	return w, nil
}

func (w *Watched) take(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m struct {
		Entered, Left []string
		Reset, Error  string
	}
	if err := json.Unmarshal(data, &m); err != nil || m.Reset != "" || m.Error != "" {
		w.wrong = append(w.wrong, string(data))
	}
	for _, did := range m.Entered {
		if w.members[did] {
			w.wrong = append(w.wrong, did+" entered twice")
		}
		w.members[did] = true
	}
	for _, did := range m.Left {
		if !w.members[did] {
			w.wrong = append(w.wrong, did+" left without being a member")
		}
		delete(w.members, did)
	}
}

// Members returns the members according to the messages, and the impossible messages.
func (w *Watched) Members() (members, wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.members)), slices.Clone(w.wrong)
}

// Close stops watching.
func (w *Watched) Close() error { return w.body.Close() }
