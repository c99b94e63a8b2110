package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/clients"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// watched is a small graph with a watcher. The test runs the rounds.
type watched struct {
	*oracle.Graph

	t       *testing.T
	h       *Watcher
	before  *ask.View
	release func()
}

func newWatched(t *testing.T, seed uint64, changes int) *watched {
	t.Helper()
	g := oracle.GraphOn(t, seed, 25, memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 6, Chunk: 3}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}}), posts...)
	g.Grow(changes)
	return watchedOn(t, g)
}

// posts are one kind, of the posts themselves.
var posts, _ = kinds.Parse("app.bsky.feed.post self at-uri posts")

// post makes a post, or another version of it.
func (w *watched) post() {
	w.t.Helper()
	did, rkey := w.Any(w.Accounts), w.Any([]string{w.Key(), "a", "b"})
	w.Commit(did, oracle.Op{Kind: "posts", Rkey: rkey, Subject: "at://" + did + "/app.bsky.feed.post/" + rkey})
}

func watchedOn(t *testing.T, g *oracle.Graph) *watched {
	t.Helper()
	w := &watched{Graph: g, t: t, h: New(g.Store, slog.New(slog.DiscardHandler), 1<<20), release: func() {}}
	w.h.running = true // keeps Subscribe from starting rounds
	g.Store.Watch(w.h)
	t.Cleanup(func() { w.release() })
	return w
}

func (w *watched) round() {
	w.t.Helper()
	now, release, err := w.h.round(w.before)
	w.release()
	if err != nil {
		w.t.Fatal(err)
	}
	w.before, w.release = now, release
}

