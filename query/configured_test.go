package query_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
)

// A store is configured with kinds, and with more of them later; it remembers them, and answers say since when they are
// indexed.
func TestConfiguredKinds(t *testing.T) {
	store := memory(write.Limits{})
	var w *world
	open := func(file string) {
		t.Helper()
		more, err := kinds.Parse(file)
		must(t, err)
		w = newWorldOn(t, nil, store, graph.Options{Kinds: more})
	}
	const parent, quoted, replies = "at://did:web:n1.example.com/app.bsky.feed.post/1", "at://did:web:n1.example.com/app.bsky.feed.post/2", "app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers"
	record := synth.Map{
		{Key: "embed", Value: synth.Map{{Key: "record", Value: synth.Map{{Key: "uri", Value: quoted}}}}},
		{Key: "reply", Value: synth.Map{{Key: "parent", Value: synth.Map{{Key: "uri", Value: parent}}}}},
	}
	index := func(seq int64, author int, collection string, record synth.Map) {
		t.Helper()
		w.index([][]byte{commitFrame(seq, did(author), "create", collection, oracle.TID(uint64(seq)<<30), record)})
	}
	has := func(set string, want ...string) answer {
		t.Helper()
		a := w.query(set)
		if slices.Sort(a.Members); !slices.Equal(a.Members, want) {
			t.Errorf("%s: %q, want %q", set, a.Members, want)
		}
		return a
	}
	open(replies)
	index(1, 2, "app.bsky.feed.post", record)
	began := time.Now().UTC().Format(time.RFC3339Nano)
	has("repliers("+parent+")", did(2))
	w.says("query?set=citers("+quoted+")", 400, "is not a set")
	for _, file := range []string{replies + "\napp.bsky.feed.post embed.record.uri at-uri cited citers\nsh.tangled.graph.follow subject did tangledFollows tangledFollowers", ""} {
		must(t, w.store.Close(t.Context()))
		open(file) // what it has been configured with, it has
	}
	index(2, 3, "app.bsky.feed.post", record)
	index(3, 5, "sh.tangled.graph.follow", synth.Map{{Key: "subject", Value: did(4)}})
	has("repliedTo("+did(2)+")", parent)
	has("repliers("+parent+")", did(2), did(3))
	has("tangledFollowers("+did(4)+")", did(5))
	has("rank(of=members("+did(3)+"),via=cited)", quoted)
	if a := has("citers("+quoted+")", did(3)); !strings.Contains(a.Reason, "app.bsky.feed.post:embed.record.uri has been indexed only since") {
		t.Errorf("a set whose past is not there: %+v", a)
	}
	w.says("getAccount?did="+did(2), 200, `"state":"partial"`)
	w.says("getAccount?did="+did(2), 200, "has been indexed only since")
	w.says("blue.microcosm.links.getBacklinksCount?subject="+quoted+"&source=app.bsky.feed.post:embed.record.uri", 200, `{"total":1}`)
	w.says("getStats", 200, `"collection":"app.bsky.feed.post","path":"embed.record.uri","names":"uri","forward":"cited","reverse":"citers"`)
	must(t, w.store.Close(t.Context()))
	open(kinds.Posts) // names the replies of a kind that is there
	index(4, 6, "app.bsky.feed.post", record)
	post := "at://" + did(6) + "/app.bsky.feed.post/" + oracle.TID(4<<30)
	const since = "app.bsky.feed.post:self has been indexed only since"
	for _, set := range []string{"replies(" + parent + ")", "posts(" + did(6) + ")", "rank(of=members(" + parent + "),via=replies)"} {
		if a := has(set, post); !strings.Contains(a.Reason, since) {
			t.Errorf("%s: %+v", set, a)
		}
	}
	if a := has("repliers("+parent+")", did(2), did(3), did(6)); strings.Contains(a.Reason, since) {
		t.Errorf("a set that needs no posts: %+v", a)
	}
	w.says("counts?edge=replies&subject="+parent, 200, since)
	w.says("getStats", 200, `"forward":"repliedTo","reverse":"repliers","records":"replies"`)
	w.says("blue.microcosm.links.getBacklinksCount?subject="+post+"&source=app.bsky.feed.post:self", 200, `{"total":0}`)
	w.says("/links/all?target="+post, 200, `{"links":{}}`)
	w.says("subscribe?set=replies("+parent+")", 400, "cannot be watched")
	w.says("subscribe?set=posts("+did(6)+",since=1d)", 400, "cannot be watched")
	// A part of the network fetches the repos of its members again, and nobody else's.
	w.heard()
	must(t, w.store.ChangeBackfill(t.Context(), func(b *format.Backfill) {
		b.Around, b.Swept = format.Around{Centers: []string{did(1)}, Hops: 1}, w.store.SweepDue()
	}))
	w.says("query?set=replies("+parent+",since="+began+")", 200, since)
	w.incomplete("query?set=repliers("+parent+",since="+began+")", false)
	w.incomplete("query?set=replies("+parent+",since="+time.Now().UTC().Format(time.RFC3339Nano)+")", false)
}

// aPostRecord is a post of TestPosts, by its record key.
type aPostRecord struct{ parent, quoted string }

