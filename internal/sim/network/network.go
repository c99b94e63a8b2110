// Package network simulates a network of accounts: an endless, seeded stream of follows,
// likes, reposts, blocks, posts, deletes and account changes with the shape of the real
// network, and the records of the three years before it (history.go). The seed and the number of an
// event or record determine it, so a network stores eight bytes per account and nothing per record.
// It knows no wire formats and no stores.
//
// Sources of the shape: the shares of kinds and of deletes are those of the firehose of
// 2025; the activity of accounts and the number of their followers follow power laws; likes go to
// fresh posts, most within hours, and some posts get very many. Record keys have clock ids below 32,
// as the reference PDS draws them: all 148 keys of a recorded minute of the real network have. Keys of posts are whole milliseconds, as a client's clock makes them: 117 of the 129 posts that
// those records name are.
package network

import (
	"encoding/binary"
	"math"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Options describe a network. The zero value of each field is a default.
type Options struct {
	Seed uint64
	// Accounts is the population. 0 means 5 million.
	Accounts int
	// Lurkers are additional accounts that act only through Plant.
	Lurkers int
	// PerSecond is the number of events per second of the network's time. 0 means 300.
	PerSecond int
	// History is the mean number of records that an account made in the three years before the stream (see
	// Repo). 0: none. With a history, the network's time passes as fast as its accounts made those records, and
	// PerSecond is not used.
	History int
	// OnlyPLC makes no account a did:web. Else one in 256 is, below example.com, where nobody
	// serves DID documents.
	OnlyPLC bool
}

// Shares of the events, in 1/1000. The rest creates existing edges again.
const (
	shareLikes    = 560
	shareFollows  = 110
	shareReposts  = 85
	shareBlocks   = 15
	shareDeletes  = 50
	sharePosts    = 125
	shareOthers   = 40
	shareIdentity = 5
	shareAccount  = 2
	shareSync     = 2
	shareUpdates  = 1

	shareMore = 5 // of each other kind of the table, out of shareOthers
)

// minorKinds are the kinds of the table without their own share. The network has no
// listitems.
var minorKinds = slices.DeleteFunc(slices.Clone(kinds.All), func(k kinds.Info) bool {
	return k.Kind == Follow || k.Kind == Like || k.Kind == Repost || k.Kind == Block || !k.HasSets()
})

// minorKind returns the minor kind of an event of shareOthers, if it has one.
func minorKind(share int) (k kinds.Kind, ok bool) {
	i := share - belowPosts
	if i < 0 || i >= shareMore*len(minorKinds) || share >= belowOthers {
		return 0, false
	}
	return minorKinds[i/shareMore].Kind, true
}

// The shares, cumulated. Events below belowBlocks create new records of an indexed
// collection.
const (
	belowLikes    = shareLikes
	belowReposts  = belowLikes + shareReposts
	belowFollows  = belowReposts + shareFollows
	belowBlocks   = belowFollows + shareBlocks
	belowDeletes  = belowBlocks + shareDeletes
	belowPosts    = belowDeletes + sharePosts
	belowOthers   = belowPosts + shareOthers
	belowIdentity = belowOthers + shareIdentity
	belowAccount  = belowIdentity + shareAccount
	belowSync     = belowAccount + shareSync
	belowUpdates  = belowSync + shareUpdates
)

const (
	recentOps      = 1_000_000
	bucketOps      = 1024 // in that many events,
	bucketPosts    = 110  // this many likable posts are made
	viralEvery     = 40_000
	hosts          = 97
	block          = 4096                  // accounts with a common power law
	startMicros    = 1_514_764_800_000_000 // 2018-01-01, so that streams of years end before now: revs ahead of now are refused
	maxCelebrities = 10_000
	packs          = 50 // one follow in that many is in a commit with several
	maxPack        = 8
)

// A Network generates the stream. It is for one goroutine.
type Network struct {
	o    Options
	next int64
	last []uint64 // the last rev, by account: 0 before the first, deleted after a deletion
	gap  float64  // with a history: microseconds between two events
	past int64    // with a history: events before the first one of the stream
}

// deleted is lower than all revs.
const deleted = 1

// New returns a network at its start.
func New(o Options) *Network {
	if o.Accounts <= 0 {
		o.Accounts = 5_000_000
	}
	if o.PerSecond <= 0 {
		o.PerSecond = 300
	}
	o.Accounts = max(o.Accounts/block, 1) * block
	n := &Network{o: o, last: make([]uint64, o.Accounts+o.Lurkers)}
	if o.History > 0 {
		n.past = int64(float64(o.Accounts) * float64(o.History) / recordsAnEvent)
		n.gap = historyMicros / float64(n.past)
	}
	return n
}

// Accounts returns the population, including lurkers.
func (n *Network) Accounts() int { return len(n.last) }

// rng is a stream of random numbers that follows from the seed and two more numbers.
type rng struct{ state uint64 }

func (n *Network) rng(what, i uint64) rng {
	return rng{Mix(n.o.Seed+what*0x9e3779b97f4a7c15) ^ Mix(i+what)}
}

// Mix is the finalizer of splitmix64 (https://prng.di.unimi.it/splitmix64.c).
func Mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return Mix(r.state)
}

