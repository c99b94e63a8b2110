package query_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/oracle"
)

// go test ./query -run TestDependence -dependence.networks 3000 -timeout 1h is the long run.
var dependenceNetworks = flag.Int("dependence.networks", 40, "networks of TestDependence")

// How an index knows an account.
const (
	isWhole   = iota // from its first commit, or from a snapshot and the commits since
	isBare           // not at all; it has no records
	isPartial        // its commits since the stream began
	isUnknown        // not at all, though it has records
	isListed         // likewise, and its repo waits to be fetched
	isQueued         // its repo waits to be fetched: anything may have changed
	isDesync         // likewise, because commits were missed
	howMany
)

// A network has what is true, in several versions: an index that knows only a part of it cannot tell them apart.
type network struct {
	t    *testing.T
	rng  *rand.Rand
	from time.Time // when the index begins to listen, or a bit later

	accounts, posts, lists, times []string
	own                           []string // more posts, which have the same ids in all versions
	how                           map[string]int
	hidden                        map[string]bool        // as the stream last told
	old, heard                    map[string][]oracle.Op // records from before the stream, and those that it brought
	center                        string                 // of a part of the network
	members                       map[string]bool        // of the part

	roster   string   // its source; "" if there is none
	unlisted []string // hosts
	hole     bool     // a hole that was not compared
	fetched  string   // an account that refuted the roster of the stream, and was fetched then

	clock int64
}

// never is an account without records; its list and post do not exist either.
var (
	neverList = "at://" + never + "/app.bsky.graph.list/first"
	neverPost = "at://" + never + "/app.bsky.feed.post/3kaaaaaaaaaaa"
)

func newNetwork(t *testing.T, seed uint64) *network {
	t.Helper()
	n := &network{t: t, rng: rand.New(rand.NewPCG(seed, 49)), from: time.Now().Add(2 * time.Second).Truncate(time.Second), how: map[string]int{}, hidden: map[string]bool{}, old: map[string][]oracle.Op{}, heard: map[string][]oracle.Op{}}
	for i := range 12 {
		did := oracle.Account(i)
		n.accounts = append(n.accounts, did)
		n.posts = append(n.posts, "at://"+did+"/app.bsky.feed.post/"+n.key(true))
		n.lists = append(n.lists, "at://"+did+"/app.bsky.graph.list/first")
	}
	for _, at := range []time.Duration{-20 * 24 * time.Hour, -5 * 24 * time.Hour, -time.Hour, 3 * time.Second, 60 * time.Second, 120 * time.Second} {
		n.times = append(n.times, n.from.Add(at).UTC().Format(time.RFC3339))
	}
	doubt := []int{0, 0, 0, 1, 2, 5}[n.rng.IntN(6)] // of six accounts, how many the index does not know well
	how, differ := n.rng.IntN(howMany), n.rng.IntN(2) == 0
	for _, did := range n.accounts {
		if n.how[did] = isWhole; n.rng.IntN(6) < doubt {
			if n.how[did] = how; differ {
				n.how[did] = n.rng.IntN(howMany)
			}
		}
		n.hidden[did] = n.rng.IntN(8) == 0 && n.how[did] != isUnknown && n.how[did] != isListed && n.how[did] != isBare
	}
	n.records()
	n.evidence()
	for _, did := range n.accounts {
		for _, o := range slices.Concat(n.old[did], n.heard[did]) {
			if uri := "at://" + did + "/app.bsky.feed.post/" + o.Rkey; o.Kind == aPost && !slices.Contains(n.posts, uri) {
				n.own = append(n.own, uri)
			}
		}
	}
	return n
}