func parse(t *testing.T, text string) *language.Expr {
	t.Helper()
	table, _ := kinds.Configure(kinds.BuiltIn, posts)
	e, err := language.NewVocabulary(table).Parse(text, language.MaxExpr, time.Now())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func (w *watched) subscribe(client, set, cursor string) *Subscriber {
	w.t.Helper()
	s, err := w.h.Subscribe(parse(w.t, set), client, cursor)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// members evaluates an expression in maps of strings.
func (w *watched) members(e *language.Expr) map[string]bool {
	v := w.Between(false, 0, 0)
	var eval func(n *language.Node) map[string]bool
	eval = func(n *language.Node) map[string]bool {
		set := map[string]bool{}
		var list []string
		switch n.Op {
		case language.OpForward:
			list = v.Forward[e.Info(n).Name][e.Strings[n.Of].S]
		case language.OpReverse:
			list = v.Reverse[e.Info(n).Name][e.Strings[n.Of].S]
		case language.OpListed:
			list = w.Listed(e.Strings[n.Of].S, false, 0, 0)
		case language.OpLists:
			list = w.ListsOf(e.Strings[n.Of].S, false, 0, 0)
		case language.OpRank:
			for _, on := range w.ListsOf(e.Strings[n.Args[0].Of].S, false, 0, 0) {
				list = append(list, v.Reverse["listblock"][on]...)
			}
			for _, s := range list {
				set[s] = true
			}
			return set
		case language.OpMembers:
			for _, l := range e.Strings[n.First:n.End] {
				list = append(list, l.S)
			}
		default:
		}
		for _, s := range list {
			set[s] = true
		}
		in := map[string]int{} // how many of the operands have a member
		for i := range n.Args {
			part := eval(&n.Args[i])
			switch {
			case n.Op == language.OpAtLeast:
				for s := range part {
					in[s]++
					set[s] = in[s] >= n.Least
				}
			case i == 0:
				set = part
			case n.Op == language.OpUnion:
				maps.Copy(set, part)
			default:
				maps.DeleteFunc(set, func(s string, _ bool) bool { return part[s] == (n.Op == language.OpExcept) })
			}
		}
		maps.DeleteFunc(set, func(_ string, in bool) bool { return !in })
		return set
	}
	set := eval(&e.Root)
	if e.Type() == dict.DID {
		maps.DeleteFunc(set, func(did string, _ bool) bool { return w.Model.Hidden[did] })
	}
	return set
}

// set draws an expression that can be watched.
func (w *watched) set(dids bool, depth int) string {
	one := func(list ...string) string { return w.Any(list) }
	if depth == 0 || w.Rand.IntN(3) == 0 {
		switch {
		case w.Rand.IntN(6) == 0:
			pool := w.Posts
			if dids {
				pool = w.Accounts
			}
			return "members(" + w.Any(pool) + "," + w.Any(pool) + "," + w.Any(pool) + ")"
		case !dids:
			return one("likes", "reposts", "listblocks", "lists", "posts") + "(" + w.Any(w.Accounts) + ")"
		case w.Rand.IntN(2) == 0:
			return one("follows", "followers", "blocks", "blockers", "blockedBy") + "(" + w.Any(w.Accounts) + ")"
		case w.Rand.IntN(2) == 0:
			return one("listed", "listblockers") + "(" + w.Any(w.Lists) + ")"
		}
		return one("likers", "reposters") + "(" + w.Any(w.Posts) + ")"
	}
	if w.Rand.IntN(4) == 0 {
		return fmt.Sprint("atleast(", 1+w.Rand.IntN(3), ",", w.set(dids, depth-1), ",", w.set(dids, depth-1), ",", w.set(dids, depth-1), ")")
	}
	return one("union", "intersect", "except") + "(" + w.set(dids, depth-1) + "," + w.set(dids, depth-1) + ")"
}

// client follows one expression, and applies what it receives.
type client struct {
	w       *watched
	name    string
	e       *language.Expr
	s       *Subscriber
	cursor  string
	members map[string]bool
	got     int // changes
	resets  int
}

// receive applies the messages that have arrived. Every change must be one.
func (c *client) receive() {
	c.w.t.Helper()
	for {
		select {
		case m, ok := <-c.s.Messages:
			if !ok {
				c.w.t.Fatalf("%s: the subscription has ended", c.e.Source)
			}
			c.cursor = m.Cursor
			if m.Reset != "" {
				c.resets++
				c.members = nil
				continue
			}
			for _, x := range m.Entered {
				if c.members != nil && c.members[x] {
					c.w.t.Fatalf("%s: %s entered twice", c.e.Source, x)
				} else if c.members != nil {
					c.members[x] = true
				}
			}
			for _, x := range m.Left {
				if c.members != nil && !c.members[x] {
					c.w.t.Fatalf("%s: %s left, and was not there", c.e.Source, x)
				}
				delete(c.members, x)
			}
			if m.Type == "" && len(m.Entered)+len(m.Left) == 0 {
				c.w.t.Fatalf("%s: the empty message %+v", c.e.Source, m)
			}
			c.got += len(m.Entered) + len(m.Left)
		default:
			return
		}
	}
}

// check compares the members with the maps. After a reset, the client queries the set.
func (c *client) check() {
	c.w.t.Helper()
	c.receive()
	want := c.w.members(c.e)
	if c.members == nil {
		c.members = want
	}
	if !maps.Equal(c.members, want) {
		c.w.t.Fatalf("%s: %q, want %q", c.e.Source, slices.Sorted(maps.Keys(c.members)), slices.Sorted(maps.Keys(want)))
	}
}

// Clients that apply the changes that they receive always have the set that the maps have, whatever
// happens to the graph, and whenever they come, leave, and return with their cursor.
func TestSubscribersHaveTheSet(t *testing.T) {
	for seed := range uint64(3) {
		w := newWatched(t, seed, 1200)
		rng := rand.New(rand.NewPCG(seed, 3))
		var here, away []*client
		changes, returned := 0, 0
		w.round()
		for n := range 120 {
			switch k := rng.IntN(10); {
			case len(here) < 12 || k == 0 && len(here) < 30:
				set := w.set(rng.IntN(3) > 0, 2)
				c := &client{w: w, name: fmt.Sprint("client", rng.IntN(4))}
				c.s = w.subscribe(c.name, set, "")
				c.e = c.s.w.e
				w.round() // the subscription begins
				<-c.s.Ready
				first := <-c.s.Messages
				if c.cursor = first.Cursor; first.Type != c.e.Type().String() || first.Reset != "" {
					t.Fatalf("%s: %+v", set, first)
				}
				c.members = w.members(c.e)
				here = append(here, c)
			case k < 3:
				i := rng.IntN(len(here))
				c := here[i]
				c.receive()
				w.h.Leave(c.s)
				here, away = slices.Delete(here, i, i+1), append(away, c)
			case k < 5 && len(away) > 0:
				i := rng.IntN(len(away))
				c := away[i]
				c.s = w.subscribe(c.name, c.e.Source, c.cursor)
				if c.s.Messages == nil {
					t.Fatalf("%s: a subscription of a watched set does not begin at once", c.e.Source)
				}
				returned++
				here, away = append(here, c), slices.Delete(away, i, i+1)
			}
			w.Grow(rng.IntN(40))
			for range rng.IntN(12) {
				w.post()
			}
			w.round()
			for _, c := range here {
				if rng.IntN(3) > 0 || n == 119 { // the others let messages wait
					c.check()
				}
			}
		}
		for _, c := range here {
			if changes += c.got; c.resets > 0 {
				t.Errorf("%s was reset", c.e.Source)
			}
			w.h.Leave(c.s)
		}
		if changes < 50 || returned < 10 {
			t.Errorf("%d changes, %d clients returned", changes, returned)
		}
		if w.h.pool.Held() != 0 {
			t.Errorf("%d subscriptions are left", w.h.pool.Held())
		}
		for key := range w.h.watches {
			w.h.forget(w.h.watches[key])
		}
		if n := len(w.h.byEdges) + len(w.h.byAuthor) + len(w.h.changed); n != 0 {
			t.Errorf("%d entries of forgotten expressions are left", n)
		}
	}
}

// A string without an id is watched from the moment that it has one.
func TestUnseenStringsAreWatched(t *testing.T) {
	w := newWatched(t, 9, 0)
	for _, did := range w.Accounts[1:5] {
		w.Put(w.Accounts[0], "follow", did)
		w.Put(did, "follow", w.Accounts[0])
	}
	w.round()
	const post = "at://did:web:late.example.com/app.bsky.feed.post/3kaaaaaaaaaaa"
	late := []string{oracle.Account(500), oracle.Account(501)}
	list := "at://" + late[0] + "/app.bsky.graph.list/x"
	var all []*client
	for _, set := range []string{
		"followers(" + late[0] + ")", "follows(" + late[1] + ")", "likers(" + post + ")", "listed(" + list + ")", "intersect(follows(" + w.Accounts[0] + "),followers(" + late[0] + "))",
		"except(followers(" + w.Accounts[0] + "),follows(" + late[0] + "),listed(" + list + "))", "union(blockers(" + late[0] + "),blocks(" + late[1] + "))",
		"lists(" + late[1] + ")", "except(blockedBy(" + late[1] + "),members(" + late[1] + "))",
		"except(members(" + late[0] + "," + late[1] + "),followers(" + w.Accounts[0] + "))",
	} {
		c := &client{w: w, s: w.subscribe("client", set, "")}
		c.e = c.s.w.e
		all = append(all, c)
	}
	w.round()
	for _, c := range all {
		<-c.s.Messages
		c.members = w.members(c.e)
	}
	for n := range 60 {
		few := w.Accounts[:5]
		switch n % 6 {
		case 0:
			w.Put(w.Any(few), "follow", w.Any(late))
		case 1:
			w.Put(w.Any(late), "follow", w.Any(few))
		case 2:
			w.Put(w.Any(few), "like", post)
		case 3:
			w.PutListItem(late[0], list, w.Any(append(few, late...)))
		case 4:
			w.Put(w.Any(few), "listblock", list)
			w.Put(w.Any(late), "block", w.Any(late))
		default:
			w.Hide(late[n/6%2], n/12%2 == 0)
		}
		w.round()
		for _, c := range all {
			c.check()
		}
	}
	for _, c := range all {
		if c.got == 0 || c.resets > 0 {
			t.Errorf("%s: %d changes, %d resets", c.e.Source, c.got, c.resets)
		}
	}
}

// Who watches a list or the lists of an account hears what is erased: here an archive's #sync replaces the author's repo.
func TestErasedListsAreEmpty(t *testing.T) {
	w := newWatched(t, 16, 0)
	seq, author, member := batch.Seq(0), []byte("did:web:archived.example.com"), w.Accounts[0]
	list := "at://" + string(author) + "/app.bsky.graph.list/x"
	archive := func(fill func(b *batch.Batch)) {
		var b batch.Batch
		seq++
		fill(&b)
		b.Seen(seq, nil)
		if err := w.Store.Apply(t.Context(), "archive", &b); err != nil {
			t.Fatal(err)
		}
	}
	archive(func(b *batch.Batch) {
		b.AddArchived(seq, author, []byte("3kaaaaaaaaaaa"))
		b.AddPut(kinds.ListMember, []byte("1"), []byte(member))
		b.AddPut(kinds.ListItem, []byte("1"), []byte(list))
	})
	listed, lists := w.subscribe("client", "listed("+list+")", ""), w.subscribe("client", "lists("+member+")", "")
	w.begun(listed, lists)
	archive(func(b *batch.Batch) { b.AddArchivedSync(seq, author, []byte("3kaaaaaaaaaab")) })
	for w.Store.Erasing() {
		if err := w.Store.EraseSlice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.round()
	for s, want := range map[*Subscriber]string{listed: member, lists: list} {
		select {
		case m := <-s.Messages:
			if !slices.Equal(m.Left, []string{want}) {
				t.Errorf("%s: %+v, want %s to leave", s.w.e.Source, m, want)
			}
		default:
			t.Errorf("%s: no message", s.w.e.Source)
		}
	}
}

// A cursor returns exactly the messages after it, as long as they are kept. Every other cursor is
// answered by a reset, and none by wrong messages.
func TestCursorsOfSubscriptions(t *testing.T) {
	w := newWatched(t, 10, 0)
	star := w.Accounts[0]
	set := "followers(" + star + ")"
	first := w.subscribe("client", set, "")
	w.round()
	cursors := []string{(<-first.Messages).Cursor}
	var entered []string
	for i := range retainedMessages + 10 {
		did := oracle.Account(100 + i)
		entered = append(entered, did)
		w.Put(did, "follow", star)
		w.round()
		m := <-first.Messages
		cursors = append(cursors, m.Cursor)
		if len(m.Entered) != 1 || m.Entered[0] != did {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	if n := len(first.w.ring); n != retainedMessages {
		t.Errorf("%d messages are kept, want %d", n, retainedMessages)
	}
	for i, cursor := range cursors {
		if i%50 > 1 && i > 12 && i < len(cursors)-3 {
			continue
		}
		s := w.subscribe("client", set, cursor)
		m := <-s.Messages
		kept := i >= len(cursors)-1-retainedMessages
		if (m.Reset == "") != kept || m.Type != "did" {
			t.Fatalf("cursor %d of %d: %+v", i, len(cursors), m)
		}
		var missed []string
		for len(s.Messages) > 0 {
			missed = append(missed, (<-s.Messages).Entered...)
		}
		if kept && !slices.Equal(missed, entered[i:]) || !kept && missed != nil {
			t.Fatalf("cursor %d: %d messages", i, len(missed))
		}
		if kept && len(missed) > 0 && m.Cursor != cursor || (!kept || len(missed) == 0) && m.Cursor != cursors[len(cursors)-1] {
			t.Fatalf("cursor %d: the first message has the cursor %s", i, m.Cursor)
		}
		w.h.Leave(s)
	}
	newest := cursors[len(cursors)-1]
	epoch, _, _ := strings.Cut(newest, "-")
	for _, bad := range []string{
		"x", "-", epoch, epoch + "-", "-5", epoch + "-x", epoch + "--5", epoch + "-+5", epoch + "-5x", epoch + "-1035", epoch + "-9223372036854775807", epoch + "-9223372036854775808", epoch + "-18446744073709551616",
		strings.ToUpper(epoch) + "x-5", "0000000000000000-5", " " + newest, newest + " ", strings.Repeat("9", 100_000), epoch + "-" + strings.Repeat("9", 100_000),
	} {
		s := w.subscribe("client", set, bad)
		if m := <-s.Messages; m.Reset == "" || len(s.Messages) > 0 || m.Cursor != newest {
			t.Errorf("cursor %q: %+v", language.Brief(bad), m)
		}
		w.h.Leave(s)
	}
	other := w.subscribe("client", "follows("+star+")", newest)
	w.round()
	if m := <-other.Messages; m.Reset == "" {
		t.Errorf("a cursor of another set: %+v", m)
	}
}

// Kept messages are bounded by their members, too.
func TestKeptMembersAreBounded(t *testing.T) {
	w := newWatched(t, 11, 0)
	w.Put(w.Accounts[0], "follow", oracle.Account(999)) // a new id would be one more change
	set := "follows(" + w.Accounts[0] + ")"
	s := w.subscribe("client", set, "")
	w.round()
	first := (<-s.Messages).Cursor
	sent := 0
	for n := range 12 {
		var dids []string
		for i := range maxCandidates {
			dids = append(dids, oracle.Account(1000+n*maxCandidates+i))
		}
		w.PutMany(w.Accounts[0], "follow", dids)
		w.round()
		m := <-s.Messages
		if sent += len(m.Entered); m.Reset != "" || len(m.Entered) != maxCandidates {
			t.Fatalf("round %d: %d entered, reset %q", n, len(m.Entered), m.Reset)
		}
	}
	sum := 0
	for _, m := range s.w.ring {
		sum += len(m.Entered) + len(m.Left)
	}
	if sum != s.w.changes || sum > retainedChanges || sum < retainedChanges/2 {
		t.Errorf("%d of %d members are kept, counted as %d", sum, sent, s.w.changes)
	}
	again := w.subscribe("client", set, first)
	if m := <-again.Messages; m.Reset == "" {
		t.Errorf("the first cursor: %+v", m)
	}
	var dids []string
	for i := range maxCandidates + 1 {
		dids = append(dids, oracle.Account(100_000+i))
	}
	w.PutMany(w.Accounts[0], "follow", dids)
	w.round()
	if m := <-s.Messages; !strings.Contains(m.Reset, "more than 5000 members may have changed at once") {
		t.Errorf("one more than may change at once: %d entered, reset %q", len(m.Entered), m.Reset)
	}
}

// A subscriber that does not read is disconnected after the messages that it may be behind, and
// not before. It returns with its cursor and misses nothing. Others are not disturbed.
func TestSlowSubscribers(t *testing.T) {
	w := newWatched(t, 12, 0)
	star := w.Accounts[0]
	set := "followers(" + star + ")"
	slow, quick := w.subscribe("slow", set, ""), w.subscribe("quick", set, "")
	w.round()
	<-quick.Messages
	for i := range messageBuffer + 1 { // the first message waits, too
		w.Put(oracle.Account(100+i), "follow", star)
		w.round()
		if m := <-quick.Messages; len(m.Entered) != 1 {
			t.Fatalf("%+v", m)
		}
		if _, here := slow.w.subs[slow]; here != (i < messageBuffer) {
			t.Fatalf("after %d unread changes: connected: %v", i+1, here)
		}
	}
	var last Message
	n := 0
	for m := range slow.Messages {
		last = m
		n++
	}
	if n != messageBuffer+1 {
		t.Errorf("%d messages before the end, want %d", n, messageBuffer+1)
	}
	w.h.Leave(slow)
	w.Put(oracle.Account(1000), "follow", star)
	w.round()
	back := w.subscribe("slow", set, last.Cursor)
	if m := <-back.Messages; m.Reset != "" || m.Cursor != last.Cursor {
		t.Errorf("%+v", m)
	}
	if n := len(back.Messages); n != 2 {
		t.Errorf("%d missed messages, want 2", n)
	}
	w.h.Leave(back)
	w.h.Leave(quick)
	if w.h.pool.Held() != 0 {
		t.Errorf("%d subscriptions", w.h.pool.Held())
	}
}

// Each bound of subscriptions holds at its value, and not one above it; a subscription that ends
// makes room.
func TestBoundsOfSubscriptions(t *testing.T) {
	for limit := range 9 {
		w := newWatched(t, 13, 0)
		w.h.pool = clients.NewPool(int64(limit))
		var all []*Subscriber
		add := func(client string) bool {
			s, err := w.h.Subscribe(parse(t, "followers("+w.Any(w.Accounts)+")"), client, "")
			if err == nil {
				all = append(all, s)
			} else if !errors.Is(err, errBusy) {
				t.Errorf("limit %d: %v", limit, err)
			}
			return err == nil
		}
		one := 0
		for range limit + 2 {
			if s, err := w.h.Subscribe(parse(t, "followers("+w.Any(w.Accounts)+")"), "", ""); err != nil {
				t.Errorf("a subscription of the server itself: %v", err)
			} else {
				w.h.Leave(s)
			}
			if add("one") {
				one++
			}
		}
		if one != limit {
			t.Errorf("limit %d: one client has %d subscriptions", limit, one)
		}
		for i := range limit + 2 { // each takes one of the first, until that has as few
			add(fmt.Sprint("client", i))
		}
		live := 0
		for _, s := range all {
			select {
			case <-s.Ready:
				select {
				case _, open := <-s.Messages:
					if open {
						live++
					}
				default:
					live++
				}
			case <-time.After(50 * time.Millisecond): // no round has begun
				live++
			}
		}
		if int(w.h.pool.Held()) != limit || live != limit || limit > 1 && len(all) != 2*limit-1 {
			t.Errorf("limit %d: %d subscriptions are live, counted as %d, of %d", limit, live, w.h.pool.Held(), len(all))
		}
		if limit > 0 {
			w.h.Leave(all[len(all)-1])
			if !add("late") {
				t.Errorf("limit %d: no room after one has left", limit)
			}
		}
		w.h.Close()
		if add("after") {
			t.Errorf("limit %d: a subscription after Close", limit)
		}
	}
}

// Idle expressions are forgotten to make room for others.
func TestIdleExpressionsAreBounded(t *testing.T) {
	w := newWatched(t, 15, 0)
	var newest *watch
	for i := range 3 * maxIdle {
		s := w.subscribe("client", "followers("+oracle.Account(i)+")", "")
		newest = s.w
		w.h.Leave(s)
	}
	if n := len(w.h.watches); n != maxIdle || w.h.watches[newest.key] == nil {
		t.Errorf("%d expressions are watched, want about %d", n, maxIdle)
	}
}

func TestWatchable(t *testing.T) {
	const did = "did:web:a.example.com"
	leaves := func(n int) string {
		return "union(" + strings.Repeat("follows("+did+"),", n-1) + "members(" + did + "))"
	}
	for text, want := range map[string]string{
		"follows(" + did + ")":                                                  "",
		"listed(at://" + did + "/x.y.z/k)":                                      "",
		leaves(maxWatchedLeaves):                                                "",
		leaves(maxWatchedLeaves + 1):                                            "at position 0: the expression has 9 leaves; at most 8 can be watched",
		"follows(" + did + ",since=1d)":                                         "at position 0: a set with since or until cannot be watched",
		"union(follows(" + did + "),follows(" + did + ",until=2026-01-01))":     "at position 37: a set with since or until cannot be watched",
		"except(likes(" + did + "),union(lists(" + did + ")))":                  "",
		"blockedBy(" + did + ")":                                                "",
		"rank(of=lists(" + did + "),via=listblockers,min=2)":                    "at position 0: rank(…), blend(…), blocking(…) and within(A, 2) cannot be watched",
		"lists(" + did + ",since=1d)":                                           "at position 0: a set with since or until cannot be watched",
		"union(follows(" + did + "),rank(of=follows(" + did + "),via=follows))": "at position 37: rank(…), blend(…), blocking(…) and within(A, 2) cannot be watched",
		"members(" + strings.Repeat(did+",", 300) + did + ")":                   "",
		"except(sample(follows(" + did + "),5),follows(" + did + "))":           "at position 7: sample(…) cannot be watched",
		"follows(" + did + ",until=2300-01-01)":                                 "cannot be watched",
		"intersect(union(except(union(follows(" + did + ")))))":                 "",
		"union(likes(" + did + "),members(at://" + did + "/x.y.z/k))":           "",
	} {
		if err := Watchable(parse(t, text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// failing is a store whose reads fail while fails is set.
type failing struct {
	kv.Store

	fails atomic.Bool
}

var errRead = errors.New("the disk is gone")

func (f *failing) View(ctx context.Context, fn func(kv.Reader) error) error {
	if f.fails.Load() {
		return errRead
	}
	return f.Store.View(ctx, fn)
}

// bubble runs a test of a watcher that runs its own rounds, in virtual time.
func bubble(t *testing.T, test func(t *testing.T, g *oracle.Graph, h *Watcher, disk *failing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		disk := &failing{Store: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: 5 * time.Second}})}
		g := oracle.GraphOn(t, 1, 10, disk)
		h := New(g.Store, slog.New(slog.DiscardHandler), 2000)
		test(t, g, h, disk)
		h.Close()
		disk.fails.Store(false)
		if err := g.Store.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// follow subscribes to the followers of an account.
func follow(t *testing.T, h *Watcher, did, cursor string) *Subscriber {
	t.Helper()
	s, err := h.Subscribe(parse(t, "followers("+did+")"), "client", cursor)
	if err != nil {
		t.Fatal(err)
	}
	<-s.Ready
	return s
}

// Changes arrive within a round, and none is sent without a change.
func TestChangesArriveWithinARound(t *testing.T) {
	bubble(t, func(t *testing.T, g *oracle.Graph, h *Watcher, _ *failing) {
		star := g.Accounts[0]
		s := follow(t, h, star, "")
		<-s.Messages
		for i := range 20 {
			time.Sleep(time.Duration(i*37) * time.Millisecond)
			g.Put(oracle.Account(100+i), "follow", star)
			start := time.Now()
			if m := <-s.Messages; len(m.Entered) != 1 || time.Since(start) > roundInterval {
				t.Errorf("change %d after %v: %+v", i, time.Since(start), m)
			}
		}
		time.Sleep(time.Minute)
		if n := len(s.Messages); n != 0 {
			t.Errorf("%d messages without a change", n)
		}
		h.Leave(s)
	})
}

// A cursor is good for two minutes after its client left, and not much longer. Then nothing is
// watched, and nothing runs.
func TestIdleExpressionsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, g *oracle.Graph, h *Watcher, _ *failing) {
		star := g.Accounts[0]
		s := follow(t, h, star, "")
		cursor := (<-s.Messages).Cursor
		h.Leave(s)
		g.Put(oracle.Account(100), "follow", star)
		time.Sleep(idleRetention - time.Second)
		s = follow(t, h, star, cursor)
		if m := <-s.Messages; m.Reset != "" || len(s.Messages) != 1 {
			t.Errorf("before two minutes: %+v, and %d messages", m, len(s.Messages))
		}
		h.Leave(s)
		time.Sleep(idleRetention + 2*roundInterval)
		h.mu.Lock()
		left, running := len(h.watches), h.running
		h.mu.Unlock()
		if left != 0 || running {
			t.Errorf("after two minutes %d expressions are watched, running: %v", left, running)
		}
		s = follow(t, h, star, cursor)
		if m := <-s.Messages; m.Reset == "" {
			t.Errorf("after two minutes: %+v", m)
		}
		g.Put(oracle.Account(101), "follow", star)
		if m := <-s.Messages; len(m.Entered) != 1 || m.Entered[0] != oracle.Account(101) {
			t.Errorf("after a restart of the rounds: %+v", m)
		}
		// The new watch has sent as many messages as the old one.
		for _, old := range []string{cursor, strings.Replace(cursor, "-0", "-1", 1)} {
			again := follow(t, h, star, old)
			if m := <-again.Messages; m.Reset == "" || len(again.Messages) != 0 {
				t.Errorf("the old cursor %s: %+v, and %d messages", old, m, len(again.Messages))
			}
			h.Leave(again)
		}
		h.Leave(s)
	})
}

// A read that fails ends all subscriptions, and the next one starts the rounds again. Changes that
// were made in the meantime are not lost silently: the old cursor is answered by a reset.
func TestFailedReads(t *testing.T) {
	bubble(t, func(t *testing.T, g *oracle.Graph, h *Watcher, disk *failing) {
		star := g.Accounts[0]
		s := follow(t, h, star, "")
		cursor := (<-s.Messages).Cursor
		disk.fails.Store(true)
		never, err := h.Subscribe(parse(t, "followers("+g.Accounts[1]+")"), "client", "")
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := <-s.Messages; ok {
			t.Errorf("%+v", m)
		}
		<-never.Ready
		if m, ok := <-never.Messages; ok {
			t.Errorf("a subscription that had not begun: %+v", m)
		}
		h.Leave(s)
		h.Leave(never)
		disk.fails.Store(false)
		g.Put(oracle.Account(100), "follow", star)
		s = follow(t, h, star, cursor)
		if m := <-s.Messages; m.Reset == "" {
			t.Errorf("%+v", m)
		}
		g.Put(oracle.Account(101), "follow", star)
		if m := <-s.Messages; len(m.Entered) != 1 || m.Entered[0] != oracle.Account(101) {
			t.Errorf("%+v", m)
		}
		h.Leave(s)
		if h.pool.Held() != 0 {
			t.Errorf("%d subscriptions", h.pool.Held())
		}
	})
}

// Close ends the rounds, the subscriptions that have begun and those that have not.
func TestCloseEndsSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T, g *oracle.Graph, h *Watcher, _ *failing) {
		var all []*Subscriber
		for _, did := range g.Accounts {
			all = append(all, follow(t, h, did, ""))
		}
		h.Close()
		for _, s := range all {
			n := 0
			for range s.Messages {
				n++
			}
			if n != 1 {
				t.Errorf("%d messages", n)
			}
			h.Leave(s)
		}
		if h.Context().Err() == nil || len(h.watches) != 0 || h.pool.Held() != 0 {
			t.Errorf("%v, %d expressions, %d subscriptions", h.Context().Err(), len(h.watches), h.pool.Held())
		}
		h.Close() // a second time changes nothing
	})
}
