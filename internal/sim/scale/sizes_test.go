package scale

import (
	"net/url"
	"testing"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/network"
	"skein.blue/query"
)

// BenchmarkSizes compares stores of different sizes: it asks about sets that have about the same sizes in each. -scale.dir may also
// have a store that skein-sim load made with its default seed.
//
//	go test ./internal/sim/scale -run xxx -bench Sizes -benchtime 100x -v -scale.dir DIR
func BenchmarkSizes(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	crowd, crowdSize := accountWith(b, x, true, "follow", 6_000)
	other, otherSize := accountWith(b, x, true, "follow", 6_000, crowd)
	small, smallSize := accountWith(b, x, true, "follow", 2_000) // without dates
	follower, follows := accountWith(b, x, false, "follow", 300)
	b.Logf("%d edges; followers of A %d, in %d containers, of B %d, in %d, of C %d; %d follows",
		records(b, x), crowdSize, containers(b, x, crowd), otherSize, containers(b, x, other), smallSize, follows)
	var others []string
	for i := range 30 {
		others = append(others, did(i*network.Liveliest))
	}
	for _, q := range []struct {
		what, method string
		p            url.Values
	}{
		{"intersection", askQuery, url.Values{"set": {"intersect(followers(" + did(crowd) + "),followers(" + did(other) + "))"}, "limit": {"100"}}},
		{"known", askKnown, url.Values{"actor": {did(follower)}, "edge": {"followers"}, "subject": {did(crowd)}}},
		{"rankFollows", askRank, url.Values{"of": {"follows(" + did(follower) + ")"}, "via": {"follows"}, "limit": {"100"}}},
		{"rankLikes", askRank, url.Values{"of": {"follows(" + did(follower) + ")"}, "via": {"likes"}, "limit": {"100"}}},
		{"backlinks", "blue.microcosm.links.getBacklinks", url.Values{"subject": {did(crowd)}, "source": {"app.bsky.graph.follow:subject"}}},
		{"fewBacklinks", "blue.microcosm.links.getBacklinks", url.Values{"subject": {did(small)}, "source": {"app.bsky.graph.follow:subject"}}},
		{"relationships", "app.bsky.graph.getRelationships", url.Values{"actor": {did(follower)}, "others": others}},
	} {
		b.Run(q.what, func(b *testing.B) {
			get(b, s, q.method, q.p)
			median(b, func() { get(b, s, q.method, q.p) })
		})
	}
	// A different pair of accounts each time, so that most of what is read is in no cache of skein's.
	const far = 104_729
	accounts := dids(b, x)
	b.Run("small", func(b *testing.B) {
		n := 0
		median(b, func() {
			n++
			a, c := did(n*far%accounts), did((n*far+network.Liveliest)%accounts)
			if n%2 == 0 {
				get(b, s, "blue.skein.graph.contains", url.Values{"set": {"followers(" + a + ")"}, "member": {c}})
			} else {
				get(b, s, askQuery, url.Values{"set": {"intersect(followers(" + a + "),followers(" + c + "))"}, "limit": {"10"}})
			}
		})
	})
}

// dids returns the number of DIDs in a store, about as many as its network has accounts.
func dids(b *testing.B, x *app.Index) (n int) {
	b.Helper()
	if err := x.Graph.View(b.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		n = int(c.Strings[dict.DID.String()])
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

// containers returns in how many containers the followers of an account are.
func containers(b *testing.B, x *app.Index, account int) (n int) {
	b.Helper()
	if err := x.KV.View(b.Context(), func(r kv.Reader) error {
		var batch intern.Batch
		at := batch.Add(dict.DID, []byte(did(account)))
		if err := intern.Lookup(r, &batch); err != nil {
			return err
		}
		row := format.AppendRowKey(nil, kinds.ByName("follow").Kind, batch.ID(at))
		return kv.ScanPrefix(r, row, func(key, _ []byte) error {
			if len(key) > len(row) {
				n++
			}
			return nil
		})
	}); err != nil {
		b.Fatal(err)
	}
	return n
}