// evidence draws what the index knows of the network as a whole.
func (n *network) evidence() {
	with := func(how int) bool { return slices.Contains(slices.Collect(maps.Values(n.how)), how) }
	switch n.rng.IntN(6) {
	case 0, 1, 2:
		n.roster = format.RosterRepos
		for _, did := range n.accounts {
			if n.how[did] == isUnknown && n.rng.IntN(2) == 0 {
				n.how[did] = isListed
			}
		}
		if with(isUnknown) { // on a host that could not be listed
			n.unlisted = []string{"down.example.com"}
		}
	case 3:
		if n.roster = format.RosterStream; with(isUnknown) && !with(isPartial) {
			n.roster = ""
		}
		for _, did := range n.accounts {
			if n.roster != "" && n.how[did] == isPartial && n.fetched == "" { // it may be the only one
				n.fetched, n.how[did] = did, isWhole
			}
		}
	case 4: // a part of the network
		n.center = n.accounts[n.rng.IntN(3)]
		n.how[n.center] = isWhole
		n.members = map[string]bool{n.center: true}
		for _, o := range slices.Concat(n.old[n.center], n.heard[n.center]) {
			if o.Kind == "follow" {
				n.members[o.Subject] = true
				if n.how[o.Subject] > isBare && n.rng.IntN(3) > 0 { // else it was not fetched yet
					n.how[o.Subject] = isWhole
				}
			}
		}
	default:
	}
	n.hole = n.rng.IntN(8) == 0
}

func (n *network) key(old bool) string {
	n.clock += 1 + n.rng.Int64N(1e5)
	at := n.from.Add(-25*24*time.Hour).UnixMicro() + n.rng.Int64N(24*24*3600e6) + n.clock
	if !old {
		at = n.from.UnixMicro() + 5e6 + n.rng.Int64N(200e6) + n.clock
	}
	return oracle.TID(uint64(at)<<10 | uint64(n.rng.IntN(1024)))
}

// records draws the records of all accounts.
func (n *network) records() {
	for _, did := range n.accounts {
		n.old[did], n.heard[did] = nil, nil
		if n.how[did] == isBare {
			continue
		}
		n.old[did] = n.some(did, 3+n.rng.IntN(12), true)
		if n.how[did] != isUnknown && n.how[did] != isListed {
			n.heard[did] = n.some(did, 1+n.rng.IntN(6), false)
		}
	}
}

func (n *network) some(did string, many int, old bool) (ops []oracle.Op) {
	one := func(list []string) string { return list[n.rng.IntN(len(list))] }
	for range many {
		o := oracle.Op{Kind: []string{"follow", "follow", "follow", "like", "like", "repost", "block", "listblock", oracle.ListItem, aPost, aPost}[n.rng.IntN(11)], Rkey: n.key(old)}
		if old && n.rng.IntN(15) == 0 {
			o.Rkey = fmt.Sprint("self", n.clock) // it has no time
		}
		switch o.Kind {
		case "like", "repost":
			o.Subject = one(n.posts)
		case aPost:
			own := slices.Index(n.accounts, did)
			if o.Subject = one(append(slices.Clone(n.posts), "", "")); old && !slices.ContainsFunc(ops, func(o oracle.Op) bool { return o.Kind == aPost }) {
				o.Rkey = n.posts[own][strings.LastIndexByte(n.posts[own], '/')+1:] // others like it, and answer it
			}
		case "listblock":
			o.Subject = one(n.lists)
		case oracle.ListItem:
			if o.Subject, o.List = one(n.accounts), one(n.lists); n.rng.IntN(4) > 0 {
				o.List = "at://" + did + "/app.bsky.graph.list/first"
			}
		default:
			o.Subject = one(n.accounts)
		}
		ops = append(ops, o)
	}
	return ops
}

// names reports whether a record names the center of a part, or a record of it.
func (n *network) names(o oracle.Op) bool {
	is := func(s string) bool { return s == n.center || strings.HasPrefix(s, "at://"+n.center+"/") }
	return is(o.Subject) || is(o.List)
}

// passing returns the records of an account that the stream brought, and that the index keeps.
func (n *network) passing(did string) []oracle.Op {
	heard := slices.Clone(n.heard[did])
	if n.isOutside(did) {
		heard = slices.DeleteFunc(heard, func(o oracle.Op) bool { return !n.names(o) })
	}
	return heard
}

