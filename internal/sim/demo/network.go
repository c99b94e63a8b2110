// Package demo is a small made-up network to try skein on: a relay in the same process, and
// 3,000 people who post, follow, like, repost and block. A few of them are very active, and most
// are not. Two days of their past arrive at once; after that they act 20 times a second.
//
// The network stays plausible however long it runs, because its memory is bounded: everybody
// follows a limited number of accounts, then unfollows one before the next, and posts are liked
// only while they are new.
package demo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/synth"
)

const (
	people    = 3000
	pastOps   = 100_000
	pastHours = 48
	perSecond = 20 // commits, once the past has arrived

	lists     = 4
	listSize  = 150 // most members of a list
	blockSize = 12  // most accounts that a person blocks
	newPosts  = 400 // posts that are still liked and reposted
	views     = 6   // follows whose last like a person looks at, at most

	// appetite is how many accounts the most active person follows at most. The others follow
	// fewer.
	appetite = 260
)

// A Network makes the commits of the made-up people, one by one. Only one goroutine may use it.
// The same seed makes the same people; the times are current.
type Network struct {
	rng     *rand.Rand
	seq     int64
	dids    []string
	index   map[string]int // people by DID
	handles map[string]int // people by handle
	last    []repo

	fame, activity []float64 // cumulative weights of the people

	appetites []int
	follows   []links // by person
	blocks    []links // by person
	listed    [lists]links
	posts     []*post // the newest ones, in order
	liked     []*post // the last post that each person liked
}

func (p *post) subject() synth.Map {
	return synth.Map{{Key: "subject", Value: synth.Map{{Key: "cid", Value: "bafyreib"}, {Key: "uri", Value: p.uri}}}}
}

// repo is the state of a person's repo.
type repo struct {
	rev  uint64
	data [32]byte
}

// post is a post that is new enough to be liked.
type post struct {
	uri            string
	old            bool
	likes, reposts links // by actor
}

// links are records of one kind that share an actor or a subject, by the person at their other
// end. Nobody occurs twice.
type links struct {
	at   map[int]int // in list
	list []link
}

type link struct {
	whom int
	rkey string
}

func (l *links) has(whom int) bool { _, ok := l.at[whom]; return ok }

// add adds a link, and reports whether it is new.
func (l *links) add(whom int, rkey string) bool {
	if l.has(whom) {
		return false
	}
	if l.at == nil {
		l.at = map[int]int{}
	}
	l.at[whom] = len(l.list)
	l.list = append(l.list, link{whom, rkey})
	return true
}

// remove removes a random link, and returns its record key. There must be one.
func (l *links) remove(rng *rand.Rand) (rkey string) { return l.removeAt(rng.IntN(len(l.list))) }

func (l *links) removeAt(i int) (rkey string) {
	gone, end := l.list[i], len(l.list)-1
	l.list[i] = l.list[end]
	l.at[l.list[i].whom] = i
	l.list = l.list[:end]
	delete(l.at, gone.whom)
	return gone.rkey
}

// New returns a network before its first commit.
func New(seed uint64) *Network {
	n := &Network{
		rng: rand.New(rand.NewPCG(seed, 9)), index: map[string]int{}, handles: map[string]int{},
		last: make([]repo, people), follows: make([]links, people), blocks: make([]links, people), liked: make([]*post, people),
	}
	for i := range people {
		id := make([]byte, 24)
		for j := range id {
			id[j] = "abcdefghijklmnopqrstuvwxyz234567"[n.rng.IntN(32)]
		}
		did := "did:plc:" + string(id)
		n.index[did], n.handles[handleOf(i)] = i, i
		n.dids = append(n.dids, did)
		busy := people - 1 - i // the busiest are not the most famous
		n.fame = append(n.fame, math.Pow(float64(i+20), -0.9))
		n.activity = append(n.activity, math.Pow(float64(busy+30), -0.8))
		n.appetites = append(n.appetites, max(3, int(appetite*math.Pow(30/float64(busy+30), 0.6)*math.Exp(n.rng.NormFloat64()/3))))
	}
	for i := 1; i < people; i++ {
		n.fame[i] += n.fame[i-1]
		n.activity[i] += n.activity[i-1]
	}
	return n
}