func (r *rng) float() float64   { return float64(r.next()>>11) / (1 << 53) }
func (r *rng) below(n int) int  { return int(r.next() % uint64(n)) }
func (r *rng) age(mean int) int { return int(-math.Log(1-r.float()) * float64(mean)) }

// Liveliest is the distance between the most active accounts: 0, Liveliest, 2 × Liveliest
// and so on.
const Liveliest = block

// The uses of random numbers.
const (
	forOp = 1 + iota
	forPost
	forAuthor
	forDID
	forClock
	forTime
	forDelete
	forMore
	forRest
	forHistory
	forRecord
	forAwake
)

// active draws an account by its activity at event i. In a block of 4,096 accounts the most active
// one does a thirtieth of everything, and the top tenth two fifths. With a history, see awake.
func (n *Network) active(r *rng, i int64) int {
	if n.o.History > 0 {
		return n.awake(r, i)
	}
	u := r.float()
	rank := int(u * u * math.Sqrt(u) * block)
	return r.below(n.o.Accounts/block)*block + rank*stride%block // an odd factor: a permutation
}

// followed draws an account by its popularity: a third of the follows go to celebrities,
// by Zipf's law, the rest to all accounts by a power law.
func (n *Network) followed(r *rng) int {
	celebrities := 3
	if n.o.History > 0 {
		celebrities = 10 // active accounts follow most of them already
	}
	if r.below(celebrities) == 0 {
		known := min(maxCelebrities, n.o.Accounts)
		rank := int(math.Exp(r.float()*math.Log(float64(known)))) - 1
		return rank * (n.o.Accounts / known)
	}
	return n.popular(r)
}

// popular draws an account by a power law of popularity.
func (n *Network) popular(r *rng) int {
	u := r.float()
	rank := int(u * u * u * block)
	return r.below(n.o.Accounts/block)*block + rank*1597%block
}

// post returns a post that is liked at event i.
func (n *Network) post(r *rng, i int64) (author int, tid uint64) {
	if r.below(25) == 0 && i+n.past > viralEvery { // a viral post
		back := min(int64(r.age(20))*viralEvery, i+n.past-1)
		return n.postAt(down(down(i-back, viralEvery)*viralEvery, bucketOps), bucketPosts)
	}
	back := int64(r.age(400_000)) // twenty minutes, at 300/s
	if r.below(5) == 0 {
		back = int64(r.age(20_000_000))
	}
	u := r.float()
	return n.postAt(down(max(i-back, -n.past), bucketOps), int(u*u*u*bucketPosts))
}

// down divides, and rounds down.
func down(x, y int64) int64 {
	if x < 0 {
		return (x - y + 1) / y
	}
	return x / y
}

func (n *Network) postAt(bucket int64, which int) (author int, tid uint64) {
	r := n.rng(forPost, uint64(bucket)*(bucketPosts+1)+uint64(which))
	author = n.active(&r, bucket*bucketOps)
	at := bucket*bucketOps - int64(r.below(bucketOps))
	micros := n.micros(at) + uint64(r.below(3000))
	if r.below(10) > 0 { // clients create the keys of posts, from milliseconds
		micros -= micros % 1000
	}
	return author, n.tid(author, micros)
}

// micros returns the time of event i.
func (n *Network) micros(i int64) uint64 {
	if n.gap > 0 {
		return uint64(startMicros + int64(float64(i)*n.gap))
	}
	return uint64(startMicros + i*1_000_000/int64(n.o.PerSecond))
}

