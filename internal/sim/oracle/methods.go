package oracle

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Record is a live record in a truth file.
type Record struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
	Subject    string `json:"subject"`
}

// facts are the sets that the oracle computes from the records.
type facts struct {
	t *Truth
	Views
}

func (t *Truth) hidden(did string) bool {
	a, known := t.Accounts[did]
	return known && a.Status != "active"
}

// edges yields the edges of the records of indexed collections.
func (t *Truth) edges(yield func(Edge) bool) {
	t.edgesIn(func(string) bool { return true })(yield)
}

func (t *Truth) facts() facts { return facts{t, ViewsOf(t.edges, t.hidden)} }

// CompareMethods asks the server at base what the people that each account follows also
// follow, like and repost (known), what they have in common (rank), how accounts relate
// to each other (getRelationships), and for sets in windows and the records behind them
// (records.go). It returns the differences, and the number of answers that were not
// empty.
func (t *Truth) CompareMethods(ctx context.Context, base string) (differences []string, nonEmpty int, err error) {
	f := t.facts()
	accounts := slices.Sorted(maps.Keys(t.Accounts))
	for _, actor := range accounts {
		for _, ask := range []func(context.Context, string, string, []string) ([]string, int, error){f.known, f.rank, f.relationships, f.windows, f.records, f.shares} {
			diffs, n, err := ask(ctx, base, actor, accounts)
			if err != nil {
				return nil, 0, err
			}
			differences, nonEmpty = append(differences, diffs...), nonEmpty+n
		}
	}
	return differences, nonEmpty, nil
}

// follow is the kind of edge by which accounts know each other.
const follow = "follow"

func (f facts) known(ctx context.Context, base, actor string, accounts []string) (differences []string, nonEmpty int, err error) {
	for _, k := range kinds.All {
		if !k.HasSets() {
			continue
		}
		subjects := accounts
		if k.To.Is() == dict.URI {
			subjects = slices.Sorted(maps.Keys(f.Reverse[k.Name]))
		}
		for chunk := range slices.Chunk(subjects, 100) {
			var got struct {
				Subjects []struct {
					Subject string
					Total   int
					Sample  []string
				}
			}
			q := url.Values{"actor": {actor}, "edge": {k.Reverse}, "subject": chunk, "limit": {"100"}}
			if err := Get(ctx, base+"/xrpc/blue.skein.graph.known?"+q.Encode(), &got); err != nil {
				return nil, 0, err
			}
			for i, subject := range chunk {
				var want []string
				for _, member := range f.Reverse[k.Name][subject] {
					if slices.Contains(f.Forward[follow][actor], member) {
						want = append(want, member)
					}
				}
				nonEmpty += min(len(want), 1)
				g := got.Subjects[i]
				slices.Sort(g.Sample)
				if g.Subject != subject || g.Total != len(want) || !slices.Equal(g.Sample, want) {
					differences = append(differences, fmt.Sprintf("known %s of %s for %s: %+v, want %v", k.Reverse, subject, actor, g, want))
				}
			}
		}
	}
	return differences, nonEmpty, nil
}

// via lists the operators that lead on from an account, with their sets.
func (f facts) via() map[string]map[string][]string {
	all := map[string]map[string][]string{}
	for _, k := range kinds.All {
		if !k.HasSets() {
			continue
		}
		all[k.Forward] = f.Forward[k.Name]
		if k.To.Is() == dict.DID {
			all[k.Reverse] = f.Reverse[k.Name]
		}
	}
	return all
}

func (f facts) rank(ctx context.Context, base, actor string, _ []string) (differences []string, nonEmpty int, err error) {
	for via, sets := range f.via() {
		var got struct {
			Items []struct {
				Member string
				Count  int
			}
		}
		q := url.Values{"of": {"follows(" + actor + ")"}, "via": {via}, "limit": {"1000"}}
		if err := Get(ctx, base+"/xrpc/blue.skein.graph.rank?"+q.Encode(), &got); err != nil {
			return nil, 0, err
		}
		want, have := map[string]int{}, map[string]int{}
		for _, member := range f.Forward[follow][actor] {
			for _, result := range sets[member] {
				if !f.t.hidden(result) {
					want[result]++
				}
			}
		}
		ordered := true
		for i, g := range got.Items {
			have[g.Member] = g.Count
			ordered = ordered && (i == 0 || got.Items[i-1].Count >= g.Count)
		}
		nonEmpty += min(len(want), 1)
		if !maps.Equal(have, want) || len(got.Items) != len(want) || !ordered {
			differences = append(differences, fmt.Sprintf("rank of follows(%s) via %s: %v, want %v", actor, via, got.Items, want))
		}
	}
	return differences, nonEmpty, nil
}

func (f facts) relationships(ctx context.Context, base, actor string, accounts []string) (differences []string, nonEmpty int, err error) {
	for chunk := range slices.Chunk(accounts, 30) {
		var got struct {
			Actor         string
			Relationships []map[string]string
		}
		q := url.Values{"actor": {actor}, "others": chunk}
		if err := Get(ctx, base+"/xrpc/app.bsky.graph.getRelationships?"+q.Encode(), &got); err != nil {
			return nil, 0, err
		}
		for i, other := range chunk {
			want := map[string]string{"$type": "app.bsky.graph.defs#relationship", "did": other}
			if !f.t.hidden(actor) && !f.t.hidden(other) {
				for uri, r := range f.t.Records {
					name := ""
					switch {
					case r.DID == actor && r.Subject == other:
						name = map[string]string{"app.bsky.graph.follow": "following", "app.bsky.graph.block": "blocking"}[r.Collection]
					case r.DID == other && r.Subject == actor:
						name = map[string]string{"app.bsky.graph.follow": "followedBy", "app.bsky.graph.block": "blockedBy"}[r.Collection]
					}
					if name != "" && (want[name] == "" || uri < want[name]) {
						want[name] = uri
						nonEmpty++
					}
				}
			}
			if !reflect.DeepEqual(got.Relationships[i], want) {
				differences = append(differences, fmt.Sprintf("%s and %s: %v, want %v", actor, other, got.Relationships[i], want))
			}
		}
	}
	return differences, nonEmpty, nil
}