// draw picks a random person by cumulative weights.
func (n *Network) draw(weights []float64) int {
	return min(sort.SearchFloat64s(weights, n.rng.Float64()*weights[people-1]), people-1)
}

// somebody picks a person by fame.
func (n *Network) somebody() int { return n.draw(n.fame) }

// actor picks a person by activity.
func (n *Network) actor() int { return n.draw(n.activity) }

// Highlights are accounts and records that are interesting to query.
type Highlights struct {
	Stars [2]string // the two accounts with the most followers
	Fan   string    // the account that follows the most
	Post  string    // the new post that most of its follows like
	List  string    // a list of the first account
}

func (n *Network) highlights() Highlights {
	fan, best := 0, -1
	followers := make([]int, people)
	for i := range n.follows {
		if len(n.follows[i].list) > len(n.follows[fan].list) {
			fan = i
		}
		for _, l := range n.follows[i].list {
			followers[l.whom]++
		}
	}
	stars := make([]int, people)
	for i := range stars {
		stars[i] = i
	}
	slices.SortFunc(stars, func(a, b int) int { return followers[b] - followers[a] })
	h := Highlights{Stars: [2]string{n.dids[stars[0]], n.dids[stars[1]]}, Fan: n.dids[fan], List: n.List(0)}
	for _, p := range n.posts {
		of := 0
		for _, l := range p.likes.list {
			if n.follows[fan].has(l.whom) {
				of++
			}
		}
		if of > best {
			h.Post, best = p.uri, of
		}
	}
	return h
}

// pastAt returns the time of a commit of the past, which ends at end.
func pastAt(end time.Time, i int) time.Time {
	const each = pastHours * time.Hour / pastOps // the product of all three overflows
	return end.Add(time.Duration(i-pastOps) * each)
}

// act is one record that a person creates or deletes.
type act struct {
	who        int
	collection string
	rkey       string
	record     synth.Map // nil for a deletion
}

// next returns the next commit as a firehose message with the time now.
func (n *Network) next(now time.Time) []byte { return n.commit(n.step(now), now) }

// step chooses the next act.
func (n *Network) step(now time.Time) act {
	for {
		if a, ok := n.try(now); ok {
			return a
		}
	}
}

// try picks a random act. ok is false if it has already been done.
func (n *Network) try(now time.Time) (a act, ok bool) {
	who := n.actor()
	rkey := string(dict.AppendTID(nil, uint64(now.UnixMicro())<<10|uint64(n.rng.IntN(1<<10))))
	hungry := len(n.follows[who].list) < n.appetites[who]
	switch draw := n.rng.IntN(100); {
	case draw < 4 || len(n.posts) < 50:
		return n.post(n.somebody(), rkey), true
	case draw < 58 && hungry:
		return n.follow(who, rkey)
	case draw < 15: // not hungry
		return act{who, "app.bsky.graph.follow", n.follows[who].remove(n.rng), nil}, true
	case draw < 82:
		p := n.seen(who)
		n.liked[who] = p
		return act{who, "app.bsky.feed.like", rkey, p.subject()}, p.likes.add(who, rkey)
	case draw < 90:
		p := n.seen(who)
		return act{who, "app.bsky.feed.repost", rkey, p.subject()}, p.reposts.add(who, rkey)
	case draw < 93:
		return n.unlike()
	case draw < 96:
		return n.list(n.rng.IntN(lists), rkey)
	}
	return n.block(who, rkey)
}

// post adds a post. The oldest of the new posts becomes old.
func (n *Network) post(who int, rkey string) act {
	p := &post{uri: fmt.Sprintf("at://%s/app.bsky.feed.post/%s", n.dids[who], rkey)}
	if len(n.posts) == newPosts {
		n.posts[0].old = true
		n.posts = slices.Delete(n.posts, 0, 1)
	}
	n.posts = append(n.posts, p)
	tags := []any{}
	if _, tag, tagged := strings.Cut(text(p.uri), "#"); tagged {
		tags = append(tags, tag)
	}
	return act{who, "app.bsky.feed.post", rkey, synth.Map{{Key: "tags", Value: tags}, {Key: "text", Value: text(p.uri)}}}
}

