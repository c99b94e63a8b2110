package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/xrpc"
)

// twin is a feed in plain lists.
type twin struct {
	weights []int
	sets    []bool // which sources are sets
	each    int
	pin     string
	hide    bool

	turn  int
	shown []string
	last  []string // of each set: the last post before which all are decided
	seen  map[string]bool
}

// page returns the next page, from all posts of each source, and whether there is another.
func (w *twin) page(lists [][]string, limit int, first bool) (out []string, more bool) {
	if first && w.pin != "" {
		out = append(out, w.pin)
	}
	unwanted := func(uri string) bool {
		return uri == w.pin || w.hide && w.seen[uri] || slices.Contains(w.shown, uri) || slices.Contains(out, uri)
	}
	for i, last := range w.last {
		if w.sets[i] && last != "" {
			next := func(uri string) bool { return newest(uri, last) > 0 } // it may be gone, unless it has no time
			if n := slices.Index(lists[i], last); n >= 0 {
				lists[i] = lists[i][n+1:]
			} else if n = slices.IndexFunc(lists[i], next); n >= 0 {
				lists[i] = lists[i][n:]
			} else {
				lists[i] = nil
			}
		}
	}
	var round []int // whose turn it is
	for i, n := range w.weights {
		round = append(round, slices.Repeat([]int{i}, n)...)
	}
	turn := w.turn
	for dry := map[int]bool{}; len(out) < limit && len(dry) < len(lists); turn = (turn + 1) % len(round) {
		i := round[turn]
		n := slices.IndexFunc(lists[i], func(uri string) bool {
			of := 0
			for _, o := range out {
				if dict.AuthorityOf(o) == dict.AuthorityOf(uri) {
					of++
				}
			}
			return !unwanted(uri) && (w.each == 0 || of < w.each)
		})
		if n < 0 {
			dry[i] = true
			continue
		}
		out = append(out, lists[i][n])
		w.turn = (turn + 1) % len(round)
	}
	for i := range lists {
		for n, uri := range lists[i] {
			if !unwanted(uri) {
				more = true
				break
			}
			w.last[i] = lists[i][n]
		}
	}
	w.shown = append(w.shown, out...)
	return out, more
}