// isOutside reports whether an account is outside the part of the network that the index holds.
func (n *network) isOutside(did string) bool { return n.center != "" && !n.members[did] }

// other returns another network that the index cannot tell from this one: what it does not know is drawn again.
func (n *network) other() *network {
	o := *n
	o.old, o.heard, o.hidden = maps.Clone(n.old), maps.Clone(n.heard), maps.Clone(n.hidden)
	for _, did := range n.accounts {
		how := n.how[did]
		if n.hole {
			how = isQueued
			o.hidden[did] = n.rng.IntN(6) == 0
		}
		if n.isOutside(did) && how != isBare { // only what it did to the center is known, since the stream began
			if how = max(how, isPartial); how != isUnknown {
				o.heard[did] = append(n.passing(did), slices.DeleteFunc(o.some(did, o.rng.IntN(6), false), n.names)...)
			}
		}
		switch how {
		case isPartial, isUnknown, isListed:
			o.old[did] = o.some(did, o.rng.IntN(14), true)
		case isQueued, isDesync:
			heard := o.heard[did]
			if o.old[did], o.heard[did] = o.some(did, o.rng.IntN(14), true), o.some(did, o.rng.IntN(5), false); n.isOutside(did) && !n.hole {
				o.heard[did] = heard // it counts as partial
			}
		default:
		}
	}
	return &o
}

// world opens an index, with the same id for each string.
func (n *network) world() *world {
	n.t.Helper()
	store := memory(write.Limits{Row: 6, Chunk: 4})
	home := func(tx kv.Txn) error { tx.Set([]byte{dict.KeyHome, byte(dict.DID)}, []byte{0, 0, 0, 1}); return nil }
	must(n.t, store.Update(n.t.Context(), home))
	w := newWorldOn(n.t, nil, store, graph.Options{Kinds: usualPosts(n.t)})
	var all []batch.Label
	for i, s := range slices.Concat(n.accounts, n.posts, n.lists, n.own) {
		l := batch.Label{Labeler: oracle.Labelers[0], Value: "spam", Subject: s}
		if l.Time = n.from.UnixMicro() + int64(i); i%4 > 0 {
			l.Value = "two words"
		}
		all = append(all, l)
	}
	for _, did := range oracle.Labelers {
		must(n.t, w.store.ApplyLabels(n.t.Context(), time.Now(), all, format.Labeler{}, format.Labeler{Name: did, DID: did, Seq: 1, Current: true, Seen: time.Now()}))
		all = nil
	}
	return w
}

// An indexer fills an index.
type indexer struct {
	*world

	n   *network
	seq format.Seq
}

// event adds an event of the stream.
func (x *indexer) event(add func(b *batch.Batch)) {
	x.t.Helper()
	var b batch.Batch
	if x.seq++; add != nil {
		add(&b)
	}
	b.Seen(x.seq, nil)
	x.apply("relay", &b)
}

func (x *indexer) apply(source string, b *batch.Batch) {
	x.t.Helper()
	must(x.t, x.store.Apply(x.t.Context(), source, b))
}

// rev returns a rev of an account. Each is later than those of lower numbers.
func (x *indexer) rev(number int64) []byte {
	return []byte(oracle.TID(uint64(x.n.from.Add(-30*24*time.Hour).UnixMicro()+number) << 10))
}

// commit has the stream bring the commit of a number, after the one before it; 1 is the first.
func (x *indexer) commit(did string, number int64, ops []oracle.Op) {
	x.t.Helper()
	x.event(func(b *batch.Batch) {
		c := batch.Commit{DID: []byte(did), Rev: x.rev(number), Data: make([]byte, 32)}
		if number > 1 {
			c.Since = x.rev(number - 1)
		}
		b.AddCommit(x.seq, &c)
		puts(b, ops)
	})
}

