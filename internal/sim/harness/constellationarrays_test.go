package harness_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
	"skein.blue/query"
)

// The sources through arrays that both programs are asked for, as Constellation writes them.
const (
	mentionSource = "facets[].features[app.bsky.richtext.facet#mention].did"
	linkSource    = "facets[].features[app.bsky.richtext.facet#link].uri"
	itemSource    = "items[com.example.item].at"
)

const arraySources = "app.bsky.feed.post " + mentionSource + " did mentions mentioners\n" +
	"app.bsky.feed.post " + linkSource + " uri links linkers\n" +
	"app.bsky.feed.post " + itemSource + " at-uri items itemsBy\n"

// arrayRecord is a post that names subjects in arrays.
type arrayRecord struct {
	mentions, links, items []string
}

func (r *arrayRecord) value() synth.Map {
	var facets, items []any
	feature := func(kind, name, value string) {
		facets = append(facets, synth.Map{{Key: "index", Value: synth.Map{}}, {Key: "features", Value: []any{synth.Map{{Key: name, Value: value}, {Key: "$type", Value: "app.bsky.richtext.facet#" + kind}}}}})
	}
	for _, m := range r.mentions {
		feature("mention", "did", m)
	}
	for _, l := range r.links {
		feature("link", "uri", l)
	}
	for _, at := range r.items {
		items = append(items, synth.Map{{Key: "at", Value: at}, {Key: "$type", Value: "com.example.item"}})
	}
	return synth.Map{{Key: "text", Value: "x"}, {Key: "items", Value: items}, {Key: "facets", Value: facets}}
}

// json is the record as Jetstream writes it.
func (r *arrayRecord) json() map[string]any {
	var plain func(v any) any
	plain = func(v any) any {
		switch v := v.(type) {
		case synth.Map:
			m := map[string]any{}
			for _, f := range v {
				m[f.Key] = plain(f.Value)
			}
			return m
		case []any:
			list := []any{}
			for _, x := range v {
				list = append(list, plain(x))
			}
			return list
		}
		return v
	}
	m, _ := plain(r.value()).(map[string]any)
	return m
}

