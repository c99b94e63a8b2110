package truth

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
)

// Record is a live record of a truth file.
type Record struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Rkey       string `json:"rkey"`
	Subject    string `json:"subject"`
}

// facts are what the records say, hidden accounts left out where they act.
type facts struct {
	t       *Truth
	forward map[string]map[string]set // by collection and actor: the subjects
	reverse map[string]map[string]set // by collection and subject: the actors
}

type set map[string]bool

const (
	follow = "app.bsky.graph.follow"
	like   = "app.bsky.feed.like"
	repost = "app.bsky.feed.repost"
	block  = "app.bsky.graph.block"
)

func (t *Truth) hidden(did string) bool {
	a, known := t.Accounts[did]
	return known && a.Status != "active"
}

func (t *Truth) facts() facts {
	f := facts{t, map[string]map[string]set{}, map[string]map[string]set{}}
	put := func(m map[string]map[string]set, collection, of, member string) {
		if m[collection] == nil {
			m[collection] = map[string]set{}
		}
		if m[collection][of] == nil {
			m[collection][of] = set{}
		}
		m[collection][of][member] = true
	}
	for _, r := range t.Records {
		if r.Subject == "" || t.hidden(r.DID) {
			continue
		}
		if !t.hidden(r.Subject) {
			put(f.forward, r.Collection, r.DID, r.Subject)
		}
		put(f.reverse, r.Collection, r.Subject, r.DID)
	}
	return f
}

// CompareMethods asks the server at base what the people that each account
// follows also follow, like and repost (known), what they have in common
// (rank), and how the accounts stand to each other (getRelationships), and
// returns the differences, and how many answers said something.
func (t *Truth) CompareMethods(ctx context.Context, base string) (differences []string, said int, err error) {
	f := t.facts()
	accounts := slices.Sorted(maps.Keys(t.Accounts))
	for _, actor := range accounts {
		for _, ask := range []func(context.Context, string, string, []string) ([]string, int, error){f.known, f.rank, f.relationships} {
			diffs, n, err := ask(ctx, base, actor, accounts)
			if err != nil {
				return nil, 0, err
			}
			differences, said = append(differences, diffs...), said+n
		}
	}
	return differences, said, nil
}

func (f facts) known(ctx context.Context, base, actor string, accounts []string) (differences []string, said int, err error) {
	for edge, collection := range map[string]string{"followers": follow, "likers": like, "reposters": repost} {
		subjects := accounts
		if edge != "followers" {
			subjects = slices.Sorted(maps.Keys(f.reverse[collection]))
		}
		for chunk := range slices.Chunk(subjects, 100) {
			var got struct {
				Subjects []struct {
					Subject string
					Total   int
					Sample  []string
				}
			}
			q := url.Values{"actor": {actor}, "edge": {edge}, "subject": chunk, "limit": {"100"}}
			if err := Get(ctx, base+"/xrpc/blue.skein.graph.known?"+q.Encode(), &got); err != nil {
				return nil, 0, err
			}
			for i, subject := range chunk {
				want := set{}
				for member := range f.reverse[collection][subject] {
					if f.forward[follow][actor][member] {
						want[member] = true
					}
				}
				said += min(len(want), 1)
				g := got.Subjects[i]
				slices.Sort(g.Sample)
				if g.Subject != subject || g.Total != len(want) || !slices.Equal(g.Sample, slices.Sorted(maps.Keys(want))) {
					differences = append(differences, fmt.Sprintf("known %s of %s for %s: %+v, want %v", edge, subject, actor, g, want))
				}
			}
		}
	}
	return differences, said, nil
}

func (f facts) rank(ctx context.Context, base, actor string, _ []string) (differences []string, said int, err error) {
	for via, sets := range map[string]map[string]set{
		"follows": f.forward[follow], "likes": f.forward[like], "reposts": f.forward[repost], "blocks": f.forward[block],
		"followers": f.reverse[follow], "blockers": f.reverse[block],
	} {
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
		for member := range f.forward[follow][actor] {
			for result := range sets[member] {
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
		said += min(len(want), 1)
		if !maps.Equal(have, want) || len(got.Items) != len(want) || !ordered {
			differences = append(differences, fmt.Sprintf("rank of follows(%s) via %s: %v, want %v", actor, via, got.Items, want))
		}
	}
	return differences, said, nil
}

func (f facts) relationships(ctx context.Context, base, actor string, accounts []string) (differences []string, said int, err error) {
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
						name = map[string]string{follow: "following", block: "blocking"}[r.Collection]
					case r.DID == other && r.Subject == actor:
						name = map[string]string{follow: "followedBy", block: "blockedBy"}[r.Collection]
					}
					if name != "" && (want[name] == "" || uri < want[name]) {
						want[name] = uri
						said++
					}
				}
			}
			if !reflect.DeepEqual(got.Relationships[i], want) {
				differences = append(differences, fmt.Sprintf("%s and %s: %v, want %v", actor, other, got.Relationships[i], want))
			}
		}
	}
	return differences, said, nil
}
