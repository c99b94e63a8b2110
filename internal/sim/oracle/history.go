package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// History generates a random stream: creates, deletes, duplicates, updates, paths that
// occur twice in a commit, malformed records, account changes, deletions of accounts,
// syncs, lost and damaged commits. It has few accounts, subjects and record keys, so that
// events often affect each other.
type History struct {
	rng      *rand.Rand
	seq      int64
	clock    uint64
	step     uint64 // upper bound of a step of the clock
	accounts []string
	posts    []string
	repos    map[string]*repo
	live     map[string][]Op // by DID: the live records, which a delete may remove
}

type repo struct {
	rev  string
	data [32]byte
}

// NewHistory returns a history with that many accounts. The same seed generates the same history.
func NewHistory(seed uint64, accounts int) *History { return newHistory(seed, accounts, 1000) }

// NewSpreadHistory is NewHistory over centuries: neighboring records are in different chunks as often as
// in one. Half of the posts are younger than most records that name them.
func NewSpreadHistory(seed uint64, accounts int) *History {
	h := newHistory(seed, accounts, 1<<47)
	for i := range h.posts {
		if at := strings.LastIndexByte(h.posts[i], '/'); i%2 == 0 && len(h.posts[i]) == at+1+13 {
			h.posts[i] = h.posts[i][:at+1] + TID(1<<50+h.rng.Uint64N(1<<59))
		}
	}
	return h
}

func newHistory(seed uint64, accounts int, step uint64) *History {
	h := &History{
		rng:   rand.New(rand.NewPCG(seed, 77)),
		repos: map[string]*repo{}, live: map[string][]Op{},
		clock: 1 << 50, step: step,
	}
	for i := range accounts {
		h.accounts = append(h.accounts, h.did(i))
	}
	for range accounts {
		h.posts = append(h.posts, h.post())
	}
	return h
}

// did generates mostly did:plc, and some other methods.
func (h *History) did(i int) string {
	if i%20 == 19 { // long DIDs are stored separately
		return fmt.Sprintf("did:web:host%d.%s.example.com", i, strings.Repeat("long-", 44))
	}
	if i%10 == 9 {
		return fmt.Sprintf("did:web:host%d.example.com", i)
	}
	b := make([]byte, 24)
	for j := range b {
		b[j] = "abcdefghijklmnopqrstuvwxyz234567"[h.rng.IntN(32)]
	}
	return "did:plc:" + string(b)
}

func (h *History) post() string {
	switch h.rng.IntN(20) {
	case 0:
		return "at://handle.example.com/app.bsky.feed.post/" + h.tid()
	case 1:
		return "at://" + h.accounts[h.rng.IntN(len(h.accounts))]
	}
	did, tid := h.accounts[h.rng.IntN(len(h.accounts))], h.tid()
	if h.clock%3 > 0 { // of a whole millisecond, as the reference implementation makes them, within five minutes of 2026
		tid = TID((1_767_225_600_000+h.clock%300_000)*1000<<10 | h.clock&31)
	}
	return "at://" + did + "/app.bsky.feed.post/" + tid
}

func (h *History) tid() string {
	h.clock += 1 + h.rng.Uint64N(h.step)
	return TID(h.clock)
}

// TID returns the TID of a 63-bit number.
func TID(n uint64) string {
	var b [13]byte
	for i := range b {
		b[len(b)-1-i] = "234567abcdefghijklmnopqrstuvwxyz"[n&31]
		n >>= 5
	}
	return string(b[:])
}

func (h *History) digest() (d [32]byte) {
	for i := 0; i < len(d); i += 8 {
		n := h.rng.Uint64()
		for j := range 8 {
			d[i+j] = byte(n >> (8 * j))
		}
	}
	return d
}

// Accounts returns the DIDs.
func (h *History) Accounts() []string { return h.accounts }