// tid returns a TID of an account's PDS. The PDS draws a new clock id at each restart,
// about every other day.
func (n *Network) tid(account int, micros uint64) uint64 {
	host := Mix(uint64(account)) % hosts
	r := n.rng(forClock, host<<32|micros/(160_000_000_000+host*1_000_000_000))
	return micros<<10 | uint64(r.below(32))
}

// create fills in the record that event i creates, if it creates one of an indexed
// collection. shallow leaves out its subject and key.
func (n *Network) create(i int64, e *Event, shallow bool) bool {
	r := n.rng(forOp, uint64(i))
	share := r.below(1000)
	kind, isMinor := minorKind(share)
	if share >= belowBlocks && share < belowUpdates && !isMinor {
		return false
	}
	account := n.active(&r, i)
	if share%200 == 7 { // bots
		account = r.below(64) * (n.o.Accounts / 64)
	}
	switch {
	case isMinor:
		e.Kind = kind
	case share < belowLikes:
		e.Kind = Like
	case share < belowReposts:
		e.Kind = Repost
	case share < belowFollows:
		e.Kind = Follow
		if share%packs == 0 {
			e.More = uint8(1 + r.below(maxPack-1))
		}
	case share < belowBlocks:
		e.Kind = Block
	default:
		// An edge that the same account created a while ago, under another key.
		if !n.earlier(i-int64(r.below(recentOps)), e, shallow) {
			return false
		}
		e.More = 0
		account = int(e.Account)
	}
	e.Account = int32(account)
	if shallow {
		return true
	}
	if share < belowBlocks || isMinor {
		n.subject(&r, i, e)
	}
	e.TID = n.tid(account, n.micros(i)+uint64(r.below(1500)))
	return true
}

// subject draws the subject of an event.
func (n *Network) subject(r *rng, i int64, e *Event) {
	if e.Kind.Info().To.Is() == dict.URI {
		author, tid := n.post(r, i)
		e.Subject, e.SubjectTID = int32(author), tid
		return
	}
	e.Subject, e.SubjectTID = int32(n.others(int(e.Account), n.followed(r))), 0
}

// earlier fills in the last record that was created before event i.
func (n *Network) earlier(i int64, e *Event, shallow bool) bool {
	for i--; i > 0; i-- {
		if n.create(i, e, shallow) {
			return true
		}
	}
	return false
}

// at generates event i, except for the parts that depend on earlier events.
func (n *Network) at(i int64, e *Event, shallow bool) {
	*e = Event{Seq: i}
	if n.create(i, e, shallow) {
		return
	}
	r := n.rng(forRest, uint64(i))
	first := n.rng(forOp, uint64(i))
	share := first.below(1000)
	e.Account = int32(n.active(&r, i))
	switch {
	case share < belowDeletes, share >= belowSync && share < belowUpdates:
		from := i - int64(r.below(recentOps))
		old := r.below(10) >= 6
		if old && n.o.History == 0 {
			from = i - int64(r.next()%uint64(i))
		}
		if n.o.History > 0 {
			from = i - int64(r.below(int(min(i, recentOps))))
		}
		follow := n.o.History > 0 && r.below(1000) < unfollows
		switch {
		case share >= belowDeletes: // an update
		case n.o.History > 0 && old && n.fromHistory(&r, i, e, follow):
			e.Action = Delete
			return
		case n.o.History > 0: // of the wanted kind
			const tries = 16
			for range tries {
				if n.earlier(from, e, true) && (e.Kind == Follow) == follow {
					break
				}
				from--
			}
		}
		if !n.earlier(from, e, shallow) { // no record exists yet
			e.Kind, e.TID = Like, n.tid(0, n.micros(i))
		}
		if e.More = 0; share < belowDeletes {
			e.Action = Delete
		} else if e.Action = Update; !shallow {
			n.subject(&r, i, e)
		}
	case share < belowOthers:
		if e.Kind = Post; share >= belowPosts {
			e.Kind = Other
		}
		e.TID = n.tid(int(e.Account), n.micros(i)+uint64(r.below(1500)))
		if r.below(10) == 0 {
			e.Action = Delete
		}
		if e.Kind == Post && r.below(100) < 58 { // it answers or quotes another
			author, tid := n.post(&r, i)
			e.Subject, e.SubjectTID = int32(author), tid
		}
	case share < belowIdentity:
		e.Type = Identity
	case share < belowAccount:
		e.Type = Account
		n.status(&r, i, e)
	case share < belowSync:
		e.Type = Sync
	default: // no record exists to create again
		e.Kind = Other
		e.TID = n.tid(int(e.Account), n.micros(i))
	}
}