// queue queues an account.
func (x *indexer) queue(did string) {
	x.t.Helper()
	var b batch.Batch
	b.AddResync([]byte(did), batch.Cause{Reason: "test"})
	x.apply("", &b)
}

// place places a snapshot of an account, of the commit of a number.
func (x *indexer) place(did string, number int64, ops []oracle.Op) {
	x.t.Helper()
	x.queue(did)
	var row *format.Resync
	must(x.t, x.store.View(x.t.Context(), func(sn *ask.View) (err error) { _, _, row, err = sn.Account(did); return err }))
	path := func(o oracle.Op) string {
		if o.Kind == aPost {
			return "app.bsky.feed.post/" + o.Rkey
		}
		return kinds.ByName(o.Kind).Collection + "/" + o.Rkey
	}
	ops = slices.SortedFunc(slices.Values(ops), func(x, y oracle.Op) int { return strings.Compare(path(x), path(y)) })
	var b batch.Batch
	at := b.AddSnapshot(&batch.Snapshot{DID: []byte(did), Rev: x.rev(number), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true})
	puts(&b, ops)
	if x.apply("", &b); b.Outcome(at) != batch.Placed {
		x.t.Fatalf("%s: %v", did, b.Outcome(at))
	}
}

// aPost is the Kind of posts, which answer their Subject.
const aPost = "post"

// usualPosts returns the kinds of --posts.
func usualPosts(t *testing.T) []kinds.Info {
	t.Helper()
	all, err := kinds.Parse(kinds.Posts)
	must(t, err)
	return all
}

// puts adds records to the last event.
func puts(b *batch.Batch, ops []oracle.Op) {
	for _, record := range ops {
		if record.Kind == aPost {
			b.AddSubjects(&kinds.Info{Kind: kinds.FirstSelf, Collection: "app.bsky.feed.post"}, []byte(record.Rkey), nil)
			if record.Subject != "" {
				b.AddPut(kinds.FirstConfigured, []byte(record.Rkey), []byte(record.Subject))
			}
			continue
		}
		for _, o := range record.Edges() {
			k := kinds.ListMember
			if o.Kind == oracle.ListItemOf {
				k = kinds.ListItem
			} else if o.Kind != oracle.ListItem {
				k = kinds.ByName(o.Kind).Kind
			}
			b.AddPut(k, []byte(o.Rkey), []byte(o.Subject))
		}
	}
}

// hide has the stream tell which accounts are not active.
func (x *indexer) hide() {
	x.t.Helper()
	for _, did := range x.n.accounts {
		if x.n.hidden[did] {
			x.event(func(b *batch.Batch) { b.AddAccount(x.seq, []byte(did), false, false) })
		}
	}
}

// all indexes the whole network, as the stream tells of it from its first event on.
func (n *network) all() *world {
	n.t.Helper()
	x := &indexer{world: n.world(), n: n}
	for _, did := range n.accounts {
		if len(n.old[did])+len(n.heard[did]) > 0 {
			x.commit(did, 1, slices.Concat(n.old[did], n.heard[did]))
		}
	}
	x.event(nil)
	x.hide()
	return x.world
}