// Feeds of several sources, with options, are those of a twin, while likes come and go, also dated back, and the viewer sees posts.
func TestFeedsAgainstATwin(t *testing.T) {
	queries := []string{
		"likes($viewer)", "union(likes(" + oracle.Account(1) + "), reposts(" + oracle.Account(2) + "))",
		"rank(of=follows($viewer), via=likes, since=2026-01-01)", "rank(of=members(" + oracle.Account(3) + "," + oracle.Account(4) + ",$viewer), via=likes)",
		"blend(2, rank(of=follows($viewer), via=reposts), 1, rank(of=members($viewer), via=likes))",
	}
	shared, deferred, posts := 0, 0, 0
	for seed := range uint64(16) {
		var file strings.Builder
		for i, q := range queries {
			fmt.Fprintf(&file, "source%d = %s\n", i, q)
		}
		s := serve(t, seed, file.String(), Options{})
		for range 150 { // many of few authors
			s.Put(s.Any(s.Accounts[:6]), "like", "at://"+s.Any(s.Accounts[:4])+"/app.bsky.feed.post/"+s.Key())
		}
		w := &twin{seen: map[string]bool{}, each: s.Rand.IntN(4), hide: s.Rand.IntN(2) == 0}
		var parts []string
		of := s.Rand.Perm(len(queries))[:1+s.Rand.IntN(3)]
		for _, n := range of {
			w.weights, w.sets, w.last = append(w.weights, 1+s.Rand.IntN(3)), append(w.sets, n < 2), append(w.last, "")
			parts = append(parts, fmt.Sprint(w.weights[len(parts)], ", ", queries[n]))
		}
		line := "mix(" + strings.Join(parts, ", ") + ")"
		if len(of) == 1 {
			w.weights[0], line = 1, queries[of[0]]
		}
		s.viewer = s.Accounts[s.Rand.IntN(6)]
		if s.Rand.IntN(2) == 0 {
			w.pin = s.Any(append(s.pages(fmt.Sprint("source", of[0]), 100, nil), s.Posts[0]))
			line += ", pin=" + w.pin
		}
		if w.each > 0 {
			line += fmt.Sprintf(", each=%d", w.each)
		}
		if w.hide {
			line += ", seen=hide"
		}
		write1(t, s.f.o.Path, file.String()+"feed = "+line)
		if _, err := s.f.Reload(); err != nil {
			t.Fatal(err)
		}
		p, gone := url.Values{"feed": {s.uri("feed")}}, map[string][]oracle.Op{}
		for n := 0; ; n++ {
			var lists [][]string
			for _, n := range of {
				lists = append(lists, s.pages(fmt.Sprint("source", n), 100, nil))
			}
			for i := range lists[1:] {
				shared += len(lists[0]) + len(lists[1+i]) - len(slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists[0], lists[1+i])))))
			}
			limit := 1 + s.Rand.IntN(12)
			p.Set("limit", fmt.Sprint(limit))
			out, err := s.ask(p, nil)
			want, more := w.page(lists, limit, n == 0)
			var got []string
			for i, item := range out.Feed {
				if got = append(got, item.Post); (item.Reason.Type != "") != (n == 0 && i == 0 && w.pin != "") {
					t.Errorf("%s: post %d of page %d: %+v", line, i, n, item)
				}
			}
			if err != nil || !slices.Equal(got, want) || (out.Cursor != "") != more {
				t.Fatalf("seed %d, %s, page %d, limit %d: %q, %v, cursor %q, want %q, more %v", seed, line, n, limit, got, err, out.Cursor, want, more)
			}
			if posts += len(got); len(got) < limit && more {
				deferred++
			}
			if !more {
				break
			}
			p.Set("cursor", out.Cursor)
			for range s.Rand.IntN(4) {
				op, did := oracle.Op{Kind: "like", Rkey: s.Key(), Subject: s.Any(append(slices.Concat(lists...), s.Posts...))}, s.Any(s.Accounts[:6])
				if s.Rand.IntN(2) == 0 {
					op.Subject = "at://" + s.Any(s.Accounts) + "/app.bsky.feed.post/" + s.Key()
				}
				if s.Rand.IntN(2) == 0 {
					op.Rkey = string(dict.AppendTID(nil, uint64(oracle.Begin.AddDate(0, -6, s.Rand.IntN(100)).UnixMicro()+int64(n))<<10))
				}
				if s.Commit(did, op); !strings.Contains(op.Subject, "/odd-") {
					op.Delete = true
					gone[did] = append(gone[did], op)
				}
			}
			if did := s.Any(s.Accounts[:6]); n%2 == 0 && len(gone[did]) > 0 {
				s.Commit(did, gone[did][0])
				gone[did] = gone[did][1:]
			}
			if n%3 == 1 {
				s.see(w.seen, s.Any(append(lists[0], s.Posts...)), s.Any(got))
			}
		}
	}
	if shared < 100 || deferred < 5 || posts < 500 {
		t.Errorf("%d posts in two sources, %d pages without posts that wait, %d posts", shared, deferred, posts)
	}
}

// see notes that the viewer has seen posts.
func (s *served) see(seen map[string]bool, posts ...string) {
	s.t.Helper()
	type interaction struct{ Item, Event string }
	var in struct {
		Interactions []interaction `json:"interactions"`
	}
	for _, uri := range posts {
		seen[uri] = true
		in.Interactions = append(in.Interactions, interaction{uri, Methods + "defs#interactionSeen"}, interaction{uri + "x", Methods + "defs#interactionLike"})
	}
	b, err := json.Marshal(in)
	if err == nil {
		_, err = s.call(2, xrpc.Query{Input: string(b)})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func posts(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("at://did:web:a.example.com/app.bsky.feed.post/%d", i))
	}
	return all
}