// The sets of posts are those of plain maps, while posts are written, changed and deleted, and accounts come and go.
func TestPosts(t *testing.T) {
	w := newWorldOn(t, nil, memory(write.Limits{Row: 4, Chunk: 3}), graph.Options{Kinds: usualPosts(t)})
	rng := rand.New(rand.NewPCG(1, 51))
	truth, hidden, seq := map[string]map[string]aPostRecord{}, map[string]bool{}, int64(0)
	const accounts = 6
	uri := func(did, rkey string) string { return "at://" + did + "/app.bsky.feed.post/" + rkey }
	link := func(uri string) synth.Map { return synth.Map{{Key: "uri", Value: uri}} }
	known := []string{"at://" + did(0)} // posts, dead or alive, and a subject that is not a record
	some := func() string {
		if rng.IntN(2) == 0 {
			return ""
		}
		return known[max(0, len(known)-1-rng.IntN(12))]
	}
	change := func() (frame []byte) {
		author := did(rng.IntN(accounts))
		seq++
		switch of := slices.Sorted(maps.Keys(truth[author])); {
		case truth[author] == nil:
			truth[author] = map[string]aPostRecord{}
		case rng.IntN(25) == 0:
			hidden[author] = !hidden[author]
			return oracle.Frame(&oracle.Event{Type: oracle.AccountEvent, Seq: seq, DID: author, Active: !hidden[author]})
		case rng.IntN(4) == 0 && len(of) > 0:
			rkey := of[rng.IntN(len(of))]
			delete(truth[author], rkey)
			return commitFrame(seq, author, "delete", "app.bsky.feed.post", rkey, nil)
		}
		p, rkey, record := aPostRecord{some(), some()}, oracle.TID(uint64(1_790_000_000_000_000+seq*1e6)<<10), synth.Map{}
		if of := slices.Sorted(maps.Keys(truth[author])); rng.IntN(5) == 0 && len(of) > 0 {
			rkey = of[rng.IntN(len(of))] // another version of it
		} else if rng.IntN(9) == 0 {
			rkey = fmt.Sprint("self", rng.IntN(3))
		}
		embed := synth.Map{{Key: "record", Value: link(p.quoted)}}
		switch {
		case p.quoted == "":
		case rng.IntN(2) == 0: // with pictures
			record = append(record, synth.Pair{Key: "embed", Value: synth.Map{{Key: "record", Value: embed}}})
		default:
			record = append(record, synth.Pair{Key: "embed", Value: embed})
		}
		if p.parent != "" {
			record = append(record, synth.Pair{Key: "reply", Value: synth.Map{{Key: "root", Value: link(some())}, {Key: "parent", Value: link(p.parent)}}})
		}
		truth[author][rkey] = p
		if u := uri(author, rkey); !slices.Contains(known, u) {
			known = append(known, u)
		}
		return commitFrame(seq, author, "create", "app.bsky.feed.post", rkey, record)
	}
	distinct := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	check := func(call string, want []string) {
		t.Helper()
		got := w.query(call).Members
		slices.Sort(got)
		if want = distinct(want); !slices.Equal(got, want) {
			t.Fatalf("at %d: %s: %q, want %q", seq, call, got, want)
		}
	}
	const since = 1_790_000_000_000_000 + 60*1e6
	window := ",since=" + time.UnixMicro(since).UTC().Format(time.RFC3339)
	for range 8 {
		var frames [][]byte
		for range 40 {
			frames = append(frames, change())
		}
		w.index(frames)
		all := map[string][]string{}
		for author, records := range truth {
			for rkey, p := range records {
				u := uri(author, rkey)
				for name, value := range map[string]string{"posts(" + author: u, "replies(" + p.parent: u, "quotes(" + p.quoted: u, "repliers(" + p.parent: author, "quoters(" + p.quoted: author, "repliedTo(" + author: p.parent, "quoted(" + author: p.quoted} {
					if at, ok := oracle.Micros(rkey); !hidden[author] && value != "" && !strings.HasSuffix(name, "(") {
						if all[name+")"] = append(all[name+")"], value); ok && at >= since {
							all[name+window+")"] = append(all[name+window+")"], value)
						}
					}
				}
			}
		}
		for i := range accounts {
			for _, name := range []string{"posts(" + did(i), "repliedTo(" + did(i), "quoted(" + did(i)} {
				check(name+")", all[name+")"])
				check(name+window+")", all[name+window+")"])
			}
		}
		for _, u := range known[max(0, len(known)-60):] {
			for _, name := range []string{"replies(" + u, "quotes(" + u, "repliers(" + u, "quoters(" + u} {
				check(name+")", all[name+")"])
				check(name+window+")", all[name+window+")"])
			}
			author := strings.Split(u, "/")[2]
			replies := all["replies("+u+")"]
			var own []string
			for _, r := range replies {
				if slices.Contains(all["posts("+author+")"], r) {
					own = append(own, r)
				}
			}
			check("intersect(replies("+u+"),posts("+author+"))", own)
			check("intersect(members("+u+"0),posts("+author+"))", nil)
			check("by(replies("+u+"),members("+author+"))", own)
			for _, it := range w.answer("list", url.Values{"set": {"replies(" + u + ")"}}).Items {
				if it.Record != it.Member || !slices.Contains(replies, it.Member) {
					t.Errorf("%s is listed as a reply to %s, by %s", it.Member, u, it.Record)
				}
			}
			w.says("counts?edge=replies&edge=repliers&edge=quotes&subject="+u, 200, fmt.Sprintf(`"totals":[%d,%d,%d]`, len(replies), len(distinct(all["repliers("+u+")"])), len(all["quotes("+u+")"])))
			w.says("contains?set=posts("+author+")&member="+u, 200, fmt.Sprintf(`"contained":%v`, slices.Contains(all["posts("+author+")"], u)))
		}
	}
}