// Constellation gives the same answers as skein for sources through arrays, while posts are created, updated
// and deleted.
//
//	go test ./internal/sim/harness -run TestConstellationArrays -v -constellation PATH [-constellation.backend memory]
func TestConstellationArrays(t *testing.T) {
	if *constellationFlag == "" {
		t.Skip("needs constellation: use -constellation PATH")
	}
	rng := rand.New(rand.NewPCG(26, 9))
	var dids, links9, ats []string
	for i := range 40 {
		did := "did:plc:" + strings.Repeat("a", 22) + string(rune('a'+i/26)) + string(rune('a'+i%26))
		dids = append(dids, did)
		links9 = append(links9, fmt.Sprintf("https://example.com/page/%d?a=b", i))
		ats = append(ats, "at://"+did+"/app.bsky.feed.post/3kkkkkkkkkkkk")
	}
	some := func(list []string) (out []string) {
		for range rng.IntN(4) {
			if s := list[rng.IntN(12)]; !slices.Contains(out, s) { // Constellation counts a subject twice that a record names twice
				out = append(out, s)
			}
		}
		return out
	}
	records := map[string]*arrayRecord{} // by author and key
	var lines []string
	var frames [][]byte
	const posts = "app.bsky.feed.post"
	for seq := 1; seq <= 3000; seq++ {
		author := dids[rng.IntN(len(dids))]
		rkey := oracle.TID(uint64(1+rng.IntN(30)) << 40)
		action := "create"
		if records[author+"/"+rkey] != nil {
			action = []string{"update", "delete"}[rng.IntN(2)]
		}
		rev := oracle.TID(1<<59 + uint64(seq)<<20)
		commit := map[string]any{"rev": rev, "operation": action, "collection": posts, "rkey": rkey}
		root := synth.CommitBlock(author, rev, [32]byte{1})
		m := synth.Commit{Repo: []byte(author), Rev: []byte(rev), Seq: int64(seq), Time: []byte("2026-01-01T00:00:00.000Z"), Root: root.CID}
		o := synth.Op{Action: action, Collection: posts, Rkey: []byte(rkey)}
		blocks := []synth.Block{root}
		if action == "delete" {
			delete(records, author+"/"+rkey)
		} else {
			r := &arrayRecord{some(dids), some(links9), some(ats)}
			records[author+"/"+rkey] = r
			commit["record"] = r.json()
			b := synth.NewBlock(synth.CBOR(nil, r.value()))
			o.CID = &b.CID
			blocks = append(blocks, b)
		}
		m.Ops, m.CAR = []synth.Op{o}, [][]byte{synth.CAR(root.CID, blocks...)}
		frame, _ := m.Append(nil)
		frames = append(frames, frame)
		line, err := json.Marshal(map[string]any{"did": author, "time_us": 1_700_000_000_000_000 + seq, "kind": "commit", "commit": commit})
		must(t, err)
		lines = append(lines, string(line))
	}
	dir := t.TempDir()
	theirs, _ := runConstellation(t, lines, dids[0], dir)
	ours := startSkeinOnFrames(t, frames, dir)
	compared, some1 := 0, 0
	for source, targets := range map[string][]string{mentionSource: dids, linkSource: links9, itemSource: ats} {
		for _, target := range targets[:14] {
			newer := func() url.Values {
				return url.Values{"subject": {target}, "source": {posts + ":" + source}, "limit": {"100"}}
			}
			older := func() url.Values {
				return url.Values{"target": {target}, "collection": {posts}, "path": {"." + source}, "limit": {"100"}}
			}
			for _, q := range []struct {
				path string
				p    func() url.Values
			}{
				{"/xrpc/blue.microcosm.links.getBacklinks", newer},
				{"/xrpc/blue.microcosm.links.getBacklinkDids", newer},
				{"/links", older},
				{"/links/distinct-dids", older},
			} {
				_, got := allLinks(t, ours+q.path, q.p())
				_, want := allLinks(t, theirs+q.path, q.p())
				if !slices.Equal(got, want) {
					t.Fatalf("%s %v: only here: %q, only in constellation: %q", q.path, q.p(), without(got, want), without(want, got))
				}
				compared++
				some1 += len(got)
			}
			var got, want struct{ Total int }
			const count = "/links/count/distinct-dids"
			if err := errors.Join(links(ours+count, unlimited(older()), &got), links(theirs+count, unlimited(older()), &want)); err != nil || got != want {
				t.Fatalf("%s %v: %d, constellation %d: %v", count, older(), got.Total, want.Total, err)
			}
			for path, p := range map[string]url.Values{"/links/count": older(), "/xrpc/blue.microcosm.links.getBacklinksCount": newer()} {
				if err := errors.Join(links(ours+path, unlimited(p), &got), links(theirs+path, unlimited(p), &want)); err != nil || got != want {
					t.Fatalf("%s %v: %d, constellation %d: %v", path, p, got.Total, want.Total, err)
				}
			}
		}
	}
	t.Logf("%d answers compared, with %d records", compared, some1)
	if some1 < 1000 {
		t.Error("too little was compared")
	}
}

// without returns what is in x and not in y.
func without(x, y []string) []string {
	return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return slices.Contains(y, s) })
}

// startSkeinOnFrames indexes posts with the sources through arrays, and serves them.
func startSkeinOnFrames(t *testing.T, frames [][]byte, dir string) (base string) {
	t.Helper()
	more, err := kinds.Parse(arraySources)
	must(t, err)
	kv, err := pebblekv.Open(pebblekv.Options{Dir: filepath.Join(dir, "skein"), Create: true, Merger: write.NewMerger(write.Limits{})})
	must(t, err)
	t.Cleanup(func() { _ = kv.Close() })
	g, err := graph.Open(t.Context(), kv, graph.Options{Kinds: more})
	must(t, err)
	c, err := consumer.New(g, consumer.Options{Relay: "ws://memory", Read: slices.Values(frames)})
	if err == nil {
		err = c.Run(t.Context())
	}
	must(t, err)
	s := query.New(g, query.Options{})
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL
}
