package network

import (
	"math"
	"slices"
)

// With Options.History, a network has a history: the records that its accounts made in the three years before
// the stream. It is computed from the seed when it is asked for, record by record, and stores nothing. Its
// shape, and that of the stream that follows, is meant to be that of the real network in the middle of 2026:
//
//   - A twentieth of the accounts were there three years ago, three tenths came within the next year, two
//     fifths within the four months after it, the rest since (41 million accounts in all).
//   - How much an account does follows a power law that is cut off: of 4,096 accounts the liveliest has a
//     seventh of the records, the liveliest 400 have nine tenths, half have next to none. The liveliest
//     hundred are active to this day. The others are for a few months, most of all at first.
//   - One account in 200 is spam: it follows arbitrary accounts, some thousand, all within a day.
//   - On a day, 2.4 % of the accounts are awake (a million of 41): some every day, others by turns.
//   - A third of an account's follows are of celebrities. No account follows a celebrity twice.
//   - For seven follows that the stream creates, it deletes one (13.5 thousand of 97 thousand an hour). Of
//     all deletes, two fifths are of records of the history.
//
// Of the real network, the numbers in parentheses are known; the laws are chosen so that they fit.
const (
	historyMicros  = 3 * 365 * dayMicros
	dayMicros      = 24 * 60 * 60 * 1_000_000
	recordsAnEvent = 0.77   // of the shares in network.go, those that create an indexed record
	historyFollows = 0.19   // of an account's records
	historyReposts = 0.10   // likewise
	historyBlocks  = 0.03   // likewise; the rest are likes
	mostFollows    = 10_000 // of an account
	stayers        = 100    // ranks of a block that are active to the end
	slots          = 100    // accounts of a block that are awake on a day,
	daily          = 40     // and how many of them every day
	spamEvery      = 200    // one account in that many is spam
	cut            = 1000   // rank at which the power law is cut off
	unfollows      = 310    // of 1,000 deletes
)

// law has what an account of each rank does, as a share of what its block does.
var law = func() (share [block]float64) {
	sum := 0.0
	for rank := range share {
		share[rank] = math.Exp(-float64(rank)/cut) / float64(rank+1)
		sum += share[rank]
	}
	for rank := range share {
		share[rank] /= sum
	}
	return share
}()

// In a block, the account with a rank is rank × stride modulo the block. unstride is the inverse.
const stride = 2731

var unstride = func() int {
	for x := 1; ; x += 2 {
		if x*stride%block == 1 {
			return x
		}
	}
}()

func rankOf(account int) int { return account % block * unstride % block }

// awake draws an account that is awake at event i.
func (n *Network) awake(r *rng, i int64) int {
	in := r.below(n.o.Accounts / block)
	slot := int(math.Exp(r.float()*math.Log(slots+1))) - 1
	rank := slot
	if slot >= daily {
		day := (int64(n.micros(i)) - startMicros + historyMicros) / dayMicros
		turn := n.rng(forAwake, uint64(day)<<40|uint64(in)<<8|uint64(slot))
		u := turn.float()
		rank = daily + int(u*u*u*u*(block-daily))
	}
	return in*block + rank*stride%block
}

// A Repo is the history of an account: its records, in the order of their times.
type Repo struct {
	Count int // of records

	account                  int
	spam, stays              bool
	from, span               float64 // in microseconds: when the account made its first record, and how long it was active
	follows, reposts, blocks int
	celebrities              int // of the follows
	turn                     uint64
}

// Repo returns the history of an account.
func (n *Network) Repo(account int) Repo {
	if n.o.History == 0 || account >= n.o.Accounts {
		return Repo{account: account}
	}
	r := n.rng(forHistory, uint64(account))
	rank := rankOf(account)
	h := Repo{account: account, stays: rank < stayers, turn: r.next() >> 1}
	h.spam = h.turn%spamEvery == 7
	h.Count = int(law[rank]*block*float64(n.o.History)*(0.5+r.float()) + r.float())
	since := came(r.float()) * historyMicros
	const margin = 10_000_000 // before the stream begins
	left := historyMicros - margin - since
	switch {
	case h.spam:
		h.Count = n.o.History * (1 + r.below(9))
		left = min(left, dayMicros)
		h.stays = true
	case !h.stays:
		left = min(left, dayMicros+90*dayMicros*-math.Log(1-r.float()))
	}
	h.from, h.span = startMicros-historyMicros+since, left
	h.follows = min(int(float64(h.Count)*historyFollows), mostFollows)
	h.reposts, h.blocks = int(float64(h.Count)*historyReposts), int(float64(h.Count)*historyBlocks)
	if h.spam {
		h.follows, h.reposts, h.blocks = h.Count, 0, 0
	} else {
		h.celebrities = h.follows / 3
	}
	return h
}