// index indexes what the index knows.
func (n *network) index() *world {
	n.t.Helper()
	x := &indexer{world: n.world(), n: n}
	if n.roster != format.RosterStream {
		x.seq = 5
	}
	x.event(nil)
	if n.roster == format.RosterRepos || n.center != "" {
		must(n.t, x.store.ChangeBackfill(n.t.Context(), func(b *format.Backfill) {
			if n.center != "" {
				b.Around = format.Around{Centers: []string{n.center}, Hops: 1, Members: len(n.members), Since: time.Now()}
				return
			}
			b.Roster = format.Roster{AsOf: time.Now(), Source: n.roster, Unlisted: n.unlisted}
		}))
	}
	for i, did := range n.accounts {
		how, old, heard := n.how[did], n.old[did], n.passing(did)
		switch isFirst := i%2 == 0 && n.center == ""; { // whether the stream brought its first commit
		case how == isBare, how == isUnknown, n.isOutside(did) && len(heard) == 0:
		case how == isPartial, n.isOutside(did):
			x.commit(did, 2, heard)
		case how == isListed:
			x.queue(did)
		case did == n.fetched:
			x.commit(did, 2, heard)
			x.place(did, 2, slices.Concat(old, heard))
		case isFirst:
			x.commit(did, 1, old)
			x.commit(did, 2, heard)
		default:
			x.place(did, 1, old)
			x.commit(did, 2, heard)
		}
		switch {
		case n.isOutside(did):
		case how == isQueued:
			x.queue(did)
		case how == isDesync:
			x.commit(did, 4, nil) // after one that was missed
		default:
		}
	}
	x.hide()
	if n.hole {
		x.event(func(b *batch.Batch) {
			b.AddGap(format.Gap{After: x.seq, Reason: "outdated_cursor", Time: time.Now(), Suspect: true})
		})
	}
	return x.world
}

// evident reports whether the index must know that it has everything.
func (n *network) evident() bool {
	all := n.roster != "" && len(n.unlisted) == 0 && !n.hole && n.fetched == ""
	for _, did := range n.accounts {
		all = all && (n.how[did] <= isBare || n.hidden[did] && n.how[did] != isPartial)
	}
	return all
}

// questions are a method and its parameters. E and U are sets of accounts and of records, A and P one of them, T a time.
var questions = []string{
	"path from=A to=A", "path from=A to=A max=1", "query set=within(A,2)",
	"query set=E", "query set=U", "query set=intersect(follows(A),E)", "query set=except(follows(A),E)", "query set=intersect(U,rank(of=follows(A),via=likes))",
	"contains set=E member=A member=A member=A", "contains set=U member=P member=P",
	"list set=E order=id", "list set=E order=size(likes)", "list set=E order=size(followers)", "list set=U order=size(likers)", "list set=U order=created", "list set=intersect(union(followers(A),likers(P),listed(P)),follows(A)) order=oldest", "list set=intersect(follows(A),E) order=newest",
	"histogram set=follows(A)", "histogram set=intersect(likers(P),E)",
	"counts edge=follows edge=blocks edge=likes subject=A subject=A", "counts edge=followers edge=lists subject=A", "counts edge=listed subject=P", "counts edge=likers subject=P",
	"known actor=A edge=followers subject=A", "known actor=A edge=follows subject=A", "known actor=A edge=likers subject=P subject=P", "known actor=A edge=listed subject=P",
	"rank of=E via=likes", "rank of=follows(A) via=likes", "rank of=E via=follows except=E", "rank of=E via=followers since=T", "rank of=E via=lists", "rank of=U via=listed", "rank of=U via=likers", "rank of=U via=authors", "rank of=likes(A) via=authors except=E since=T", "query set=except(likes(A),by(likes(A),E))", "counts edge=authors edge=likers subject=P subject=P",
	"rank set=blend(3,rank(of=U,via=likers),.5,rank(of=E,via=follows,damp=0.5),except=E)", "query set=intersect(follows(A),blend(1,rank(of=U,via=likers),2,rank(of=E,via=followers,min=2),min=2))",
	"rank of=E via=follows damp=0.5", "rank of=U via=likers damp=1 since=T", "rank of=E via=likes by=share min=1 since=T", "rank of=E via=follows by=lift min=1 since=T",
	"query set=posts(A)", "query set=replies(P)", "query set=intersect(posts(A),replies(P))", "query set=except(posts(A,since=T),U)", "query set=by(replies(P,since=T),E)", "list set=replies(P) order=newest", "list set=posts(A) order=size(replies)",
	"contains set=replies(P) member=P member=P", "histogram set=posts(A)", "counts edge=replies edge=repliers subject=P", "counts edge=posts subject=A", "rank of=E via=posts since=T", "rank of=posts(A) via=repliers", "rank of=U via=replies", "rank of=E via=posts by=share min=1",
	"getBlocks actor=A direction=blocking", "getBlocks actor=A direction=blockedBy others=A", "app.bsky.graph.getRelationships actor=A others=A others=A",
}

