package query_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// A feed without=dead shows no post that was deleted, or whose author is not active, but those of authors whose posts are not all
// known. One without=replies shows no reply.
func TestFeedsWithoutPosts(t *testing.T) {
	w := newWorldOn(t, nil, memory(write.Limits{Row: 4, Chunk: 3}), graph.Options{Kinds: usualPosts(t)})
	o := feed.Options{Path: filepath.Join(t.TempDir(), "feeds"), Service: serviceDID, Kinds: w.store.Kinds()}
	const viewer = "did:web:viewer.example.com"
	unnamed := []string{"at://did:web:elsewhere.example.com/app.bsky.feed.post/x", "at://did:web:elsewhere.example.com/app.bsky.feed.post/y"}
	likes := " = union(likes(" + viewer + "), members(" + strings.Join(unnamed, ", ") + "))"
	file := "all" + likes + "\ndead" + likes + ", without=dead\nreplies" + likes + ", without=replies\nboth = mix(1, rank(of=members(" + viewer + "), via=likes), 1, members(" + strings.Join(unnamed, "), 1, members(") + ")), without=replies, without=dead\n"
	fresh := "at://did:web:elsewhere.example.com/app.bsky.feed.post/" + oracle.TID(1_900_000_000_000_000<<10)
	file += "fresh = mix(1, members(" + fresh + "), 1, likes(" + viewer + "))\n"
	must(t, os.WriteFile(o.Path, []byte(file), 0o600))
	var err error
	without := o
	without.Kinds = kinds.BuiltIn
	if _, err := feed.New(without); err == nil || !strings.Contains(err.Error(), "line 2: feed dead: without=dead needs an index of posts, which this one is not: start it with skein serve --posts") {
		t.Errorf("an index without posts: %v", err)
	}
	var qo query.Options
	qo.Feeds, err = feed.New(o)
	must(t, err)
	w.serve(qo)
	rng := rand.New(rand.NewPCG(4, 51))
	dead, replies, hidden, seq := map[string]bool{}, map[string]bool{}, map[string]bool{}, int64(0)
	revs := map[string][]int64{"did:web:partial.example.com": {1}}
	var posts []string
	var frames [][]byte
	commit := func(author, action, collection, rkey string, record synth.Map) {
		seq++
		frames = append(frames, commitFrame(seq, author, action, collection, rkey, record, revs[author]...))
		revs[author] = []int64{seq}
	}
	tid := func(second int64) string { return oracle.TID(uint64(second*1e6) << 10) }
	link := func(uri string) synth.Map { return synth.Map{{Key: "uri", Value: uri}} }
	like := func(uri string) {
		posts = append(posts, uri)
		commit(viewer, "create", "app.bsky.feed.like", tid(1_790_000_000+seq), synth.Map{{Key: "subject", Value: link(uri)}})
	}
	for _, author := range []string{"did:web:partial.example.com", "did:web:stranger.example.com"} {
		for _, rkey := range []string{"odd", tid(1_700_000_000), tid(time.Now().Unix() + 60)} { // the index would have heard of the last
			like("at://" + author + "/app.bsky.feed.post/" + rkey)
			dead[posts[len(posts)-1]] = len(posts)%3 == 0
		}
	}
	commit("did:web:partial.example.com", "create", "app.bsky.feed.post", tid(1_790_000_000+seq), synth.Map{})
	for range 6 {
		for range 40 {
			author, rkey := did(rng.IntN(8)), tid(1_790_000_000+seq)
			switch uri := posts[rng.IntN(len(posts))]; rng.IntN(10) {
			case 0:
				hidden[author] = !hidden[author]
				seq++
				frames = append(frames, oracle.Frame(&oracle.Event{Type: oracle.AccountEvent, Seq: seq, DID: author, Active: !hidden[author]}))
			case 1, 2:
				if parts := strings.Split(uri, "/"); !dead[uri] && strings.HasPrefix(parts[2], "did:web:n") {
					commit(parts[2], "delete", "app.bsky.feed.post", parts[4], nil)
					dead[uri] = true
					delete(replies, uri)
				}
			default:
				record, made := synth.Map{}, "at://"+author+"/app.bsky.feed.post/"+rkey
				if rng.IntN(2) == 0 {
					record, replies[made] = synth.Map{{Key: "reply", Value: synth.Map{{Key: "parent", Value: link(uri)}}}}, true
				}
				commit(author, "create", "app.bsky.feed.post", rkey, record)
				like(made)
			}
		}
		w.index(frames)
		frames = nil
		for name, shows := range map[string]func(uri string, dead bool) bool{
			"all": func(string, bool) bool { return true }, "dead": func(_ string, dead bool) bool { return !dead },
			"replies": func(uri string, _ bool) bool { return !replies[uri] }, "both": func(uri string, dead bool) bool { return !dead && !replies[uri] },
		} {
			want, got := slices.Clone(unnamed), []string(nil)
			for _, uri := range posts {
				if shows(uri, dead[uri] || hidden[strings.Split(uri, "/")[2]]) {
					want = append(want, uri)
				}
			}
			p := url.Values{"feed": {"at://" + serviceDID + "/app.bsky.feed.generator/" + name}}
			for more := true; more; more = p.Get("cursor") != "" {
				p.Set("limit", fmt.Sprint(1+rng.IntN(100)))
				a := w.answer(feedSkeleton, p)
				for _, item := range a.Feed {
					got = append(got, item.Post)
				}
				p.Set("cursor", a.Cursor)
			}
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				in := func(list []string) func(string) bool {
					return func(uri string) bool { return slices.Contains(list, uri) }
				}
				t.Fatalf("%s at %d: shows %q, lacks %q", name, seq, slices.DeleteFunc(slices.Clone(got), in(want)), slices.DeleteFunc(want, in(got)))
			}
		}
	}
	p, times := url.Values{"feed": {"at://" + serviceDID + "/app.bsky.feed.generator/fresh"}, "limit": {"1"}}, 0
	for more := true; more; more = p.Get("cursor") != "" {
		a := w.answer(feedSkeleton, p)
		if times += strings.Count(fmt.Sprint(a.Feed), fresh); !p.Has("cursor") { // a record names it between two pages
			like(fresh)
			w.index(frames)
		}
		p.Set("cursor", a.Cursor)
		p.Set("limit", "50")
	}
	if times != 1 {
		t.Errorf("a post that is named between two pages is shown %d times", times)
	}
	if len(dead) < 10 || len(replies) < 30 {
		t.Errorf("%d dead posts, %d replies", len(dead), len(replies))
	}
}