func (n *Network) follow(who int, rkey string) (act, bool) {
	whom := n.somebody()
	switch n.rng.IntN(6) { // half of the follows are of less famous people
	case 0, 1:
		whom = n.actor()
	case 2:
		whom = n.rng.IntN(people)
	}
	return act{who, "app.bsky.graph.follow", rkey, synth.Map{{Key: "subject", Value: n.dids[whom]}}}, whom != who && n.follows[who].add(whom, rkey)
}

// unlike deletes a like of a new post.
func (n *Network) unlike() (act, bool) {
	p := n.posts[n.rng.IntN(len(n.posts))]
	if len(p.likes.list) == 0 {
		return act{}, false
	}
	who := p.likes.list[n.rng.IntN(len(p.likes.list))].whom
	return act{who, "app.bsky.feed.like", p.likes.removeAt(p.likes.at[who]), nil}, true
}

// list adds somebody to the list of one of the first accounts, or removes somebody if it is full.
func (n *Network) list(who int, rkey string) (act, bool) {
	const collection = "app.bsky.graph.listitem"
	if len(n.listed[who].list) == listSize {
		return act{who, collection, n.listed[who].remove(n.rng), nil}, true
	}
	whom := n.somebody()
	return act{who, collection, rkey, synth.Map{{Key: "list", Value: n.List(who)}, {Key: "subject", Value: n.dids[whom]}}}, n.listed[who].add(whom, rkey)
}

func (n *Network) block(who int, rkey string) (act, bool) {
	const collection = "app.bsky.graph.block"
	if len(n.blocks[who].list) == blockSize {
		return act{who, collection, n.blocks[who].remove(n.rng), nil}, true
	}
	whom := n.rng.IntN(people)
	return act{who, collection, rkey, synth.Map{{Key: "subject", Value: n.dids[whom]}}}, whom != who && n.blocks[who].add(whom, rkey)
}

// seen picks a new post for a person to like or repost: mostly one that somebody they follow has
// just liked, else any of the newest.
func (n *Network) seen(who int) *post {
	if friends := n.follows[who].list; len(friends) > 0 && n.rng.IntN(10) < 8 {
		for range views {
			if p := n.liked[friends[n.rng.IntN(len(friends))].whom]; p != nil && !p.old {
				return p
			}
		}
	}
	return n.posts[n.rng.IntN(len(n.posts))]
}

// List returns the list of one of the first accounts.
func (n *Network) List(i int) string { return "at://" + n.dids[i] + "/app.bsky.graph.list/list" }

// commit makes the firehose message of an act.
func (n *Network) commit(a act, now time.Time) []byte {
	n.seq++
	st := &n.last[a.who]
	at := now.UTC().Format("2006-01-02T15:04:05.000Z")
	rev := max(uint64(now.UnixMicro())<<10, st.rev+1)
	op := synth.Op{Action: "delete", Collection: a.collection, Rkey: []byte(a.rkey)}
	changed := []byte(a.rkey)
	var blocks []synth.Block
	if a.record != nil {
		b := synth.NewBlock(synth.CBOR(nil, append(a.record, synth.Pair{Key: "createdAt", Value: at})))
		op.Action, op.CID, changed, blocks = "create", &b.CID, b.CID[:], append(blocks, b)
	}
	data := synth.NewBlock(append(st.data[:], changed...)).CID // not the root of a tree, but different each time
	root := synth.CommitBlock(n.dids[a.who], string(dict.AppendTID(nil, rev)), data)
	c := synth.Commit{
		Repo: []byte(n.dids[a.who]), Rev: dict.AppendTID(nil, rev), Seq: n.seq, Time: []byte(at), Root: root.CID,
		Ops: []synth.Op{op}, CAR: [][]byte{synth.CAR(root.CID, append(blocks, root)...)},
	}
	if st.rev > 0 {
		prev := synth.Link(st.data)
		c.Since, c.PrevData = dict.AppendTID(nil, st.rev), &prev
	}
	*st = repo{rev, data}
	message, _ := c.Append(nil)
	return message
}