// Next returns the next event.
func (h *History) Next() *Event {
	h.seq += 1 + h.rng.Int64N(3)
	did := h.accounts[int(float64(len(h.accounts))*h.rng.Float64()*h.rng.Float64())]
	e := &Event{Seq: h.seq, DID: did}
	switch n := h.rng.IntN(1000); {
	case n < 15:
		e.Type, e.Active = AccountEvent, h.rng.IntN(3) > 0
		e.Deleted = h.rng.IntN(8) == 0
		if e.Deleted && !e.Active {
			delete(h.repos, did)
			delete(h.live, did)
		}
	case n < 25:
		e.Type = SyncEvent
		if r := h.repos[did]; r != nil && h.rng.IntN(10) > 0 {
			if h.rng.IntN(3) == 0 { // an import without changes
				r.rev = h.tid()
			}
			e.Rev, e.Data = r.rev, r.data
		} else {
			e.Rev, e.Data = h.tid(), h.digest()
		}
	case n < 35:
		e.Type = IdentityEvent
	default:
		h.commit(e)
	}
	return e
}

func (h *History) commit(e *Event) {
	r := h.repos[e.DID]
	if r == nil {
		r = &repo{}
		h.repos[e.DID] = r
		if h.rng.IntN(3) == 0 { // its history was never seen
			r.rev, r.data = h.tid(), h.digest()
		}
	}
	e.Type, e.Since, e.Rev, e.Data = CommitEvent, r.rev, h.tid(), h.digest()
	if r.rev != "" && h.rng.IntN(20) > 0 {
		prev := r.data
		e.PrevData = &prev
	}
	ops := 1
	if h.rng.IntN(10) == 0 {
		ops = h.rng.IntN(12)
	}
	for range ops {
		e.Ops = append(e.Ops, h.op(e.DID))
	}
	switch h.rng.IntN(400) {
	case 0:
		e.Damaged = true
	case 1:
		e.TooBig = true
	}
	r.rev, r.data = e.Rev, e.Data
}

func (h *History) op(did string) Op {
	live := h.live[did]
	n := h.rng.IntN(100)
	switch {
	case n < 30 && len(live) > 0: // delete or update a live record
		i := h.rng.IntN(len(live))
		o := live[i]
		if n < 22 {
			h.live[did] = append(live[:i], live[i+1:]...)
			return Op{Kind: o.Kind, Delete: true, Rkey: o.Rkey}
		}
		if n > 24 { // otherwise: an update to the same subject
			h.names(&o, did)
		}
		live[i] = o
		return o
	case n < 33: // a path that may or may not exist
		o := Op{Kind: h.kind(), Delete: h.rng.IntN(2) == 0, Rkey: fmt.Sprint("key", h.rng.IntN(4))}
		if !o.Delete {
			h.names(&o, did)
		}
		return o
	case n < 38 && len(live) > 0: // a second record with the same subject
		o := live[h.rng.IntN(len(live))]
		o.Rkey = h.tid()
		h.live[did] = append(live, o)
		return o
	}
	o := Op{Kind: h.kind(), Rkey: h.tid()}
	h.names(&o, did)
	h.live[did] = append(live, o)
	return o
}

func (h *History) kind() string {
	of := kinds.BuiltIn.Collections()
	if n := h.rng.IntN(len(of) + 1); n < len(of) {
		return of[n].Kinds[0].Name
	}
	return "like" // twice as often
}

// names draws the subjects of an account's record.
func (h *History) names(o *Op, did string) {
	if o.Subject = h.subject(o.Kind); o.Kind == ListItem {
		o.List = h.list(did)
	}
}

// Lists is the number of lists of each account; their keys are list0 and so on.
const Lists = 3

// ListOf returns the URI of the n-th list.
func ListOf(did string, n int) string {
	return fmt.Sprintf("at://%s/app.bsky.graph.list/list%d", did, n)
}

// list draws the list of an account's listitem: mostly one of its own.
func (h *History) list(did string) string {
	switch h.rng.IntN(12) {
	case 0:
		return "" // malformed
	case 1:
		return "at://handle.example.com/app.bsky.graph.list/list0"
	case 2:
		did = h.accounts[h.rng.IntN(len(h.accounts))]
	}
	return ListOf(did, h.rng.IntN(Lists))
}

func (h *History) subject(kind string) string {
	switch {
	case h.rng.IntN(50) == 0:
		return "" // malformed
	case kinds.ByName(kind).To.Is() == dict.DID:
		return h.accounts[h.rng.IntN(len(h.accounts))]
	}
	return h.posts[h.rng.IntN(len(h.posts))]
}
