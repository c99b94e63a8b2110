// Package demo is a small network that does not exist, for who wants to see skein at work
// before there is a real one to index: a relay in the same process, of some thousand people
// who follow, like and repost, some much and most little. What they did in the last two days
// comes at once, then they go on, some ten times a second.
package demo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/internal/syntax"
	"skein.blue/internal/synth"
)

const (
	people    = 3000
	pastOps   = 60_000
	pastHours = 48
	perSecond = 40 // commits, once the past has come
	lists     = 4
)

// A Network makes the commits of the made-up people, one after another. It is for one
// goroutine. The same seed makes the same people; the times are those of today.
type Network struct {
	rng     *rand.Rand
	seq     int64
	dids    []string
	index   map[string]int // of the people, by DID
	handles map[string]int // and by handle
	posts   []post
	done    map[string]bool // what was done, by actor and subject: nobody follows twice
	last    []state
	follows []map[int]bool
}

// post is a record that people like.
type post struct {
	uri    string
	author int
	likers []int
}

// state is that of a repo.
type state struct {
	rev  uint64
	data [32]byte
}

// New returns a network whose past is about to come.
func New(seed uint64) *Network {
	n := &Network{rng: rand.New(rand.NewPCG(seed, 9)), done: map[string]bool{}, index: map[string]int{}, handles: map[string]int{}, last: make([]state, people), follows: make([]map[int]bool, people)}
	for range people {
		did := make([]byte, 24)
		for i := range did {
			did[i] = "abcdefghijklmnopqrstuvwxyz234567"[n.rng.IntN(32)]
		}
		i := len(n.dids)
		n.follows[i] = map[int]bool{}
		n.index["did:plc:"+string(did)], n.handles[handleOf(i)] = i, i
		n.dids = append(n.dids, "did:plc:"+string(did))
	}
	return n
}

// somebody draws a person: the first ones most often, by a power law.
func (n *Network) somebody() int {
	return min(int(math.Pow(people, n.rng.Float64()))-1, people-1)
}

// actor draws who does something: some do much, and they are others than those whom many
// follow.
func (n *Network) actor() int {
	return people - 1 - int(people*math.Pow(n.rng.Float64(), 2.5))
}

// Highlights are what is worth asking about.
type Highlights struct {
	Stars [2]string // accounts that many follow
	Fan   string    // an account that follows many
	Post  string    // that many of those like
	List  string    // a list of the first star's
}

func (n *Network) highlights() Highlights {
	h := Highlights{Stars: [2]string{n.dids[0], n.dids[1]}, List: n.List(0)}
	fan, best := 0, -1
	for i := range n.follows {
		if len(n.follows[i]) > len(n.follows[fan]) {
			fan = i
		}
	}
	h.Fan = n.dids[fan]
	for i := range n.posts {
		of := 0
		for _, who := range n.posts[i].likers {
			if n.follows[fan][who] {
				of++
			}
		}
		if of > best {
			h.Post, best = n.posts[i].uri, of
		}
	}
	return h
}

// next returns the next commit, as a message of the firehose that says it passed at now.
func (n *Network) next(now time.Time) []byte {
	for {
		if message := n.try(now); message != nil {
			return message
		}
	}
}