// status draws a change of an account: about half of the changes make one inactive; the
// others bring one back, or repeat its status.
func (n *Network) status(r *rng, i int64, e *Event) {
	e.Account = int32(r.below(n.o.Accounts))
	switch draw := r.below(100); {
	case draw < 25:
		e.Status = Deactivated
	case draw < 36:
		e.Status = TakenDown
	case draw < 41:
		e.Status = Suspended
	case draw < 43:
		e.Status = Away
	case draw < 45:
		e.Status = Deleted
	case draw < 90:
		const farthest = 20_000
		from := i - int64(r.below(recentOps))
		for j := from; j > max(0, from-farthest); j-- {
			f := n.rng(forOp, uint64(j))
			if s := f.below(1000); s < belowIdentity || s >= belowAccount || j == i {
				continue
			}
			before := n.rng(forRest, uint64(j))
			n.active(&before, j)
			e.Account = int32(before.below(n.o.Accounts))
			return
		}
	}
}

// Next generates the next event.
func (n *Network) Next(e *Event) { n.step(e, false) }

// Skip advances until event seq is the last one, without generating the events on the
// way: faster than Next.
func (n *Network) Skip(seq int64) {
	var e Event
	for n.next < seq {
		n.step(&e, true)
	}
}

func (n *Network) step(e *Event, shallow bool) {
	n.next++
	n.at(n.next, e, shallow)
	switch {
	case e.Type == Commit:
		n.stamp(e)
	case e.Type == Account && e.Status == Deleted:
		n.last[e.Account] = deleted
	case e.Type == Sync:
		if e.Rev = n.last[e.Account]; e.Rev <= deleted {
			e.Type = Identity
		}
	}
}

// Seq returns the sequence number of the last event.
func (n *Network) Seq() int64 { return n.next }

// Plant inserts an event: account follows subject.
func (n *Network) Plant(e *Event, account, subject int) {
	n.next++
	*e = Event{Seq: n.next, Account: int32(account), Kind: Follow, Subject: int32(subject)}
	e.TID = n.tid(account, n.micros(n.next))
	n.stamp(e)
}

func (n *Network) stamp(e *Event) {
	switch e.Since = n.last[e.Account]; {
	case e.Since == deleted:
		e.Since = 0
	case e.Since == 0 && n.hasHistory(int(e.Account)):
		e.Since = n.RevOf(int(e.Account))
	}
	e.Rev = n.tid(int(e.Account), n.micros(e.Seq)+2000)
	e.Rev = max(e.Rev, e.Since+1)
	n.last[e.Account] = e.Rev
}

// Root returns the root of an account's repo at a rev.
func (n *Network) Root(account int, rev uint64) (root [32]byte) {
	h := Mix(n.o.Seed^Mix(rev)) ^ uint64(account)
	for i := 0; i < len(root); i += 8 {
		h = Mix(h)
		binary.LittleEndian.PutUint64(root[i:], h)
	}
	return root
}

// AppendDID appends the DID of an account.
func (n *Network) AppendDID(dst []byte, account int) []byte {
	r := n.rng(forDID, uint64(account))
	if account%256 == 77 && !n.o.OnlyPLC {
		dst = append(dst, "did:web:u"...)
		for v := account; v > 0; v /= 10 {
			dst = append(dst, '0'+byte(v%10))
		}
		return append(dst, ".example.com"...)
	}
	dst = append(dst, "did:plc:"...)
	for range 2 {
		for w, i := r.next(), 0; i < 12; i++ {
			dst = append(dst, "abcdefghijklmnopqrstuvwxyz234567"[w&31])
			w >>= 5
		}
	}
	return dst
}

// AppendSubject appends the subject of an operation: a DID, or a post's URI.
func (n *Network) AppendSubject(dst []byte, o *Op) []byte {
	if o.SubjectTID == 0 {
		return n.AppendDID(dst, int(o.Subject))
	}
	dst = n.AppendDID(append(dst, "at://"...), int(o.Subject))
	return dict.AppendTID(append(dst, "/app.bsky.feed.post/"...), o.SubjectTID)
}