// came returns when an account came, as a share of the three years. u is the share of all accounts that came before it.
func came(u float64) float64 {
	steps := [][2]float64{{0, 0}, {0.05, 0}, {0.35, 0.33}, {0.75, 0.45}, {1, 0.999}}
	for i := 1; ; i++ {
		if from, to := steps[i-1], steps[i]; u <= to[0] {
			return from[1] + (to[1]-from[1])*(u-from[0])/(to[0]-from[0])
		}
	}
}

// Record returns the k-th record of a history.
func (n *Network) Record(h *Repo, k int) (o Op) {
	r := n.rng(forRecord, uint64(h.account)<<24|uint64(k))
	// A record's role is independent of its time: multiplying by a prime above all counts permutes the records.
	const prime = 2_654_435_761
	role := int((uint64(k)*prime + h.turn) % uint64(h.Count))
	at := (float64(k) + 0.99*r.float()) / float64(h.Count)
	if !h.stays {
		at *= at
	}
	micros := uint64(h.from + at*h.span)
	o.TID = n.tid(h.account, micros)
	switch {
	case role < h.follows:
		o.Kind, o.Subject = Follow, int32(n.followee(h, &r, role))
		return o
	case role < h.follows+h.reposts:
		o.Kind = Repost
	case role < h.follows+h.reposts+h.blocks:
		o.Kind, o.Subject = Block, int32(n.others(h.account, n.followed(&r)))
		return o
	default:
		o.Kind = Like
	}
	author, tid := n.post(&r, int64((float64(micros)-startMicros)/n.gap))
	o.Subject, o.SubjectTID = int32(author), tid
	return o
}

// followee returns whom an account follows with its i-th follow.
func (n *Network) followee(h *Repo, r *rng, i int) int {
	known := min(maxCelebrities, n.o.Accounts)
	// The first celebrity, the next two, the next four and so on get equal shares of the follows, but nobody is followed twice.
	left, each := i, h.celebrities/13+1
	for first := 1; first <= known && left < h.celebrities; first *= 2 {
		if m := min(first, each); left >= m {
			left -= m
			continue
		}
		if at := first - 1 + int((uint64(left)*stride+h.turn)%uint64(first)); at < known {
			return n.others(h.account, at*(n.o.Accounts/known))
		}
		break
	}
	if h.spam {
		return n.others(h.account, r.below(n.o.Accounts))
	}
	return n.others(h.account, n.popular(r))
}

// others returns subject, or the account after it if an account would name itself.
func (n *Network) others(account, subject int) int {
	if subject == account {
		return (subject + 1) % n.o.Accounts
	}
	return subject
}

// RevOf returns the rev of an account's repo at the end of its history.
func (n *Network) RevOf(account int) uint64 { return n.tid(account, startMicros-1_000_000) }

// AppendRepo appends the records of an account's history as its repo has them: by collection, then by key.
func (n *Network) AppendRepo(to []Op, h *Repo, compare func(x, y Op) int) []Op {
	start := len(to)
	for k := range h.Count {
		to = append(to, n.Record(h, k))
	}
	slices.SortFunc(to[start:], compare)
	return to
}

// Records returns how many records the history has. It goes through all accounts, which takes a second for ten
// million.
func (n *Network) Records() (records int64) {
	for account := range n.Accounts() {
		h := n.Repo(account)
		records += int64(h.Count)
	}
	return records
}

// hasHistory reports whether an account has records from before the stream.
func (n *Network) hasHistory(account int) bool {
	if n.o.History == 0 {
		return false
	}
	h := n.Repo(account)
	return h.Count > 0
}

// fromHistory makes e the delete of a random record of the history: of a follow if follow is set, else of
// another kind. It reports whether it found one in eight tries.
func (n *Network) fromHistory(r *rng, i int64, e *Event, follow bool) bool {
	for range 8 {
		account := n.active(r, i)
		h := n.Repo(account)
		if h.Count == 0 {
			continue
		}
		o := n.Record(&h, r.below(h.Count))
		if (o.Kind == Follow) == follow {
			e.Account, e.Kind, e.TID, e.Subject, e.SubjectTID = int32(account), o.Kind, o.TID, o.Subject, o.SubjectTID
			return true
		}
	}
	return false
}