// try draws something that somebody may do; nil if it was done before.
func (n *Network) try(now time.Time) []byte {
	who := n.actor()
	rkey := syntax.AppendTID(nil, uint64(now.UnixMicro())<<10|uint64(n.rng.IntN(1<<10)))
	at := now.UTC().Format("2006-01-02T15:04:05.000Z")
	var collection string
	var record synth.Map
	once := func(subject string) bool {
		key := n.dids[who] + collection + subject
		if n.done[key] {
			return false
		}
		n.done[key] = true
		return true
	}
	switch draw := n.rng.IntN(100); {
	case draw < 12 || len(n.posts) < 50:
		collection, who = "app.bsky.feed.post", n.somebody()
		n.posts = append(n.posts, post{fmt.Sprintf("at://%s/app.bsky.feed.post/%s", n.dids[who], rkey), who, nil})
		record = synth.Map{{Key: "text", Value: text(n.posts[len(n.posts)-1].uri)}}
	case draw < 40:
		collection = "app.bsky.graph.follow"
		whom := n.somebody()
		if n.rng.IntN(3) == 0 { // not only those whom everybody follows
			whom = n.actor()
		}
		if whom == who || !once(n.dids[whom]) {
			return nil
		}
		n.follows[who][whom] = true
		record = synth.Map{{Key: "subject", Value: n.dids[whom]}}
	case draw < 92:
		collection = "app.bsky.feed.like"
		if draw < 50 {
			collection = "app.bsky.feed.repost"
		}
		p := n.recent()
		if q := n.recent(); len(q.likers) > len(p.likers) { // what many like, more like
			p = q
		}
		if !once(p.uri) {
			return nil
		}
		if draw >= 50 {
			p.likers = append(p.likers, who)
		}
		record = synth.Map{{Key: "subject", Value: synth.Map{{Key: "cid", Value: "bafyreib"}, {Key: "uri", Value: p.uri}}}}
	case draw < 96:
		collection, who = "app.bsky.graph.listitem", n.rng.IntN(lists)
		whom := n.somebody()
		if !once(n.dids[whom]) {
			return nil
		}
		record = synth.Map{{Key: "list", Value: n.List(who)}, {Key: "subject", Value: n.dids[whom]}}
	default:
		collection = "app.bsky.graph.block"
		whom := n.rng.IntN(people)
		if !once(n.dids[whom]) {
			return nil
		}
		record = synth.Map{{Key: "subject", Value: n.dids[whom]}}
	}
	return n.commit(who, collection, rkey, append(record, synth.Pair{Key: "createdAt", Value: at}), now, at)
}

// recent draws a recent post.
func (n *Network) recent() *post {
	return &n.posts[len(n.posts)-1-n.rng.IntN(min(len(n.posts), 400))]
}

// List returns the list of one of the first accounts.
func (n *Network) List(i int) string { return "at://" + n.dids[i] + "/app.bsky.graph.list/list" }

// commit makes the message of a record that is created.
func (n *Network) commit(who int, collection string, rkey []byte, record synth.Map, now time.Time, at string) []byte {
	n.seq++
	st := &n.last[who]
	rev := max(uint64(now.UnixMicro())<<10, st.rev+1)
	b := synth.NewBlock(synth.CBOR(nil, record))
	data := synth.NewBlock(append(st.data[:], b.CID[:]...)).CID // the root of no tree, but another one each time
	root := synth.CommitBlock(n.dids[who], string(syntax.AppendTID(nil, rev)), data)
	c := synth.Commit{
		Repo: []byte(n.dids[who]), Rev: syntax.AppendTID(nil, rev), Seq: n.seq, Time: []byte(at), Root: root.CID,
		Ops: []synth.Op{{Action: "create", Collection: collection, Rkey: rkey, CID: &b.CID}},
		CAR: [][]byte{synth.CAR(root.CID, b, root)},
	}
	if st.rev > 0 {
		prev := synth.Link(st.data)
		c.Since, c.PrevData = syntax.AppendTID(nil, st.rev), &prev
	}
	*st = state{rev, data}
	message, _ := c.Append(nil)
	return message
}

// A Relay serves a Network to one subscriber at a time.
type Relay struct {
	n    *Network
	past chan Highlights // what is worth asking about, once the past was sent
	ln   net.Listener

	mu    sync.Mutex // held while somebody is subscribed
	begun bool
}

// Serve serves the network at a port of loopback, until ctx ends.
func Serve(ctx context.Context, n *Network) (*Relay, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	r := &Relay{n: n, past: make(chan Highlights, 1), ln: ln}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.send(ctx, w, req) }), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(ln) }()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return r, nil
}

// Address returns the address of the relay.
func (r *Relay) Address() string { return "ws://" + r.ln.Addr().String() }

// Past tells what is worth asking about, once everything that lies in the past has been
// sent.
func (r *Relay) Past() <-chan Highlights { return r.past }

// Seq returns the number of the last message of the past, once it was sent.
func (r *Relay) Seq() int64 { return pastOps }

// send sends the stream.
func (r *Relay) send(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	conn, err := (&websocket.Upgrader{}).Upgrade(w, req, nil)
	if err != nil {
		return // it has answered
	}
	defer func() { _ = conn.Close() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	go func() { // pings are answered where something is read
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	from := time.Now().Add(-pastHours * time.Hour)
	for i := 0; i < pastOps && !r.begun; i++ {
		now := from.Add(time.Duration(i) * pastHours * time.Hour / pastOps)
		if conn.WriteMessage(websocket.BinaryMessage, r.n.next(now)) != nil {
			return
		}
	}
	if !r.begun {
		r.begun = true
		r.past <- r.n.highlights()
	}
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if conn.WriteMessage(websocket.BinaryMessage, r.n.next(now)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