var places = regexp.MustCompile(`\b[EUAPT]\b`)

// question draws a question.
func (n *network) question(d oracle.Draw) (call string) {
	words := strings.Fields(d.One(questions...))
	p := url.Values{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		p.Add(name, places.ReplaceAllStringFunc(value, func(place string) (s string) {
			switch place {
			case "A":
				return d.Name()
			case "P":
				return d.One(d.Records...)
			case "T":
				return d.One(d.Times...)
			}
			for s = "decay"; strings.Contains(s, "decay"); { // what it says changes with time
				s = d.Expr(place == "E", d.IntN(4))
			}
			return s
		}))
	}
	if slices.Contains([]string{"query", "list", "rank"}, words[0]) {
		p.Set("limit", "1000")
	}
	return words[0] + "?" + p.Encode()
}

var accountsIn = regexp.MustCompile(`"accounts":\d+,`)

// TestDependence draws networks, and indexes that know a part of them, and asks both. An answer that is not called incomplete
// is the truth, and it stays so if what the index does not know of is another. If the index knows everything, no answer is
// called incomplete. The accounts that the index has never heard of are active.
func TestDependence(t *testing.T) {
	t.Parallel()
	asked, complete, evident := 0, 0, 0
	by := map[string][2]int{}
	for seed := range uint64(*dependenceNetworks) {
		n := newNetwork(t, seed)
		index := n.index()
		truths := []*world{n.all(), n.other().all(), n.other().all()}
		if n.evident() {
			evident++
		}
		d := oracle.Draw{Rand: n.rng, Accounts: append(slices.Clone(n.accounts), never), Records: append(slices.Concat(n.posts, n.lists), neverPost, neverList), Times: n.times, Labelers: oracle.Labelers}
		for range 70 {
			call := n.question(d)
			status, got, _ := index.get(call)
			if status != 200 { // such as a rank(…) too many
				continue
			}
			method, _, _ := strings.Cut(call, "?")
			incomplete := strings.Contains(got, `"incomplete":true`)
			count := by[method]
			if count[0]++; !incomplete {
				count[1]++
			}
			by[method] = count
			if incomplete && n.evident() {
				t.Fatalf("seed %d: %s: %s", seed, call, got)
			}
			for i, truth := range truths {
				_, want, _ := truth.get(call)
				if strings.Contains(call, "by=share") { // the number of accounts that are known has no part in it
					got, want = accountsIn.ReplaceAllString(got, ""), accountsIn.ReplaceAllString(want, "")
				}
				if strings.Contains(want, `"incomplete":true`) || !incomplete && got != want {
					text, _ := url.QueryUnescape(call)
					t.Fatalf("seed %d: network %d, index %s: %s:\n%s\nwant\n%s", seed, i, n.shown(), text, got, want)
				}
			}
		}
	}
	for _, count := range by {
		asked, complete = asked+count[0], complete+count[1]
	}
	t.Logf("%d of %d answers were complete; by method: %v; %d of %d indexes had everything", complete, asked, by, evident, *dependenceNetworks)
	if 3*complete < asked || evident == 0 {
		t.Errorf("too few answers were complete")
	}
}

// shown describes an index.
func (n *network) shown() string {
	var how []string
	for _, did := range n.accounts {
		text := did + " " + [...]string{"whole", "bare", "partial", "unknown", "listed", "queued", "desync"}[n.how[did]]
		if n.hidden[did] {
			text += " hidden"
		}
		how = append(how, text)
	}
	return fmt.Sprintf("of roster %q, unlisted %v, hole %v, fetched %q, center %q of %v: %v", n.roster, n.unlisted, n.hole, n.fetched, n.center, slices.Sorted(maps.Keys(n.members)), strings.Join(how, "; "))
}