// Posts that a viewer has seen are remembered for a week, also by a server that starts again; of unseen posts, at most one in ten
// thousand is taken for seen. Older rows are deleted.
func TestSeenForAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, did := posts(100_000), "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
		store := memkv.Open(memkv.Options{Merger: graph.Merger()})
		var g *graph.Store
		taken := func(did string, list []string) (n int) {
			v := viewer(g, did)
			if err := v.load(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			for _, uri := range list {
				if v.has(uri) {
					n++
				}
			}
			return n
		}
		see := func(did string, list ...string) {
			v, marks := viewer(g, did), []uint32(nil)
			for _, uri := range list {
				marks = append(marks, v.mark(uri))
			}
			if err := g.AddSeen(t.Context(), v.slot, today(), marks); err != nil {
				t.Fatal(err)
			}
		}
		rows := func() (n int) {
			_ = store.View(t.Context(), func(r kv.Reader) error {
				return kv.ScanPrefix(r, []byte("mseen "), func([]byte, []byte) error { n++; return nil })
			})
			return n
		}
		for day := range 60 {
			var err error
			if g, err = graph.Open(t.Context(), store, graph.Options{}); err != nil {
				t.Fatal(err)
			}
			see(did, all[day], all[1000])
			see("did:web:h"+all[day][len(all[day])-2:]+".example", all[1000])
			for ago := range day {
				if got, want := taken(did, all[day-ago:day-ago+1]) == 1, ago <= 7; got != want {
					t.Fatalf("day %d: seen %d days ago: %v", day, ago, got)
				}
			}
			if taken(did, all[1000:1001]) != 1 || rows() > 2*8 {
				t.Fatalf("day %d: %d rows; a post that is seen each day: %v", day, rows(), taken(did, all[1000:1001]))
			}
			if err := g.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
		}
		for begin := 0; begin < 3000; begin += 100 {
			see(did, all[begin:begin+100]...)
			see(did, all[begin:begin+100]...)
		}
		if n := taken(did, all[3000-1024:3000]); n != 1024 {
			t.Errorf("%d of the latest 1,024 posts are seen", n)
		}
		if n := taken(did, all[3000:]) + taken("did:plc:bbbbbbbbbbbbbbbbbbbbbbbb", all); n > len(all)/10_000 {
			t.Errorf("%d of %d unseen posts are taken for seen", n, len(all))
		}
		// A query node of a cluster takes part; a server that only reads since its disk is full keeps nothing.
		for _, settings := range []dict.Settings{dict.SharedSettings, dict.DefaultSettings} {
			store, o := memkv.Open(memkv.Options{Merger: graph.Merger()}), graph.Options{Intern: intern.Options{Settings: settings}}
			writer, err := graph.Open(t.Context(), store, o)
			if err != nil || writer.Close(t.Context()) != nil {
				t.Fatal(err)
			}
			o.ReadOnly = true
			if g, err = graph.Open(t.Context(), store, o); err != nil {
				t.Fatal(err)
			}
			v, full := viewer(g, did), settings.Partitions == 1
			if err := g.AddSeen(t.Context(), v.slot, today(), []uint32{v.mark("x")}); full != errors.Is(err, kv.ErrUnavailable) {
				t.Errorf("a disk that is full: %v: %v", full, err)
			}
			if taken(did, []string{"x"}) == 1 == full {
				t.Error("a node keeps nothing that others read")
			}
		}
	})
}

// Marks of seen posts are bounded, however many accounts send how many; the accounts of one domain count as one.
func TestAbuseInteractions(t *testing.T) {
	s := serve(t, 1, "a = likes($viewer), seen=hide", Options{})
	all := posts(3 * 1024)
	see := func(did string, n int) {
		s.viewer = did
		s.see(map[string]bool{}, all[:n]...)
	}
	knows := func(did string) bool {
		v := viewer(s.Store, did)
		return v.load(t.Context(), s.Store) == nil && v.has(all[0])
	}
	const reader = "did:plc:rrrrrrrrrrrrrrrrrrrrrrrr"
	see(reader, 100)
	for i := range 200 {
		see(fmt.Sprintf("did:web:n%d.attacker.example", i), len(all))
	}
	marks, err := s.Store.Seen(t.Context(), viewer(s.Store, "did:web:attacker.example").slot, today())
	if !knows(reader) || len(marks) != 1024 || err != nil {
		t.Errorf("an attacker with a domain has %d marks, %v", len(marks), err)
	}
	see("did:web:a.attacker.example", 100)
	if knows("did:web:b.attacker.example") || !knows("did:web:a.attacker.example") {
		t.Error("an account has seen what another of its domain has")
	}
	slot := map[uint16]bool{}
	for i := range 2000 {
		slot[viewer(s.Store, fmt.Sprintf("did:plc:%024d", i)).slot] = true
	}
	if len(slot) < 1800 {
		t.Errorf("2,000 accounts share %d slots", len(slot))
	}
}
